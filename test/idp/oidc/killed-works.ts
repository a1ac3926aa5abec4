import type { Store } from '../../../src/core/storage/collection.js';
import { createPushedAuthorization } from '../../../src/idp/oidc/authorize/pushed.js';
import { pushedRequestCollection } from '../../../src/idp/oidc/store.js';
import { fakeClock } from '../../kit/clock.js';
import { countedRandom } from '../../kit/random.js';
import {
  PERMISSION as BY_PERSON,
  setup as delegated,
  IP,
  idOf,
  PERSON,
  processOn,
} from './explored-delegations.js';
import { approved, decide, poll, setup as requested } from './explored-devices.js';

/** What a process does when it is killed. */
export interface Work {
  /** Prepares the store. Returns the token that the work uses, if it uses one. */
  prepare(store: Store): Promise<string>;
  run(store: Store, token: string): Promise<unknown>;
}

export const pushedOn = (store: Store, seed?: string) =>
  createPushedAuthorization(pushedRequestCollection(store), {
    ...{ clock: fakeClock(), random: countedRandom(seed) },
  });

const byNothing = (prepare: (store: Store) => Promise<void>) => async (store: Store) => {
  await prepare(store);
  return '';
};

export const WORKS = {
  'an exchange of the token of a delegation': {
    prepare: byNothing(delegated),
    run: (store) => processOn(store, 'worker').exchange(),
  },
  'an exchange of its successor': {
    async prepare(store) {
      await delegated(store);
      return (await processOn(store, 'first').exchange()).delegation_token ?? '';
    },
    run: (store, token) => processOn(store, 'worker').exchange(token),
  },
  'the end of a delegation': {
    async prepare(store) {
      await delegated(store);
      return (await idOf(store))[0]?.id ?? '';
    },
    run: (store, id) => processOn(store, 'worker').delegations.endOwn(PERSON, id, { ip: IP }),
  },
  'a permission in place of another': {
    prepare: byNothing(delegated),
    run: (store) => processOn(store, 'worker').delegations.give(BY_PERSON, IP),
  },
  'the use of a pushed request': {
    prepare: async (store) =>
      (await pushedOn(store, 'pushed').push('cid_1', { scope: 'openid' })).request_uri,
    run: (store, requestUri) => pushedOn(store).use(requestUri),
  },
  'the approval of a device': {
    prepare: byNothing(requested),
    run: (store) => decide('approve', 'u_ada')(store),
  },
  'the redemption of a device code': {
    prepare: byNothing(approved),
    run: (store) => poll('worker')(store),
  },
} satisfies Record<string, Work>;
