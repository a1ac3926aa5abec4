import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import t from 'tap';
import type { Server } from '../../../src/core/server/assembly.js';
import { createIdentityServer } from '../../../src/idp/server.js';
import { createServer } from '../../../src/saas/server.js';
import { basic, PASSWORD, testOptions } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { FACTOR_KEY } from '../../kit/factors.js';
import { collectRoutes } from '../../kit/fuzz/engine.js';
import { idpOptions } from '../../kit/idp.js';
import { countDocuments } from '../../kit/sqlite.js';
import { temporaryFolder } from '../../kit/tmp.js';

/**
 * Unauthenticated clients cannot make the store grow with each request. The routes are Fastify's own list, so a
 * new one is covered without a change here; no limit on requests is in force.
 */

const PRODUCTS: Record<string, { file: string; open(folder: string): Server }> = {
  'saas-backend': {
    file: 'saas.db',
    open: (folder) =>
      createServer({
        ...testOptions(folder),
        clock: fakeClock(),
        limits: false,
      }),
  },
  idp: {
    file: 'idp.db',
    open: (folder) =>
      createIdentityServer({
        ...idpOptions(folder),
        ...{ clock: fakeClock(), limits: false, factorEncryptionKey: FACTOR_KEY },
        // With the pages for forgotten passwords and links; nothing listens there.
        emailSmtpUrl: 'smtp://127.0.0.1:9',
      }),
  },
};

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

/** Bodies and headers of clients without credentials, or with invented ones. */
const ATTEMPTS: readonly { headers?: Record<string, string>; payload?: string | object }[] = [
  {},
  { headers: { authorization: 'Basic' } },
  { headers: { authorization: basic('nobody@example.test', PASSWORD) } },
  { headers: { authorization: 'Bearer made.up.token' } },
  { payload: {} },
  {
    payload: {
      email: 'nobody@example.test',
      password: PASSWORD,
      token: 'x'.repeat(43),
      refreshToken: 'rt_x',
    },
  },
  { headers: FORM, payload: 'grant_type=authorization_code&code=ac_x&client_id=cid_x&client_secret=x' },
  {
    headers: FORM,
    payload: `handle=nobody%40example.test&password=x&confirm=x&interaction=x&form=1.${'x'.repeat(43)}`,
  },
  {
    headers: { ...FORM, cookie: `idp-session=${'0'.repeat(75)}` },
    payload: 'handle=nobody%40example.test&name=x',
  },
  { headers: { 'stripe-signature': 't=1,v1=00' }, payload: { id: 'evt_1' } },
];

const ROUNDS = 30;

for (const [name, { file, open }] of Object.entries(PRODUCTS)) {
  t.test(`${name}: refused requests of one address add a bounded number of documents`, async (t) => {
    const folder = temporaryFolder(t);
    const server = open(folder);
    t.teardown(() => server.stop());
    const collected = collectRoutes(server.fastify);
    await server.fastify.ready();
    // A successful registration creates an account, as intended.
    const routes = collected.filter(({ url }) => !url.endsWith('/register'));
    t.ok(routes.length > 20);
    const count = () => countDocuments(join(folder, file));
    await everyRoute(server.fastify, routes, 1);
    const before = count();
    t.ok(before.has('audit') && before.has('throttles'));
    const answers = await everyRoute(server.fastify, routes, ROUNDS);
    t.equal(answers.get(500), undefined);
    // At most ten records for each event of an address block.
    const growth = [...count()].map(([name, size]) => [name, size - (before.get(name) ?? 0)] as const);
    const added = growth.reduce((sum, [, more]) => sum + more, 0);
    t.ok(added < 60, `after ${ROUNDS} rounds more in ${growth.filter(([, more]) => more > 0).join(' ')}`);
    t.ok(readFileSync(join(folder, file)).length < 2 ** 20);
  });
}

/** Sends each attempt to each route. Returns the number of answers by status. */
async function everyRoute(
  fastify: FastifyInstance,
  routes: readonly { method: string; url: string }[],
  rounds: number,
): Promise<Map<number, number>> {
  const counts = new Map<number, number>();
  for (let round = 0; round < rounds; round++) {
    for (const { method, url } of routes) {
      for (const { headers, payload } of ATTEMPTS) {
        const { statusCode } = await fastify.inject({
          method: method as 'GET',
          url: url.replace(/:\w+|\*/g, 'x'),
          ...(headers && { headers }),
          ...(payload !== undefined && method !== 'GET' && { payload }),
        });
        counts.set(statusCode, (counts.get(statusCode) ?? 0) + 1);
      }
    }
  }
  return counts;
}
