import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener, type HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { type Context, Hono } from 'hono';
import { createMiddleware } from 'hono/factory';
import { type ConnectGuard, createServer, type SaasRequest, type User } from 'saas-backend';
import { backendOptions } from './backend.js';
import { dashboardPage, homePage, reportsPage, upgradePage } from './pages.js';
import { userOf } from './session.js';
import type { Running, StartOptions } from './start.js';

interface Env {
  Bindings: HttpBindings & { incoming: SaasRequest };
  /** Behind a guard of saas-backend. */
  Variables: { saas: NonNullable<SaasRequest['saas']> };
}

export async function start({ port, host, ...options }: StartOptions): Promise<Running> {
  const backend = createServer({ ...backendOptions, ...options, middleware: true });
  const { fastify } = backend;
  await fastify.ready();
  const { saas } = fastify;
  const app = new Hono<Env>();

  /** The signed-in user; without one, the visitor is sent to the sign-in, and returns. */
  const requireVisitor = async (context: Context<Env>): Promise<User | Response> => {
    const user = await userOf(fastify, context.req.header('cookie'));
    return (
      user ?? context.redirect(`/account/sign-in?return_to=${encodeURIComponent(context.req.path)}`, 303)
    );
  };

  app.get('/', (context) => context.html(homePage()));

  app.get('/dashboard', async (context) => {
    const user = await requireVisitor(context);
    return user instanceof Response ? user : context.html(dashboardPage(user));
  });

  app.get('/reports', async (context) => {
    const user = await requireVisitor(context);
    if (user instanceof Response) return user;
    const isPaid = await saas.entitles(user.id, 'pro');
    return isPaid ? context.html(reportsPage(user)) : context.html(upgradePage(), 403);
  });

  // For programs: API keys and agents with the scope, and the client of saas-backend.
  app.get('/summary', guard(backend.allowAgents('summary:read')), guard(backend.requireUser), (context) => {
    const { user } = context.get('saas');
    return context.json({ email: user.email, plan: user.subscription.plan });
  });

  const listener = getRequestListener((request, env) => app.fetch(request, env));
  const server = createHttpServer((request, response) =>
    backend.middleware(request, response, () => listener(request, response)),
  );
  server.listen(port, host);
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    saas,
    async close() {
      await new Promise((closed) => server.close(closed));
      await backend.stop();
    },
  };
}

/** A guard of saas-backend as middleware of Hono: it lets the request pass, or has answered. */
const guard = (check: ConnectGuard) =>
  createMiddleware<Env>(async (context, next) => {
    const { incoming, outgoing } = context.env;
    const isAdmitted = await new Promise<boolean>((resolve, reject) => {
      outgoing.once('close', () => resolve(false));
      check(incoming, outgoing, (error) => (error === undefined ? resolve(true) : reject(error)));
    });
    if (!isAdmitted) return RESPONSE_ALREADY_SENT;
    if (incoming.saas) context.set('saas', incoming.saas);
    return next();
  });
