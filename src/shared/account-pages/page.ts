import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { type Localized, longTime, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, type RequestSource, requestSource } from '../../core/http/routes.js';
import { matchesSchema, OptionalName } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { PersonGuard, PersonGuardOptions, SignedIn } from './guard.js';
import {
  AccountQuery,
  AgentBody,
  ApplicationBody,
  DelegationBody,
  EmptyBody,
  NameBody,
  type Notice,
  noticeIn,
  ReceiptParams,
  SessionBody,
} from './schemas.js';
import type {
  AccountSources,
  Application,
  Delegation,
  OwnedAgent,
  Session,
  WaitingApproval,
} from './sources.js';

export interface AccountModuleOptions extends PersonGuardOptions {
  sources: AccountSources;
  /** Whether there are more pages than the one for the password. */
  hasAccountPages: boolean;
  signOutHref(): string;
  /** What the page calls the name with which people sign in. Default: the sentence `invite.handle`. */
  handleLabel?: Localized;
  /** Further sections of the page, each with a link to a page of its own. */
  sections?(): readonly Section[];
}

/** What all account pages use. */
export interface AccountOptions extends AccountModuleOptions {
  guard: PersonGuard;
}

export interface Section {
  /** Of the heading in the document. */
  id: string;
  title: Localized;
  text: Localized;
  href: string;
  label: Localized;
}

/** The page on which people see their account, with the forms to change it. */
export async function accountPagePlugin(fastify: FastifyTypebox, options: AccountOptions): Promise<void> {
  const { guard, sources, pages, path } = options;
  const { people, sessions, applications, agents, delegations, approvals, verification, factors, passkeys } =
    sources;
  const config = access('person', { page: true });
  const recently = access('recent-person', { page: true });

  fastify.get('', { config, schema: { querystring: AccountQuery } }, async (request, reply) =>
    pages.send(reply, await accountPage(request, noticeIn(request.query))),
  );

  fastify.post('/name', { config, schema: { body: NameBody } }, async (request, reply) => {
    const { name } = request.body;
    if (!matchesSchema(name, OptionalName)) {
      const failure = { name, problems: [message('account.name-invalid')], wrong: { name: true } } as const;
      return pages.send(reply.code(422), await accountPage(request, failure));
    }
    await people.rename(guard.personOf(request).principal, name, requestSource(request));
    return returnWith(reply, 'renamed');
  });

  /** A form that ends something, which needs a recent sign-in. */
  const addEnding = <Body extends typeof EmptyBody>(
    url: string,
    body: Body,
    done: Notice,
    end: (person: SignedIn, form: Static<Body>, source: RequestSource) => Promise<void>,
  ) =>
    fastify.post(url, { config: recently, schema: { body } }, async (request, reply) => {
      const form = request.body as Static<Body>;
      await end(guard.personOf(request), form, requestSource(request));
      return returnWith(reply, done);
    });

  addEnding('/sessions/end', SessionBody, 'session-ended', ({ principal }, { sid }, source) =>
    sessions.end(principal, sid, source),
  );
  addEnding('/sessions/end-others', EmptyBody, 'sessions-ended', ({ principal, session }, _form, source) =>
    sessions.endOthers(principal, session, source),
  );
  if (applications)
    addEnding('/applications/disconnect', ApplicationBody, 'disconnected', ({ principal }, form, source) =>
      applications.disconnect(principal, form.client_id, source),
    );
  if (delegations)
    addEnding('/delegations/end', DelegationBody, 'delegation-ended', ({ principal }, form, source) =>
      delegations.end(principal, form.delegation, source),
    );

  if (agents)
    addEnding('/agents/stop', AgentBody, 'agent-stopped', ({ principal }, { agent }, source) =>
      agents.stop(principal, agent, source),
    );

  if (sources.receipts) {
    const { of } = sources.receipts;
    fastify.get('/receipts/:txn', { config, schema: { params: ReceiptParams } }, async (request, reply) => {
      const { txn } = request.params;
      const receipt = await of(guard.personOf(request).principal, txn, requestSource(request));
      if (!receipt) throw httpErrors.NOT_FOUND();
      reply.header('content-disposition', `attachment; filename="receipt-${txn}.json"`);
      return reply.type('application/json').send(JSON.stringify(receipt, null, 2));
    });
  }

  if (verification) {
    fastify.post('/verification', { config, schema: { body: EmptyBody } }, async (request, reply) => {
      pages.keepForm(request, await accountPage(request));
      const isSent = await verification.sendAgain(
        guard.personOf(request).principal.id,
        requestSource(request),
      );
      return returnWith(reply, isSent ? 'link-sent' : 'address-confirmed');
    });
  }

  const returnWith = (reply: FastifyReply, done: Notice): FastifyReply =>
    reply.redirect(`${path()}?done=${done}`, 303);

  async function accountPage(
    request: FastifyRequest,
    state: {
      notice?: Localized;
      name?: string;
      problems?: readonly Localized[];
      wrong?: { name?: true };
    } = {},
  ): Promise<Page> {
    const { principal, session } = guard.personOf(request);
    const [
      open,
      connected,
      answered = [],
      delegated = [],
      waiting = [],
      factor,
      factorRequiredFrom,
      owned = [],
    ] = await Promise.all([
      sessions.list(principal, session),
      applications?.list(principal.id),
      agents?.list(principal.id),
      delegations?.list(principal.id),
      approvals?.list(principal.id),
      factors?.stateOf(principal.id),
      factors?.requiredFrom(principal),
      passkeys?.list(principal.id),
    ]);
    const view = {
      path: path(),
      handle: principal.handle,
      handleLabel: options.handleLabel ?? message('invite.handle'),
      name: principal.name ?? '',
      isUnconfirmed: verification?.isDue(principal) ?? false,
      sessions: open.map((one) => viewOfSession(one, session.id)),
      hasOtherSessions: open.some(({ id }) => id !== session.id),
      ...(connected && {
        isProvider: true,
        applications: connected.map(viewOfApplication),
        hasApplications: connected.length > 0,
      }),
      approvals: waiting.map(viewOfApproval),
      hasApprovals: waiting.length > 0,
      agents: answered.map(viewOfAgent),
      hasAgents: answered.length > 0,
      delegations: delegated.map(viewOfDelegation),
      hasDelegations: delegated.length > 0,
      sections: options.sections?.() ?? [],
      ...(factors && { factor: { isEnrolled: factor !== null } }),
      ...(factorRequiredFrom && {
        factorRequired: message('account-factor.required', { when: longTime(factorRequiredFrom) }),
      }),
      ...(passkeys && { hasPasskeyPage: true, passkeyCount: countOf(owned) }),
      signOutHref: options.signOutHref(),
      ...state,
    };
    return { template: 'account', view };
  }
}

