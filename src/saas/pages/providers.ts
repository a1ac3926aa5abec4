import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Identity } from '../../core/http/identity.js';
import { type Localized, longTime, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, type RequestSource, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { newToken, type Random, sha256 } from '../../core/kernel/secrets.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { Federation } from '../login-providers/service.js';
import type { PageContext } from './context.js';
import {
  IdentityBody,
  NoticeQuery,
  ProviderBody,
  ProviderParams,
  ReturnedQuery,
  ReturnQuery,
} from './schemas.js';
import type { SignInPages } from './sign-in-pages.js';

export interface ProviderPageOptions extends PageContext {
  providers: Federation;
  signInPages: SignInPages;
  guard: PersonGuard;
  random: Random;
}

/** What the sign-in at a provider is for. A connection belongs to the session in which it was begun. */
type ProviderFlow =
  | { purpose: 'sign-in'; returnTo?: string | undefined }
  | { purpose: 'connection'; session: string };

/** What a sign-in at a provider has begun with. */
type PendingProviderFlow = ProviderFlow & { codeVerifier: string };

const loginCookieOf = ({ cookieOf }: PageContext) => cookieOf<PendingProviderFlow>('saas-page-login');

const CONFIG = access('public', { page: true });

/** Sign-in with other providers, and the page on which users connect them. */
export async function providersPlugin(fastify: FastifyTypebox, options: ProviderPageOptions): Promise<void> {
  const { providers, sessions, signInPages, pages, messages } = options;
  const loginCookie = loginCookieOf(options);

  fastify.get(
    '/sign-in/with/:provider',
    { config: CONFIG, schema: { params: ProviderParams, querystring: ReturnQuery } },
    async (request, reply) => {
      const { provider } = request.params;
      const purpose = { purpose: 'sign-in', returnTo: request.query.return_to } as const;
      // A signed-in user has come from a page that needs a recent sign-in.
      const isAgain = (await sessions.find(request, reply)) !== null;
      return begin(options, reply, { provider, isAgain }, purpose);
    },
  );

  fastify.get(
    '/sign-in/return',
    { config: CONFIG, exposeHeadRoute: false, schema: { querystring: ReturnedQuery } },
    async (request, reply) => {
      const begun = loginCookie.read(request);
      loginCookie.clear(reply);
      const { ticket, error } = request.query;
      const returnTo = begun?.purpose === 'sign-in' ? begun.returnTo : undefined;
      if (begun?.purpose !== 'sign-in' || ticket === undefined) {
        const problem = error === 'access_denied' ? 'user-sign-in.cancelled' : 'user-sign-in.expired';
        const page = await signInPages.signIn(returnTo, { problems: [message(problem)] });
        return pages.send(reply.code(401), page);
      }
      const given = { ticket, codeVerifier: begun.codeVerifier };
      const attempt = providers.exchange(given, messages.negotiate(request), requestSource(request));
      return signInPages.finish(request, reply, attempt, { returnTo });
    },
  );

  await connectionPages(fastify, options);
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

async function connectionPages(fastify: FastifyTypebox, options: ProviderPageOptions): Promise<void> {
  const { providers, guard, identityOf, pages, path } = options;
  const loginCookie = loginCookieOf(options);
  const config = access('recent-person', { page: true });

  fastify.get('/providers', { config, schema: { querystring: NoticeQuery } }, async (request, reply) =>
    pages.send(reply, await pageOf(request, NOTICES[request.query.done ?? ''])),
  );

  fastify.post('/providers/connect', { config, schema: { body: ProviderBody } }, async (request, reply) => {
    const { provider } = request.body;
    const session = identityOf(request).session.id;
    return begin(options, reply, { provider }, { purpose: 'connection', session });
  });

  fastify.get(
    '/providers/return',
    { config, exposeHeadRoute: false, schema: { querystring: ReturnedQuery } },
    async (request, reply) => {
      const begun = loginCookie.read(request);
      loginCookie.clear(reply);
      const { user, session } = identityOf(request);
      const outcome =
        begun?.purpose === 'connection' && begun.session === session.id
          ? await connect(
              user,
              { ...request.query, codeVerifier: begun.codeVerifier },
              requestSource(request),
            )
          : 'cancelled';
      return reply.redirect(`${path()}/providers?done=${outcome}`, 303);
    },
  );

  /** Connects the account of the provider. Returns the notice. */
  const connect = async (
    user: Identity['user'],
    { ticket, codeVerifier }: { ticket?: string; codeVerifier: string },
    source: RequestSource,
  ): Promise<string> => {
    if (ticket === undefined) return 'cancelled';
    try {
      await providers.connect(user, { ticket, codeVerifier }, source);
      return 'connected';
    } catch (error) {
      const outcome = error instanceof AppError && REJECTED[error.code];
      if (!outcome) throw error;
      return outcome;
    }
  };

  fastify.post(
    '/providers/disconnect',
    { config, schema: { body: IdentityBody } },
    async (request, reply) => {
      const { id } = identityOf(request).user;
      try {
        await providers.disconnect(id, request.body.id, requestSource(request));
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
    },
  );

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

/** Sends the browser to a provider, by way of the API. @param isAgain whether the provider asks the person to sign in again */
function begin(
  options: ProviderPageOptions,
  reply: FastifyReply,
  { provider, isAgain = false }: { provider: string; isAgain?: boolean },
  purpose: ProviderFlow,
): FastifyReply {
  const { path, apiPath } = options;
  const codeVerifier = newToken(options.random);
  loginCookieOf(options).set(reply, { ...purpose, codeVerifier });
  const query = new URLSearchParams({
    returnTo: `${path()}/${purpose.purpose === 'sign-in' ? 'sign-in' : 'providers'}/return`,
    codeChallenge: sha256(codeVerifier),
    ...(isAgain && { prompt: 'login' }),
  });
  return reply.redirect(`${apiPath()}/auth/login/${provider}?${query}`, 303);
}
