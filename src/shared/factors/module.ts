import type { ModuleContext } from '../../core/server/module-context.js';
import { createFactorService } from './service.js';
import { type AnnounceFactor, FACTOR_VERSION, factorCollection, removeFactor } from './store.js';

export interface FactorModuleOptions {
  /** The encryption keys, the current one first. */
  keys: readonly [string, ...string[]];
  /** What the authenticator app shows as the provider of the account. */
  issuer(): string;
  /** Enqueues a mail to the person about a change; absent without e-mail. */
  announce?: AnnounceFactor | undefined;
}

/** The second factors of accounts. */
export function createFactorModule(context: ModuleContext, options: FactorModuleOptions) {
  const { store, audit, clock, accountData, signInMethods, versions } = context;
  const factors = factorCollection(store);
  const service = createFactorService({ ...context, ...options, factors });
  accountData.add({ section: { name: 'secondFactor', read: service.stateOf } });
  signInMethods.add('second factor', {
    forget: service.forget,
    // Without a mail, which the new owner of the account would get.
    remove: (account, source) => removeFactor(account, source, { factors, audit, clock }),
  });
  versions.add(async (account, field) => (field === FACTOR_VERSION ? service.version(account) : undefined));
  if (options.keys.length > 1) context.jobs.add('factor-encryption', service.encryptionJob);
  return { service };
}
