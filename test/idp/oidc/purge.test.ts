import t, { type Test } from 'tap';
import { type Clock, systemClock } from '../../../src/core/kernel/clock.js';
import { purgeExpired } from '../../../src/core/ops/purge.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { covers } from '../../../src/idp/oidc/consents.js';
import { createPurges } from '../../../src/idp/oidc/purge.js';
import {
  consentCollection,
  type GrantDocument,
  type Grants,
  grantCollection,
  sessionCollection,
} from '../../../src/idp/oidc/store.js';
import { fakeClock } from '../../kit/clock.js';
import { explore } from '../../kit/explore.js';
import { grantedIn } from '../../kit/granted.js';
import { type Credentials, type IdpApp, idpApp, idpStore, type RegisteredClient } from '../../kit/idp.js';
import { countedRandom } from '../../kit/random.js';
import { waitUntil } from '../../kit/wait.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Retention after expiry, for clock skew. */
const MARGIN = 5 * MINUTE;

const NEVER = new AbortController().signal;

function collectionsOf(store: Store) {
  return {
    grants: grantCollection(store),
    sessionDocuments: sessionCollection(store),
    consentDocuments: consentCollection(store),
  };
}

/** The purge of another process on the store of `idp`, with the same clock. */
const purgerOf = async (t: Test, idp: IdpApp) => purgerOn(await idpStore(t, idp), idp.clock);

function purgerOn(store: Store, clock: Clock) {
  const collections = collectionsOf(store);
  const gone = { clients: new Set<string>(), principals: new Set<string>() };
  const directory = {
    findClient: async (id: string) => (gone.clients.has(id) ? null : ({ id } as never)),
    isDeleted: async (sub: string) => gone.principals.has(sub),
  };
  const jobs = createPurges({ ...collections, directory, clock });
  const purge = async (signal = NEVER) => {
    for (const job of Object.values(jobs)) await job.run({ term: 1, signal });
  };
  return { ...collections, gone, purge };
}

const grantsOf = async (grants: Grants): Promise<GrantDocument[]> =>
  (await grants.page({ sort: 'id', limit: 1000 })).items;

/** When the last code or token of a grant expires. */
function endOf({
  codeExpiresAt,
  consumedAt,
  accessTokens = [],
  refreshExpiresAt = 0,
}: GrantDocument): number {
  const times = accessTokens.map(({ expiresAt }) => expiresAt);
  return Math.max(consumedAt === undefined ? codeExpiresAt : 0, refreshExpiresAt, ...times);
}

/** Every kind of history that a grant can have, in one provider; keeps the issued tokens for later requests. */
async function history(idp: IdpApp) {
  const [client, agent]: [RegisteredClient, Credentials] = [await idp.createClient(), await idp.mintAgent()];
  const access: string[] = [];
  const refresh: string[] = [];
  const families: { token: string }[] = [];
  const keep = ({
    access_token: at,
    refresh_token: rt,
  }: {
    access_token: string;
    refresh_token?: string;
  }) => {
    access.push(at);
    if (rt) refresh.push(rt);
    return rt ?? '';
  };
  const signIn = async (scope: string) =>
    keep((await idp.redeem(client, await idp.codeFor(client, agent, { scope }))).body);
  const renew = async (family: { token: string }) => {
    const { status, body } = await idp.refresh(client, family.token);
    if (status === 200) family.token = keep(body);
    return status;
  };
  return {
    async begin() {
      await idp.codeFor(client, agent);
      await signIn('openid');
      for (let count = 0; count < 3; count++) families.push({ token: await signIn('openid offline_access') });
      const late = await idp.codeFor(client, agent, { scope: 'openid offline_access' });
      idp.clock.advance(MINUTE - 1);
      families.push({ token: keep((await idp.redeem(client, late)).body) });
      const revoked = await signIn('openid offline_access');
      await idp.request('POST', '/revoke', {
        form: { token: revoked, client_id: client.id, client_secret: client.secret ?? '' },
      });
    },
    /** One family is never refreshed, one now and then, one every day. */
    use: async (day: number) => [
      await renew(families[0] as { token: string }),
      ...(day % 25 === 0 ? [await renew(families[1] as { token: string })] : []),
    ],
    /** Queries the first and the last of the issued tokens, without changing anything. */
    async queryTokens() {
      const about = async (token: string) => {
        const form = { token, client_id: client.id, client_secret: client.secret ?? '' };
        return (await idp.request('POST', '/introspect', { form })).body;
      };
      return {
        userinfo: await Promise.all(some(access).map(async (token) => (await idp.userinfo(token)).status)),
        access: await Promise.all(some(access).map(about)),
        refresh: await Promise.all(some(refresh).map(about)),
      };
    },
  };
}

