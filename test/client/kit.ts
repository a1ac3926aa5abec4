import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import type { Test } from 'tap';
import type * as Client from '../../src/client/index.js';
import { type CreateServerOptions, createServer } from '../../src/saas/server.js';
import { PASSWORD, testOptions } from '../kit/app.js';
import { type FakeClock, fakeClock } from '../kit/clock.js';
import { checkAnswers, saasPaths } from '../kit/openapi.js';
import { countedRandom } from '../kit/random.js';
import { temporaryFolder } from '../kit/tmp.js';

/** A server with routes of a host, whose requests are counted, and the client as a script for pages. */

export const CREDENTIALS = { email: 'ada@example.test', password: PASSWORD };

/** Longer than an access token is valid, and shorter than a refresh token. */
export const EXPIRY_MS = 16 * 60 * 1000;

type UsersApi = ReturnType<typeof createServer>['fastify']['saas']['users'];

export interface Backend {
  origin: string;
  baseUrl: string;
  clock: FakeClock;
  /** Requests that arrived, as `POST /api/auth/refresh 200`. */
  requests: string[];
  /** How many of these requests arrived. */
  count(request: string): number;
  /** Answers requests of `fetch` below instead of the server, until it is undefined again. */
  outage: { path: string; status: number } | undefined;
  fetch: Client.Fetch;
  /** Delays the next refreshes. */
  beforeRefresh: (() => Promise<void>) | undefined;
  users: UsersApi;
}

export async function startBackend(t: Test, more: CreateServerOptions = {}): Promise<Backend> {
  const clock = fakeClock();
  const { publicUrl: _, ...options } = testOptions(temporaryFolder(t));
  const server = createServer({ ...options, clock, random: countedRandom(), ...more });
  t.teardown(() => server.stop());
  const { fastify } = server;
  checkAnswers(t, fastify, saasPaths(more));
  const requests: string[] = [];
  fastify.addHook('onRequest', async ({ method, url }) => {
    if (method === 'POST' && url === '/api/auth/refresh') await backend.beforeRefresh?.();
  });
  fastify.addHook('onResponse', async ({ method, url }, { statusCode }) => {
    requests.push(`${method} ${url} ${statusCode}`);
  });
  fastify.get('/', (_, reply) => reply.type('text/html').send('<!doctype html><title>Application</title>'));
  await fastify.register(async (instance) => {
    // Waits for the plugin, which decorates the server.
    const requireUser = { onRequest: fastify.saas.requireUser };
    instance.get('/notes', requireUser, ({ saas }) => ({ owner: saas.user.email }));
    instance.addContentTypeParser('text/plain', { parseAs: 'string' }, (_, body, done) => done(null, body));
    instance.post('/notes', requireUser, ({ saas, body }) => ({ owner: saas.user.email, text: body }));
    instance.get('/public', ({ headers }) => ({ hasToken: headers.authorization !== undefined }));
  });
  const { port } = await server.start();
  const origin = `http://localhost:${port}`;
  const backend: Backend = {
    ...{ origin, baseUrl: `${origin}/api`, clock, requests },
    ...{ outage: undefined, beforeRefresh: undefined, users: fastify.saas.users },
    count: (request) => requests.filter((one) => one.startsWith(request)).length,
    async fetch(url, init) {
      const { outage } = backend;
      if (outage === undefined || !url.endsWith(outage.path)) return fetch(url, init);
      return new Response('<h1>Unavailable</h1>', { status: outage.status });
    },
  };
  return backend;
}

const ENTRY = fileURLToPath(new URL('../../src/client/index.js', import.meta.url));

/** The client with its imports, minified as applications do. It sets the global `SaasClient`. */
export async function clientScript(): Promise<string> {
  await using bundle = await rolldown({ input: ENTRY, platform: 'neutral' });
  const { output } = await bundle.generate({ format: 'iife', name: 'SaasClient', minify: true });
  return output[0].code;
}

/** What pages find as a global. */
export type ClientModule = typeof Client;

/** Like `localStorage`, with or without promises. */
export function testStorage({ isAsync = false } = {}): Client.TokenStorage & { items: Map<string, string> } {
  const items = new Map<string, string>();
  const answer = <T>(value: T) => (isAsync ? (Promise.resolve(value) as T) : value);
  return {
    items,
    getItem: (key) => answer(items.get(key) ?? null),
    setItem: (key, value) => answer(items.set(key, value)),
    removeItem: (key) => answer(items.delete(key)),
  };
}
