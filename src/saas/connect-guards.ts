import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { RequestHeaders } from '../core/http/authorization.js';
import { createRequestIdGenerator, type HostContext } from '../core/http/host-context.js';
import type { OrganizationIdentity, RequestIdentity } from '../core/http/identity.js';
import { commonHeaders, logFailure } from '../core/http/responses.js';
import { httpErrors, renderEnvelope, toAppError } from '../core/kernel/errors.js';
import { requireScope } from './agents/schemas.js';
import type { Approving } from './approving.js';
import type { RecentAuthOptions } from './auth/sign-in/recent-auth.js';
import { requireKnownRole } from './auth/users/roles.js';
import { knownPlans } from './billing/plans/plans.js';
import { stateScope } from './callers.js';
import type { SaasDecorator } from './decorator.js';
import {
  type PlanOwner,
  refuseMissingFactors,
  refuseUnknownFeature,
  refuseUnknownLimit,
  refuseUnknownPlan,
  type UserGuard,
  type UserRequest,
} from './guards.js';
import type { ResolvedSaas } from './options.js';
import { knownRoles } from './organizations/roles.js';

// Express's types provide this namespace for additional request fields.
declare global {
  namespace Express {
    interface Request {
      /**
       * The user and session, or what acts for the user, behind `requireUser` and the other guards; with the organization behind
       * `requireMember` and `requirePermission`.
       */
      saas: RequestIdentity & Approving & { organization: OrganizationIdentity };
    }
  }
}

/** A request of `node:http`, with the user and session that a guard has set. */
export type SaasRequest = IncomingMessage & { saas?: RequestIdentity & Approving };

