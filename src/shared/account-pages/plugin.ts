import formbody from '@fastify/formbody';
import type { FastifyTypebox } from '../../core/http/routes.js';
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

/** The pages on which people manage their own accounts, below the path of the account page. */
export async function accountPlugin(fastify: FastifyTypebox, options: AccountPluginOptions): Promise<void> {
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  const { sources } = options;
  const { people, verification, factors, passkeys } = sources;
  await fastify.register(passwordPlugin, { ...options, people });
  if (!options.hasAccountPages) return;
  await fastify.register(accountPagePlugin, options);
  await fastify.register(deletionPlugin, options);
  if (factors) await fastify.register(secondFactorPlugin, { ...options, people, verification, factors });
  if (passkeys) await fastify.register(passkeysPlugin, { ...options, passkeys });
}
