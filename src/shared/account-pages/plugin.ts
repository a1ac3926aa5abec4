import formbody from '@fastify/formbody';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { deletionPlugin } from './deletion.js';
import { type AccountOptions, accountPagePlugin } from './page.js';
import { passkeysPlugin } from './passkeys.js';
import { passwordPlugin } from './password.js';
import { secondFactorPlugin } from './second-factor.js';

const FORM_LIMIT_BYTES = 16 * 1024;

/** The pages on which people manage their own accounts, below the path of the account page. */
export async function accountPlugin(fastify: FastifyTypebox, options: AccountOptions): Promise<void> {
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  // All forms are of people who are signed in.
  fastify.addHook('preHandler', async (request) => {
    if (request.method === 'POST') options.guard.checkForm(request);
  });
  await fastify.register(passwordPlugin, options);
  if (!options.hasAccountPages) return;
  const { factors, passkeys } = options.sources;
  await fastify.register(accountPagePlugin, options);
  await fastify.register(deletionPlugin, options);
  if (factors) await fastify.register(secondFactorPlugin, { ...options, factors });
  if (passkeys) await fastify.register(passkeysPlugin, { ...options, passkeys });
}
