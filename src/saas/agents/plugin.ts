import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { ok } from '../../core/http/schemas.js';
import { createSignInCookies, responseOf, TicketBody } from '../../core/outbound/provider-sign-in.js';
import { AgentAccountAnswer, ConnectQuery } from './schemas.js';
import type { AgentAccounts } from './service.js';

/** Routes with which a user connects the account of the identity provider whose agents may act. */
export async function agentsPlugin(
  fastify: FastifyTypebox,
  { accounts, publicUrl }: { accounts: AgentAccounts; publicUrl(): string },
): Promise<void> {
  const page = access('public', { page: true });
  const cookies = createSignInCookies('saas-agents', publicUrl);

  fastify.get(
    '/auth/agents/connect',
    { config: page, schema: { querystring: ConnectQuery } },
    async (request, reply) => {
      const { url, id, cookie } = await accounts.begin(request.query);
      if (cookie !== undefined) cookies.add(request, reply, { id, cookie });
      return reply.redirect(url, 303);
    },
  );

  fastify.get('/auth/agents/callback', { config: page, exposeHeadRoute: false }, async (request, reply) => {
    const response = responseOf(request, accounts.callbackUrl());
    const cookie = cookies.of(response);
    const target = await accounts.finish(response, cookie?.read(request));
    cookie?.clear(reply);
    return reply.redirect(target, 303);
  });

  fastify.get(
    '/user/agent-account',
    { config: access('user'), schema: { response: { 200: AgentAccountAnswer } } },
    async (request) => ok(await accounts.view(request.saas.user.id)),
  );

  fastify.post(
    '/user/agent-account',
    { config: access('recent-user'), schema: { body: TicketBody, response: { 200: AgentAccountAnswer } } },
    async (request) => ok(await accounts.connect(request.saas.user, request.body, requestSource(request))),
  );

  // Without a recent sign-in: a person who wants to stop an agent must not be delayed.
  fastify.delete(
    '/user/agent-account',
    { config: access('user'), schema: { response: { 200: AgentAccountAnswer } } },
    async (request) => {
      const { id } = request.saas.user;
      await accounts.disconnect(id, requestSource(request));
      return ok(await accounts.view(id));
    },
  );
}
