import { sha256 } from '../../../core/kernel/secrets.js';
import type { ExchangeRequest } from '../delegations/exchange.js';
import type { Client } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { grantIdOf } from '../grant-tokens.js';
import type { Prove } from '../proofs.js';
import type { ResourceServer } from '../resources.js';
import type { GrantDocument } from '../store.js';
import type { AgentClient } from './agents.js';
import { findAccessToken, introspectForResource, introspectToken } from './introspection.js';
import { revokeGrant, type TokenDependencies, type TokenServiceDependencies } from './issuance.js';
import type { TokenRequest } from './key-binding.js';
import { type CodeRedemption, type GrantRedemption, redeemCode, redeemGrant } from './redeem.js';
import { type RefreshRequest, refreshTokens } from './refresh.js';
import { trackUnknownGrantWrites } from './unknown-grants.js';

export type TokenService = ReturnType<typeof createTokenService>;

export function createTokenService(given: TokenServiceDependencies) {
  const deps = { ...given, ...trackUnknownGrantWrites(given.unknownWrites, given) };
  return {
    /** The grant that a code names; neither the code nor its client are verified. */
    async findByCode(code: string | undefined): Promise<GrantDocument | null> {
      const id = code === undefined ? undefined : grantIdOf('ac_', code);
      return id === undefined ? null : deps.grants.findOne({ id });
    },
    /** Exchanges a code for tokens, once. @throws invalid_request, invalid_grant, invalid_target */
    redeem: (client: Client, redemption: CodeRedemption, ip: string) =>
      redeemCode(client, redemption, ip, deps),
    /** The same for a grant whose code was presented; `null` if it was used or has expired. @throws invalid_grant, invalid_target */
    redeemGrant: (client: Client, grant: GrantDocument, redemption: GrantRedemption) =>
      redeemGrant(client, grant, redemption, deps),
    /** Exchanges a refresh token for its one successor. @throws invalid_request, invalid_grant, invalid_scope, invalid_target */
    refresh: (client: Client, request: RefreshRequest, ip: string) =>
      refreshTokens(client, request, ip, deps),
    /** An access token of an agent for itself. @throws invalid_target, invalid_scope, invalid_dpop_proof, use_dpop_nonce */
    async issueToAgent(agent: AgentClient, request: TokenRequest, ip: string) {
      const { issueToAgent } = await import('./client-credentials.js');
      return issueToAgent(agent, request, ip, deps);
    },
    /** An access token with which an agent acts for a person. @throws invalid_request, invalid_grant, invalid_scope, invalid_target */
    async exchange(client: Client | AgentClient, request: ExchangeRequest, ip: string) {
      const { exchangeTokens } = await import('../delegations/exchange.js');
      return exchangeTokens(client, request, ip, deps);
    },
    /** Revokes a token of this client, if there is one. */
    revoke: (client: Pick<Client, 'id'>, token: string, ip: string) => revokeToken(client, token, ip, deps),
    /** Describes an opaque token to the client that it was issued to. */
    introspect: (client: Client, token: string) => introspectToken(client, token, deps),
    /** Describes an access token to the resource server that is its audience. */
    introspectForResource: (server: ResourceServer, token: string) =>
      introspectForResource(server, token, deps),

    /**
     * The claims for the bearer of an access token (OIDC Core §5.3).
     * @param prove present if it was presented as one that is bound to a key
     * @throws invalid_token, invalid_dpop_proof
     */
    async userinfo(accessToken: string, prove?: Prove): Promise<Record<string, string | number | boolean>> {
      const found = await findAccessToken(accessToken, deps);
      // A bound token is worth nothing without a proof (RFC 9449 §7.1).
      if (!found || (found.issued.key === undefined) !== (prove === undefined))
        throw oidcErrors.invalid_token();
      if (prove && (await prove(accessToken)) !== found.issued.key) throw oidcErrors.invalid_token();
      return deps.claimsOf(found.principal, found.scope);
    },
  };
}

/**
 * Revokes a token of this client (RFC 7009): an access token alone, a refresh token with everything issued from the
 * same grant. A token for a resource ends where the resource server asks the provider about it. Unknown tokens and those of other clients are ignored.
 */
async function revokeToken(
  client: Pick<Client, 'id'>,
  token: string,
  ip: string,
  deps: TokenDependencies,
): Promise<void> {
  const accessGrantId = grantIdOf('at_', token);
  if (accessGrantId !== undefined) return revokeAccessToken(accessGrantId, client, token, deps);
  const id = grantIdOf('rt_', token) ?? grantIdOf('dt_', token);
  if (id === undefined) {
    if (!token.startsWith('eyJ')) return;
    const { revokeJwtAccessToken } = await import('./resource-introspection.js');
    return revokeJwtAccessToken(client, token, deps);
  }
  const grant = await deps.grants.findOne({ id });
  const presented = sha256(token);
  const isOwn =
    grant?.clientId === client.id &&
    (grant.refreshHash === presented || grant.previousRefreshHash === presented);
  if (isOwn) await revokeGrant(grant, 'grant.revoked', ip, deps);
}

async function revokeAccessToken(
  id: string,
  client: Pick<Client, 'id'>,
  token: string,
  { grants }: TokenDependencies,
): Promise<void> {
  const presented = sha256(token);
  for (;;) {
    const grant = await grants.findOne({ id });
    if (grant?.clientId !== client.id) return;
    const { accessTokens = [], revision } = grant;
    const others = accessTokens.filter(({ hash }) => hash !== presented);
    if (others.length === accessTokens.length) return;
    const revoked = await grants.changeOne(
      { id, revision: revision ?? null },
      { set: { accessTokens: others }, inc: { revision: 1 } },
    );
    if (revoked) return;
  }
}
