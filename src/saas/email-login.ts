import type { EmailLoginModule, EmailLoginModuleOptions } from '../auth/email-login-module.js';
import type { ModuleContext } from '../server/module-context.js';
import type { SaasConfiguration } from './options.js';

/** Loads the sign-in by e-mail if it is enabled. */
export async function openEmailLogin(
  context: ModuleContext,
  values: SaasConfiguration,
  options: Omit<EmailLoginModuleOptions, 'secrets'>,
): Promise<EmailLoginModule | undefined> {
  if (!values.emailLogin) return undefined;
  const { createEmailLoginModule } = await import('../auth/email-login-module.js');
  const secrets = [values.jwtRefreshSecret, values.jwtRefreshSecretPrevious];
  return createEmailLoginModule(context, {
    ...options,
    secrets: secrets.filter((secret) => secret !== undefined),
  });
}
