import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { access, type Scope } from '../../core/http/scope.js';
import { type AddressOptions, addressPlugin } from './address.js';
import { type AgentPageOptions, agentsPagePlugin } from './agents.js';
import { type BillingPageOptions, billingPagePlugin } from './billing.js';
import { type CodePageOptions, codePlugin } from './code.js';
import { type PasskeyPageOptions, passkeysPlugin } from './passkeys.js';
import { type ProviderPageOptions, providersPlugin } from './providers.js';
import type { Accounts, AgentAccounts, Billing, LoginProviders, Passkeys } from './services.js';
import { type SignInOptions, signInPlugin } from './sign-in.js';
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
    accounts: Accounts;
    /** Absent if none is configured. */
    providers: LoginProviders | undefined;
    /** Absent if no identity provider of agents is configured. */
    agents: AgentAccounts | undefined;
    /** Absent if nothing can be bought. */
    billing: Billing | undefined;
    /** Streams what is stored about a user, a limited number of times. */
    sendExport(request: FastifyRequest, reply: FastifyReply, userId: string): Promise<unknown>;
  };

const FORM_LIMIT_BYTES = 16 * 1024;

/** The pages of saas-backend beside those that it shares with the identity provider, in the same scope. */
export async function userPagesPlugin(scope: Scope, options: UserPagesPluginOptions): Promise<void> {
  const { providers, passkeys, agents, billing } = options;
  await scope.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  await scope.register(signInPlugin, options);
  await scope.register(signUpPlugin, options);
  await scope.register(addressPlugin, options);
  const { emailLogin } = options.accounts;
  if (emailLogin) await scope.register(codePlugin, { ...options, emailLogin });
  if (passkeys) await scope.register(passkeysPlugin, { ...options, passkeys });
  if (providers) await scope.register(providersPlugin, { ...options, providers });
  if (agents) await scope.register(agentsPagePlugin, { ...options, agents });
  if (billing) await scope.register(billingPagePlugin, { ...options, billing });
  scope.get('/export', { config: access('recent-person', { page: true }) }, (request, reply) =>
    options.sendExport(request, reply, options.identityOf(request).user.id),
  );
}
