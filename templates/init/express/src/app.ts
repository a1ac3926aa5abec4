import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import express, { type Request, type Response } from 'express';
import { createServer, type User } from 'saas-backend';
import { backendOptions } from './backend.js';
import { dashboardPage, homePage, reportsPage, upgradePage } from './pages.js';
import { userOf } from './session.js';
import type { Running, StartOptions } from './start.js';

export async function start({ port, host, ...options }: StartOptions): Promise<Running> {
  const backend = createServer({ ...backendOptions, ...options, middleware: true });
  const { fastify } = backend;
  await fastify.ready();
  const { saas } = fastify;
  const app = express();
  // Before any body parser: payment events are verified byte by byte.
  app.use(backend.middleware);

  /** The signed-in user; without one, the visitor is sent to the sign-in, and returns. */
  const requireVisitor = async (request: Request, response: Response): Promise<User | null> => {
    const user = await userOf(fastify, request.headers.cookie);
    if (!user)
      response.redirect(303, `/account/sign-in?return_to=${encodeURIComponent(request.originalUrl)}`);
    return user;
  };

  app.get('/', (_request, response) => {
    response.send(homePage());
  });

  app.get('/dashboard', async (request, response) => {
    const user = await requireVisitor(request, response);
    if (user) response.send(dashboardPage(user));
  });

  app.get('/reports', async (request, response) => {
    const user = await requireVisitor(request, response);
    if (!user) return;
    if (await saas.entitles(user.id, 'pro')) response.send(reportsPage(user));
    else response.status(403).send(upgradePage());
  });

  // For programs: API keys and agents with the scope, and the client of saas-backend.
  app.get('/summary', backend.allowAgents('summary:read'), backend.requireUser, (request, response) => {
    const { user } = request.saas;
    response.json({ email: user.email, plan: user.subscription.plan });
  });

  const server = app.listen(port, host);
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
