import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import type { AgentAccounts } from '../agents/service.js';
import type { AuthService } from '../auth/service.js';
import type { BillingModule } from '../billing/module.js';
import type { Federation } from '../login-providers/service.js';
import { type AddressOptions, addressPlugin } from './address.js';
import { type AgentPageOptions, agentsPagePlugin } from './agents.js';
import { type BillingPageOptions, billingPagePlugin } from './billing.js';
import { type CodePageOptions, codePlugin } from './code.js';
import { type PasskeyPageOptions, passkeysPlugin } from './passkeys.js';
import { type ProviderPageOptions, providersPlugin } from './providers.js';
import { type SignInOptions, signInPlugin } from './sign-in.js';
import type { Passkeys } from './sign-in-pages.js';
import { type SignUpOptions, signUpPlugin } from './sign-up.js';

export type UserPagesPluginOptions = Omit<SignInOptions & SignUpOptions, 'accounts'> &
  Omit<AddressOptions, 'accounts'> &
  Omit<ProviderPageOptions, 'providers'> &
  Omit<AgentPageOptions, 'agents'> &
  Omit<BillingPageOptions, 'billing'> &
  Omit<CodePageOptions, 'emailLogin'> &
  Omit<PasskeyPageOptions, 'passkeys'> & {
    /** Absent if they are not enabled. */
    passkeys: Passkeys | undefined;
    accounts: AuthService;
    /** Absent if none is configured. */
    providers: Federation | undefined;
    /** Absent if no identity provider of agents is configured. */
    agents: AgentAccounts | undefined;
    /** Absent if nothing can be bought. */
    billing: BillingModule | undefined;
    /** Streams what is stored about a user, a limited number of times. */
    sendExport(request: FastifyRequest, reply: FastifyReply, userId: string): Promise<unknown>;
  };

const FORM_LIMIT_BYTES = 16 * 1024;

/** The pages of saas-backend beside those that it shares with the identity provider, in the same context. */
export async function userPagesPlugin(
  fastify: FastifyTypebox,
  options: UserPagesPluginOptions,
): Promise<void> {
  const { providers, passkeys, agents, billing } = options;
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  await fastify.register(signInPlugin, options);
  await fastify.register(signUpPlugin, options);
  await fastify.register(addressPlugin, options);
  const { emailLogin } = options.accounts;
  if (emailLogin) await fastify.register(codePlugin, { ...options, emailLogin });
  if (passkeys) await fastify.register(passkeysPlugin, { ...options, passkeys });
  if (providers) await fastify.register(providersPlugin, { ...options, providers });
  if (agents) await fastify.register(agentsPagePlugin, { ...options, agents });
  if (billing) await fastify.register(billingPagePlugin, { ...options, billing });
  fastify.get('/export', { config: access('recent-person', { page: true }) }, (request, reply) =>
    options.sendExport(request, reply, options.identityOf(request).user.id),
  );
}
