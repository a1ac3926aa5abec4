import type { TSchema } from 'typebox';
import type { Messages } from '../../core/http/messages.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { createSealed } from '../../core/kernel/sealed.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import { createSingleUse } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { FederatedSignIn } from '../auth/sign-in/federated.js';
import { federationPlugin } from './plugin.js';
import { createProvider, type Provider } from './providers.js';
import type { FederationConfiguration } from './schemas.js';
import { createFederation, type FederationDependencies } from './service.js';
import { identityCollection, usedTicketCollection } from './store.js';
import { LIFETIME_MS, type PendingLogin, type Ticket } from './tickets.js';

/** Sign-in with accounts of other providers. */
export type LoginProvidersModule = ReturnType<typeof createLoginProvidersModule>;

export interface LoginProvidersModuleOptions extends Pick<FederationDependencies, 'readUser'> {
  providers: NonNullable<FederationConfiguration['login']>;
  accounts: FederatedSignIn;
  signInResponse: TSchema;
  /** The secrets that encrypt what the browser keeps, the current one first. */
  secrets: readonly string[];
  publicUrl(): string;
  /** The address of the API. */
  apiUrl(): string;
  origins: readonly string[];
  /** Whether providers may be addressed by http. */
  allowHttp: boolean;
  messages: Messages;
}

export function createLoginProvidersModule(context: ModuleContext, options: LoginProvidersModuleOptions) {
  const { clock, log } = context;
  const onRejected = (provider: string, err: unknown) =>
    log.warn({ provider, err }, 'the response of a sign-in provider was rejected');
  const providers = new Map<string, Provider>(
    Object.entries(options.providers).map(([name, configured]) => [
      name,
      createProvider(name, configured, { clock, allowHttp: options.allowHttp, onRejected }),
    ]),
  );
  const callbackUrl = (provider: string) => `${options.apiUrl()}/auth/callback/${provider}`;
  const sealing = { ...context, keys: options.secrets, lifetimeMs: LIFETIME_MS };
  const usedTickets = usedTicketCollection(context.store);
  context.jobs.add('ticket-purge', createExpiryPurge(usedTickets, clock));
  const federation = createFederation({
    ...context,
    ...options,
    providers,
    identities: identityCollection(context.store),
    logins: createSealed<PendingLogin>('begun sign-ins at providers', sealing),
    tickets: createSealed<Ticket>('single-use tickets of sign-ins at providers', sealing),
    singleUse: createSingleUse(usedTickets),
    callbackUrl,
    hasOtherLogin: (userId) => context.signInMethods.hasOther('identity', userId),
  });
  context.accountData.add({ section: { name: 'identities', read: federation.list } });
  context.signInMethods.add('identity', { isHeld: federation.isHeld });
  return {
    service: federation,
    plugin: (fastify: FastifyTypebox) => federationPlugin(fastify, { ...options, federation, callbackUrl }),
  };
}
