import t from 'tap';
import type { UnknownWritesRegistry } from '../../src/core/ops/unknown-writes.js';
import { type Store, StoreUnavailable } from '../../src/core/storage/collection.js';
import { openStore } from '../../src/core/storage/open.js';
import { codes, holds, insist, unknownWritesOn } from '../saas/auth/explored-service.js';
import { fakeClock } from './clock.js';
import { explore, type Scenario } from './explore.js';

/** A product whose refresh tokens have one successor each. */
interface Refreshing {
  /** Stores a session or a grant whose first token is current. */
  setup(store: Store): Promise<void>;
  /** Presents the first token to a process. */
  present(
    store: Store,
    process: { clock: ReturnType<typeof fakeClock>; unknownWrites: UnknownWritesRegistry },
  ): Promise<unknown>;
  isEnded(store: Store): Promise<boolean>;
  /** The code of the error for an older token. */
  reused: string;
}

/** Tests refreshes whose response the store loses, in every order and with every loss. */
export function testRefreshesInOutages(product: Refreshing): void {
  const clock = fakeClock();
  const start = clock.now();
  let registries: UnknownWritesRegistry[] = [];
  const begin = () => {
    clock.set(start);
    registries = [];
  };
  /** A document contains the time, so that equal states have equal times. */
  const timeIn = (store: Store) => store.collection<{ id: string; ms: number }>('time');
  const setup = async (store: Store) => {
    await product.setup(store);
    await timeIn(store).insert({ id: 'now', ms: 0 });
  };
  const pass = async (store: Store, ms: number) => {
    await timeIn(store).updateOne({ id: 'now' }, { inc: { ms } });
    clock.advance(ms);
  };
  const processOn = (store: Store) => {
    const unknownWrites = unknownWritesOn(clock);
    registries.push(unknownWrites);
    return { unknownWrites, present: () => product.present(store, { clock, unknownWrites }) };
  };

  /** Repeats the request while it gets no answer, each time at another process, after a long outage. */
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

  t.test('a refresh that took effect unnoticed in a long outage is repeated without penalty', async (t) => {
    const check: Scenario['check'] = async (store, results) => {
      insist(codes(results).join() === 'done', codes(results).join());
      insist(!(await product.isEnded(store)), 'the session has ended');
    };
    holds(t, await explore({ begin, setup, actors: [client], losses: 2, check }));
  });

  t.test('a thief who presents the older token each time is noticed, even in outages', async (t) => {
    const check: Scenario['check'] = async (store, results) => {
      insist(!codes(results).includes('accepted'), 'an outage opens the window of an answered refresh');
      for (let times = 0; times < 3; times++) {
        await Promise.all(registries.map((one) => one.settleAll()));
        clock.advance(31_000);
        await processOn(store)
          .present()
          .catch(() => undefined);
      }
      insist(await product.isEnded(store), 'the older token is accepted again and again');
    };
    const thief = async (store: Store) => {
      for (let times = 0; times < 2; times++) {
        await processOn(store)
          .present()
          .catch(() => undefined);
        await pass(store, 31_000);
      }
    };
    holds(t, await explore({ begin, setup, actors: [client, thief], losses: 1, check }));

    const answeredBefore = async (store: Store) => {
      await processOn(store).present();
      await pass(store, 31_000);
      const { present, unknownWrites } = processOn(store);
      await present().catch(() => undefined);
      await unknownWrites.settleAll();
      const isAccepted = await present().then(
        () => true,
        () => false,
      );
      if (isAccepted) throw Object.assign(new Error(), { code: 'accepted' });
    };
    holds(t, await explore({ begin, setup, actors: [answeredBefore], losses: 2, check }));
  });

  t.test('a lost rotation does not open the window of the same one by another process', async (t) => {
    begin();
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
    await t.rejects(isolated.present(), { code: product.reused });
    t.ok(await product.isEnded(store), 'the older token is a replay');
  });
}
