import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Cookie } from '../http/cookies.js';
import { type Localized, longTime, type Messages, message } from '../http/messages.js';
import type { Page, Pages } from '../http/pages.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import { newToken, type Random, sha256 } from '../kernel/secrets.js';
import {
  IdentityBody,
  NoticeQuery,
  ProviderBody,
  ProviderParams,
  ReturnedQuery,
  ReturnQuery,
} from './schemas.js';
import type { Identity, LoginProviders, PersonGuard } from './services.js';
import { decodeState, encodeState, type PageSessions, STATE_LIFETIME_SECONDS } from './session.js';
import type { SignInPages } from './sign-in-pages.js';

export interface ProviderPageOptions {
  providers: LoginProviders;
  sessions: PageSessions;
  signInPages: SignInPages;
  guard: PersonGuard;
  identityOf(request: FastifyRequest): Identity;
  /** Contains what a sign-in at a provider has begun with. */
  cookie: Cookie;
  pages: Pages;
  messages: Pick<Messages, 'negotiate'>;
  path(): string;
  /** The path of the API, which includes what a proxy adds. */
  apiPath(): string;
  random: Random;
}

/** What the sign-in at a provider is for. */
type Purpose = { purpose: 'sign-in'; returnTo?: string | undefined } | { purpose: 'connection' };

const CONFIG = access('public', { page: true });

/** Sign-in with other providers, and the page on which users connect them. */
export async function providersPlugin(scope: Scope, options: ProviderPageOptions): Promise<void> {
  const { providers, sessions, signInPages, cookie, pages, messages, path } = options;

  scope.get(
    '/sign-in/with/:provider',
    { config: CONFIG, schema: { params: ProviderParams, querystring: ReturnQuery } },
    (request, reply) =>
      begin(options, reply, request.params.provider, {
        purpose: 'sign-in',
        returnTo: request.query.return_to,
      }),
  );

  scope.get(
    '/sign-in/return',
    { config: CONFIG, exposeHeadRoute: false, schema: { querystring: ReturnedQuery } },
    async (request, reply) => {
      const { purpose, codeVerifier = '', returnTo } = decodeState(cookie.read(request));
      cookie.clear(reply);
      const { ticket, error } = request.query;
      if (purpose === 'connection') return connect(request, reply, { ticket, codeVerifier });
      if (purpose === undefined || ticket === undefined) {
        const problem = error === 'access_denied' ? 'user-sign-in.cancelled' : 'user-sign-in.expired';
        const page = await signInPages.signIn(returnTo, { problems: [message(problem)] });
        return pages.send(reply.code(401), page);
      }
      const given = { ticket, codeVerifier };
      const attempt = providers.exchange(given, messages.negotiate(request), originOf(request));
      return signInPages.finish(request, reply, attempt, { returnTo });
    },
  );

  /** Connects the account of the provider to that of the session. */
  const connect = async (
    request: FastifyRequest,
    reply: FastifyReply,
    { ticket, codeVerifier }: { ticket: string | undefined; codeVerifier: string },
  ): Promise<FastifyReply> => {
    const found = await sessions.find(request, reply);
    if (!found) return reply.redirect(`${path()}/sign-in`, 303);
    const outcome =
      ticket === undefined
        ? 'cancelled'
        : await providers.connect(found.identity.user, { ticket, codeVerifier }, originOf(request)).then(
            () => 'connected',
            (error: unknown) => {
              if (error instanceof AppError && error.code in REJECTED) return REJECTED[error.code];
              throw error;
            },
          );
    return reply.redirect(`${path()}/providers?done=${outcome}`, 303);
  };

  await connectionPages(scope, options);
}

/** The notices of a connection that was not made. */
const REJECTED: Readonly<Record<string, string>> = {
  INVALID_TICKET: 'cancelled',
  EMAIL_NOT_VERIFIED: 'unverified',
  IDENTITY_TAKEN: 'taken',
};

/** What the page says after an action, and whether it is a problem. */
const NOTICES: Readonly<Record<string, { notice: Localized } | { problems: Localized[] }>> = {
  connected: { notice: message('user-providers.connected') },
  disconnected: { notice: message('user-providers.disconnected') },
  cancelled: { problems: [message('user-providers.cancelled')] },
  unverified: { problems: [message('user-providers.unverified')] },
  taken: { problems: [message('user-providers.taken')] },
};

async function connectionPages(scope: Scope, options: ProviderPageOptions): Promise<void> {
  const { providers, guard, identityOf, pages, path } = options;
  const config = access('recent-person', { page: true });

  scope.get('/providers', { config, schema: { querystring: NoticeQuery } }, async (request, reply) =>
    pages.send(reply, await pageOf(request, NOTICES[request.query.done ?? ''])),
  );

  scope.post('/providers/connect', { config, schema: { body: ProviderBody } }, async (request, reply) => {
    guard.checkForm(request);
    return begin(options, reply, request.body.provider, { purpose: 'connection' });
  });

  scope.post('/providers/disconnect', { config, schema: { body: IdentityBody } }, async (request, reply) => {
    guard.checkForm(request);
    const { id } = identityOf(request).user;
    try {
      await providers.disconnect(id, request.body.id, originOf(request));
    } catch (error) {
      // Sent twice, the form has been processed already.
      if (!(error instanceof AppError) || !['NOT_FOUND', 'LAST_LOGIN_METHOD'].includes(error.code))
        throw error;
      if (error.code === 'LAST_LOGIN_METHOD') {
        const problems = [message('user-providers.last')];
        return pages.send(reply.code(409), await pageOf(request, { problems }));
      }
    }
    return reply.redirect(`${path()}/providers?done=disconnected`, 303);
  });

  async function pageOf(request: FastifyRequest, state: object = {}): Promise<Page> {
    const connections = await providers.list(identityOf(request).user.id);
    const view = {
      path: `${path()}/providers`,
      accountHref: path(),
      form: guard.formsOf(request).issue(),
      connections: connections.map(({ id, label, email, connectedAt }) => ({
        id,
        label,
        email,
        since: message('account.since', { when: longTime(Date.parse(connectedAt)) }),
      })),
      hasConnections: connections.length > 0,
      providers: providers.providers(),
      ...state,
    };
    return { template: 'user-providers', view, leadsElsewhere: true };
  }
}

/** Sends the browser to a provider, by way of the API. */
function begin(
  { cookie, path, apiPath, random }: ProviderPageOptions,
  reply: FastifyReply,
  provider: string,
  purpose: Purpose,
): FastifyReply {
  const codeVerifier = newToken(random);
  cookie.set(reply, encodeState({ ...purpose, codeVerifier }), STATE_LIFETIME_SECONDS);
  const query = new URLSearchParams({
    returnTo: `${path()}/sign-in/return`,
    codeChallenge: sha256(codeVerifier),
  });
  return reply.redirect(`${apiPath()}/auth/login/${provider}?${query}`, 303);
}
