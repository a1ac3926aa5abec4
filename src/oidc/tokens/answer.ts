import { hash } from 'node:crypto';
import { toSeconds } from '../../kernel/clock.js';
import { newId } from '../../kernel/secrets.js';
import type { Principal } from '../model.js';
import type { GrantDocument } from '../store.js';
import type { TokenDependencies } from './dependencies.js';
import { TOKEN_LIFE } from './token-lifetimes.js';

export interface TokenResponse {
  access_token: string;
  token_type: 'Bearer';
  /** Seconds. */
  expires_in: number;
  scope: string;
  id_token?: string;
  refresh_token?: string;
}

export interface Issued {
  accessToken: string;
  /** Seconds that the access token still lives. */
  expiresIn: number;
  /** What it is good for: all that was granted, or less. */
  scope: string;
  refreshToken: string | undefined;
  /** Of the authorization request; only the first id_token bears it (OIDC Core §12.2). */
  nonce: string | undefined;
}

type AnswerDependencies = Pick<TokenDependencies, 'keys' | 'claimsOf' | 'issuer' | 'clock' | 'random'>;

/** What /token answers (RFC 6749 §5.1, OIDC Core §3.1.3.3). */
export async function tokenAnswer(
  grant: GrantDocument,
  principal: Principal,
  issued: Issued,
  deps: AnswerDependencies,
): Promise<TokenResponse> {
  return {
    access_token: issued.accessToken,
    token_type: 'Bearer',
    expires_in: issued.expiresIn,
    scope: issued.scope,
    ...(issued.scope.split(' ').includes('openid') && {
      id_token: await idToken(grant, principal, issued, deps),
    }),
    ...(issued.refreshToken !== undefined && { refresh_token: issued.refreshToken }),
  };
}

function idToken(
  grant: GrantDocument,
  principal: Principal,
  { accessToken, scope, nonce }: Issued,
  { keys, claimsOf, issuer, clock, random }: AnswerDependencies,
): Promise<string> {
  const now = toSeconds(clock.now());
  const claims = {
    iss: issuer(),
    aud: grant.clientId,
    iat: now,
    exp: now + TOKEN_LIFE,
    auth_time: toSeconds(grant.authTime),
    jti: newId('jti_', clock, random),
    amr: ['pwd'],
    at_hash: leftHalf(accessToken),
    ...(grant.sid !== undefined && { sid: grant.sid }),
    ...(grant.acr !== undefined && { acr: grant.acr }),
    ...(nonce !== undefined && { nonce }),
  };
  // What a principal chose comes first, so that nothing of it can stand in for a claim of the protocol.
  return keys.sign(Object.assign(claimsOf(principal, scope), claims));
}

/** `at_hash` for Ed25519: the left half of SHA-512 (OIDC Core §3.1.3.6). */
function leftHalf(accessToken: string): string {
  return hash('sha512', accessToken, 'buffer').subarray(0, 32).toString('base64url');
}