const viewOfSession = ({ id, authTime, place, ...of }: Session, current: string) => ({
  sid: id,
  device: of.device ?? deviceOf(of) ?? message('account.unknown-device'),
  place: place ?? '',
  signedIn: message('account.signed-in', { when: longTime(authTime) }),
  isCurrent: id === current,
});

/** The name of a device for its owner; undefined if nothing is known. */
export function deviceOf({
  browser,
  system,
}: Partial<Record<'browser' | 'system', string | undefined>>): Localized | undefined {
  if (browser !== undefined && system !== undefined) return message('account.device', { browser, system });
  const known = browser ?? system;
  return known === undefined ? undefined : () => known;
}

const countOf = ({ length }: readonly unknown[]): Localized | undefined =>
  length === 0 ? undefined : message('account-passkey.count', { count: String(length) });

const viewOfApplication = ({ clientId, name, scopes, resources, since }: Application) => ({
  clientId,
  client: name,
  sees: scopes.map((scope) => message(`scope.${scope}`)),
  resources,
  since: message('account.since', { when: longTime(since) }),
});

const viewOfDelegation = ({ id, expiresAt, lastUsedAt, ...shown }: Delegation) => ({
  ...shown,
  delegation: id,
  until: message('account.until', { when: longTime(expiresAt) }),
  used: usedAt(lastUsedAt),
});

const viewOfApproval = ({ expiresAt, ...approval }: WaitingApproval) => ({
  ...approval,
  until: message('account.until', { when: longTime(expiresAt) }),
});

const viewOfAgent = ({ id, purpose = '', expiresAt, lastUsedAt, uses, ...shown }: OwnedAgent) => ({
  ...{ ...shown, agent: id, purpose },
  uses: uses.map(({ resource, txn, lastUsedAt }) => ({ resource, txn, used: usedAt(lastUsedAt) })),
  until: expiresAt === undefined ? '' : message('account.until', { when: longTime(expiresAt) }),
  used: usedAt(lastUsedAt),
});

const usedAt = (time: number | undefined): Localized =>
  time === undefined ? message('account.never-used') : message('account.last-used', { when: longTime(time) });
