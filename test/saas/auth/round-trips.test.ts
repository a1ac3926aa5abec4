import { readFileSync } from 'node:fs';
import mongodbPlugin from '@fastify/mongodb';
import pg from 'pg';
import t, { type Test } from 'tap';
import { personOf } from '../../../src/core/http/identity.js';
import { createMessages } from '../../../src/core/http/messages.js';
import { createAudit } from '../../../src/core/ops/audit.js';
import { NO_EFFECT } from '../../../src/core/ops/commit.js';
import { createEvents } from '../../../src/core/ops/events.js';
import { createModuleContext } from '../../../src/core/server/module-context.js';
import type { Store, Write } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { AUTH_EVENTS, type AuthEvents } from '../../../src/saas/auth/events.js';
import { createAccountMails } from '../../../src/saas/auth/mails.js';
import { createUsersModule } from '../../../src/saas/auth/module.js';
import { sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { createSettingsModule } from '../../../src/saas/settings/module.js';
import { createMailContent } from '../../../src/shared/email/content.js';
import { createOutbox } from '../../../src/shared/email/outbox.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { onEngines } from '../../core/storage/engines.js';
import { CHEAP, PASSWORD } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { withEachCall } from '../../kit/each-call.js';
import { countedRandom } from '../../kit/random.js';
import { NO_CUSTOMERS } from '../../kit/users.js';
import { webhooksOn } from '../webhooks/kit.js';
import { serviceOn } from './explored-service.js';

/**
 * How often each request waits for the database: what counts if it is far away. Everything that calls it is the real thing;
 * tasks that follow a response run when the test says so.
 */

const CLIENT = { ip: '203.0.113.7', isDisconnected: () => false };
const EMAIL = 'ada@example.test';

/** Opens stores, and tells each message that a server gets; on SQLite, each call of the store. */
const OPEN: Record<string, (t: Test, uri: string, onMessage: (what: string) => void) => Promise<Store>> = {
  SQLite: async (_t, uri, onMessage) =>
    withEachCall(await openStore(uri), (call, name, [writes]) => {
      const written = name === 'commit' ? (writes as Write[]).map(({ collection }) => collection) : [];
      onMessage([name, ...written].join(' '));
      return call();
    }),
  async PostgreSQL(t, uri, onMessage) {
    const pool = new pg.Pool({ connectionString: uri });
    t.teardown(() => pool.end());
    // Each call takes a connection for one message.
    pool.on('acquire', () => onMessage('message'));
    return openStore({ pool, schema: new URL(uri).searchParams.get('schema') ?? '' });
  },
  async MongoDB(t, uri, onMessage) {
    const client = new mongodbPlugin.mongodb.MongoClient(uri, { monitorCommands: true });
    t.teardown(() => client.close());
    client.on('commandStarted', ({ commandName }) => onMessage(commandName));
    return openStore({ mongo: { client }, prefix: '' });
  },
};

/** Accounts on a store, with rate limits and a webhook that receives every event. */
async function accounts(t: Test, engine: string, uri: string) {
  const calls: string[] = [];
  const store = (await OPEN[engine]?.(t, uri, (what) => void calls.push(what))) as Store;
  t.teardown(() => store.close());
  const clock = fakeClock();
  const random = countedRandom('accounts');
  const log = { info() {}, warn() {}, error: (...lines: unknown[]) => t.fail(String(lines)) };
  const context = createModuleContext(store, {
    ...{
      production: true,
      clock,
      random,
      log,
      createAudit,
      throttleSecret: 'x',
      limits: true,
      hashing: CHEAP,
    },
  });
  const webhooks = await webhooksOn(store, {
    ...{ clock, reach: 'loopback', names: Object.keys(AUTH_EVENTS) },
  });
  await webhooks.add('http://127.0.0.1:9/');
  const { event } = createEvents<AuthEvents>({
    ...{ names: AUTH_EVENTS, outbox: webhooks.module.outbox, clock, random, log },
  });
  const settings = createSettingsModule(context, { operator: 'operator' });
  const { siteName, registrationAllowed } = settings;
  const users = userCollection(store);
  const { foreignHashes, presentUser } = createUsersModule(context, {
    ...{ users, siteName, event },
    summaryOf: () => ({ status: 'none', plan: 'free', entitled: false }),
    profileMark: () => ({}),
    profileChanged: NO_EFFECT,
    customers: NO_CUSTOMERS,
    hasFactor: async () => false,
  });
  const links: Record<string, string> = {};
  const outbox = createOutbox({
    mails: mailCollection(store),
    content: createMailContent({ secrets: ['x'], previousVariable: '', random }),
    messages: createMessages(),
    publicUrl: () => 'http://app.example.test',
    wake: () => undefined,
    ...{ clock, random },
  });
  const page = (path: string) => () => `http://app.example.test/${path}`;
  const mails = createAccountMails({
    outbox: {
      mail(mail) {
        links[mail.template] = String(mail.values['link']).split('token=')[1] ?? '';
        return outbox.mail(mail);
      },
    },
    pages: { reset: page('reset'), verify: page('verify'), unlock: page('unlock') },
    clock,
  });
  const later: (() => Promise<unknown>)[] = [];
  const service = serviceOn(store, 'accounts', {
    ...context,
    ...{ users, foreignHashes, presentUser, mails, siteName, registrationAllowed, event },
    sessions: sessionCollection(store),
    backgroundTasks: { run: (_what, work) => void later.push(work) },
    random,
  });
  await store.ready();
  return {
    service,
    settings: settings.service,
    clock,
    links,
    /** The calls until the response. */
    async callsOf<T>(request: () => Promise<T>) {
      calls.length = 0;
      const answer = await request();
      const made = [...calls];
      for (const task of later.splice(0)) await task();
      return { answer, calls: made };
    },
  };
}

/** The numbers of docs/explain/performance.md for an engine by request. */
function documented(engine: string): Map<string, number> {
  const page = readFileSync(new URL('../../../../docs/explain/performance.md', import.meta.url), 'utf8');
  const engines = /^\| Request \| (.*) \|$/m.exec(page)?.[1]?.split(' | ') ?? [];
  const rows = page.matchAll(/^\| `(?:GET|POST) \/api([^`]+)`[^|]* \| (\d[\d |]+\d) \|$/gm);
  return new Map(
    [...rows].map(([, path = '', counts = '']) => [
      path,
      Number(counts.split(' | ')[engines.indexOf(engine)]),
    ]),
  );
}

async function counts(t: Test, engine: string, uri: string): Promise<void> {
  const { service, settings, clock, links, callsOf } = await accounts(t, engine, uri);
  const expected = documented(engine);
  // A transaction of MongoDB takes a message for each document: one for several collections exists only from version 8.
  t.ok((expected.get('/auth/register') ?? 0) <= (engine === 'MongoDB' ? 9 : 5), 'a registration');
  const measure = async <T>(path: string, request: () => Promise<T>): Promise<T> => {
    // Imported hashes are read again after a second.
    clock.advance(2_000);
    await settings.current();
    const { answer, calls } = await callsOf(request);
    t.equal(calls.length, expected.get(path), `${path}: ${calls.join(', ')}`);
    expected.delete(path);
    return answer;
  };
  const signIn = { email: EMAIL, password: PASSWORD };
  const first = await measure('/auth/register', () => service.register(signIn, CLIENT));
  const { refreshToken } = await measure('/auth/login', () => service.login(signIn, CLIENT));
  const identity = async () => personOf(await service.authenticate(`Bearer ${refreshToken}`));
  await measure('/auth/me', identity);
  await measure('/auth/refresh', () => service.refresh(refreshToken, CLIENT));
  const leaving = { refreshToken: first?.refreshToken ?? '', scope: 'local' } as const;
  await measure('/auth/logout', () => service.logout(leaving, CLIENT));
  const passwords = { currentPassword: PASSWORD, newPassword: 'another good password' };
  await measure('/user/password', async () => service.changePassword(await identity(), passwords, CLIENT));
  await measure('/auth/forgot-password', () => service.forgotPassword(EMAIL, CLIENT));
  const reset = { token: links['password-reset'] ?? '', password: PASSWORD };
  await measure('/auth/reset-password', () => service.resetPassword(reset, CLIENT));
  const again = await service.login(signIn, CLIENT);
  await measure('/user/delete', async () => {
    const leaving = personOf(await service.authenticate(`Bearer ${again.refreshToken}`));
    await service.deleteAccount(leaving, PASSWORD, CLIENT);
  });
  t.same([...expected], []);
}

await onEngines((engine, fresh) => {
  t.test(`${engine}: each request waits for the database as often as docs/explain/performance.md says`, (t) =>
    counts(t, engine, fresh(t)),
  );
});
