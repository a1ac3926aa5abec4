import { hash } from 'node:crypto';
import { type Clock, toSeconds } from '../kernel/clock.js';
import { isSecretOf, newId, newToken, type Random, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import { principalClaims } from './claims.js';
import { oidcErrors } from './errors.js';
import type { Keys } from './keys.js';
import type { Client, Directory, Principal } from './model.js';
import { GRANT, type GrantDocument, type Grants } from './store.js';

export interface TokenResponse {
  access_token: string;
  token_type: 'Bearer';
  /** Seconds. */
  expires_in: number;
  scope: string;
  id_token?: string;
}

export interface CodeRedemption {
  code: string | undefined;
  redirectUri: string | undefined;
  verifier: string | undefined;
}

export interface TokenService {
  /** Exchanges a code for tokens, once. @throws invalid_request, invalid_grant */
  redeem(client: Client, redemption: CodeRedemption, ip: string): Promise<TokenResponse>;
  /** What the bearer of an access token may learn (OIDC Core §5.3). @throws invalid_token */
  userinfo(accessToken: string): Promise<Record<string, string | number | boolean>>;
}

export interface TokenDependencies {
  grants: Grants;
  directory: Pick<Directory, 'findPrincipal'>;
  keys: Keys;
  issuer(): string;
  audit: Audit;
  clock: Clock;
  random: Random;
}

/** Seconds that access tokens and id_tokens live. */
const TOKEN_LIFE = 3600;

export function createTokenService(deps: TokenDependencies): TokenService {
  const { grants, directory, keys, issuer, audit, clock, random } = deps;

  const idToken = (grant: GrantDocument, principal: Principal, accessToken: string): string => {
    const now = toSeconds(clock.now());
    return keys.sign({
      // What a principal chose comes first, so that nothing of it can stand in for a claim of the protocol.
      ...principalClaims(principal, grant.scope),
      iss: issuer(),
      aud: grant.clientId,
      iat: now,
      exp: now + TOKEN_LIFE,
      auth_time: toSeconds(grant.authTime),
      jti: newId('jti_', clock, random),
      amr: ['pwd'],
      at_hash: leftHalf(accessToken),
      ...(grant.acr !== undefined && { acr: grant.acr }),
      ...(grant.nonce !== undefined && { nonce: grant.nonce }),
    });
  };

  return {
    async redeem(client, { code, redirectUri, verifier }, ip) {
      if (!code) throw oidcErrors.invalid_request({ message: 'code is missing.' });
      const grant = await grants.findOne({ codeHash: sha256(code) });
      if (!grant || grant.clientId !== client.id) throw oidcErrors.invalid_grant();
      if (grant.redirectUri !== redirectUri || !isVerified(grant.challenge, verifier)) {
        throw oidcErrors.invalid_grant();
      }
      const principal = await ownerOf(grant);
      if (!principal) throw oidcErrors.invalid_grant();

      const accessToken = newAccessToken(grant.id, random);
      const now = clock.now();
      const consumed = await grants.updateOne(
        { id: grant.id, consumedAt: null, revokedAt: null, codeExpiresAt: { gt: now } },
        {
          set: { consumedAt: now, accessHash: sha256(accessToken), accessExpiresAt: now + TOKEN_LIFE * 1000 },
        },
      );
      if (!consumed) {
        await punishReplay(grant.id, ip);
        throw oidcErrors.invalid_grant();
      }
      return {
        access_token: accessToken,
        token_type: 'Bearer',
        expires_in: TOKEN_LIFE,
        scope: consumed.scope,
        ...(consumed.scope.split(' ').includes('openid') && {
          id_token: idToken(consumed, principal, accessToken),
        }),
      };
    },

    async userinfo(accessToken) {
      const id = grantIdOf(accessToken);
      const grant = id === undefined ? null : await grants.findOne({ id });
      const isAlive =
        grant?.accessHash !== undefined &&
        isSecretOf(accessToken, grant.accessHash) &&
        grant.revokedAt === undefined &&
        (grant.accessExpiresAt ?? 0) > clock.now();
      const principal = isAlive ? await ownerOf(grant) : null;
      if (!grant || !principal) throw oidcErrors.invalid_token();
      return principalClaims(principal, grant.scope);
    },
  };

  /** The principal of a grant, unless it has been locked out or has new credentials since. */
  async function ownerOf({ sub, epoch }: GrantDocument): Promise<Principal | null> {
    const principal = await directory.findPrincipal(sub);
    return principal?.epoch === epoch ? principal : null;
  }

  /** A code that comes twice was stolen from one of the two (RFC 6749 §4.1.2): what it bought is dead, too. */
  async function punishReplay(grantId: string, ip: string): Promise<void> {
    const grant = await grants.findOne({ id: grantId });
    if (grant?.consumedAt === undefined || grant.revokedAt !== undefined) return;
    await grants.updateOne({ id: grantId, revokedAt: null }, { set: { revokedAt: clock.now() } });
    await audit.record({ event: 'code.replayed', subject: grant.sub, ip, detail: grant.clientId });
  }
}

/** It names its grant, so that the grant is found by its own key and every sign-in is spared an index of hashes. */
function newAccessToken(grantId: string, random: Random): string {
  return newToken(random, `at_${grantId.slice(GRANT.length)}`);
}

function grantIdOf(accessToken: string): string | undefined {
  const name = /^at_([0-9a-f]{32})[\w-]{43}$/.exec(accessToken)?.[1];
  return name === undefined ? undefined : GRANT + name;
}

/** RFC 7636 §4.6. A verifier without a challenge is an injected code (RFC 9700 §2.1.1). */
function isVerified(challenge: string | undefined, verifier: string | undefined): boolean {
  if (challenge === undefined) return verifier === undefined;
  if (verifier === undefined || !/^[\w.~-]{43,128}$/.test(verifier)) return false;
  // S256 is the form in which our store keeps secrets, too.
  return isSecretOf(verifier, challenge);
}

/** `at_hash` for Ed25519: the left half of SHA-512 (OIDC Core §3.1.3.6). */
function leftHalf(accessToken: string): string {
  return hash('sha512', accessToken, 'buffer').subarray(0, 32).toString('base64url');
}
