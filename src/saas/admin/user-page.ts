import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Nullable, ok, Timestamp, toTimestamp } from '../../core/http/schemas.js';
import { streamJson } from '../../core/http/streams.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Console, Parameters } from '../../shared/console-kit/console.js';
import { type DetailRow, registerDetail } from '../../shared/console-kit/details.js';
import { registerForms } from '../../shared/console-kit/forms.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { type Column, tableOf, toMinute } from '../../shared/console-kit/tables.js';
import type { SubscriptionRecord } from '../billing/records.js';
import type { Purchase } from '../billing/schemas.js';
import type { OperatedOrganization } from '../organizations/administration.js';
import { subscriptionLinks } from './billing-actions.js';
import { type UserAdministration, userActionsPlugin } from './user-actions.js';
import { linksTo } from './user-links.js';
import {
  createUserSections,
  purchaseColumns,
  type UserSection,
  type UserSectionSources,
} from './user-sections.js';
import { readTimeline } from './user-timeline.js';
import { createNameOfUser, OperatedUser } from './users.js';

export interface UserPageOptions {
  console: Console;
  users: UserAdministration;
  sources: UserSectionSources;
  clock: Clock;
}

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

/** Rows of each list on the page, which stays small for a user with many sessions. */
export const LISTED = 10;

/** The page of a user, and what the operator can change there. */
export async function userPagePlugin(
  fastify: FastifyTypebox,
  { console, users, sources, clock }: UserPageOptions,
): Promise<void> {
  const { directory, accounts, secondFactors } = users;
  const params = Parameters;
  const nameOf = createNameOfUser(directory);
  const sections = createUserSections(sources, nameOf);
  const idOf = (request: FastifyRequest) => (request.params as { id: string }).id;

  const read = async (id: string): Promise<UserDetails> => {
    const user = await directory.findOperated(id);
    const [customers, limits, factor, passkeys = []] = await Promise.all([
      users.listCustomers(id),
      users.listLimits(id),
      secondFactors?.stateOf(id),
      users.passkeys?.list(id),
    ]);
    const secondFactorSince = factor ? toTimestamp(factor.since) : null;
    return { ...user, customers, limits, secondFactorSince, passkeys: passkeys.length };
  };

  const sessions = (userId: string): UserSection<OperatedSession> => ({
    title: 'Sessions',
    columns: [
      ...sessionColumns,
      {
        label: 'Action',
        text: ({ state }) => (state === 'active' ? 'End' : null),
        href: ({ id, state }) => (state === 'active' ? `users/${userId}/sessions/${id}/end` : null),
      },
    ],
    read: async (id, limit) => (await accounts.listSessions(id, { after: undefined, limit })).items,
    empty: 'No sessions are stored.',
    path: (id) => `users/${id}/sessions`,
  });

  registerDetail<UserDetails>(fastify, console, {
    path: 'users/:id',
    section: 'users',
    item: UserDetails,
    find: ({ id = '' }) => read(id),
    async view(user, root, request) {
      const { id } = user;
      const shown = [sessions(id) as UserSection<never>, ...sections];
      const first = { ownerId: id, limit: LISTED, after: undefined };
      const [held, timeline, { previous, next }, ...tables] = await Promise.all([
        sources.billing.subscriptions(first),
        readTimeline(sources, id, nameOf),
        directory.neighbours(user),
        ...shown.map((one) => sectionView(one, id, root)),
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
        facts: [...factsOf(user, users), ...planFacts(user, user)],
        actions: [...linksTo(user, users), ...subscriptionLinks(held.items, root)],
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

  const { purchases } = sources;
  registerList<Purchase>(fastify, console, {
    path: 'users/:id/purchases',
    section: 'users',
    title: 'One-time purchases',
    links: [{ path: 'users/:id', label: 'Back to the user' }],
    columns: purchaseColumns,
    item: purchases.schema,
    async read({ parameters: { id = '' }, after, limit }) {
      await directory.findOperated(id);
      return purchases.page(id, after, limit);
    },
    empty: 'The user has made no one-time purchase.',
  });

  // A POST, because the audit records it.
  const sendExport = async (request: FastifyRequest, reply: FastifyReply) => {
    const id = idOf(request);
    const account = await users.export(id, console.operatorOf(request));
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

  await fastify.register(userActionsPlugin, { console, users, clock });
}

const sessionColumns: readonly Column<OperatedSession>[] = [
  { label: 'State', text: ({ state }) => state, kind: 'status' },
  { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
  { label: 'Last refreshed', text: ({ refreshedAt }) => refreshedAt, kind: 'time' },
  { label: 'Expires', text: ({ expiresAt }) => expiresAt, kind: 'time' },
  { label: 'ID', text: ({ id }) => id, kind: 'code' },
];

/** Whether a user has access, because of what and until when. */
function answerOf(
  { state, suspendedAt, subscription: { status, plan, entitled }, granted }: OperatedUser,
  held: readonly SubscriptionRecord[],
) {
  if (state !== 'active') {
    const detail = suspendedAt === null ? '' : `since ${dayOf(suspendedAt)}`;
    return { state, headline: 'The account is closed to its user', detail };
  }
  const headline = entitled ? plan : 'No access to what needs a subscription';
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

/** The table of a section, with its first rows. */
export async function sectionView(section: UserSection<never>, userId: string, root: string) {
  const { title, columns, empty, path } = section;
  const items = await section.read(userId, LISTED);
  return {
    heading: title,
    empty,
    moreHref: !path || items.length < LISTED ? undefined : root + path(userId),
    ...tableOf(columns, items, root),
  };
}

/** The plan of a user or an organization, with what is used of it. */
export const planFacts = (
  { subscription, granted }: Pick<OperatedOrganization, 'subscription' | 'granted'>,
  { limits, customers }: Pick<UserDetails, 'limits' | 'customers'>,
): DetailRow[] => [
  { label: 'Subscription', text: `${subscription.status}, plan ${subscription.plan}` },
  { label: 'Granted plan', text: writeGrant(granted) },
  { label: 'Limits', text: limits.map(writeLimit).join(', ') || null },
  ...customers.map(({ id, dashboardUrl: href }) => ({ label: 'Customer', text: id, isCode: true, href })),
];

const writeLimit = ({ name, limit, used, credits }: Static<typeof UsedLimit>): string =>
  `${name} ${used} of ${limit ?? 'any number'}${credits > 0 ? ` and ${credits} credits` : ''}`;

const writeGrant = (granted: OperatedUser['granted']): string => {
  if (granted === null) return 'none';
  return granted.until ? `${granted.plan} until ${toMinute(granted.until)}` : granted.plan;
};

function factsOf(
  user: UserDetails,
  { secondFactors, passkeys, userFields }: UserAdministration,
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
