import { type Clock, DAY } from '../core/kernel/clock.js';
import { AppError } from '../core/kernel/errors.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { SecondFactors } from '../shared/account-pages/service.js';
import type { FactorModuleOptions } from '../shared/factors/module.js';
import type { FactorService } from '../shared/factors/service.js';
import { refuseMissingKey } from '../shared/factors/store.js';
import type { SecondFactor } from './oidc/directory.js';
import type { IdpConfiguration } from './options.js';
import type { ProvisioningModule } from './provisioning/module.js';

/**
 * Loads second factors if their encryption key is configured.
 * @throws ConfigurationError without a key, if people have second factors
 */
export async function openFactors(
  context: ModuleContext,
  { factorEncryptionKey: key, factorEncryptionKeyPrevious: previous }: IdpConfiguration,
  options: Pick<FactorModuleOptions, 'issuer' | 'announce'>,
): Promise<FactorService | undefined> {
  if (key === undefined) {
    await refuseMissingKey(context.store, { program: 'idp', variable: 'IDP_FACTOR_ENCRYPTION_KEY' });
    return undefined;
  }
  const { createFactorModule } = await import('../shared/factors/module.js');
  const keys = previous === undefined ? ([key] as const) : ([key, previous] as const);
  return createFactorModule(context, { ...options, keys }).service;
}

/** For the sign-in and the account page. */
export type SecondFactorsOfPeople = SecondFactor & SecondFactors;

/** What the sign-in asks about second factors, with the rule of the operator. */
export function createSecondFactor(
  factors: FactorService,
  {
    values: { secondFactor: rule, secondFactorGraceDays },
    clock,
    provisioning,
  }: { values: IdpConfiguration; clock: Clock; provisioning: ProvisioningModule },
): SecondFactorsOfPeople {
  const requiredFrom: SecondFactorsOfPeople['requiredFrom'] = async ({ id, operatorSince, passkeyOnly }) => {
    // A passkey is two factors.
    if (passkeyOnly) return null;
    const isSubject = rule === 'required' || (rule === 'operators' && operatorSince !== undefined);
    return isSubject ? factors.requiredFrom(id, secondFactorGraceDays * DAY) : null;
  };

  return {
    ...factors,
    requiredFrom,
    isEnrolled: async (sub) => (await factors.stateOf(sub)) !== null,

    async mustEnrol(person) {
      const from = await requiredFrom(person);
      return from !== null && from <= clock.now();
    },

    async awaitsConfirmation(person, from) {
      const { verification } = provisioning;
      if (!verification?.isDue(person)) return false;
      await verification.sendAgain(person.id, from).catch((error: unknown) => {
        // Whoever signs in that often has a link already.
        if (!(error instanceof AppError && error.code === 'RATE_LIMITED')) throw error;
      });
      return true;
    },
  };
}
