import type { Store } from '../../src/core/storage/collection.js';
import type { OidcShared } from '../../src/idp/oidc/shared.js';
import { grantCollection, sessionCollection } from '../../src/idp/oidc/store.js';
import { trackUnknownGrantWrites } from '../../src/idp/oidc/tokens/unknown-grants.js';
import { unknownWritesOn } from '../saas/auth/explored-service.js';
import type { grantedIn } from './granted.js';
import { ISSUER, SEED } from './idp.js';
import { NO_RESOURCES } from './resources.js';

/** What the services of OpenID Connect use, as one process has it. Keys are a stub, and what is not given does not exist. */
export function oidcOn(
  store: Store,
  granted: ReturnType<typeof grantedIn>,
  more: { [Name in keyof OidcShared]?: Partial<OidcShared[Name]> } = {},
): OidcShared {
  const { clock } = granted;
  const grants = grantCollection(store);
  const given = {
    ...granted,
    grants,
    sessionDocuments: sessionCollection(store),
    ...trackUnknownGrantWrites((more.unknownWrites as never) ?? unknownWritesOn(clock), { grants, clock }),
    resources: NO_RESOURCES,
    keys: { sign: async () => 'a token' },
    claimsOf: () => ({}),
    issuer: () => ISSUER,
    seeds: [SEED],
    reuseWindowMs: 30_000,
    ...more,
  };
  return given as never;
}
