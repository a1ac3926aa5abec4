import { metadataPath } from '../../core/http/authorization.js';
import { peopleOnly, type RequestIdentity, type TokenIdentity } from '../../core/http/identity.js';
import type { User } from '../../core/http/schemas.js';
import { AppError, httpErrors } from '../../core/kernel/errors.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import type { AccessToken, ApprovalDetails } from '../../resource-server/access-token.js';
import type { ResourceError } from '../../resource-server/errors.js';
import type { Approved, ProtectedRequest, ResourceServer } from '../../resource-server/service.js';
import { agentErrors } from './errors.js';

/** Which requests agents may make: verifies their access tokens and finds the person. */

export interface PresentedRequest extends ProtectedRequest {
  ip: string;
}

export interface AgentAccessOptions {
  about(): { issuer: string; resource: string };
  server(): Pick<ResourceServer, 'verify' | 'requireApproval'>;
  /** The refusal that `server` has thrown; undefined for another error. */
  refusalOf(error: unknown): ResourceError | undefined;
  /** Null if there is no such user. @throws ACCOUNT_SUSPENDED */
  findUser(id: string): Promise<User | null>;
  /** The user of the person of a token; null if there is none. */
  userOf(token: AccessToken, ip: string): Promise<string | null>;
}

export type AgentAccess = ReturnType<typeof createAgentAccess>;

/** @param countRequest counts a request of an agent for a person, and returns an error if there were too many */
export function createAgentAccess(
  { about, server, refusalOf, findUser, userOf }: AgentAccessOptions,
  countRequest: Throttle['countRequestOf'],
) {
  /** The tokens of the requests, which routes do not see. */
  const tokens = new WeakMap<RequestIdentity, AccessToken>();

  const refusing = (error: unknown): never => {
    const refusal = refusalOf(error);
    throw refusal ? toError(refusal, error) : error;
  };

  /**
   * For whom a verified access token was issued.
   * @throws ACCOUNT_NOT_CONNECTED, ACCOUNT_SUSPENDED, RATE_LIMITED
   */
  const identify = async (token: AccessToken, ip: string): Promise<TokenIdentity> => {
    // An agent has no account here, also if its own account of the provider should be connected to one. Another issuer speaks for nobody.
    const isPerson = (token.kind ?? 'human') === 'human' && token.claims['iss'] === about().issuer;
    const userId = isPerson ? await userOf(token, ip) : null;
    const user = userId === null ? null : await findUser(userId);
    if (!user) throw agentErrors.ACCOUNT_NOT_CONNECTED();
    const [sub, ...via] = token.actors;
    const rejection = countRequest(`${user.id} ${sub ?? token.clientId}`, ip);
    if (rejection) throw rejection;
    const { delegation } = token.claims;
    const identity: TokenIdentity = {
      user,
      session: null,
      actor: sub === undefined ? null : { sub, ...(typeof delegation === 'string' && { delegation }), via },
      client: token.clientId,
      scopes: [...token.scopes],
    };
    tokens.set(identity, token);
    return identity;
  };

  return {
    identify,

    /**
     * Demands that the person has approved exactly this with the access token of the request, and uses it up.
     * @throws FORBIDDEN without such a token, APPROVAL_REQUIRED
     */
    async approve(identity: RequestIdentity, details: ApprovalDetails): Promise<Approved> {
      const token = tokens.get(identity);
      if (!token) throw peopleOnly();
      return { ...(await server().requireApproval(token, details).catch(refusing)), by: identity.user.id };
    },

    /** Whether the header has an access token of an identity provider, as opposed to one of a session. */
    hasToken: (authorization: string | undefined = ''): boolean =>
      /^dpop /i.test(authorization) || isSignedByProvider(authorization),

    /**
     * @param scope of the route; absent: the route is for people only
     * @throws UNAUTHENTICATED, INSUFFICIENT_SCOPE, FORBIDDEN, ACCOUNT_NOT_CONNECTED, ACCOUNT_SUSPENDED, RATE_LIMITED
     */
    async admit(request: PresentedRequest, scope: string | undefined): Promise<TokenIdentity> {
      const demands = scope === undefined ? {} : { scopes: [scope] };
      const token = await server().verify(request, demands).catch(refusing);
      if (scope === undefined) throw peopleOnly();
      return identify(token, request.ip);
    },

    /** An error of a session at a route that admits agents, whose challenge tells them where to get a token. */
    challenge(error: unknown, scope: string): unknown {
      if (!(error instanceof AppError) || error.statusCode !== 401) return error;
      const { code, statusCode, message, headers, cause } = error;
      const challenge = headers['www-authenticate'] ?? 'Bearer realm="api"';
      const { resource } = about();
      const metadataUrl = new URL(resource).origin + metadataPath(resource);
      return new AppError(code, statusCode, message, {
        cause,
        headers: {
          ...headers,
          'www-authenticate': `${challenge}, scope="${scope}", resource_metadata="${metadataUrl}"`,
        },
      });
    },
  };
}

/** Sessions have tokens that this server signs with a secret; identity providers sign with a key. */
function isSignedByProvider(authorization: string): boolean {
  const header = /^bearer +([\w-]+)\.[\w-]+\.[\w-]+ *$/i.exec(authorization)?.[1];
  if (header === undefined) return false;
  try {
    const { alg } = JSON.parse(Buffer.from(header, 'base64url').toString());
    return typeof alg === 'string' && !alg.startsWith('HS') && alg !== 'none';
  } catch {
    return false;
  }
}

function toError({ code, message, headers, authorizationDetails }: ResourceError, cause: unknown): AppError {
  const options = { message, headers: { ...headers }, cause };
  if (authorizationDetails) return agentErrors.APPROVAL_REQUIRED(options);
  switch (code) {
    case 'insufficient_scope':
      return agentErrors.INSUFFICIENT_SCOPE(options);
    case 'invalid_request':
      return httpErrors.VALIDATION_ERROR(options);
    case 'temporarily_unavailable':
      return agentErrors.IDENTITY_PROVIDER_UNAVAILABLE(options);
    default:
      return httpErrors.UNAUTHENTICATED(options);
  }
}
