import type { ModuleContext } from '../core/server/module-context.js';
import type { AuthModule } from './auth/module.js';
import { SignInAnswer } from './auth/schemas.js';
import type { EmailLoginModule, EmailLoginModuleOptions } from './auth/sign-in/email-login-module.js';
import type { SignedIn } from './auth/sign-in/sign-in.js';
import type { FederationModule, FederationModuleOptions } from './login-providers/module.js';
import { namedOrigins, type SaasConfiguration, sealingSecrets } from './options.js';

export interface LoginProviderOptions
  extends Pick<FederationModuleOptions<unknown>, 'publicUrl' | 'apiUrl' | 'messages'> {
  values: SaasConfiguration;
  production: boolean;
  auth: AuthModule;
  /** Whether the user has a passkey that is not being removed. */
  hasPasskeys(userId: string): Promise<boolean>;
}

/** Loads the sign-in with other providers if any is configured. */
export async function openLoginProviders(
  context: ModuleContext,
  { values, production, auth, hasPasskeys, ...options }: LoginProviderOptions,
): Promise<FederationModule<SignedIn> | undefined> {
  const { login: providers } = values;
  if (providers === undefined || Object.keys(providers).length === 0) return undefined;
  const { federated } = auth.service;
  const { createFederationModule } = await import('./login-providers/module.js');
  return createFederationModule(context, {
    ...options,
    providers,
    accounts: {
      ...federated,
      announce: (change, userId, origin) => auth.announceIdentity(userId, change, origin),
      hasOtherLogin: async (userId) =>
        values.emailLogin || (await federated.hasPassword(userId)) || (await hasPasskeys(userId)),
    },
    signInAnswer: SignInAnswer,
    secrets: sealingSecrets(values),
    // A ticket goes to applications that are named, never to any origin.
    origins: namedOrigins(values),
    allowHttp: !production,
  });
}

export interface EmailLoginOptions extends Omit<EmailLoginModuleOptions, 'secrets'> {
  /** With the secrets of refresh tokens, which also encrypt login tokens. */
  values: SaasConfiguration;
}

/** Loads the sign-in by e-mail if it is enabled. */
export async function openEmailLogin(
  context: ModuleContext,
  { values, ...options }: EmailLoginOptions,
): Promise<EmailLoginModule | undefined> {
  if (!values.emailLogin) return undefined;
  const { createEmailLoginModule } = await import('./auth/sign-in/email-login-module.js');
  return createEmailLoginModule(context, { ...options, secrets: sealingSecrets(values) });
}
