import { oidcErrors } from '../errors.js';
import type { Client } from '../model.js';
import { findAccess } from './access.js';
import type { TokenResponse } from './answer.js';
import type { TokenDependencies } from './dependencies.js';
import { type Introspection, introspectToken } from './introspect.js';
import { type CodeRedemption, redeemCode } from './redeem.js';
import { type RefreshRequest, refreshTokens } from './refresh.js';
import { createRegistrations } from './registrations.js';
import { revokeToken } from './revoke.js';

export interface TokenService {
  /** Exchanges a code for tokens, once. @throws invalid_request, invalid_grant */
  redeem(client: Client, redemption: CodeRedemption, ip: string): Promise<TokenResponse>;
  /** Exchanges a refresh token for its one successor. @throws invalid_request, invalid_grant, invalid_scope */
  refresh(client: Client, request: RefreshRequest, ip: string): Promise<TokenResponse>;
  /** Ends a token of this client, and does nothing where there is none. */
  revoke(client: Client, token: string, ip: string): Promise<void>;
  /** What this client may know of a token. */
  introspect(client: Client, token: string): Promise<Introspection>;
  /** What the bearer of an access token may learn (OIDC Core §5.3). @throws invalid_token */
  userinfo(accessToken: string): Promise<Record<string, string | number | boolean>>;
}

export function createTokenService(given: Omit<TokenDependencies, 'isRegistered'>): TokenService {
  const deps = { ...given, isRegistered: createRegistrations(given.directory, given.clock) };
  return {
    redeem: (client, redemption, ip) => redeemCode(client, redemption, ip, deps),
    refresh: (client, request, ip) => refreshTokens(client, request, ip, deps),
    revoke: (client, token, ip) => revokeToken(client, token, ip, deps),
    introspect: (client, token) => introspectToken(client, token, deps),

    async userinfo(accessToken) {
      const access = await findAccess(accessToken, deps);
      if (!access) throw oidcErrors.invalid_token();
      return deps.claimsOf(access.principal, access.scope);
    },
  };
}
