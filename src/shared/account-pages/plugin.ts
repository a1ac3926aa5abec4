import formbody from '@fastify/formbody';
import type { Scope } from '../../core/http/scope.js';
import { deletionPlugin } from './deletion.js';
import type { SignIn } from './guard.js';
import { type AccountPageOptions, accountPagePlugin } from './page.js';
import { passkeysPlugin } from './passkeys.js';
import { passwordPlugin } from './password.js';
import { secondFactorPlugin } from './second-factor.js';

export interface AccountPluginOptions extends AccountPageOptions {
  signIn: SignIn;
  /** Whether there are more pages than the one for the password. */
  hasAccountPages: boolean;
}

const FORM_LIMIT_BYTES = 16 * 1024;

/** The pages on which people manage their own accounts, in a scope whose prefix is the path of the account page. */
export async function accountPlugin(scope: Scope, options: AccountPluginOptions): Promise<void> {
  await scope.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  const { sources } = options;
  const { people, verification, factors, passkeys } = sources;
  await scope.register(passwordPlugin, { ...options, people });
  if (!options.hasAccountPages) return;
  await scope.register(accountPagePlugin, options);
  await scope.register(deletionPlugin, options);
  if (factors) await scope.register(secondFactorPlugin, { ...options, people, verification, factors });
  if (passkeys) await scope.register(passkeysPlugin, { ...options, passkeys });
}
