import type { Socket } from 'node:net';
import t, { type Test } from 'tap';
import { createListedAudit } from '../../../src/core/ops/audit.js';
import { openStore } from '../../../src/core/storage/open.js';
import { PASSWORD } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import {
  growthOf,
  HEALTH,
  KNOWS_MEMORY,
  PROGRAMS,
  sizeOf,
  startTarget,
  statusesOf,
  type Target,
} from './target.js';

/** Clients that hold connections open or make them expensive, while another client is served. */

const MEBIBYTE = 2 ** 20;
const SKIP = !KNOWS_MEMORY && 'the memory of a process cannot be asked for';

async function isServed(t: Test, target: Target): Promise<void> {
  for (let count = 0; count < 20; count++) t.match(await target.tell(HEALTH), /^HTTP\/1\.1 200 /);
}

async function register(target: Target): Promise<{ id: string; token: string }> {
  const response = await fetch(`http://127.0.0.1:${target.port}/api/auth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ email: 'ada@example.test', password: PASSWORD }),
  });
  const { data } = (await response.json()) as { data: { accessToken: string; user: { id: string } } };
  return { id: data.user.id, token: data.accessToken };
}

t.test('a token in differently padded headers uses the memory of one', async (t) => {
  // Less than the headers take together; the program ends if it keeps them.
  const target = await startTarget(t, 'saas-backend', { NODE_OPTIONS: '--max-old-space-size=96' });
  const { token } = await register(target);
  // Each header differs: by its padding and, once all paddings are used, by the case of its scheme.
  const ask = (index: number) => {
    const scheme = ['Bearer', 'bearer', 'BEARER', 'BeArEr'][Math.floor(index / 5000)];
    const padding = ' '.repeat(9000 + (index % 5000));
    return `GET /api/auth/me HTTP/1.1\r\nhost: x\r\nauthorization: ${scheme}${padding}${token}\r\n\r\n`;
  };
  for (let asked = 0; asked < sizeOf(15_000, 20_000); asked += 100) {
    const requests = Array.from({ length: 100 }, (_, index) => ask(asked + index));
    const statuses = statusesOf(await target.tell(requests.join(''), 100));
    if (!statuses.every((status) => status === 200)) throw new Error(`answered ${statuses.join()}`);
  }
  t.same((await target.probe()).inherited, []);
});

t.test('unread pipelined exports do not block other clients', { skip: SKIP }, async (t) => {
  const uri = `sqlite:${temporaryFolder(t)}/saas.db`;
  const target = await startTarget(t, 'saas-backend', { DATABASE_URI: uri });
  const { id: subject, token } = await register(target);
  const store = await openStore(uri);
  const audit = createListedAudit(store, { clock: fakeClock(), random: countedRandom(), log: console });
  const record = { event: 'test', ip: '192.0.2.1', subject, detail: 'x'.repeat(4000) };
  for (let count = 0; count < 3000; count += 250) {
    await Promise.all(Array.from({ length: 250 }, () => audit.record(record)));
  }
  await store.close();
  const request = `GET /api/user/export HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\n\r\n`;
  const sockets: Socket[] = [];
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  const growth = await growthOf(target, async () => {
    for (let count = 0; count < sizeOf(10, 100); count++) {
      const socket = target.open();
      sockets.push(socket);
      socket.pause().write(request.repeat(60));
    }
    await isServed(t, target);
  });
  t.ok(growth < 64 * MEBIBYTE, `${(growth / MEBIBYTE).toFixed(1)} MiB`);
});

const LONG_PAGES = { 'saas-backend': '/api/openapi.json', idp: '/authorize?client_id=unknown' };

for (const name of PROGRAMS) {
  t.test(`${name}: unread pipelined pages do not exhaust a small heap`, async (t) => {
    const target = await startTarget(t, name, { NODE_OPTIONS: '--max-old-space-size=256' });
    const request = `GET ${LONG_PAGES[name]} HTTP/1.1\r\nhost: x\r\naccept: text/html\r\n\r\n`;
    // As many as Node reads at once.
    const requests = request.repeat(Math.floor(65_536 / request.length));
    for (let count = 0; count < sizeOf(30, 200); count++) {
      const socket = target.open();
      t.teardown(() => socket.destroy());
      socket.pause().write(requests);
    }
    for (let round = 0; round < 5; round++) await isServed(t, target);
    t.same((await target.probe()).inherited, []);
  });
}