const some = (tokens: string[]) => [...tokens.slice(0, 10), ...tokens.slice(10).slice(-4)];

/** Removes the random identifiers. */
const shape = (answers: object): string =>
  JSON.stringify(answers, (key, value) => (['sub', 'client_id', 'aud'].includes(key) ? undefined : value));

t.test(
  'removing expired documents changes no answer, keeps live ones and leaves no expired one for long',
  async (t) => {
    const purged = await idpApp(t);
    const { grants, purge } = await purgerOf(t, purged);
    // The same provider without a purge, at the same times.
    const kept = await idpApp(t);
    const stores = { kept: grantCollection(await idpStore(t, kept)) };
    const histories = [await history(purged), await history(kept)] as const;
    for (const { begin } of histories) await begin();

    let removed = 0;
    const compare = async (at: number) => {
      if (at < purged.clock.now()) return;
      for (const { clock } of [purged, kept]) clock.set(at);
      const before = await grantsOf(grants);
      await purge();
      const after = new Set((await grantsOf(grants)).map(({ id }) => id));
      for (const grant of before) {
        const over = at - endOf(grant);
        if (over < MARGIN && !after.has(grant.id)) t.fail(`removed ${MARGIN - over} ms too early`);
        if (over >= MARGIN + DAY && after.has(grant.id)) t.fail(`is there ${over} ms after its end`);
      }
      removed += before.length - after.size;
      const [one, other] = [await histories[0].queryTokens(), await histories[1].queryTokens()];
      t.equal(shape(one), shape(other), `at ${at}`);
    };

    const start = purged.clock.now();
    for (let day = 0; day <= 95; day += 5) {
      const noon = start + day * DAY;
      for (const after of [0, HOUR - MINUTE, HOUR + MINUTE + MARGIN]) await compare(noon + after);
      // The latest moment: the access token outlives its family.
      const useAt = day === 85 ? start + 90 * DAY - MINUTE : noon + 2 * HOUR;
      for (const { clock } of [purged, kept]) clock.set(useAt);
      t.same(await histories[0].use(day), await histories[1].use(day));
      // Both sides of every expiry stored now.
      const borders = (await grantsOf(grants)).flatMap((grant) => [endOf(grant), endOf(grant) + MARGIN]);
      const near = borders.filter((at) => at > useAt && at < useAt + DAY).toSorted((a, b) => a - b);
      for (const at of near) for (const side of [-1, 0]) await compare(at + side);
    }
    t.equal(await grants.count(), 0);
    t.equal(removed, await stores.kept.count(), 'all of them are still there without the purge');
  },
);

