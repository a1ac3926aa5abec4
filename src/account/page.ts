import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, longTime, message } from '../http/messages.js';
import type { Page, Pages } from '../http/pages.js';
import { fits, OptionalName } from '../http/schemas.js';
import { access, originOf, type Scope } from '../http/scope.js';
import type { PersonGuard } from './guard.js';
import {
  AccountQuery,
  ApplicationBody,
  EmptyBody,
  NameBody,
  type Notice,
  noticeIn,
  SessionBody,
} from './schemas.js';
import type {
  AccountService,
  AddressVerification,
  Application,
  Passkeys,
  SecondFactors,
  Session,
} from './service.js';

export interface AccountPageOptions {
  guard: PersonGuard;
  service: AccountService;
  /** Absent without a mail server. */
  verification: AddressVerification | undefined;
  /** Absent if second factors are not configured. */
  factors: Pick<SecondFactors, 'stateOf' | 'requiredFrom'> | undefined;
  /** Absent if they are not configured. */
  passkeys: Pick<Passkeys, 'list'> | undefined;
  pages: Pages;
  mount(): string;
}

/** The page on which people see their account, with the forms to change it. */
export async function accountPagePlugin(scope: Scope, options: AccountPageOptions): Promise<void> {
  const { guard, service, verification, factors, passkeys, pages, mount } = options;
  const config = access('person', { page: true });
  const recently = access('recent-person', { page: true });
  const path = () => `${mount()}/account`;

  scope.get('/account', { config, schema: { querystring: AccountQuery } }, async (request, reply) =>
    pages.send(reply, await accountPage(request, noticeIn(request.query))),
  );

  scope.post('/account/name', { config, schema: { body: NameBody } }, async (request, reply) => {
    guard.checkForm(request);
    const { name } = request.body;
    if (!fits(name, OptionalName)) {
      const failure = { name, problems: [message('account.name-invalid')], wrong: { name: true } } as const;
      return pages.send(reply.code(422), await accountPage(request, failure));
    }
    await service.rename(guard.personOf(request).principal, name, originOf(request));
    return returnWith(reply, 'renamed');
  });

  scope.post(
    '/account/sessions/end',
    { config: recently, schema: { body: SessionBody } },
    async (request, reply) => {
      guard.checkForm(request);
      await service.endSession(guard.personOf(request).principal, request.body.sid, originOf(request));
      return returnWith(reply, 'session-ended');
    },
  );

  scope.post(
    '/account/sessions/end-others',
    { config: recently, schema: { body: EmptyBody } },
    async (request, reply) => {
      guard.checkForm(request);
      const { principal, session } = guard.personOf(request);
      await service.endOtherSessions(principal, session.id, originOf(request));
      return returnWith(reply, 'sessions-ended');
    },
  );

  scope.post(
    '/account/applications/disconnect',
    { config: recently, schema: { body: ApplicationBody } },
    async (request, reply) => {
      guard.checkForm(request);
      await service.disconnect(guard.personOf(request).principal, request.body.client_id, originOf(request));
      return returnWith(reply, 'disconnected');
    },
  );

  if (verification) {
    scope.post('/account/verification', { config, schema: { body: EmptyBody } }, async (request, reply) => {
      guard.checkForm(request);
      pages.keepForm(request, await accountPage(request));
      const isSent = await verification.sendAgain(guard.personOf(request).principal.id, originOf(request));
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
    const [sessions, applications, factor, factorRequiredFrom, owned = []] = await Promise.all([
      service.sessions(principal),
      service.applications(principal),
      factors?.stateOf(principal.id),
      factors?.requiredFrom(principal),
      passkeys?.list(principal.id),
    ]);
    const view = {
      path: path(),
      form: guard.formsOf(request).issue(),
      handle: principal.handle,
      name: principal.name ?? '',
      isUnconfirmed: verification?.isDue(principal) ?? false,
      sessions: sessions.map((one) => viewOfSession(one, session.id)),
      hasOtherSessions: sessions.some(({ id }) => id !== session.id),
      applications: applications.map(viewOfApplication),
      hasApplications: applications.length > 0,
      ...(factors && { factor: { isEnrolled: factor !== null } }),
      ...(factorRequiredFrom && {
        factorRequired: message('account-factor.required', { when: longTime(factorRequiredFrom) }),
      }),
      ...(passkeys && { hasPasskeyPage: true, passkeyCount: countOf(owned) }),
      signOutHref: `${mount()}/logout`,
      ...state,
    };
    return { template: 'account', view };
  }
}

const viewOfSession = ({ id, authTime, browser, system, place }: Session, current: string) => ({
  sid: id,
  device: deviceOf({ browser, system }) ?? message('account.unknown-device'),
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

const viewOfApplication = ({ clientId, name, scopes, since }: Application) => ({
  clientId,
  client: name,
  sees: scopes.map((scope) => message(`scope.${scope}`)),
  since: message('account.since', { when: longTime(since) }),
});
