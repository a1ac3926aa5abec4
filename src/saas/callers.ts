import type { FastifyInstance } from 'fastify';
import { passedAddress } from '../core/http/caller.js';
import type { RouteRules } from '../core/http/routes.js';
import { plainAddress } from '../core/kernel/addresses.js';
import { httpErrors } from '../core/kernel/errors.js';
import { requireScope } from './agents/schemas.js';
import type { WithApproving } from './approving.js';
import { keepOrganization, type UserGuard, type UserRequest } from './guards.js';
import type { SaasModules } from './modules.js';

/** Who may call a route: people with a session, and, with the scope that it states, agents and API keys. */
export type CallerGuards = ReturnType<typeof createCallerGuards>;

export function createCallerGuards(
  { auth, agents, keys }: Pick<SaasModules, 'auth' | 'agents' | 'keys'>,
  withApproving: WithApproving,
) {
  const admit = async (request: UserRequest, scope: string | undefined): Promise<void> => {
    const { authorization } = request.headers;
    if (keys?.access.isKey(authorization)) {
      const ip = passedAddress(request) ?? plainAddress(request.ip ?? request.socket?.remoteAddress);
      request.saas = withApproving(await keys.access.admit({ authorization, ip }, scope));
    } else if (agents?.access.hasToken(authorization)) {
      request.saas = withApproving(await agents.access.admit(presentedBy(request, agents.origin()), scope));
    } else {
      const session = auth.service.authenticate(authorization).catch((error: unknown) => {
        throw scope === undefined || !agents ? error : agents.access.challenge(error, scope);
      });
      request.saas = withApproving(await session);
    }
  };
  /** For routes that ask for whom the request is made: a person, or the organization of a key. */
  const requireOwner = keepOrganization((request) => admit(request, agentScopeOf(request)));
  return {
    requireOwner,
    /** For routes about the person, whose data a key of an organization never gets at. */
    requireUser: (async (request) => {
      await requireOwner(request);
      if (request.saas.key?.organizationId === undefined) return;
      throw httpErrors.FORBIDDEN({
        message:
          'This API key belongs to an organization, and this route is about a person: use a key of the person.',
      });
    }) satisfies UserGuard,
    /** For routes that admit neither agents nor keys: they read that it is for people, and get no challenge. */
    requirePerson: keepOrganization((request) => admit(request, undefined)),
  };
}

/** A misspelt scope of a route prevents the start; otherwise, it would refuse every agent and key. */
export function collectScopes(fastify: FastifyInstance, scopes: Set<string>): void {
  fastify.addHook('onRoute', ({ config }) => {
    const { agentScope } = (config ?? {}) as Partial<RouteRules>;
    if (agentScope !== undefined) scopes.add(requireScope(agentScope));
  });
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
