import type { Messages } from '../../../core/http/messages.js';
import type { FastifyTypebox } from '../../../core/http/routes.js';
import { createSealed } from '../../../core/kernel/sealed.js';
import { createExpiryPurge } from '../../../core/ops/purge.js';
import type { ModuleContext } from '../../../core/server/module-context.js';
import type { CodeAccountDependencies } from './code-accounts.js';
import { createEmailLogin, type EmailLogin, type LoginRequest } from './email-login.js';
import { emailLoginPlugin } from './email-login-plugin.js';
import { LOGIN_CODE_TTL_MS, loginCodeCollection } from './login-codes.js';

/** Sign-in with mailed codes, which is loaded only if it is enabled. */
export type EmailLoginModule = ReturnType<typeof createEmailLoginModule>;

export interface EmailLoginModuleOptions {
  /** The secrets that encrypt login tokens, the current one first. */
  secrets: readonly string[];
  messages: Messages;
}

export function createEmailLoginModule(
  context: ModuleContext,
  { secrets, messages }: EmailLoginModuleOptions,
) {
  const codes = loginCodeCollection(context.store);
  const sealing = { ...context, keys: secrets, lifetimeMs: LOGIN_CODE_TTL_MS };
  const loginTokens = createSealed<LoginRequest>('sign-ins by e-mail', sealing);
  context.jobs.add('login-code-purge', createExpiryPurge(codes, context.clock));
  return {
    /** @param accounts the flows of the domain that it continues */
    create: (accounts: CodeAccountDependencies): EmailLogin =>
      createEmailLogin({ ...accounts, codes, loginTokens }),
    plugin: (fastify: FastifyTypebox, emailLogin: EmailLogin) =>
      emailLoginPlugin(fastify, { emailLogin, messages }),
  };
}
