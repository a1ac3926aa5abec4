import type { ModuleContext } from '../../core/server/module-context.js';
import { createFactorService, type FactorDependencies } from './service.js';
import { factorCollection, factorRemoval } from './store.js';

/**
 * The keys that encrypt secrets, the current one first; the name that authenticator apps show; and how an account is read
 * before a change.
 */
export type FactorModuleOptions = Pick<FactorDependencies, 'keys' | 'issuer' | 'readAccount'>;

/** The second factors of accounts. */
export function createFactorModule(context: ModuleContext, options: FactorModuleOptions) {
  const { store, audit, accountData, signInMethods } = context;
  const factors = factorCollection(store);
  const service = createFactorService({ ...context, ...options, factors });
  accountData.add({ section: { name: 'secondFactor', read: service.stateOf } });
  signInMethods.add('second factor', {
    removal: (account, source) => factorRemoval(account, source, { factors, audit }),
  });
  if (options.keys.length > 1) context.jobs.add('factor-encryption', service.encryptionJob);
  return { service };
}
