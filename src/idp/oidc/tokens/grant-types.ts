import type { DeviceFlow } from '../device/service.js';
import type { Client } from '../directory.js';
import type { IdentityAssertions } from '../identity-assertions/module.js';
import { ASSERTION_TOKEN, JWT_BEARER } from '../identity-assertions/trust.js';
import type { Prove } from '../proofs.js';
import type { Resources } from '../resources.js';
import type { GrantDocument } from '../store.js';
import type { AgentClient } from './agents.js';
import type { TokenResponse } from './issuance.js';
import { DEVICE_GRANT, TOKEN_EXCHANGE } from './request.js';
import type { TokenService } from './service.js';

/** The parameters of a request, each with one value. */
type Fields = Readonly<Record<string, string>>;

/** A request whose client has authenticated. */
export interface GrantTypeRequest {
  fields: Fields;
  resources: readonly string[];
  prove: Prove | undefined;
  /** What `findGrant` has found. */
  grant: GrantDocument | null;
  ip: string;
}

type Handler<Caller> = (caller: Caller, request: GrantTypeRequest) => Promise<TokenResponse>;

/** What a grant type does, and for whom. */
export interface GrantType {
  clients?: Handler<Client>;
  /** For agents that are their own clients. */
  agents?: Handler<AgentClient>;
  /** Exists only with a resource. */
  needsResource?: true;
  /** Refused to clients whose id_tokens no key can sign, before anything is used up. */
  needsSigningKey?: true;
  /** Reads what the request names while the client authenticates. */
  findGrant?(fields: Fields): Promise<GrantDocument | null>;
}

export interface GrantTypeDependencies {
  tokens: TokenService;
  resources: Resources;
  /** Absent if the device flow is not enabled. */
  device: DeviceFlow | undefined;
  /** Absent if identity assertions are not enabled. */
  identityAssertions: IdentityAssertions | undefined;
}

/** The grant types of the token endpoint. */
export function createGrantTypes(deps: GrantTypeDependencies) {
  const { tokens, resources, device, identityAssertions: { issue, redeem } = {} } = deps;
  const exchange: Handler<Client | AgentClient> = (caller, { fields, resources, prove, ip }) =>
    tokens.exchange(caller, exchangeRequest(fields, resources, prove), ip);
  const grantTypes: Record<string, GrantType | undefined> = {
    authorization_code: {
      needsSigningKey: true,
      findGrant: ({ code }) => tokens.findByCode(code),
      clients: (client, { fields, grant, resources, prove, ip }) => {
        const { code, redirect_uri: redirectUri, code_verifier: verifier } = fields;
        const { actor_token: actorToken, actor_token_type: actorTokenType } = fields;
        const actor = { actorToken, actorTokenType };
        return tokens.redeem(client, { code, grant, redirectUri, verifier, resources, prove, ...actor }, ip);
      },
    },
    refresh_token: {
      needsSigningKey: true,
      clients: (client, { fields: { refresh_token: token, scope }, resources, prove, ip }) =>
        tokens.refresh(client, { token, scope, resources, prove }, ip),
    },
    client_credentials: {
      needsResource: true,
      agents: (agent, { fields: { scope }, resources, prove, ip }) =>
        tokens.issueToAgent(agent, { resources, scope, prove }, ip),
    },
    // Three exchanges, told apart by subject_token_type. Each is recorded in the audit; only the first changes a grant.
    // - the token of a delegation: ../delegations/exchange.ts, which rotates it as a refresh does
    // - access_token or jwt: ../delegations/chain.ts, which hands it on to another agent
    // - id_token or refresh_token, if an assertion is requested: `assertion` below, ../identity-assertions/issue.ts
    [TOKEN_EXCHANGE]: { needsResource: true, clients: exchange, agents: exchange },
    [JWT_BEARER]: redeem && {
      needsSigningKey: true,
      clients: (client, { fields: { assertion, scope }, resources, prove, ip }) =>
        redeem(client, { assertion, scope, resources, prove }, ip),
    },
    [DEVICE_GRANT]: device && {
      needsSigningKey: true,
      clients: (client, { fields: { device_code: deviceCode }, resources, prove }) =>
        device.poll(client, { deviceCode, resources, prove }),
    },
  };
  /** Token exchange for the assertion that another authorization server accepts. */
  const assertion: GrantType | undefined = issue && {
    clients: (client, { fields, resources, prove, ip }) =>
      issue(client, exchangeRequest(fields, resources, prove), ip),
  };

  return {
    /** The grant type of a request; `undefined` if it is not supported. */
    async find(fields: Fields): Promise<GrantType | undefined> {
      const { grant_type: name = '', requested_token_type: requested } = fields;
      if (name === TOKEN_EXCHANGE && requested === ASSERTION_TOKEN && assertion) return assertion;
      const type = Object.hasOwn(grantTypes, name) ? grantTypes[name] : undefined;
      return type?.needsResource && !(await resources.hasAny()) ? undefined : type;
    },

    /** The names of the grant types that the provider supports, with or without a resource. */
    supported: (hasResources: boolean): string[] =>
      Object.entries(grantTypes).flatMap(([name, type]) => {
        const isSupported = !type?.needsResource || hasResources || (name === TOKEN_EXCHANGE && assertion);
        return type && isSupported ? [name] : [];
      }),
  };
}

/** The parameters of token exchange (RFC 8693 §2.1). */
const exchangeRequest = (fields: Fields, resources: readonly string[], prove: Prove | undefined) => ({
  subjectToken: fields['subject_token'],
  subjectTokenType: fields['subject_token_type'],
  actorToken: fields['actor_token'],
  actorTokenType: fields['actor_token_type'],
  requestedTokenType: fields['requested_token_type'],
  audience: fields['audience'],
  scope: fields['scope'],
  resources,
  prove,
});
