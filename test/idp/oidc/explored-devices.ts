import { sha256 } from '../../../src/core/kernel/secrets.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createConsentService } from '../../../src/idp/oidc/consents.js';
import { hashUserCode } from '../../../src/idp/oidc/device/codes.js';
import { createDeviceFlow } from '../../../src/idp/oidc/device/service.js';
import { deviceRequestCollection } from '../../../src/idp/oidc/device/store.js';
import type { Directory } from '../../../src/idp/oidc/directory.js';
import { createRevocations, revocationCollection } from '../../../src/idp/oidc/revocations/service.js';
import { consentCollection, grantCollection, sessionCollection } from '../../../src/idp/oidc/store.js';
import { createTokenService } from '../../../src/idp/oidc/tokens/service.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
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
    grants: grantCollection(store),
    sessionDocuments: sessionCollection(store),
    resources: NO_RESOURCES,
    consents: createConsentService(consentCollection(store), clock),
    directory: {
      findClient: async () => CLIENT,
      findPrincipal: async (id: string) => ({ id, kind: 'human', handle: id }),
    } as unknown as Directory,
    seeds: [SEED] as const,
    reuseWindowMs: 30_000,
    audit: SILENT_AUDIT,
    ...{ clock, random: countedRandom(seed) },
  };
  const tokens = createTokenService({
    ...deps,
    ...NO_DELEGATIONS,
    seeds: [SEED],
    revocations: createRevocations({
      ...{ revocationDocuments: revocationCollection(store), resources: NO_RESOURCES, clock },
      findPrincipal: deps.directory.findPrincipal,
    }),
    unknownWrites: unknownWritesOn(clock),
    ...{ keys: {} as never, claimsOf: () => ({}), issuer: () => 'http://idp.example.test' },
  });
  const flow = createDeviceFlow({
    ...deps,
    seeds: [SEED],
    requests: deviceRequestCollection(store),
    tokens,
    sessions: { extend: async () => undefined },
    backchannel: { remember: async () => undefined },
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