/** Connect-style middleware that sets `request.saas` and calls `next`, or responds with an error. */
export type ConnectGuard = (
  request: SaasRequest,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/** Guards for applications that do not use Fastify. The first call starts the backend if necessary. */
export interface ConnectGuards
  extends Pick<SaasDecorator, 'getSession' | 'entitles' | 'hasFeature' | 'limits' | 'usage'> {
  /** As `fastify.saas.agentTokens`, for `protectMcp`. @throws Error without `agents.directory` or AGENT_ISSUER */
  readonly agentTokens: () => Promise<ReturnType<SaasDecorator['agentTokens']>>;
  /** Sets `request.saas` to the signed-in user and session, or responds with 401. */
  readonly requireUser: ConnectGuard;
  /**
   * Before `requireUser`, `requireEntitled` or `requireFeature`: lets them admit agents and API keys with this scope, too. Has no
   * effect without `agents.directory`, AGENT_ISSUER and API_KEYS.
   * @throws Error at once if this is no scope
   */
  readonly allowAgents: (scope: string) => ConnectGuard;
  /**
   * Requires a subscription, too, to `plan` if given, or responds with 403.
   * @throws Error at once if the option `billing` defines the plans and has no such plan
   */
  readonly requireEntitled: (plan?: string, owner?: PlanOwner) => ConnectGuard;
  /**
   * Requires a plan that includes the feature, too, or responds with 403.
   * @throws Error at once if the option `billing` defines the plans and none has the feature
   */
  readonly requireFeature: (feature: string, owner?: PlanOwner) => ConnectGuard;
  /** Requires a role of the user, too, or responds with 403. @throws Error at once for an unknown role */
  readonly requireRole: (role: string) => ConnectGuard;
  /**
   * Requires a recent sign-in, too, or responds with 401, like `fastify.saas.requireRecentAuth`.
   * @throws Error at once for `secondFactor` without FACTOR_ENCRYPTION_KEY
   */
  readonly requireRecentAuth: (required?: RecentAuthOptions) => ConnectGuard;
  /**
   * Requires that the user is a member of the organization that the request names, too, or responds with 400, 403 or 404, like
   * `fastify.saas.requireMember`. In Express, the path may name it: `/:organization`.
   * @throws Error at once without the option `organizations`, or for an unknown role
   */
  readonly requireMember: (required?: { role?: string }) => ConnectGuard;
  /** Requires a permission in the organization, as `requireMember`. @throws Error at once if no role has it */
  readonly requirePermission: (permission: string) => ConnectGuard;
  /**
   * Returns the user and session of an `Authorization: Bearer` header, where middleware does not apply: WebSockets,
   * `fetch` handlers, server-side rendering. Accepts the headers of Node or of `fetch`.
   * @throws AppError with `statusCode`, `code` and `headers`: UNAUTHENTICATED, TOKEN_EXPIRED, NOT_READY
   */
  readonly authenticate: SaasDecorator['authenticate'];
  /**
   * Uses one unit of a limit with each request, or responds with 403 (LIMIT_REACHED), like `fastify.saas.requireLimit`.
   * @throws Error at once if no plan has the limit
   */
  readonly requireLimit: (name: string, owner?: PlanOwner) => ConnectGuard;
}

export interface ConnectGuardDependencies {
  app: FastifyInstance;
  hostContext: HostContext;
  saas: ResolvedSaas;
  /** Gets the scopes that routes state, for the metadata of the API. */
  agentScopes: Set<string>;
}

export function createConnectGuards(deps: ConnectGuardDependencies): ConnectGuards {
  const { app, hostContext, agentScopes } = deps;
  const { lifecycle, publicUrl } = hostContext;
  const { values } = deps.saas.config;
  const plans = knownPlans(values);
  const hasSecondFactors = values.factorEncryptionKey !== undefined || values.passkeys;
  const roles = () => knownRoles(values.organizations, deps.saas.runtime.organizationRoles);
  const sendError = createErrorSender(deps);
  const refuseMissing = ({ of }: PlanOwner = {}) => of === 'organization' && roles();

  const ready = async (): Promise<SaasDecorator> => {
    if (lifecycle.draining) throw httpErrors.NOT_READY();
    await app.ready();
    return app.saas;
  };

  const createGuard =
    (guardOf: (saas: SaasDecorator) => UserGuard): ConnectGuard =>
    (request, response, next) => {
      publicUrl.observePort(request.socket?.localPort);
      ready().then(
        (saas) =>
          guardOf(saas)(request as UserRequest).then(
            () => next(),
            (error) => sendError(error, response),
          ),
        // A stopping server responds itself, but the application handles a failed start.
        (error) => (lifecycle.draining ? sendError(error, response) : next(error)),
      );
    };

  return {
    requireUser: createGuard((saas) => saas.requireUser),
    allowAgents(scope) {
      agentScopes.add(requireScope(scope));
      return (request, _response, next) => {
        stateScope(request, scope);
        next();
      };
    },
    requireEntitled(plan, owner) {
      refuseMissing(owner);
      refuseUnknownPlan(plan, plans);
      return createGuard((saas) => saas.requireEntitled(plan, owner));
    },
    requireFeature(feature, owner) {
      refuseMissing(owner);
      refuseUnknownFeature(feature, plans);
      return createGuard((saas) => saas.requireFeature(feature, owner));
    },
    requireRole(role) {
      requireKnownRole(role, values.userRoles);
      return createGuard((saas) => saas.requireRole(role));
    },
    requireRecentAuth(required = {}) {
      refuseMissingFactors(required, hasSecondFactors);
      return createGuard((saas) => saas.requireRecentAuth(required));
    },
    requireMember(required = {}) {
      const known = roles();
      if (required.role !== undefined) known.requireRole(required.role);
      return createGuard((saas) => saas.requireMember(required));
    },
    requirePermission(permission) {
      roles().requirePermission(permission);
      return createGuard((saas) => saas.requirePermission(permission));
    },
    async getSession(request) {
      publicUrl.observePort(request.socket?.localPort);
      return (await ready()).getSession(request);
    },
    agentTokens: async () => (await ready()).agentTokens(),
    authenticate: async (headers: RequestHeaders) => (await ready()).authenticate(headers),
    entitles: async (userId, plan) => (await ready()).entitles(userId, plan),
    hasFeature: async (userId, feature) => (await ready()).hasFeature(userId, feature),
    limits: async (userId) => (await ready()).limits(userId),
    requireLimit(name, owner) {
      refuseMissing(owner);
      refuseUnknownLimit(name, plans);
      return createGuard((saas) => saas.requireLimit(name, owner));
    },
    usage: {
      consume: async (...given) => (await ready()).usage.consume(...given),
      release: async (...given) => (await ready()).usage.release(...given),
      addCredits: async (...given) => (await ready()).usage.addCredits(...given),
      list: async (userId) => (await ready()).usage.list(userId),
    },
  };
}

function createErrorSender({ app, hostContext, saas }: ConnectGuardDependencies) {
  const { publicUrl, outages } = hostContext;
  let nextId: (() => string) | undefined;
  return (thrown: unknown, response: ServerResponse): void => {
    const error = toAppError(thrown);
    nextId ??= createRequestIdGenerator(saas.runtime.random);
    const requestId = nextId();
    logFailure(app.log, error, { requestId, outages });
    // The application may have responded in the meantime, for instance after a timeout.
    if (response.headersSent) return;
    const { type, body } = renderEnvelope(error, requestId);
    const headers = {
      ...commonHeaders(publicUrl.get().startsWith('https:')),
      ...error.headers,
      'content-type': type,
      'content-length': Buffer.byteLength(body),
      'x-request-id': requestId,
    };
    response.writeHead(error.statusCode, headers).end(body);
  };
}
