import type { Messages } from '../../../core/http/messages.js';
import type { Scope } from '../../../core/http/scope.js';
import { createSealed } from '../../../core/kernel/sealed.js';
import type { ModuleContext } from '../../../core/server/module-context.js';
import {
  createEmailLogin,
  type EmailLogin,
  type EmailLoginDependencies,
  type LoginRequest,
} from './email-login.js';
import { emailLoginPlugin } from './email-login-plugin.js';
import { createLoginCodePurge, LOGIN_CODE_TTL_MS, loginCodeCollection } from './login-codes.js';

/** Sign-in with mailed codes, which is loaded only if it is enabled. */
export interface EmailLoginModule {
  /** @param accounts the flows of the domain that it continues */
  create(accounts: Omit<EmailLoginDependencies, 'codes' | 'loginTokens' | 'forgetCredentials'>): EmailLogin;
  plugin(scope: Scope, emailLogin: EmailLogin): Promise<void>;
}

export interface EmailLoginModuleOptions extends Pick<EmailLoginDependencies, 'forgetCredentials'> {
  /** The secrets that encrypt login tokens, the current one first. */
  secrets: readonly string[];
  messages: Pick<Messages, 'negotiate'>;
}

export function createEmailLoginModule(
  context: Pick<ModuleContext, 'store' | 'jobs' | 'clock' | 'random'>,
  { secrets, forgetCredentials, messages }: EmailLoginModuleOptions,
): EmailLoginModule {
  const codes = loginCodeCollection(context.store);
  const sealing = { ...context, keys: secrets, lifetimeMs: LOGIN_CODE_TTL_MS };
  const loginTokens = createSealed<LoginRequest>('sign-ins by e-mail', sealing);
  context.jobs.add('login-code-purge', createLoginCodePurge(codes, context.clock));
  return {
    create: (accounts) => createEmailLogin({ ...accounts, codes, loginTokens, forgetCredentials }),
    plugin: (scope, emailLogin) => emailLoginPlugin(scope, { emailLogin, messages }),
  };
}
