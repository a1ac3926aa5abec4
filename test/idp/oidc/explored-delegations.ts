import { sha256 } from '../../../src/core/kernel/secrets.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { DELEGATION_TOKEN } from '../../../src/idp/oidc/delegations/exchange.js';
import { createDelegations } from '../../../src/idp/oidc/delegations/service.js';
import { delegationCollection } from '../../../src/idp/oidc/delegations/store.js';
import { newRefreshToken } from '../../../src/idp/oidc/grant-tokens.js';
import type { Resource } from '../../../src/idp/oidc/resources.js';
import { grantCollection, sessionCollection } from '../../../src/idp/oidc/store.js';
import type { TokenResponse } from '../../../src/idp/oidc/tokens/issuance.js';
import { createTokenService } from '../../../src/idp/oidc/tokens/service.js';
import { fakeClock } from '../../kit/clock.js';
import { TYPES } from '../../kit/delegations.js';
import { grantedIn } from '../../kit/granted.js';
import { SEED } from '../../kit/idp.js';
import { countedRandom } from '../../kit/random.js';
import { FILES, FILES_INPUT, NO_RESOURCES } from '../../kit/resources.js';
import { unknownWritesOn } from '../../saas/auth/explored-service.js';

/** The services of delegations as one of several processes runs them, and a delegation in the store. */

const CLIENT = { id: 'cid_1', principalKinds: ['human'] } as never;
export const GRANT_ID = `gr_${'0'.repeat(32)}`;
export const HANDLE = newRefreshToken(GRANT_ID, countedRandom(), SEED, 'dt_');
export const [PERSON, AGENT] = [`u_${'a'.repeat(32)}`, `u_${'b'.repeat(32)}`];
export const IP = '192.0.2.1';
const RESOURCE: Resource = {
  ...FILES_INPUT,
  scopes: [...FILES_INPUT.scopes],
  principalKinds: [...FILES_INPUT.principalKinds],
  admitsSelfRegistered: true,
  requiresDpop: undefined as never,
  identifier: FILES,
};
const { requiresDpop: _, ...FILES_RESOURCE } = RESOURCE;

/** The services of one process. */
export function processOn(store: Store, seed: string) {
  const [clock, random] = [fakeClock(), countedRandom(seed)];
  const resources = { ...NO_RESOURCES, find: async () => FILES_RESOURCE, hasAny: async () => true };
  const directory = {
    findClient: async () => CLIENT,
    findPrincipal: async (id: string) =>
      id === AGENT
        ? { id, kind: 'agent', handle: id, updatedAt: 0, keys: [{ jwk: {} }] }
        : { id, kind: 'human', handle: id, updatedAt: 0 },
  } as never;
  const granted = grantedIn(store, { clock, random }, { hasResources: true });
  const delegations = createDelegations({ ...granted, directory });
  const unknownWrites = unknownWritesOn(clock);
  const tokens = createTokenService({
    ...granted,
    ...{ grants: grantCollection(store), sessionDocuments: sessionCollection(store), resources },
    ...{ directory, unknownWrites },
    consents: { find: async () => ({ scopes: [], resources: [], revocations: 0, isConnected: false }) },
    delegations: async () => delegations,
    assertions: { subjectOf: () => AGENT, verify: async () => null },
    keys: { sign: async (claims: { jti: string }) => claims.jti, verify: async () => null } as never,
    claimsOf: () => ({}),
    issuer: () => 'https://id.example.test',
    seeds: [SEED],
    reuseWindowMs: 30_000,
  });
  const exchange = (subjectToken = HANDLE): Promise<TokenResponse> =>
    tokens.exchange(
      CLIENT,
      {
        ...{ subjectToken, subjectTokenType: DELEGATION_TOKEN, actorToken: 'x', actorTokenType: TYPES.jwt },
        ...{ requestedTokenType: undefined, audience: undefined, scope: undefined, resources: [] },
        prove: undefined,
      },
      IP,
    );
  return { clock, delegations, exchange, unknownWrites };
}

export const PERMISSION = {
  ...{ person: { id: PERSON }, agent: { id: AGENT }, resource: FILES, scopes: ['files:read'] },
  ...{ clientId: 'cid_1', txn: GRANT_ID, maxDepth: 1, lifetimeMs: 3_600_000 },
};

export const idOf = async (store: Store) =>
  (await delegationCollection(store).page({ sort: 'id', limit: 9 })).items;

export async function setup(store: Store): Promise<void> {
  const { clock, delegations } = processOn(store, 'setup');
  const { id, expiresAt } = await delegations.give(PERMISSION, IP);
  const now = clock.now();
  await grantCollection(store).insert({
    ...{ id: GRANT_ID, codeHash: sha256('code'), clientId: 'cid_1', sub: PERSON, scope: '' },
    resources: [{ resource: FILES, scopes: ['files:read'] }],
    delegation: { id, agent: AGENT, expiresAt },
    ...{ authTime: now, createdAt: now, codeExpiresAt: now, consumedAt: now },
    ...{ refreshHash: sha256(HANDLE), refreshExpiresAt: expiresAt },
  });
}
