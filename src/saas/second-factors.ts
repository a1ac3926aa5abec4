import type { FastifyInstance } from 'fastify';
import { DAY } from '../core/kernel/clock.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { FactorService } from '../shared/factors/service.js';
import { FACTOR_VERSION, refuseMissingKey } from '../shared/factors/store.js';
import type { AuthModule, AuthModuleOptions } from './auth/module.js';
import { registerChallengeKind } from './auth/sessions/jwt.js';
import type { SaasConfiguration } from './options.js';

/** The second factors of users, for the other domains. */
export interface SaasSecondFactors {
  service: FactorService;
  /** For the sign-in. */
  option: NonNullable<AuthModuleOptions['secondFactor']>;
}

export interface SecondFactorOptions {
  values: SaasConfiguration;
  /** Names the registration, unique in the host. */
  mount: string;
  /** What the authenticator app shows as the provider of the account. */
  issuer(): string;
  announce: AuthModule['announceFactor'];
}

/**
 * Loads second factors if their encryption key is configured.
 * @throws ConfigurationError without a key, if users have second factors
 */
export async function openSecondFactors(
  fastify: FastifyInstance,
  context: ModuleContext,
  { values, mount, issuer, announce }: SecondFactorOptions,
): Promise<SaasSecondFactors | undefined> {
  const { factorEncryptionKey: key, factorEncryptionKeyPrevious: previous } = values;
  if (key === undefined) {
    await refuseMissingKey(context.store, { program: 'saas-backend', variable: 'FACTOR_ENCRYPTION_KEY' });
    return undefined;
  }
  const { createFactorModule } = await import('../shared/factors/module.js');
  const { service } = createFactorModule(context, {
    keys: previous === undefined ? [key] : [key, previous],
    issuer,
    announce: (kind, userId, version, from) =>
      announce(userId, { kind, versionField: FACTOR_VERSION, version }, from),
  });
  const isRequired = values.secondFactor === 'required';
  const graceMs = values.secondFactorGraceDays * DAY;
  return {
    service,
    option: {
      service: {
        ...service,
        requiredFrom: async (userId) => (isRequired ? service.requiredFrom(userId, graceMs) : null),
      },
      challengeTokens: await registerChallengeKind(fastify, mount, values),
    },
  };
}
