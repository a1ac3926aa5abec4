import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Nullable, ok, Timestamp, toTimestamp } from '../../core/http/schemas.js';
import { streamJson } from '../../core/http/streams.js';
import { Parameters } from '../../shared/console-kit/console.js';
import { type DetailAnswer, type DetailRow, registerDetail } from '../../shared/console-kit/details.js';
import { registerForms } from '../../shared/console-kit/forms.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { sentenceCase } from '../../shared/console-kit/marks.js';
import type { Column } from '../../shared/console-kit/tables.js';
import type { SubscriptionRecord } from '../billing/records.js';
import type { Purchase } from '../billing/schemas.js';
import type { OperatedOrganization } from '../organizations/administration.js';
import { subscriptionLinks } from './billing-actions.js';
import { OperatedUser } from './schemas.js';
import type { AdminServices } from './services.js';
import { linksTo } from './user-links.js';
import { createUserSections, LISTED, purchaseColumns, section } from './user-sections.js';
import { readTimeline } from './user-timeline.js';

const OperatedSession = Type.Object({
  id: Type.String(),
  createdAt: Timestamp,
  refreshedAt: Timestamp,
  expiresAt: Timestamp,
  state: Type.Enum(['active', 'ended', 'expired']),
});

type OperatedSession = Static<typeof OperatedSession>;

const Customer = Type.Object({
  id: Type.String(),
  dashboardUrl: Nullable(Type.String()),
});

const UsedLimit = Type.Object({
  name: Type.String(),
  /** Null for unlimited. */
  limit: Nullable(Type.Integer()),
  used: Type.Integer(),
  credits: Type.Integer(),
  left: Nullable(Type.Integer()),
  resetsAt: Nullable(Timestamp),
});

const UserDetails = Type.Object({
  ...OperatedUser.properties,
  /** At the payment provider; the one for the next purchase first. */
  customers: Type.Array(Customer),
  /** What the user has used of the limits of the plans. */
  limits: Type.Array(UsedLimit),
  secondFactorSince: Nullable(Timestamp),
  passkeys: Type.Integer(),
  privateMetadata: Type.Optional(
    Type.Unsafe<object>({
      type: 'object',
      additionalProperties: true,
      description: 'What the application stores about the user, without the user reading it.',
    }),
  ),
});
type UserDetails = Static<typeof UserDetails>;

