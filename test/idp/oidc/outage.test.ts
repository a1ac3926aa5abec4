import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createUnknownWrites, type UnknownWritesRegistry } from '../../../src/core/ops/unknown-writes.js';
import { type Store, StoreUnavailable } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { newRefreshToken } from '../../../src/idp/oidc/grant-tokens.js';
import { grantCollection } from '../../../src/idp/oidc/store.js';
import { refreshTokens } from '../../../src/idp/oidc/tokens/refresh.js';
import { fakeClock } from '../../kit/clock.js';
import { explore } from '../../kit/explore.js';
import { grantedIn } from '../../kit/granted.js';
import { SEED } from '../../kit/idp.js';
import { oidcOn } from '../../kit/oidc.js';
import { countedRandom } from '../../kit/random.js';

/** Refreshes whose response the store loses, in every order and with every loss. */

/** A family whose token `first` is current, at a time that passes between the calls of an actor. */
function familyInOutage() {
  const clock = fakeClock();
  const [start, id] = [clock.now(), `gr_${'0'.repeat(32)}`];
  const first = newRefreshToken(id, countedRandom(), SEED);
  const quiet = { now: clock.now, every: () => () => undefined };
  let registries: UnknownWritesRegistry[] = [];
  /** A process of its own. */
  const processOn = (store: Store) => {
    const unknownWrites = createUnknownWrites({ clock: quiet, log: { error: () => undefined } });
    registries.push(unknownWrites);
    const principal = { id: 'u_1', kind: 'agent', handle: 'a' };
    const granted = grantedIn(store, { clock, random: countedRandom() });
    const directory = { findPrincipal: async () => principal as never };
    const deps = oidcOn(store, granted, { unknownWrites, directory });
    const client = { id: 'cid_1', principalKinds: ['agent'] } as never;
    const request = { fields: {}, resources: [], prove: undefined, ip: '192.0.2.1' };
    return { unknownWrites, present: () => refreshTokens(client, first, request, deps) };
  };
  return {
    clock,
    processOn,
    begin() {
      clock.set(start);
      registries = [];
    },
    async setup(store: Store) {
      await store.collection<{ id: string; ms: number }>('time').insert({ id: 'now', ms: 0 });
      await grantCollection(store).insert({
        id,
        codeHash: 'x',
        clientId: 'cid_1',
        sub: 'u_1',
        redirectUri: 'x:',
        scope: 'offline_access',
        authTime: start,
        createdAt: start,
        codeExpiresAt: start,
        consumedAt: start,
        refreshHash: sha256(first),
        refreshExpiresAt: start + 3_600_000,
      });
    },
    async pass(store: Store, ms: number) {
      await store.collection<{ id: string; ms: number }>('time').updateOne({ id: 'now' }, { inc: { ms } });
      clock.advance(ms);
    },
    settleAll: () => Promise.all(registries.map((one) => one.settleAll())),
    isRevoked: async (store: Store) =>
      (await grantCollection(store).findOne({ id }))?.revokedAt !== undefined,
  };
}

t.test('a refresh that took effect unnoticed in a long outage is repeated without penalty', async (t) => {
  const { begin, setup, processOn, pass, isRevoked } = familyInOutage();
  const client = async (store: Store) => {
    for (;;) {
      const { present, unknownWrites } = processOn(store);
      try {
        return await present();
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
      }
      await pass(store, 45_000);
      // Again, because the write that settles may remain unanswered as well.
      for (let times = 0; times < 2; times++) await unknownWrites.settleAll();
    }
  };
  const { failure, orders } = await explore({
    begin,
    setup,
    actors: [client],
    losses: 2,
    async check(store, [result]) {
      if (result?.status !== 'fulfilled') throw new Error(`refused: ${result?.reason}`);
      if (await isRevoked(store)) throw new Error('the family is revoked');
    },
  });
  t.equal(failure, undefined);
  t.ok(orders > 3, `${orders} orders`);
});

t.test('a thief who presents the older token each time is noticed, even in outages', async (t) => {
  const { clock, begin, setup, processOn, pass, settleAll, isRevoked } = familyInOutage();
  const client = async (store: Store) => {
    await processOn(store).present();
    await pass(store, 31_000);
    const thief = processOn(store);
    await thief.present().catch(() => undefined);
    await thief.unknownWrites.settleAll();
    const isAccepted = await thief.present().then(
      () => true,
      () => false,
    );
    if (isAccepted) throw new Error('accepted');
  };
  const { failure, orders } = await explore({
    begin,
    setup,
    actors: [client],
    losses: 2,
    async check(store, [result]) {
      const reason = result?.status === 'rejected' ? String(result.reason.message) : '';
      if (reason === 'accepted') throw new Error('an outage opens the window of a refresh that was answered');
      for (let times = 0; times < 3; times++) {
        await settleAll();
        clock.advance(31_000);
        await processOn(store)
          .present()
          .catch(() => undefined);
      }
      if (!(await isRevoked(store))) throw new Error('the older token is accepted again and again');
    },
  });
  t.equal(failure, undefined);
  t.ok(orders > 3, `${orders} orders`);
});

t.test(
  'a rotation that was lost does not open the window of the same rotation by another process',
  async (t) => {
    const { clock, processOn, setup, isRevoked } = familyInOutage();
    const store = await openStore('sqlite::memory:');
    t.teardown(() => store.close());
    await setup(store);
    let isLost = true;
    const collection = ((...args: Parameters<Store['collection']>) => {
      const actual = store.collection(...args);
      const changeOne: typeof actual.changeOne = async (...change) => {
        if (isLost) throw new StoreUnavailable('no response', { mayHaveTakenEffect: true });
        return actual.changeOne(...change);
      };
      return { ...actual, changeOne };
    }) as Store['collection'];
    const isolated = processOn({ ...store, collection });
    await t.rejects(isolated.present(), StoreUnavailable);
    isLost = false;
    clock.advance(1000);
    await processOn(store).present();
    clock.advance(31_000);
    await isolated.unknownWrites.settleAll();
    await t.rejects(isolated.present(), { code: 'invalid_grant' });
    t.ok(await isRevoked(store), 'the older token is a replay');
  },
);
