import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, longTime, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { newToken, type Random, sha256 } from '../../core/kernel/secrets.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { AgentAccounts } from '../agents/service.js';
import type { PageContext } from './context.js';
import { EmptyBody, NoticeQuery, ReturnedQuery } from './schemas.js';

export interface AgentPageOptions extends PageContext {
  agents: AgentAccounts;
  guard: PersonGuard;
  random: Random;
}

/** The notices of a connection that was not made. */
const REJECTED: Readonly<Record<string, string>> = {
  INVALID_TICKET: 'cancelled',
  EMAIL_NOT_VERIFIED: 'unverified',
  AGENT_ACCOUNT_TAKEN: 'taken',
  ALREADY_CONNECTED: 'another',
};

/** What the page says after an action, and whether it is a problem. */
const NOTICES: Readonly<Record<string, { notice: Localized } | { problems: Localized[] }>> = {
  connected: { notice: message('user-agents.connected') },
  disconnected: { notice: message('user-agents.disconnected') },
  cancelled: { problems: [message('user-agents.cancelled')] },
  unverified: { problems: [message('user-agents.unverified')] },
  taken: { problems: [message('user-agents.taken')] },
  another: { problems: [message('user-agents.another')] },
};

/** The page on which users connect the account whose agents may act for them, and disconnect it. */
export async function agentsPagePlugin(fastify: FastifyTypebox, options: AgentPageOptions): Promise<void> {
  const { agents, guard, identityOf, cookieOf, pages, path, apiPath, random } = options;
  /** What a connection has begun with, and in which session. */
  const agentCookie = cookieOf<{ session: string; codeVerifier: string }>('saas-page-agents');
  const config = access('recent-person', { page: true });
  const back = (reply: FastifyReply, done: string | undefined): FastifyReply =>
    reply.redirect(`${path()}/agents?done=${done}`, 303);

  fastify.get('/agents', { config, schema: { querystring: NoticeQuery } }, async (request, reply) =>
    pages.send(reply, await pageOf(request, NOTICES[request.query.done ?? ''])),
  );

  fastify.post('/agents/connect', { config, schema: { body: EmptyBody } }, async (request, reply) => {
    const codeVerifier = newToken(random);
    agentCookie.set(reply, { session: identityOf(request).session.id, codeVerifier });
    const query = new URLSearchParams({
      returnTo: `${path()}/agents/return`,
      codeChallenge: sha256(codeVerifier),
    });
    return reply.redirect(`${apiPath()}/auth/agents/connect?${query}`, 303);
  });

  fastify.get(
    '/agents/return',
    { config, exposeHeadRoute: false, schema: { querystring: ReturnedQuery } },
    async (request, reply) => {
      const begun = agentCookie.read(request);
      agentCookie.clear(reply);
      const { ticket } = request.query;
      const { user, session } = identityOf(request);
      // Another user may have signed in since: what one session has begun is not completed in another one.
      if (ticket === undefined || begun?.session !== session.id) return back(reply, 'cancelled');
      const { codeVerifier } = begun;
      const given = { ticket, codeVerifier };
      const outcome = await agents.connect(user, given, requestSource(request)).then(
        () => 'connected',
        (error: unknown) => {
          if (error instanceof AppError && error.code in REJECTED) return REJECTED[error.code];
          throw error;
        },
      );
      return back(reply, outcome);
    },
  );

  fastify.post('/agents/disconnect', { config, schema: { body: EmptyBody } }, async (request, reply) => {
    await agents.disconnect(identityOf(request).user.id, requestSource(request));
    return back(reply, 'disconnected');
  });

  async function pageOf(request: FastifyRequest, state: object = {}): Promise<Page> {
    const { issuer, connectedAt } = await agents.view(identityOf(request).user.id);
    const view = {
      path: `${path()}/agents`,
      accountHref: path(),
      form: guard.formsOf(request).issue(),
      issuer,
      isConnected: connectedAt !== null,
      since:
        connectedAt && message('user-agents.connected-since', { when: longTime(Date.parse(connectedAt)) }),
      ...state,
    };
    return { template: 'user-agents', view, leadsElsewhere: true };
  }
}
