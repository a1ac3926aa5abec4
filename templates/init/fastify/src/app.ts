import type { AddressInfo } from 'node:net';
import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import { saasBackend, type User } from 'saas-backend';
import { backendOptions } from './backend.js';
import { dashboardPage, homePage, reportsPage, upgradePage } from './pages.js';
import { userOf } from './session.js';
import type { Running, StartOptions } from './start.js';

export async function start({ port, host, logLevel, ...options }: StartOptions): Promise<Running> {
  const fastify = Fastify({
    logger: { level: logLevel ?? process.env.LOG_LEVEL ?? 'info' },
    trustProxy: process.env.TRUST_PROXY ?? false,
    // On a busy machine, to load a plugin can take longer than the 10 seconds of the default.
    pluginTimeout: 60_000,
  });
  await fastify.register(saasBackend, { ...backendOptions, ...options });
  const { saas } = fastify;

  const send = (reply: FastifyReply, page: string) => reply.type('text/html; charset=utf-8').send(page);

  /** The signed-in user; without one, the visitor is sent to the sign-in, and returns. */
  const requireVisitor = async (request: FastifyRequest, reply: FastifyReply): Promise<User | null> => {
    const user = await userOf(fastify, request.headers.cookie);
    if (!user) reply.redirect(`/account/sign-in?return_to=${encodeURIComponent(request.url)}`, 303);
    return user;
  };

  fastify.get('/', (_request, reply) => send(reply, homePage()));

  fastify.get('/dashboard', async (request, reply) => {
    const user = await requireVisitor(request, reply);
    return user ? send(reply, dashboardPage(user)) : reply;
  });

  fastify.get('/reports', async (request, reply) => {
    const user = await requireVisitor(request, reply);
    if (!user) return reply;
    const isPaid = await saas.entitles(user.id, 'pro');
    return isPaid ? send(reply, reportsPage(user)) : send(reply.code(403), upgradePage());
  });

  // For programs: API keys and agents with the scope, and the client of saas-backend.
  fastify.get(
    '/summary',
    { onRequest: saas.requireUser, config: { agentScope: 'summary:read' } },
    async ({ saas: { user } }) => ({ email: user.email, plan: user.subscription.plan }),
  );

  await fastify.listen({ port, host });
  return {
    port: (fastify.server.address() as AddressInfo).port,
    saas,
    close: () => fastify.close(),
  };
}
