import t from 'tap';
import { type Clock, systemClock } from '../../../src/core/kernel/clock.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { covers } from '../../../src/idp/oidc/consents.js';
import { createPurges } from '../../../src/idp/oidc/purge.js';
import {
  consentCollection,
  type GrantDocument,
  type Grants,
  grantCollection,
  type Sessions,
  sessionCollection,
} from '../../../src/idp/oidc/store.js';
import { fakeClock } from '../../kit/clock.js';
import { grantedIn } from '../../kit/granted.js';
import { idpApp, idpStore } from '../../kit/idp.js';
import { countedRandom } from '../../kit/random.js';
import { waitUntil } from '../../kit/wait.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Retention after expiry, for clock skew. */
const MARGIN = 5 * MINUTE;

const NEVER = new AbortController().signal;

function purgerOn(store: Store, clock: Clock) {
  const collections = { grants: grantCollection(store), consentDocuments: consentCollection(store) };
  const gone = { clients: new Set<string>(), principals: new Set<string>() };
  const directory = {
    findClient: async (id: string) => (gone.clients.has(id) ? null : ({ id } as never)),
    isDeleted: async (sub: string) => gone.principals.has(sub),
  };
  const jobs = createPurges({ ...collections, directory, clock } as never);
  const purge = async (signal = NEVER) => {
    for (const name of ['grant-purge', 'consent-purge']) await jobs[name]?.run({ term: 1, signal });
  };
  return { ...collections, gone, purge };
}

/** What every grant has. */
const grantOf = (createdAt: number, index: number) => ({
  id: `gr_${createdAt.toString(16).padStart(12, '0')}${String(index).padStart(20, '0')}`,
  ...{ codeHash: `code ${index}`, clientId: 'cid_1', sub: 'u_1', redirectUri: 'x:', scope: 'openid' },
});

/** Grants of every kind, and when the last code or token of each expires. */
const KINDS: Record<string, { ends: number } & Partial<GrantDocument>> = {
  'an unused code': { ends: MINUTE },
  'a redeemed code': { ends: HOUR, consumedAt: 0, accessTokens: [{ hash: 'x', expiresAt: HOUR }] },
  'a code that was redeemed at the last moment': {
    ...{ ends: HOUR + MINUTE, consumedAt: MINUTE },
    accessTokens: [{ hash: 'x', expiresAt: HOUR + MINUTE }],
  },
  'a family that is never refreshed': { ends: 30 * DAY, consumedAt: 0, refreshExpiresAt: 30 * DAY },
  'a family whose access token outlives it': {
    ...{ ends: 90 * DAY + HOUR, consumedAt: 0, refreshExpiresAt: 90 * DAY, revision: 3 },
    accessTokens: [{ hash: 'x', expiresAt: 90 * DAY + HOUR }],
  },
  'a family that was revoked': { ends: 30 * DAY, consumedAt: 0, refreshExpiresAt: 30 * DAY, revokedAt: 1 },
};

for (const [what, { ends, ...more }] of Object.entries(KINDS)) {
  t.test(`${what} is removed within a day after its end, and not before`, async (t) => {
    const store = await openStore('sqlite::memory:');
    t.teardown(() => store.close());
    const clock = fakeClock();
    const { grants, purge } = purgerOn(store, clock);
    const createdAt = clock.now();
    const shifted = JSON.parse(JSON.stringify(more), (key, value) =>
      /(At|Until)$/.test(key) ? createdAt + value : value,
    );
    const times = { authTime: createdAt, createdAt, codeExpiresAt: createdAt + MINUTE };
    await grants.insert({ ...grantOf(createdAt, 0), ...times, ...shifted });
    // Also a purge that has read it before it could expire.
    for (const at of [0, HOUR + 12 * MINUTE, ends + MARGIN - 1]) {
      clock.set(Math.max(clock.now(), createdAt + at));
      await purge();
      t.equal(await grants.count(), 1);
    }
    clock.set(createdAt + ends + MARGIN + DAY);
    await purge();
    t.equal(await grants.count(), 0);
  });
}

t.test('token families alive at the first purge are checked again later', async (t) => {
  // Without a provider, whose own purge would remove what this one leaves.
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  const { grants, purge } = purgerOn(store, clock);
  const createdAt = clock.now();
  const times = {
    ...{ authTime: createdAt, createdAt, consumedAt: createdAt },
    ...{ codeExpiresAt: createdAt + MINUTE, refreshExpiresAt: createdAt + 30 * DAY },
  };
  const some = Array.from({ length: 450 }, (_, index) => ({ ...grantOf(createdAt, index), ...times }));
  await Promise.all(some.map((grant) => grants.insert(grant)));
  for (const [at, expected] of [
    [2 * HOUR, 450],
    [30 * DAY + MARGIN - 1, 450],
    [31 * DAY + MARGIN, 0],
  ] as const) {
    clock.set(createdAt + at);
    await purge();
    t.equal(await grants.count(), expected);
  }
});

