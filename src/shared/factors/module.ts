import type { ModuleContext } from '../../core/server/module-context.js';
import { createFactorService, type FactorService } from './service.js';
import { type AnnounceFactor, factorCollection } from './store.js';

/** The second factors of accounts. */
export interface FactorModule {
  service: FactorService;
}

export interface FactorModuleOptions {
  /** The encryption keys, the current one first. */
  keys: readonly [string, ...string[]];
  /** What the authenticator app shows as the provider of the account. */
  issuer(): string;
  /** Enqueues a mail to the person about a change; absent without e-mail. */
  announce?: AnnounceFactor | undefined;
}

export function createFactorModule(
  context: Pick<ModuleContext, 'store' | 'audit' | 'clock' | 'random' | 'throttle' | 'jobs'>,
  options: FactorModuleOptions,
): FactorModule {
  const service = createFactorService({ ...context, ...options, factors: factorCollection(context.store) });
  if (options.keys.length > 1) context.jobs.add('factor-encryption', service.encryptionJob);
  return { service };
}
