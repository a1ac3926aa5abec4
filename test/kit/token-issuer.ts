import { createHash, randomUUID } from 'node:crypto';
import {
  type CryptoKey,
  exportJWK,
  exportSPKI,
  generateKeyPair,
  type JWK,
  type JWTHeaderParameters,
  type JWTPayload,
  SignJWT,
} from 'jose';
import type { Test } from 'tap';
import type { RevocationList } from '../../src/core/http/revocation-list.js';
import { type Clock, toSeconds } from '../../src/core/kernel/clock.js';
import { listen } from './listener.js';

/** An authorization server that signs whatever a test wants, to see what a resource server refuses. */

export interface TokenIssuer {
  url: string;
  keys: { privateKey: CryptoKey };
  /** What the metadata say beyond the necessary. */
  metadata: Record<string, unknown>;
  /** A path → how its next answers fail. */
  faults: Map<string, (attempt: number) => number | 'cut' | undefined>;
  requests: string[];
  /** Requests for the list that are held back until it changes. Their senders have read the present one. */
  waiting: number;
  /** Sends the new list to everyone who waits for it. */
  revoke(list: RevocationList): void;
  sign(claims: JWTPayload, header?: Partial<JWTHeaderParameters>, key?: CryptoKey): Promise<string>;
  /** Signs with HS256, and the public key as the secret. */
  confuse(claims: JWTPayload, header?: Partial<JWTHeaderParameters>): Promise<string>;
}

export async function tokenIssuer(
  t: Test,
  { clock, revocations = false, alg = 'EdDSA' }: { clock: Clock; revocations?: boolean; alg?: string },
): Promise<TokenIssuer> {
  const keys = await generateKeyPair(alg);
  // As at Entra, keys of RSA do not name the algorithm.
  const named = alg === 'RS256' ? {} : { alg };
  const jwk = { ...(await exportJWK(keys.publicKey)), kid: 'k1', use: 'sig', ...named };
  let list: RevocationList = {};
  let version = 0;
  let changed = () => {};
  let change = new Promise<void>((resolve) => (changed = resolve));

  const answers: Record<string, () => unknown> = {
    '/.well-known/openid-configuration': () => ({
      issuer: issuer.url,
      jwks_uri: `${issuer.url}/jwks`,
      ...(revocations && { revocation_list_uri: `${issuer.url}/revocations` }),
      ...issuer.metadata,
    }),
    '/jwks': () => ({ keys: [jwk] }),
  };

  const url = await listen(t, async (request, response) => {
    const path = request.url ?? '';
    issuer.requests.push(path);
    const attempts = issuer.requests.filter((each) => each === path).length;
    const fault = issuer.faults.get(path)?.(attempts);
    if (fault === 'cut') return void response.destroy();
    if (fault !== undefined) return void response.writeHead(fault).end('{}');
    if (path !== '/revocations') return void response.end(JSON.stringify(answers[path]?.()));
    if (request.headers['if-none-match'] === `"${version}"` && request.headers.prefer) {
      issuer.waiting++;
      await change;
    }
    const iat = toSeconds(clock.now());
    const text = await issuer.sign(
      { iss: issuer.url, iat, exp: iat + 60, revoked: list },
      { typ: 'revocations+jwt' },
    );
    return void response.writeHead(200, { etag: `"${version}"` }).end(text);
  });

  const issuer: TokenIssuer = {
    url,
    keys,
    metadata: {},
    faults: new Map(),
    requests: [],
    waiting: 0,
    revoke(next) {
      list = next;
      version++;
      issuer.waiting = 0;
      const notify = changed;
      change = new Promise<void>((resolve) => (changed = resolve));
      notify();
    },
    confuse: async (claims, header = {}) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: 'HS256', kid: 'k1', ...header })
        .sign(Buffer.from(await exportSPKI(keys.publicKey))),
    sign: (claims, header = {}, key = keys.privateKey) =>
      new SignJWT(claims).setProtectedHeader({ alg, typ: 'at+jwt', kid: 'k1', ...header }).sign(key),
  };
  return issuer;
}

/** A client's key for DPoP, and its proofs. */
export async function dpopKey(clock: Clock, alg: 'EdDSA' | 'ES256' = 'ES256') {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  const jwk: JWK = await exportJWK(publicKey);
  return {
    jwk,
    privateKey,
    prove: (
      request: { method: string; url: string; token?: string },
      { claims = {}, header = {} }: { claims?: JWTPayload; header?: Partial<JWTHeaderParameters> } = {},
    ) =>
      new SignJWT({
        jti: randomUUID(),
        htm: request.method,
        htu: request.url,
        iat: toSeconds(clock.now()),
        ...(request.token !== undefined && {
          ath: createHash('sha256').update(request.token).digest('base64url'),
        }),
        ...claims,
      })
        .setProtectedHeader({ alg, typ: 'dpop+jwt', jwk, ...header })
        .sign(privateKey),
  };
}
