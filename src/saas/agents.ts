import type { FastifyInstance } from 'fastify';
import type { RouteRules } from '../core/http/routes.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { AgentAccess } from './agents/access.js';
import { configuredAgents, requireScope } from './agents/schemas.js';
import { contributeAgentLinks } from './agents/store.js';
import { authErrors } from './auth/errors.js';
import type { UsersModule } from './auth/module.js';
import { isDisabled } from './auth/store.js';
import type { SaasBase } from './base.js';
import type { SaasEventBus } from './events.js';
import type { UserGuard, UserRequest } from './guards.js';
import { federationErrors } from './login-providers/errors.js';
import type { ReadUser } from './sign-in-methods.js';

/** The scopes of our own routes. */
export const OWN_SCOPES = ['profile:read', 'billing:read', 'billing:write'] as const;

/** What agents need beside the API of people. */
export type SaasAgents = NonNullable<Awaited<ReturnType<typeof openAgents>>>;

export interface AgentOptions {
  users: UsersModule;
  events: SaasEventBus;
  readUser: ReadUser;
  /** The name of the application. */
  name(): string;
}

/** Loads the access of agents if an identity provider is configured. */
export async function openAgents(
  { fastify, context, values, publicUrl, apiUrl, agentScopes, secrets, origins }: SaasBase,
  { users, events, readUser, name }: AgentOptions,
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
  const server = createResourceServer({
    issuer,
    resource,
    clock,
    replayCache: singleUse,
    onFailure: onUnreachable,
  });
  fastify.addHook('onClose', async () => server.close());
  collectScopes(fastify, agentScopes);
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
    refusalOf: (error) => (error instanceof errors.ResourceError ? error : undefined),
    findUser: (id) => findActiveUser(users, id),
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
    ...createAgentGuards(access, new URL(resource).origin),
  };
}

async function findActiveUser({ userDocuments, presentUser }: UsersModule, id: string) {
  const user = await userDocuments.findOne({ id });
  if (!user || user.deletingAt !== undefined) return null;
  if (isDisabled(user)) throw authErrors.ACCOUNT_SUSPENDED();
  return presentUser(user);
}

/** A misspelt scope of a route prevents the start; otherwise, it would refuse every agent. */
function collectScopes(fastify: FastifyInstance, scopes: Set<string>): void {
  fastify.addHook('onRoute', ({ config }) => {
    const { agentScope } = (config ?? {}) as Partial<RouteRules>;
    if (agentScope !== undefined) scopes.add(requireScope(agentScope));
  });
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

function createAgentGuards(access: AgentAccess, origin: string) {
  const admit = async (people: UserGuard, request: UserRequest, scope: string | undefined) => {
    if (access.hasToken(request.headers.authorization)) {
      request.saas = await access.admit(presentedBy(request, origin), scope);
      return;
    }
    await people(request).catch((error: unknown) => {
      throw scope === undefined ? error : access.challenge(error, scope);
    });
  };
  return {
    /** Adds the agents that a route admits to a guard for people. */
    admitAgents:
      (people: UserGuard): UserGuard =>
      (request) =>
        admit(people, request, agentScopeOf(request)),
    /** The same for routes that admit none: an agent reads that they are for people, and gets no challenge. */
    refuseAgents:
      (people: UserGuard): UserGuard =>
      (request) =>
        admit(people, request, undefined),
  };
}

/** Scopes that middleware has stated for requests without routes of Fastify. */
const stated = new WeakMap<object, string>();

/** States the scope of a request that has no route of Fastify. */
export const stateScope = (request: object, scope: string): void => void stated.set(request, scope);

function agentScopeOf(request: UserRequest): string | undefined {
  const { agentScope } = (request.routeOptions?.config ?? {}) as Partial<RouteRules>;
  return agentScope ?? stated.get(request);
}

/** In `headers`, Node joins or drops repeated ones, which would hide a second proof. */
function presentedBy(request: UserRequest, origin: string) {
  const { rawHeaders = [] } = request.raw ?? request;
  const linesOf = (name: string) =>
    rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === name);
  return {
    ip: request.ip ?? request.socket?.remoteAddress ?? '',
    method: request.method ?? '',
    url: origin + (request.originalUrl ?? request.url ?? ''),
    authorization: linesOf('authorization'),
    dpop: linesOf('dpop'),
  };
}
