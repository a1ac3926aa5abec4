import { metadataPath } from '../core/http/authorization.js';
import type { TokenIdentity } from '../core/http/identity.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { AccessToken } from '../resource-server/access-token.js';
import type { ResourceServer, ResourceServerOptions } from '../resource-server/service.js';
import { configuredAgents, OWN_SCOPES } from './agents/schemas.js';
import { contributeAgentLinks } from './agents/store.js';
import type { SaasBase } from './base.js';
import type { SaasDirectory } from './directory.js';
import type { SaasEventBus } from './events.js';
import { federationErrors } from './login-providers/errors.js';
import type { FindActiveUser, ReadUser } from './sign-in-methods.js';

/** What agents need beside the API of people. */
export type SaasAgents = NonNullable<Awaited<ReturnType<typeof openAgents>>>;

/** Options of `protectMcp` and `createResourceServer` for further addresses that accept the agents of users. */
export interface AgentTokens
  extends Required<Pick<ResourceServerOptions, 'issuer' | 'clock' | 'replayCache' | 'onFailure'>> {
  /**
   * The person of a verified token, as in `request.saas`.
   * @throws AppError ACCOUNT_NOT_CONNECTED, ACCOUNT_SUSPENDED, RATE_LIMITED
   */
  identify(token: AccessToken, ip: string): Promise<TokenIdentity>;
}

export interface AgentOptions {
  findUser: FindActiveUser;
  events: SaasEventBus;
  readUser: ReadUser;
  /** The name of the application. */
  name(): string;
  /** Of the directory of the process, if there is one. */
  people: ReturnType<SaasDirectory['connect']> | undefined;
}

/** Loads the access of agents if an identity provider is configured, or the directory of the process. */
export async function openAgents(base: SaasBase, options: AgentOptions) {
  const { fastify, context, values, agentScopes } = base;
  const { findUser, name, people } = options;
  contributeAgentLinks(context);
  const configured = configuredAgents(values);
  if (!configured && !people) return undefined;
  const [{ createAgentsModule, createProofMemory }, { createAgentAccess }, kit, errors] = await Promise.all([
    import('./agents/module.js'),
    import('./agents/access.js'),
    import('../resource-server/service.js'),
    import('../resource-server/errors.js'),
  ]);
  const { log, clock, throttle } = context;
  const onUnreachable = (err: unknown): null => {
    log.warn({ err }, 'the identity provider of agents cannot be reached');
    return null;
  };
  const singleUse = createProofMemory(context);
  const trust = { clock, replayCache: singleUse, onFailure: onUnreachable };
  const about = () => configured ?? { issuer: people?.issuer() ?? '', resource: base.apiUrl() };
  let opened: ResourceServer | undefined;
  /** A port that is not configured is known with the first request. */
  const server = (): ResourceServer => {
    opened ??= kit.createResourceServer({ ...trust, ...about() });
    return opened;
  };
  fastify.addHook('onClose', async () => opened?.close());
  // Names a misconfigured address now.
  if (configured) server();
  const module =
    configured &&
    createAgentsModule(context, {
      ...{ ...base, ...options, ...configured, singleUse, onUnreachable },
      provider: await openIdentityProvider(context, configured),
      errors: federationErrors,
      event: options.events.event,
    });
  const userOf = people?.userOf ?? module?.accounts.userOf ?? (async () => null);
  const refusalOf = (error: unknown) => (error instanceof errors.ResourceError ? error : undefined);
  const access = createAgentAccess({ about, server, refusalOf, findUser, userOf }, throttle.countRequestOf);
  return {
    /** Absent with a directory, whose people are the users. */
    accounts: module?.accounts,
    plugin: module?.plugin,
    /** Where the metadata of the API are (RFC 9728), from the root of the host. */
    metadataPath: metadataPath(about().resource),
    metadata: (): object => ({
      ...server().metadata,
      resource_name: name(),
      scopes_supported: [...new Set([...Object.keys(OWN_SCOPES), ...agentScopes])],
    }),
    access,
    tokens: (): AgentTokens => Object.freeze({ ...trust, issuer: about().issuer, identify: access.identify }),
    /** Of the addresses for which agents prove that they have their key. */
    origin: () => new URL(about().resource).origin,
  };
}

async function openIdentityProvider(
  { log, clock }: ModuleContext,
  configured: NonNullable<ReturnType<typeof configuredAgents>>,
) {
  const { createProvider } = await import('./login-providers/providers.js');
  return createProvider(
    'agents',
    { ...configured, scope: 'openid' },
    {
      clock,
      allowHttp: configured.issuer.startsWith('http:'),
      // The page asks who signs in: a shared browser may have the session of another person there.
      prompt: 'select_account',
      onRejected: (_name, err) => log.warn({ err }, 'the response of the identity provider was rejected'),
    },
  );
}