t.test('token families alive at the first purge are checked again later', async (t) => {
  // Without a provider, whose own purge would remove what this one leaves.
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  const { grants, purge } = purgerOn(store, clock);
  const createdAt = clock.now();
  const id = (index: number) =>
    `gr_${createdAt.toString(16).padStart(12, '0')}${String(index).padStart(20, '0')}`;
  const rest = {
    clientId: 'cid_1',
    sub: 'u_1',
    redirectUri: 'x:',
    scope: 'openid',
    authTime: createdAt,
    createdAt,
  };
  const times = {
    codeExpiresAt: createdAt + MINUTE,
    consumedAt: createdAt,
    refreshExpiresAt: createdAt + 30 * DAY,
  };
  const some = Array.from({ length: 450 }, (_, index) => ({
    id: id(index),
    codeHash: `code ${index}`,
    ...rest,
    ...times,
  }));
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

t.test('sessions are removed once they have expired, not before', async (t) => {
  const idp = await idpApp(t);
  const { sessionDocuments: sessions, purge } = await purgerOf(t, idp);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const { browser, page } = await idp.visit(client);
  await browser.submit(page, { handle: human.handle, password: human.password });
  const start = idp.clock.now();
  for (const [at, expected] of [
    [HOUR + MARGIN - 1, 1],
    [HOUR + MARGIN, 0],
  ] as const) {
    idp.clock.set(start + at);
    await purge();
    t.equal(await sessions.count(), expected, `after ${at} ms`);
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
  const { consentDocuments: consents } = collectionsOf(store);
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

t.test('a session extended during its removal stays', async (t) => {
  const NOW = Date.UTC(2040, 0, 1);
  const id = 'sid_1';
  const { failure, orders } = await explore({
    async setup(store) {
      const session = { id, tokenHash: 'x', sub: 'u_1', authTime: 1, createdAt: 1, expiresAt: 1 };
      await sessionCollection(store).insert(session);
    },
    actors: [
      (store) => purgeExpired(sessionCollection(store), { now: NOW, signal: NEVER }),
      (store) => purgeExpired(sessionCollection(store), { now: NOW, signal: NEVER }),
      (store) => sessionCollection(store).updateOne({ id }, { set: { expiresAt: NOW } }),
    ],
    crash: true,
    async check(store, [, , prolonged]) {
      const isThere = (await sessionCollection(store).findOne({ id })) !== null;
      const wasThere = prolonged?.status === 'fulfilled' && prolonged.value !== null;
      if (wasThere && !isThere) throw new Error('a living session was removed');
    },
  });
  t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
  t.ok(orders > 10);
});

t.test('expired grants are removed in batches, with one write per revision', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const grants = grantCollection(store);
  const now = Date.now();
  const insert = (index: number, createdAt: number) =>
    grants.insert({
      id: `gr_${createdAt.toString(16).padStart(12, '0')}${String(index).padStart(20, '0')}`,
      ...{ codeHash: `code ${index}`, clientId: 'cid_1', sub: 'u_1', redirectUri: 'x:', scope: 'openid' },
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
  const directory = { findClient: async () => null, isDeleted: async () => true };
  const jobs = createPurges({ ...collectionsOf(store), grants: counting, directory, clock: systemClock });
  const report = await jobs['grant-purge']?.run({ term: 1, signal: NEVER });
  t.same(report, { removed: 400, isComplete: true });
  t.same(writes, [200, 200]);
  t.equal(await grants.count(), 3);
});

t.test('a family that is refreshed while it is being removed stays', async (t) => {
  const id = `gr_${'0'.repeat(32)}`;
  const old = { id, codeHash: 'x', clientId: 'cid_1', sub: 'u_1', redirectUri: 'x:', scope: 'openid' };
  const times = { authTime: 1, createdAt: 1, codeExpiresAt: 1, consumedAt: 1, refreshExpiresAt: 2 };
  const purge = (store: Store) => {
    const directory = { findClient: async () => null, isDeleted: async () => false };
    const jobs = createPurges({ ...collectionsOf(store), directory, clock: { now: () => DAY } });
    return jobs['grant-purge']?.run({ term: 1, signal: NEVER }) ?? Promise.reject(new Error('no such job'));
  };
  const { failure, orders } = await explore({
    setup: (store) => grantCollection(store).insert({ ...old, ...times }),
    actors: [
      purge,
      purge,
      (store) =>
        grantCollection(store).updateOne(
          { id, revision: null },
          { set: { refreshExpiresAt: 30 * DAY }, inc: { revision: 1 } },
        ),
    ],
    crash: true,
    async check(store, [, , refreshed]) {
      const isThere = (await grantCollection(store).findOne({ id })) !== null;
      const wasThere = refreshed?.status === 'fulfilled' && refreshed.value !== null;
      if (wasThere && !isThere) throw new Error('a living family was removed');
    },
  });
  t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
  t.ok(orders > 5);
});