t.test('consents are removed with their application or person, and no others', async (t) => {
  // Without a provider, whose own purge would miss these people and applications.
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  const { consentDocuments: consents, gone, purge } = purgerOn(store, clock);
  const { consents: service } = grantedIn(store, { clock, random: countedRandom() });
  const people = Array.from({ length: 150 }, (_, person) => `u_${person}`);
  for (const client of ['cid_old', 'cid_new', 'cid_other']) {
    await Promise.all(people.map((sub) => service.remember(sub, client, 'openid')));
  }
  await purge();
  t.equal(await consents.count(), 450);
  gone.clients.add('cid_old');
  gone.principals.add('u_7').add('u_149');
  const ended = new AbortController();
  ended.abort();
  await purge(ended.signal);
  t.equal(await consents.count(), 450, 'an aborted purge removes nothing');
  await purge();
  t.equal(await consents.count(), 2 * 148);
  t.equal(covers(await service.find('u_8', 'cid_new'), 'openid'), true);
  t.equal(covers(await service.find('u_8', 'cid_old'), 'openid'), false);
  t.equal(covers(await service.find('u_7', 'cid_new'), 'openid'), false);
});

t.test('the purge removes consents of deleted principals and keeps those of disabled ones', async (t) => {
  const idp = await idpApp(t);
  const store = await idpStore(t, idp);
  const consents = consentCollection(store);
  const { consents: service } = grantedIn(store, idp);
  const client = await idp.createClient();
  const [away, lockedOut, deleted] = [await idp.makeHuman(), await idp.makeHuman(), await idp.mintAgent()];
  await idp.admin('POST', `/v1/principals/${lockedOut.sub}/disable`);
  await idp.admin('DELETE', `/v1/agents/${deleted.sub}`);
  for (const { sub } of [away, lockedOut, deleted]) await service.remember(sub, client.id, 'openid');
  await service.remember(away.sub, `cid_${'0'.repeat(32)}`, 'openid');
  idp.clock.advance(HOUR);
  // A starting process runs overdue jobs at once.
  await idpApp(t, { databaseUri: idp.databaseUri, clock: idp.clock });
  await waitUntil('the purge', async () => (await consents.count()) <= 2);
  t.equal(covers(await service.find(away.sub, client.id), 'openid'), true);
  t.equal(covers(await service.find(lockedOut.sub, client.id), 'openid'), true);
});

t.test('expired grants are removed in batches, with one write per revision', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const grants = grantCollection(store);
  const now = Date.now();
  const insert = (index: number, createdAt: number) =>
    grants.insert({
      ...grantOf(createdAt, index),
      ...{ authTime: createdAt, createdAt, codeExpiresAt: createdAt + MINUTE },
    });
  for (let index = 0; index < 400; index++) await insert(index, now - 3 * HOUR);
  for (let index = 400; index < 403; index++) await insert(index, now);
  const writes: number[] = [];
  const counting: Grants = {
    ...grants,
    deleteOne: async () => t.fail('one write per document') as never,
    async deleteMany(where) {
      const removed = await grants.deleteMany(where);
      writes.push(removed);
      return removed;
    },
  };
  const directory = { isDeleted: async () => true };
  const jobs = createPurges({ grants: counting, directory, clock: systemClock } as never);
  const report = await jobs['grant-purge']?.run({ term: 1, signal: NEVER });
  t.same(report, { removed: 400, isComplete: true });
  t.same(writes, [200, 200]);
  t.equal(await grants.count(), 3);
});

t.test('a family that is refreshed while it is being removed stays', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const grants = grantCollection(store);
  const times = { authTime: 1, createdAt: 1, codeExpiresAt: 1, consumedAt: 1, refreshExpiresAt: 2 };
  await grants.insert({ ...grantOf(1, 0), ...times });
  const refreshed: Grants = {
    ...grants,
    async page(query) {
      const page = await grants.page(query);
      const { id = '' } = page.items[0] ?? {};
      await grants.updateOne({ id }, { set: { refreshExpiresAt: 30 * DAY }, inc: { revision: 1 } });
      return page;
    },
  };
  const directory = { isDeleted: async () => false };
  const jobs = createPurges({ grants: refreshed, directory, clock: { now: () => DAY } } as never);
  await jobs['grant-purge']?.run({ term: 1, signal: NEVER });
  t.equal(await grants.count(), 1);
});

t.test('sessions are removed once they have expired, unless they are extended meanwhile', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  const sessions = sessionCollection(store);
  const expiresAt = clock.now();
  for (const id of ['sid_1', 'sid_2'])
    await sessions.insert({ id, tokenHash: 'x', sub: 'u_1', authTime: 1, createdAt: 1, expiresAt });
  const extended: Sessions = {
    ...sessions,
    async page(query) {
      const page = await sessions.page(query);
      await sessions.updateOne({ id: 'sid_1' }, { set: { expiresAt: expiresAt + HOUR } });
      return page;
    },
  };
  const jobs = createPurges({ sessionDocuments: extended, clock } as never);
  for (const [after, left] of [
    [MARGIN - 1, 2],
    [MARGIN, 1],
  ] as const) {
    await sessions.updateOne({ id: 'sid_1' }, { set: { expiresAt } });
    clock.set(expiresAt + after);
    await jobs['session-purge']?.run({ term: 1, signal: NEVER });
    t.equal(await sessions.count(), left);
  }
});
