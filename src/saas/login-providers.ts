import type { AuthModule } from '../auth/module.js';
import { SignInAnswer } from '../auth/schemas.js';
import type { SignedIn } from '../auth/sign-in.js';
import type { FederationModule, FederationModuleOptions } from '../federation/module.js';
import type { ModuleContext } from '../server/module-context.js';
import type { SaasConfiguration } from './options.js';

export interface LoginProviderOptions
  extends Pick<FederationModuleOptions<unknown>, 'publicUrl' | 'apiUrl' | 'messages'> {
  values: SaasConfiguration;
  production: boolean;
  auth: AuthModule;
  hasPasskeys(userId: string): Promise<boolean>;
}

/** Loads the sign-in with other providers if any is configured. */
export async function openLoginProviders(
  context: ModuleContext,
  { values, production, auth, hasPasskeys, ...options }: LoginProviderOptions,
): Promise<FederationModule<SignedIn> | undefined> {
  const { login: providers, corsOrigin = [], jwtRefreshSecret, jwtRefreshSecretPrevious } = values;
  if (providers === undefined || Object.keys(providers).length === 0) return undefined;
  const { federated } = auth.service;
  const { createFederationModule } = await import('../federation/module.js');
  return createFederationModule(context, {
    ...options,
    providers,
    accounts: {
      ...federated,
      hasOtherLogin: async (userId) =>
        values.emailLogin || (await federated.hasPassword(userId)) || (await hasPasskeys(userId)),
    },
    signInAnswer: SignInAnswer,
    secrets: [jwtRefreshSecret, jwtRefreshSecretPrevious].filter((secret) => secret !== undefined),
    // A ticket goes to applications that are named, never to any origin.
    origins: corsOrigin.filter((origin) => origin !== '*'),
    allowHttp: !production,
  });
}
