import { sha256 } from '../../../src/core/kernel/secrets.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { hashUserCode } from '../../../src/idp/oidc/device/codes.js';
import { createDeviceFlow } from '../../../src/idp/oidc/device/service.js';
import { deviceRequestCollection } from '../../../src/idp/oidc/device/store.js';
import type { Directory } from '../../../src/idp/oidc/directory.js';
import { grantCollection, sessionCollection } from '../../../src/idp/oidc/store.js';
import { createTokenService } from '../../../src/idp/oidc/tokens/service.js';
import { fakeClock } from '../../kit/clock.js';
import { grantedIn } from '../../kit/granted.js';
import { SEED } from '../../kit/idp.js';
import { countedRandom } from '../../kit/random.js';
import { NO_DELEGATIONS, NO_RESOURCES } from '../../kit/resources.js';
import { unknownWritesOn } from '../../saas/auth/explored-service.js';

/** The device flow as one of several processes runs it, and a request in the store. */

export const ID = '0'.repeat(32);
const USER_CODE = 'WDJBMJHT';
export const DEVICE_CODE = `dc_${ID}${'x'.repeat(43)}`;
export const CLIENT = {
  ...{ id: 'cid_1', name: 'TV', redirectUris: [], postLogoutRedirectUris: [] },
  ...{ principalKinds: ['human'] as ['human'], device: true as const },
};

/** The service of one process. */
export function flowOn(store: Store, seed: string) {
  const clock = fakeClock();
  const deps = {
    ...grantedIn(store, { clock, random: countedRandom(seed) }),
    grants: grantCollection(store),
    sessionDocuments: sessionCollection(store),
    resources: NO_RESOURCES,
    directory: {
      findClient: async () => CLIENT,
      findPrincipal: async (id: string) => ({ id, kind: 'human', handle: id }),
    } as unknown as Directory,
    seeds: [SEED] as const,
    reuseWindowMs: 30_000,
  };
  const tokens = createTokenService({
    ...deps,
    ...NO_DELEGATIONS,
    seeds: [SEED],
    unknownWrites: unknownWritesOn(clock),
    ...{ keys: {} as never, claimsOf: () => ({}), issuer: () => 'http://idp.example.test' },
  });
  const flow = createDeviceFlow({
    ...deps,
    seeds: [SEED],
    requests: deviceRequestCollection(store),
    tokens,
    sessions: { extending: ({ id }) => deps.sessionDocuments.changing({ id }, { set: { expiresAt: 1 } }) },
    backchannel: { notice: async () => undefined },
    throttle: { count: async () => undefined, countKey: async () => undefined },
  });
  return { flow, tokens, clock };
}

/** A request that awaits a decision. */
export const setup = async (store: Store): Promise<void> => {
  const { clock } = flowOn(store, 'setup');
  await deviceRequestCollection(store).insert({
    id: `dev_${ID}`,
    userCodeHash: hashUserCode(USER_CODE, SEED),
    codeHash: sha256(DEVICE_CODE),
    clientId: CLIENT.id,
    scope: 'email offline_access',
    createdAt: clock.now(),
    expiresAt: clock.now() + 600_000,
    ...{ interval: 5, state: 'pending' },
  });
  for (const sub of ['u_ada', 'u_eve'])
    await sessionCollection(store).insert({
      ...{ id: `sid_${sub}`, tokenHash: 'x', sub, authTime: 1, createdAt: 1, expiresAt: 2 },
    });
};

/** The form of one person, which is submitted although others have decided. */
export const decide = (decision: 'approve' | 'deny', sub: string) => async (store: Store) => {
  const { flow } = flowOn(store, sub);
  const request = await flow.find(USER_CODE);
  const user = { principal: { id: sub, kind: 'human' }, session: { id: `sid_${sub}`, authTime: 1 } } as never;
  return request !== null && (await flow[decision](request, user, '192.0.2.1'));
};

export const approved = async (store: Store): Promise<void> => {
  await setup(store);
  await decide('approve', 'u_ada')(store);
};

export const poll = (seed: string) => (store: Store) =>
  flowOn(store, seed).flow.poll(CLIENT, { deviceCode: DEVICE_CODE, resources: [] });

export const ownerOf = async (store: Store) =>
  (await grantCollection(store).findOne({ id: `gr_${ID}` }))?.sub;