/** The page of a user, and what the operator can change there. */
export async function userPagePlugin(fastify: FastifyTypebox, services: AdminServices): Promise<void> {
  const { console, users, auth, billing, secondFactors, passkeys, nameOf } = services;
  const { directory } = users;
  const { records, purchases } = billing;
  const { administration: accounts } = auth.service;

  const read = async (id: string): Promise<UserDetails> => {
    const user = await directory.findOperated(id);
    const [customers, limits, factor, keys = []] = await Promise.all([
      records.customers(id),
      billing.quotas.list(id),
      secondFactors?.service.stateOf(id),
      passkeys?.service.list(id),
    ]);
    const secondFactorSince = factor ? toTimestamp(factor.since) : null;
    return { ...user, customers, limits, secondFactorSince, passkeys: keys.length };
  };

  const sessions = section({
    title: 'Sessions',
    columns: [...sessionColumns, endColumn],
    async read(userId, limit) {
      const { items } = await accounts.listSessions(userId, { after: undefined, limit });
      return items.map((session) => ({ ...session, userId }));
    },
    empty: 'No sessions are stored.',
    path: (id) => `users/${id}/sessions`,
  });
  const sections = [sessions, ...createUserSections(services)];

  registerDetail<UserDetails>(fastify, console, {
    path: 'users/:id',
    section: 'users',
    item: UserDetails,
    find: ({ id = '' }) => read(id),
    async view(user, root, request) {
      const { id } = user;
      const first = { ownerId: id, limit: LISTED, after: undefined };
      const [held, timeline, { previous, next }, ...tables] = await Promise.all([
        records.subscriptions(first),
        readTimeline(services, id),
        directory.neighbours(user),
        ...sections.map((tableOfSection) => tableOfSection(id, root)),
      ]);
      return {
        title: user.name || user.email,
        subtitle: `${user.email} · ${user.emailVerified ? 'confirmed' : 'not confirmed'}`,
        isPerson: true,
        answer: answerOf(user, held.items),
        timeline,
        note: user.note ? { ...user.note, by: (await nameOf(user.note.by)) ?? user.note.by } : false,
        neighbours: {
          label: 'Users in the order of the list',
          previous: previous ?? false,
          next: next ?? false,
        },
        facts: [...factsOf(user, services), ...planFacts(user, user.customers)],
        limits: user.limits.map(limitView),
        actions: [...linksTo(user, services), ...subscriptionLinks(held.items, root)],
        download: {
          label: 'Export all data as JSON',
          action: `${id}/export`,
          token: console.tokensOf(request).issue(),
        },
        tables,
      };
    },
  });

  registerList<OperatedSession>(fastify, console, {
    path: 'users/:id/sessions',
    section: 'users',
    title: 'Sessions',
    links: [{ path: 'users/:id', label: 'Back to the user' }],
    columns: sessionColumns,
    item: OperatedSession,
    read: ({ parameters: { id = '' }, after, limit }) => accounts.listSessions(id, { after, limit }),
    empty: 'No sessions are stored.',
  });

  registerList<Purchase>(fastify, console, {
    path: 'users/:id/purchases',
    section: 'users',
    title: 'One-time purchases',
    links: [{ path: 'users/:id', label: 'Back to the user' }],
    columns: purchaseColumns,
    item: records.schemas.purchase,
    async read({ parameters: { id = '' }, after, limit }) {
      await directory.findOperated(id);
      return purchases.page(id, after, limit);
    },
    empty: 'The user has made no one-time purchase.',
  });

  // A POST, because the audit records it.
  const params = Parameters;
  const sendExport = async (request: FastifyRequest, reply: FastifyReply) => {
    const { id = '' } = request.params as { id?: string };
    const account = await auth.exportAccount(id, console.operatorOf(request));
    reply.header('content-disposition', `attachment; filename="${id}.json"`);
    return streamJson(request, reply, ok(account));
  };
  const body = Type.Object({ token: Type.String({ accepts: 'a form token', maxLength: 100 }) });
  await registerForms(fastify, console.tokensOf, (forms) => {
    forms.post('/users/:id/export', { config: console.config, schema: { params, body } }, sendExport);
  });
  fastify.post(
    `${console.api}/users/:id/export`,
    { config: access(console.access), schema: { params } },
    sendExport,
  );
}

