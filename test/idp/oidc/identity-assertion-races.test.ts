import t from 'tap';
import { MINUTE } from '../../../src/core/kernel/clock.js';
import type { Store } from '../../../src/core/storage/collection.js';
import type { Client, Principal } from '../../../src/idp/oidc/directory.js';
import { redeemAssertion } from '../../../src/idp/oidc/identity-assertions/redeem.js';
import type { Resource } from '../../../src/idp/oidc/resources.js';
import { grantCollection, usedAssertionCollection } from '../../../src/idp/oidc/store.js';
import type { TokenResponse } from '../../../src/idp/oidc/tokens/issuance.js';
import { fakeClock } from '../../kit/clock.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { grantedIn } from '../../kit/granted.js';
import { countedRandom } from '../../kit/random.js';
import { FILES, FILES_INPUT, NO_RESOURCES } from '../../kit/resources.js';
import { holds, insist } from '../../saas/auth/explored-service.js';

/** Uses of one assertion beside each other, killed at any call. */

const PERSON: Principal = {
  id: `u_${'a'.repeat(32)}`,
  handle: 'ada',
  kind: 'human',
  state: 'active',
  createdAt: 0,
  updatedAt: 0,
};
const CLIENT = { id: 'cid_1', principalKinds: ['human'], secretHash: 'x' } as never as Client;
const { requiresDpop: _, ...FILES_RESOURCE } = { ...FILES_INPUT, identifier: FILES };

/** One process, for which the assertion is valid. */
function processOn(store: Store, seed: string) {
  const [clock, random] = [fakeClock(), countedRandom(seed)];
  const resource: Resource = {
    ...FILES_RESOURCE,
    scopes: [...FILES_INPUT.scopes],
    principalKinds: [...FILES_INPUT.principalKinds],
    admitsSelfRegistered: true,
  };
  return (): Promise<TokenResponse> =>
    redeemAssertion(
      CLIENT,
      { assertion: 'x', resources: [], scope: undefined, prove: undefined },
      '192.0.2.1',
      {
        ...grantedIn(store, { clock, random }),
        ...{ grants: grantCollection(store), usedAssertions: usedAssertionCollection(store) },
        trust: { findSubject: async () => PERSON.id },
        verify: async () => ({
          issuer: {
            ...{ id: 'iss_1', createdAt: 0, updatedAt: 0, issuer: 'https://login.acme.example' },
            ...{ clients: [CLIENT.id], resources: [{ resource: FILES, scopes: ['files:read'] }] },
          },
          ...{ subject: '00u1', resources: [], scope: undefined, key: undefined, amr: [] },
          ...{ jti: 'one', authTime: clock.now(), expiresAt: clock.now() + 5 * MINUTE },
        }),
        directory: { findPrincipal: async () => PERSON },
        resources: { ...NO_RESOURCES, find: async () => resource },
        keys: { sign: async ({ jti }: { jti: string }) => jti } as never,
        claimsOf: () => ({}),
        issuer: () => 'https://id.example.test',
      },
    );
}

const grantsIn = async (store: Store) =>
  (await grantCollection(store).page({ sort: 'id', limit: 100 })).items.length;

const given = (results: (PromiseSettledResult<unknown> | undefined)[]) =>
  results.filter((result) => result?.status === 'fulfilled' && result.value !== undefined);

t.test(
  'two uses of one assertion: in every order and with a crash, there is one token at most',
  async (t) => {
    const actors = ['one', 'two'].map((seed) => (store: Store) => processOn(store, seed)());
    const check: Scenario['check'] = async (store, results) => {
      insist(given(results).length <= 1, 'two tokens');
      insist((await grantsIn(store)) <= 1, 'two grants');
      insist(results.includes(undefined) || given(results).length === 1, 'no token without a crash');
      const again = await processOn(store, 'again')().then(
        () => 'issued',
        (error: { code: string }) => error.code,
      );
      // A crash before the assertion counts as used lets the client repeat the request.
      insist(again === 'invalid_grant' || (await grantsIn(store)) === 1, again);
    };
    holds(t, await explore({ setup: async () => undefined, actors, crash: true, check }));
  },
);

t.test('a use whose writes get lost issues one token at most', async (t) => {
  const actor = async (store: Store) => {
    const use = processOn(store, 'one');
    return use().catch(() => use());
  };
  const check: Scenario['check'] = async (store) => insist((await grantsIn(store)) <= 1, 'two grants');
  holds(t, await explore({ setup: async () => undefined, actors: [actor], losses: 2, check }));
});
