import type { EmailLoginModule, EmailLoginModuleOptions } from '../auth/email-login-module.js';
import type { ModuleContext } from '../server/module-context.js';
import type { SaasConfiguration } from './options.js';

export interface EmailLoginOptions extends Omit<EmailLoginModuleOptions, 'secrets'> {
  /** With the secrets of refresh tokens, which also encrypt login tokens. */
  values: SaasConfiguration;
}

/** Loads the sign-in by e-mail if it is enabled. */
export async function openEmailLogin(
  context: ModuleContext,
  { values, ...options }: EmailLoginOptions,
): Promise<EmailLoginModule | undefined> {
  const { emailLogin, jwtRefreshSecret, jwtRefreshSecretPrevious } = values;
  if (!emailLogin) return undefined;
  const { createEmailLoginModule } = await import('../auth/email-login-module.js');
  const secrets = [jwtRefreshSecret, jwtRefreshSecretPrevious].filter((secret) => secret !== undefined);
  return createEmailLoginModule(context, { ...options, secrets });
}
