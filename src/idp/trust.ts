import type { Store } from '../core/storage/collection.js';
import type {
  createIdentityAssertions,
  IdentityAssertionOptions,
} from './oidc/identity-assertions/module.js';
import type { IdpConfiguration } from './options.js';

/** How the provider issues and accepts identity assertions, with what the operator has allowed. */
export interface ConfiguredAssertions extends IdentityAssertionOptions {
  create: typeof createIdentityAssertions;
}

/** Loads what issues and accepts identity assertions, if it is enabled. */
export async function openIdentityAssertions(
  store: Store,
  { identityAssertions: roles }: Pick<IdpConfiguration, 'identityAssertions'>,
): Promise<ConfiguredAssertions | undefined> {
  if (roles === 'off') return undefined;
  const [{ createTrustService }, { createIdentityAssertions: create }] = await Promise.all([
    import('./trust/service.js'),
    import('./oidc/identity-assertions/module.js'),
  ]);
  return { create, trust: createTrustService(store), accepts: roles !== 'issue', issues: roles !== 'accept' };
}
