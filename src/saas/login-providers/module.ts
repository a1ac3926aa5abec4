import type { TSchema } from 'typebox';
import type { Messages } from '../../core/http/messages.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { federationPlugin } from './plugin.js';
import { createProvider, type Provider } from './providers.js';
import type { FederationConfiguration, ProviderConfiguration } from './schemas.js';
import { createFederation, type FederationOptions } from './service.js';
import { usedTicketCollection } from './store.js';

/** Sign-in with accounts of other providers. */
export type LoginProvidersModule = ReturnType<typeof createLoginProvidersModule>;

export interface LoginProvidersModuleOptions extends Omit<FederationOptions, 'providers' | 'callbackUrl'> {
  providers: NonNullable<FederationConfiguration['login']>;
  signInResponse: TSchema;
  /** The address of the API. */
  apiUrl(): string;
  /** Whether providers may be addressed by http. */
  allowHttp: boolean;
  messages: Messages;
}

export function createLoginProvidersModule(context: ModuleContext, options: LoginProvidersModuleOptions) {
  const { clock, log } = context;
  const onRejected = (provider: string, err: unknown) =>
    log.warn({ provider, err }, 'the response of a sign-in provider was rejected');
  const providers = new Map<string, Provider>();
  const add = (name: string, configured: ProviderConfiguration): void =>
    void providers.set(
      name,
      createProvider(name, configured, { clock, allowHttp: options.allowHttp, onRejected }),
    );
  for (const [name, configured] of Object.entries(options.providers)) add(name, configured);
  const callbackUrl = (provider: string) => `${options.apiUrl()}/auth/callback/${provider}`;
  context.jobs.add('ticket-purge', createExpiryPurge(usedTicketCollection(context.store), clock));
  const federation = createFederation(context, { ...options, providers, callbackUrl });
  context.accountData.add({ section: { name: 'identities', read: federation.list } });
  context.signInMethods.add('identity', { isHeld: federation.isHeld });
  return {
    service: federation,
    add,
    plugin: (fastify: FastifyTypebox) => federationPlugin(fastify, { ...options, federation, callbackUrl }),
  };
}