const sessionColumns: readonly Column<OperatedSession>[] = [
  { label: 'State', text: ({ state }) => state, kind: 'status' },
  { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
  { label: 'Last refreshed', text: ({ refreshedAt }) => refreshedAt, kind: 'time' },
  { label: 'Expires', text: ({ expiresAt }) => expiresAt, kind: 'time' },
  { label: 'ID', text: ({ id }) => id, kind: 'code' },
];

const endColumn: Column<OperatedSession & { userId: string }> = {
  label: 'Action',
  text: ({ state }) => (state === 'active' ? 'End' : null),
  href: ({ userId, id, state }) => (state === 'active' ? `users/${userId}/sessions/${id}/end` : null),
};

function answerOf(
  { state, suspendedAt, ...user }: OperatedUser,
  held: readonly SubscriptionRecord[],
): DetailAnswer {
  if (state === 'active') return accessOf(user, held);
  const detail = suspendedAt === null ? '' : `since ${dayOf(suspendedAt)}`;
  return { state, headline: 'The account is closed to its user', detail };
}

/** Whether a user or an organization has access, because of what and until when. */
export function accessOf(
  {
    subscription: { status, plan, entitled },
    granted,
  }: Pick<OperatedOrganization, 'subscription' | 'granted'>,
  held: readonly SubscriptionRecord[],
): DetailAnswer {
  const headline = entitled ? sentenceCase(plan) : 'No access to what needs a subscription';
  const shown = entitled && status !== 'past_due' ? 'has_access' : status;
  if (status === 'granted') {
    const until = granted?.until ? `until ${dayOf(granted.until)}` : 'without an end';
    return { state: shown, headline, detail: `granted by an operator, ${until}` };
  }
  const record = held.find((one) => one.status === status);
  if (!record) return { state: shown, headline, detail: 'no subscription' };
  const { id, currentPeriodEnd, cancelAtPeriodEnd, endedAt } = record;
  if (endedAt !== null) return { state: shown, headline, detail: `ended ${dayOf(endedAt)}, ${id}` };
  const end = currentPeriodEnd === null ? '' : ` until ${dayOf(currentPeriodEnd)}`;
  const renews = cancelAtPeriodEnd ? ', then it ends' : '';
  return { state: shown, headline, detail: `${PERIODS[status] ?? status}${end} through ${id}${renews}` };
}

/** What a period means in a status. */
const PERIODS: Record<string, string> = {
  active: 'paid',
  trialing: 'trial',
  past_due: 'payment failed, period',
  unpaid: 'unpaid after every attempt, period',
  paused: 'paused, period',
  incomplete: 'first payment not complete, period',
};

const dayOf = (timestamp: string) => LONG_DAY.format(Date.parse(timestamp));
const LONG_DAY = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' });

/** The plan of a user or an organization, with what is used of it. */
export const planFacts = (
  { subscription, granted }: Pick<OperatedOrganization, 'subscription' | 'granted'>,
  customers: UserDetails['customers'],
): DetailRow[] => [
  {
    label: 'Subscription',
    state: subscription.status,
    text: subscription.status === 'none' ? '' : sentenceCase(subscription.plan),
  },
  { label: 'Granted plan', text: writeGrant(granted) },
  ...customers.map(({ id, dashboardUrl: href }) => ({ label: 'Customer', text: id, isCode: true, href })),
];

export const limitView = ({ name, limit, used, credits }: Static<typeof UsedLimit>) => ({
  label: name,
  text: `${used} of ${limit ?? 'any number'}${credits > 0 ? ` and ${credits} credits` : ''}`,
  used,
  most: limit,
});

const writeGrant = (granted: OperatedUser['granted']): string | null => {
  if (granted === null) return null;
  const plan = sentenceCase(granted.plan);
  return granted.until ? `${plan} until ${dayOf(granted.until)}` : plan;
};

function factsOf(
  user: UserDetails,
  { secondFactors, passkeys, users: { userFields } }: AdminServices,
): DetailRow[] {
  const { id, roles, hasPassword, createdAt } = user;
  const { secondFactorSince, publicMetadata, privateMetadata } = user;
  return [
    { label: 'ID', text: id, isCode: true },
    { label: 'Signed up', time: createdAt },
    { label: 'Role in the admin area', text: user.operatorRole ?? null },
    { label: 'Roles', text: roles ? roles.join(', ') || 'none' : null },
    ...(userFields?.inputs ?? []).map(({ name, label }) => {
      const value = (user.fields as Record<string, unknown> | undefined)?.[name];
      return { label, text: value === undefined ? null : String(value) };
    }),
    { label: 'Password', text: hasPassword ? 'set' : 'not set' },
    secondFactorSince === null
      ? { label: 'Second factor', text: secondFactors ? 'not set' : null }
      : { label: 'Second factor', time: secondFactorSince },
    { label: 'Passkeys', text: passkeys ? String(user.passkeys) : null },
    { label: 'Metadata', text: publicMetadata ? JSON.stringify(publicMetadata) : null },
    { label: 'Private metadata', text: privateMetadata ? JSON.stringify(privateMetadata) : null },
  ];
}
