import type { FastifyReply, FastifyRequest } from 'fastify';
import { longTime, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { newToken, sha256 } from '../../core/kernel/secrets.js';
import { type BegunFlow, registerConnectionPage } from './connections.js';
import type { PagesWith } from './context.js';
import { IdentityBody, ProviderBody, ProviderParams, ReturnedQuery, ReturnQuery } from './schemas.js';
import { rejectionOf, type SignInPages } from './sign-in-pages.js';

const CONFIG = access('public', { page: true });

/** Sign-in with other providers, and the page on which users connect them. */
export async function providersPlugin(
  fastify: FastifyTypebox,
  options: PagesWith<'providers'> & { signInPages: SignInPages },
): Promise<void> {
  const { providers, sessions, signInPages, identityOf, pages, messages, path, apiPath } = options;
  const cookie = options.cookieOf<BegunFlow>('saas-page-login');
  const config = access('recent-person', { page: true, changesFactors: true });

  /** Sends the browser to a provider, by way of the API. @param again for a provider that asks the person to sign in again */
  const begin = (
    reply: FastifyReply,
    provider: string,
    flow: Pick<BegunFlow, 'session' | 'returnTo'>,
    again: { prompt?: 'login' } = {},
  ): FastifyReply => {
    const codeVerifier = newToken(options.random);
    cookie.set(reply, { ...flow, codeVerifier });
    const query = new URLSearchParams({
      returnTo: `${path()}/${flow.session === undefined ? 'sign-in' : 'providers'}/return`,
      codeChallenge: sha256(codeVerifier),
      ...again,
    });
    return reply.redirect(`${apiPath()}/auth/login/${provider}?${query}`, 303);
  };

  fastify.get(
    '/sign-in/with/:provider',
    { config: CONFIG, schema: { params: ProviderParams, querystring: ReturnQuery } },
    async (request, reply) => {
      // A signed-in user has come from a page that needs a recent sign-in.
      const again = (await sessions.find(request, reply)) ? { prompt: 'login' as const } : {};
      return begin(reply, request.params.provider, { returnTo: request.query.return_to }, again);
    },
  );

  fastify.get(
    '/sign-in/return',
    { config: CONFIG, exposeHeadRoute: false, schema: { querystring: ReturnedQuery } },
    async (request, reply) => {
      const begun = cookie.read(request);
      cookie.clear(reply);
      const { ticket, error } = request.query;
      const signIn = begun?.session === undefined ? begun : null;
      if (!signIn || ticket === undefined) {
        const problem = error === 'access_denied' ? 'user-sign-in.cancelled' : 'user-sign-in.expired';
        const page = await signInPages.signIn(signIn?.returnTo, { problems: [message(problem)] });
        return pages.send(reply.code(401), page);
      }
      const { returnTo, codeVerifier } = signIn;
      const locale = messages.negotiate(request);
      const attempt = providers.exchange({ ticket, codeVerifier }, locale, requestSource(request));
      return signInPages.finish(request, reply, attempt, { returnTo });
    },
  );

  const back = registerConnectionPage(fastify, options, {
    name: 'providers',
    cookie,
    notices: {
      connected: { notice: message('user-providers.connected') },
      disconnected: { notice: message('user-providers.disconnected') },
      cancelled: { problems: [message('user-providers.cancelled')] },
      unverified: { problems: [message('user-providers.unverified')] },
      taken: { problems: [message('user-providers.taken')] },
    },
    rejected: { INVALID_TICKET: 'cancelled', EMAIL_NOT_VERIFIED: 'unverified', IDENTITY_TAKEN: 'taken' },
    connect: providers.connect,
    pageOf,
  });

  fastify.post('/providers/connect', { config, schema: { body: ProviderBody } }, async (request, reply) =>
    begin(reply, request.body.provider, { session: identityOf(request).session.id }),
  );

  fastify.post(
    '/providers/disconnect',
    { config, schema: { body: IdentityBody } },
    async (request, reply) => {
      const { id } = identityOf(request).user;
      const attempt = providers.disconnect(id, request.body.id, requestSource(request));
      const rejection = await rejectionOf(attempt);
      if (rejection === 'LAST_LOGIN_METHOD') {
        const problems = [message('user-providers.last')];
        return pages.send(reply.code(409), await pageOf(request, { problems }));
      }
      // Sent twice, the form has been processed already.
      if (rejection !== 'NOT_FOUND') await attempt;
      return back(reply, 'disconnected');
    },
  );

  async function pageOf(request: FastifyRequest, state: object = {}): Promise<Page> {
    const connections = await providers.list(identityOf(request).user.id);
    const view = {
      path: `${path()}/providers`,
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
