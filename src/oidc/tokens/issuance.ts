import { type Clock, toSeconds } from '../../kernel/clock.js';
import { newId, type Random } from '../../kernel/secrets.js';
import type { Audit } from '../../ops/audit.js';
import type { UnknownWrites } from '../../ops/unknown-writes.js';
import { AMR, type ClaimsOf } from '../claims.js';
import type { ConsentService } from '../consents.js';
import type { Client, Directory, IsRegistered, Principal } from '../directory.js';
import { TOKEN_LIFETIME_SECONDS } from '../grant-tokens.js';
import type { Keys } from '../keys.js';
import type { GrantDocument, Grants } from '../store.js';
import type { Redemption, Rotation } from './unknown-grants.js';

export interface TokenDependencies {
  grants: Grants;
  directory: Pick<Directory, 'findPrincipal' | 'findClient'>;
  isRegistered: IsRegistered;
  consents: Pick<ConsentService, 'find'>;
  keys: Keys;
  claimsOf: ClaimsOf;
  issuer(): string;
  /** Keys of refresh tokens and their successors: the first is used for new ones, all of them for verification. */
  seeds: readonly [string, ...string[]];
  rotations: UnknownWrites<Rotation>;
  redemptions: UnknownWrites<Redemption>;
  audit: Audit;
  clock: Clock;
  random: Random;
}

export interface TokenResponse {
  access_token: string;
  token_type: 'Bearer';
  /** Seconds. */
  expires_in: number;
  scope: string;
  id_token?: string;
  refresh_token?: string;
}

export interface IssuedTokens {
  accessToken: string;
  /** Remaining lifetime of the access token, in seconds. */
  expiresIn: number;
  /** The granted scope, or a part of it. */
  scope: string;
  refreshToken: string | undefined;
  /** Of the authorization request. Only the first id_token contains it (OIDC Core §12.2). */
  nonce: string | undefined;
}

type ResponseDependencies = Pick<TokenDependencies, 'keys' | 'claimsOf' | 'issuer' | 'clock' | 'random'>;

/** The response of the token endpoint (RFC 6749 §5.1, OIDC Core §3.1.3.3). */
export async function createTokenResponse(
  client: Pick<Client, 'idTokenAlg'>,
  grant: GrantDocument,
  principal: Principal,
  issued: IssuedTokens,
  deps: ResponseDependencies,
): Promise<TokenResponse> {
  return {
    access_token: issued.accessToken,
    token_type: 'Bearer',
    expires_in: issued.expiresIn,
    scope: issued.scope,
    ...(issued.scope.split(' ').includes('openid') && {
      id_token: await signIdToken(client, grant, principal, issued, deps),
    }),
    ...(issued.refreshToken !== undefined && { refresh_token: issued.refreshToken }),
  };
}

function signIdToken(
  { idTokenAlg }: Pick<Client, 'idTokenAlg'>,
  grant: GrantDocument,
  principal: Principal,
  { scope, nonce }: IssuedTokens,
  { keys, claimsOf, issuer, clock, random }: ResponseDependencies,
): Promise<string> {
  const now = toSeconds(clock.now());
  // Without `at_hash`, which is optional in this flow: two libraries compute it wrongly for EdDSA.
  const claims = {
    iss: issuer(),
    aud: grant.clientId,
    iat: now,
    exp: now + TOKEN_LIFETIME_SECONDS,
    auth_time: toSeconds(grant.authTime),
    jti: newId('jti_', clock, random),
    amr: grant.amr ?? AMR.password,
    ...(grant.sid !== undefined && { sid: grant.sid }),
    ...(grant.acr !== undefined && { acr: grant.acr }),
    ...(nonce !== undefined && { nonce }),
  };
  // Claims of the principal are assigned first, so that they cannot replace a protocol claim.
  return keys.sign(Object.assign(claimsOf(principal, scope), claims), idTokenAlg);
}

type OwnerDependencies = { directory: Pick<Directory, 'findPrincipal'> } & Pick<
  TokenDependencies,
  'consents'
>;

/** The principal of a grant, unless it was disabled, its credentials have changed or it has revoked the access since. */
export async function findOwner(
  { sub, sid, epoch, clientId, revocations = 0 }: GrantDocument,
  { directory, consents }: OwnerDependencies,
): Promise<Principal | null> {
  // Only people have sessions, so both documents are read in one round trip.
  const [principal, consent] = await Promise.all([
    directory.findPrincipal(sub),
    sid === undefined ? undefined : consents.find(sub, clientId),
  ]);
  if (principal?.epoch !== epoch) return null;
  // Only people can revoke the access of an application.
  if (principal?.kind !== 'human') return principal;
  const current = consent ?? (await consents.find(sub, clientId));
  return current.revocations === revocations ? principal : null;
}

/** The same, unless its kind may no longer sign in to the client. */
export async function findAllowedOwner(
  client: Pick<Client, 'principalKinds'>,
  grant: GrantDocument,
  deps: OwnerDependencies,
): Promise<Principal | null> {
  const principal = await findOwner(grant, deps);
  return principal && client.principalKinds.includes(principal.kind) ? principal : null;
}
