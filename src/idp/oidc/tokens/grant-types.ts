import type { Approvals } from '../approvals/service.js';
import { exchangeTokens } from '../delegations/exchange.js';
import type { DeviceFlow } from '../device/service.js';
import type { AgentClient, Client } from '../directory.js';
import { issueAssertion } from '../identity-assertions/issue.js';
import { redeemAssertion } from '../identity-assertions/redeem.js';
import { ASSERTION_TOKEN, JWT_BEARER } from '../identity-assertions/trust.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';
import { issueToAgent } from './client-credentials.js';
import type { TokenResponse } from './issuance.js';
import { findByCode, redeemCode } from './redeem.js';
import { refreshTokens } from './refresh.js';
import { CIBA_GRANT, DEVICE_GRANT, TOKEN_EXCHANGE, type TokenRequest } from './request.js';

/** @param grant what `findGrant` has found */
type Handler<Caller> = (
  caller: Caller,
  request: TokenRequest,
  grant: GrantDocument | null,
) => Promise<TokenResponse>;

/** What a grant type does, and for whom. */
export interface GrantType {
  clients?: Handler<Client>;
  /** For clients that are agents. */
  agents?: Handler<AgentClient>;
  /** Also for agents that no person returns to. */
  everyAgent?: true;
  /** Exists only with a resource. */
  needsResource?: true;
  /** Exists only while an agent may be a workload. */
  needsRules?: true;
  /** Refused to clients whose id_tokens no key can sign, before anything is used up. */
  needsSigningKey?: true;
  /** Reads what the request names while the client authenticates. */
  findGrant?(fields: TokenRequest['fields']): Promise<GrantDocument | null>;
}

/** The grant types of the token endpoint. `device` and `approvals` are absent if they are not enabled. */
export function createGrantTypes(
  deps: OidcShared,
  { device, approvals }: { device: DeviceFlow | undefined; approvals: Approvals | undefined },
) {
  const { resources, trust, issuesAssertions, acceptsAssertions, workloads } = deps;
  const issue: Handler<AgentClient> = (agent, request) => issueToAgent(agent, request, deps);
  const exchange: Handler<Client> = (caller, request) => exchangeTokens(caller, request, deps);
  const redeem: Handler<Client> = async (client, request, grant) => {
    const response = await redeemCode(client, grant, request, deps);
    if (grant?.approval) await approvals?.recordUse(grant, request.ip);
    return response;
  };
  const refresh: Handler<Client> = (client, request) =>
    refreshTokens(client, request.fields['refresh_token'], request, deps);
  const grantTypes: Record<string, GrantType | undefined> = {
    authorization_code: {
      needsSigningKey: true,
      findGrant: ({ code }) => findByCode(code, deps),
      clients: redeem,
      agents: redeem,
    },
    refresh_token: {
      needsSigningKey: true,
      clients: refresh,
      agents: refresh,
    },
    client_credentials: {
      needsResource: true,
      everyAgent: true,
      agents: issue,
    },
    // Three exchanges, told apart by subject_token_type. Each is recorded in the audit; only the first changes a grant.
    // - the token of a delegation: ../delegations/exchange.ts, which rotates it as a refresh does
    // - access_token or jwt: ../delegations/chain.ts, which hands it on to another agent
    // - id_token or refresh_token, if an assertion is requested: `assertion` below, ../identity-assertions/issue.ts
    [TOKEN_EXCHANGE]: { needsResource: true, everyAgent: true, clients: exchange, agents: exchange },
    [JWT_BEARER]:
      trust && acceptsAssertions
        ? {
            needsSigningKey: true,
            clients: (client, request) => redeemAssertion(client, request, { ...deps, trust }),
            everyAgent: true as const,
            agents: issue,
          }
        : { needsRules: true, everyAgent: true, agents: issue },
    [DEVICE_GRANT]: device && {
      needsSigningKey: true,
      clients: device.poll,
    },
    [CIBA_GRANT]: approvals && { needsResource: true, everyAgent: true, agents: approvals.poll },
  };
  /** Token exchange for the assertion that another authorization server accepts. */
  const assertion: GrantType | undefined =
    trust && issuesAssertions
      ? { clients: (client, request) => issueAssertion(client, request, { ...deps, trust }) }
      : undefined;

  return {
    /** The grant type of a request; `undefined` if it is not supported. */
    async find(fields: TokenRequest['fields']): Promise<GrantType | undefined> {
      const { grant_type: name = '', requested_token_type: requested } = fields;
      if (name === TOKEN_EXCHANGE && requested === ASSERTION_TOKEN && assertion) return assertion;
      const type = Object.hasOwn(grantTypes, name) ? grantTypes[name] : undefined;
      if (type?.needsResource && !(await resources.hasAny())) return undefined;
      return type?.needsRules && !(await workloads.inUse()) ? undefined : type;
    },

    /** The names of the grant types that the provider supports, with or without a resource and rules of agents. */
    supported: (hasResources: boolean, hasRules: boolean): string[] =>
      Object.entries(grantTypes).flatMap(([name, type]) => {
        const isSupported = !type?.needsResource || hasResources || (name === TOKEN_EXCHANGE && assertion);
        return type && isSupported && (!type.needsRules || hasRules) ? [name] : [];
      }),
  };
}
