import { createCookieGroup } from '../../core/http/cookies.js';
import { responseOf, signInIdOf, TicketBody } from '../../core/http/provider-sign-in.js';
import { ok } from '../../core/http/schemas.js';
import { access, originOf, type Scope } from '../../core/http/scope.js';
import { SECOND } from '../../core/kernel/clock.js';
import { AgentAccountAnswer, ConnectQuery } from './schemas.js';
import type { AgentAccounts } from './service.js';

export interface AgentsPluginOptions {
  accounts: AgentAccounts;
  publicUrl(): string;
  callbackUrl(): string;
  /** How long a connection may take. */
  lifetimeMs: number;
}

/** Routes with which a user connects the account of the identity provider whose agents may act. */
export async function agentsPlugin(
  scope: Scope,
  { accounts, publicUrl, callbackUrl, lifetimeMs }: AgentsPluginOptions,
): Promise<void> {
  const page = access('public', { page: true });
  /** One for each connection. Sent with the redirect from the identity provider. */
  const cookies = createCookieGroup('saas-agents', publicUrl);

  scope.get(
    '/auth/agents/connect',
    { config: page, schema: { querystring: ConnectQuery } },
    async (request, reply) => {
      const { url, id, cookie } = await accounts.begin(request.query);
      if (cookie === undefined) return reply.redirect(url, 303);
      cookies.add(request, reply, { id, value: cookie, maxAge: lifetimeMs / SECOND });
      return reply.redirect(url, 303);
    },
  );

  scope.get('/auth/agents/callback', { config: page, exposeHeadRoute: false }, async (request, reply) => {
    const response = responseOf(request, callbackUrl());
    const id = signInIdOf(response.searchParams.get('state') ?? undefined);
    const cookie = id === undefined ? undefined : cookies.of(id);
    const target = await accounts.finish(response, cookie?.read(request));
    cookie?.clear(reply);
    return reply.redirect(target, 303);
  });

  scope.get(
    '/user/agent-account',
    { config: access('user'), schema: { response: { 200: AgentAccountAnswer } } },
    async (request) => ok(await accounts.view(request.saas.user.id)),
  );

  scope.post(
    '/user/agent-account',
    { config: access('recent-user'), schema: { body: TicketBody, response: { 200: AgentAccountAnswer } } },
    async (request) => ok(await accounts.connect(request.saas.user, request.body, originOf(request))),
  );

  // Without a recent sign-in: a person who wants to stop an agent must not be delayed.
  scope.delete(
    '/user/agent-account',
    { config: access('user'), schema: { response: { 200: AgentAccountAnswer } } },
    async (request) => {
      const { id } = request.saas.user;
      await accounts.disconnect(id, originOf(request));
      return ok(await accounts.view(id));
    },
  );
}
