import type { FastifyRequest } from 'fastify';
import { longTime, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { newToken, sha256 } from '../../core/kernel/secrets.js';
import { type BegunFlow, registerConnectionPage } from './connections.js';
import type { PagesWith } from './context.js';
import { EmptyBody } from './schemas.js';

/** The page on which users connect the account whose agents may act for them, and disconnect it. */
export async function agentsPagePlugin(fastify: FastifyTypebox, options: PagesWith<'agents'>): Promise<void> {
  const { agents, identityOf, path, apiPath, random } = options;
  const cookie = options.cookieOf<BegunFlow>('saas-page-agents');
  const config = access('recent-person', { page: true });

  const back = registerConnectionPage(fastify, options, {
    name: 'agents',
    cookie,
    notices: {
      connected: { notice: message('user-agents.connected') },
      disconnected: { notice: message('user-agents.disconnected') },
      cancelled: { problems: [message('user-agents.cancelled')] },
      unverified: { problems: [message('user-agents.unverified')] },
      taken: { problems: [message('user-agents.taken')] },
      another: { problems: [message('user-agents.another')] },
    },
    rejected: {
      INVALID_TICKET: 'cancelled',
      EMAIL_NOT_VERIFIED: 'unverified',
      AGENT_ACCOUNT_TAKEN: 'taken',
      ALREADY_CONNECTED: 'another',
    },
    connect: agents.connect,
    pageOf,
  });

  fastify.post('/agents/connect', { config, schema: { body: EmptyBody } }, async (request, reply) => {
    const codeVerifier = newToken(random);
    cookie.set(reply, { session: identityOf(request).session.id, codeVerifier });
    const query = new URLSearchParams({
      returnTo: `${path()}/agents/return`,
      codeChallenge: sha256(codeVerifier),
    });
    return reply.redirect(`${apiPath()}/auth/agents/connect?${query}`, 303);
  });

  fastify.post('/agents/disconnect', { config, schema: { body: EmptyBody } }, async (request, reply) => {
    await agents.disconnect(identityOf(request).user.id, requestSource(request));
    return back(reply, 'disconnected');
  });

  async function pageOf(request: FastifyRequest, state: object = {}): Promise<Page> {
    const { issuer, connectedAt } = await agents.view(identityOf(request).user.id);
    const view = {
      path: `${path()}/agents`,
      issuer,
      isConnected: connectedAt !== null,
      since:
        connectedAt && message('user-agents.connected-since', { when: longTime(Date.parse(connectedAt)) }),
      ...state,
    };
    return { template: 'user-agents', view, leadsElsewhere: true };
  }
}
