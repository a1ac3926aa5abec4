import { newId, UNUSED_HASH } from '../../../core/kernel/secrets.js';
import type { Principal } from '../directory.js';
import { newGrantToken, withAccessToken } from '../grant-tokens.js';
import type { Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import { GRANT, type GrantDocument } from '../store.js';
import { createTokenResponse, type TokenResponse } from './issuance.js';
import { lifetimeFor } from './target.js';

/** Access tokens for resources that need no code: of agents for themselves, and for assertions of other providers. */

export interface DirectGrant {
  clientId: string;
  principal: Principal;
  target: Target;
  /** Thumbprint of the key that the token is bound to. */
  key: string | undefined;
  /** How and when the principal authenticated. */
  authentication: Pick<GrantDocument, 'authTime' | 'amr' | 'revocations'>;
}

/** A grant that has been redeemed from the beginning, without a refresh token, and the response once it is stored. */
export function createDirectGrant(
  { clientId, principal, target, key, authentication }: DirectGrant,
  deps: OidcShared,
): { grant: GrantDocument; respond(): Promise<TokenResponse> } {
  const { clock, random } = deps;
  const { resource, scopes } = target;
  const id = newId(GRANT, clock, random);
  const now = clock.now();
  const token = {
    accessToken: newGrantToken('at_', id, random),
    target,
    key,
    expiresIn: lifetimeFor(target, clock.now()),
    scope: scopes.join(' '),
  };
  const grant: GrantDocument = {
    id,
    codeHash: UNUSED_HASH,
    redirectUri: '',
    codeExpiresAt: now,
    consumedAt: now,
    clientId,
    sub: principal.id,
    ...(principal.epoch !== undefined && { epoch: principal.epoch }),
    scope: '',
    resources: [{ resource: resource.identifier, scopes }],
    ...authentication,
    createdAt: now,
    accessTokens: withAccessToken({ scope: '' }, token, now),
  };
  const tokens = { ...token, refreshToken: undefined, nonce: undefined };
  return { grant, respond: () => createTokenResponse({}, grant, principal, tokens, deps) };
}
