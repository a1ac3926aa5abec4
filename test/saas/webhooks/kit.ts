import { createServer, type IncomingHttpHeaders, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import type { Test } from 'tap';
import type { Audit } from '../../../src/core/ops/audit.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createEvents } from '../../../src/core/ops/events.js';
import type { Job, Lease } from '../../../src/core/ops/jobs.js';
import type { Reach } from '../../../src/core/outbound/request.js';
import { createAccountData } from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createDeliveryService } from '../../../src/saas/webhooks/deliveries.js';
import { createWebhooksModule, type WebhooksModuleOptions } from '../../../src/saas/webhooks/module.js';
import { deliveryCollection, endpointCollection } from '../../../src/saas/webhooks/store.js';
import { type FakeClock, fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

export const KEY = 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9';

export const OPERATOR = { name: 'operator', ip: '127.0.0.1' };

/** A request that an endpoint has received. */
export interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
  event: { type: string; timestamp: string; data: Record<string, unknown> };
}

/** An HTTP endpoint, whose answers the test decides. */
export async function receiver(t: Test) {
  const received: Received[] = [];
  const state = {
    /** Answers instead of the status 204. */
    answer: undefined as ((request: Received, response: ServerResponse) => unknown) | undefined,
  };
  const listener: RequestListener = async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    const one = { path: request.url ?? '', headers: request.headers, body, event: JSON.parse(body) };
    received.push(one);
    if (state.answer) await state.answer(one, response);
    else response.writeHead(204).end();
  };
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { received, state, url: `http://127.0.0.1:${port}` };
}

/** As the official library verifies it, at a time of its own. */
export function verify({ headers, body }: Pick<Received, 'headers' | 'body'>, secret: string): unknown {
  const now = Date.now;
  // The library compares the timestamp with the system clock.
  Date.now = () => Number(headers['webhook-timestamp']) * 1000;
  try {
    return new Webhook(secret).verify(body, headers as Record<string, string>);
  } finally {
    Date.now = now;
  }
}

/** Webhooks alone, without the routes: jobs run when the test says so. */
export async function laboratory(
  t: Test,
  {
    uri = `sqlite:${temporaryFolder(t)}/saas.db`,
    clock = fakeClock(),
    reach = 'loopback',
    ...more
  }: Partial<Omit<WebhooksModuleOptions, 'names' | 'keys'>> & {
    uri?: string;
    clock?: FakeClock;
    reach?: Reach;
  } = {},
) {
  const store = await openStore(uri);
  t.teardown(() => store.close());
  return { ...(await webhooksOn(store, { clock, reach, ...more })), store, clock };
}

/** The same with an endpoint that receives every event. */
export async function connected(t: Test, options?: Parameters<typeof laboratory>[1]) {
  const app = await receiver(t);
  const lab = await laboratory(t, options);
  return { app, lab, ...(await lab.add(app.url)) };
}

/** What stops a job. */
export interface Stop {
  signal: Lease['signal'];
}

export const NAMES = ['user.registered', 'user.suspended', 'invoice.paid', 'payment.failed'];

export async function webhooksOn(
  store: Store,
  {
    clock,
    seed = '',
    names = NAMES,
    ...options
  }: Omit<WebhooksModuleOptions, 'names' | 'keys'> & {
    clock: FakeClock;
    keys?: readonly string[];
    names?: readonly string[];
    seed?: string;
  },
) {
  const jobs = new Map<string, Job>();
  const warnings: unknown[] = [];
  const audit: Parameters<Audit['entry']>[0][] = [];
  const entry: Audit['entry'] = (record) => ({ writes: [], afterCommit: () => void audit.push(record) });
  const commit = createCommit(store);
  const random = countedRandom(seed);
  const module = createWebhooksModule(
    {
      store,
      clock,
      random,
      log: {
        info() {},
        warn: (...record: unknown[]) => warnings.push(record),
        error: (...record: unknown[]) => warnings.push(record),
      } as never,
      commit,
      audit: { ...SILENT_AUDIT, entry } as never,
      jobs: {
        add: (name: string, job: Job) => void jobs.set(name, job),
        runNow: async () => undefined,
      } as never,
      accountData: createAccountData(),
    },
    { names, keys: [KEY], ...options },
  );
  const [endpoints, deliveries] = [endpointCollection(store), deliveryCollection(store)];
  await store.ready();
  const run = async (name: string, { signal }: Stop = new AbortController()) => {
    const job = jobs.get(name);
    if (!job) throw new Error(`no job ${name}`);
    await job.run({ term: 1, signal });
  };
  const events = createEvents<Record<string, Record<string, unknown>>>({
    names: Object.fromEntries(names.map((name) => [name, true as const])),
    outbox: module.outbox,
    clock,
    random,
    log: { error: (...record: unknown[]) => void warnings.push(record) },
  });
  const resend = createDeliveryService({
    endpoints,
    deliveries,
    commit,
    wake() {},
    audit: { entry },
    clock,
  });
  return {
    module,
    ...events,
    ...{ commit, endpoints, deliveries, warnings, audit, resend, run },
    /** Commits an event alone. */
    async emit(...[name, payload]: Parameters<typeof events.event>) {
      await commit([await events.event(name, payload)]);
    },
    send: (stop?: Stop) => run('webhooks', stop),
    /** Adds an endpoint. */
    add: (url: string, names: string[] = []) =>
      module.service.create({ url, description: '', events: names }, OPERATOR),
    statuses: async () =>
      (await deliveries.page({ sort: 'createdAt', limit: 1000 })).items.map(({ status }) => status),
    /** The newest delivery. */
    latest: async () => (await deliveries.page({ sort: 'createdAt', limit: 1 })).items[0],
  };
}
