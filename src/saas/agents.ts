import type { TokenIdentity } from '../core/http/identity.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { AccessToken } from '../resource-server/access-token.js';
import type { ResourceServerOptions } from '../resource-server/service.js';
import { configuredAgents } from './agents/schemas.js';
import { contributeAgentLinks } from './agents/store.js';
import type { SaasBase } from './base.js';
import type { SaasEventBus } from './events.js';
import { federationErrors } from './login-providers/errors.js';
import type { FindActiveUser, ReadUser } from './sign-in-methods.js';

/** The scopes of our own routes. */
export const OWN_SCOPES = ['profile:read', 'billing:read', 'billing:write'] as const;

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
}

/** Loads the access of agents if an identity provider is configured. */
export async function openAgents(
  { fastify, context, values, publicUrl, apiUrl, agentScopes, secrets, origins }: SaasBase,
  { findUser, events, readUser, name }: AgentOptions,
) {
  contributeAgentLinks(context);
  const configured = configuredAgents(values);
  if (!configured) return undefined;
  const { issuer, resource } = configured;
  const [{ createAgentsModule, createProofMemory }, { createResourceServer }, errors] = await Promise.all([
    import('./agents/module.js'),
    import('../resource-server/service.js'),
    import('../resource-server/errors.js'),
  ]);
  const { log, clock } = context;
  const onUnreachable = (err: unknown): null => {
    log.warn({ err }, 'the identity provider of agents cannot be reached');
    return null;
  };
  const singleUse = createProofMemory(context);
  const trust = { issuer, clock, replayCache: singleUse, onFailure: onUnreachable };
  const server = createResourceServer({ ...trust, resource });
  fastify.addHook('onClose', async () => server.close());
  const { access, accounts, plugin } = createAgentsModule(context, {
    issuer,
    resource,
    singleUse,
    onUnreachable,
    publicUrl,
    apiUrl,
    origins,
    secrets,
    provider: await openIdentityProvider(context, configured),
    readUser,
    errors: federationErrors,
    event: events.event,
    metadataUrl: new URL(resource).origin + server.metadataPath,
    verify: server.verify,
    requireApproval: server.requireApproval,
    refusalOf: (error) => (error instanceof errors.ResourceError ? error : undefined),
    findUser,
  });
  return {
    accounts,
    plugin,
    /** Where the metadata of the API are (RFC 9728), from the root of the host. */
    metadataPath: server.metadataPath,
    metadata: (): object => ({
      ...server.metadata,
      resource_name: name(),
      scopes_supported: [...new Set([...OWN_SCOPES, ...agentScopes])],
    }),
    access,
    tokens: Object.freeze({ ...trust, identify: access.identify }) satisfies AgentTokens,
    /** Of the addresses for which agents prove that they have their key. */
    origin: new URL(resource).origin,
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
