import { createPrivateKey, createPublicKey, hash, type KeyObject, sign } from 'node:crypto';
import { promisify } from 'node:util';
import type { JWK } from 'jose';

/** The Ed25519 keys: one signs, all are published. */
export interface Keys {
  /** The JWK Set (RFC 7517): public keys only. */
  readonly jwks: { keys: JWK[] };
  /** A JWS (RFC 7515 §7.1) with `alg: EdDSA` over these claims, which must be complete. */
  sign(claims: Record<string, unknown>, type?: 'logout+jwt'): Promise<string>;
  /** The claims of a JWS that one of these keys signed, expired or not; else `null`. */
  verify(jws: string): Promise<Record<string, unknown> | null>;
}

/** @param seeds 64 hexadecimal characters each; the first signs */
export function createKeys(seeds: readonly [string, ...string[]]): Keys {
  const pairs = seeds.map(loadPair);
  const [{ privateKey, jwk }] = pairs as [Pair, ...Pair[]];
  const publicKeys = new Map(pairs.map(({ jwk, publicKey }) => [jwk.kid, publicKey]));
  const headerOf = (typ: string) => base64url(JSON.stringify({ alg: 'EdDSA', typ, kid: jwk.kid }));
  const header = headerOf('JWT');
  return {
    jwks: { keys: pairs.map((pair) => pair.jwk) },
    async sign(claims, type) {
      const input = `${type ? headerOf(type) : header}.${base64url(JSON.stringify(claims))}`;
      const signature = await signInThreadPool(null, Buffer.from(input), privateKey);
      return `${input}.${signature.toString('base64url')}`;
    },
    async verify(jws) {
      const [{ compactVerify }, { JOSEError }] = await Promise.all([
        import('jose/jws/compact/verify'),
        import('jose/errors'),
      ]);
      try {
        const { payload } = await compactVerify(
          jws,
          ({ kid }) => {
            const key = publicKeys.get(kid);
            if (!key) throw new JOSEError('unknown key');
            return key;
          },
          { algorithms: ['EdDSA'] },
        );
        return JSON.parse(Buffer.from(payload).toString()) as Record<string, unknown>;
      } catch (error) {
        if (error instanceof JOSEError) return null;
        throw error;
      }
    },
  };
}

/** The user, client and session in an `id_token_hint`. */
export interface Hint {
  sub: string;
  clientId: string;
  sid?: string;
}

/** Reads an `id_token_hint` issued by this provider, expired ones included (RP-Initiated Logout §4); else `null`. */
export type ReadHint = (idToken: string) => Promise<Hint | null>;

export function createHintReader(keys: Pick<Keys, 'verify'>, issuer: () => string): ReadHint {
  return async (idToken) => {
    const { iss, sub, aud, sid } = (await keys.verify(idToken)) ?? {};
    if (iss !== issuer() || typeof sub !== 'string' || typeof aud !== 'string') return null;
    return { sub, clientId: aud, ...(typeof sid === 'string' && { sid }) };
  };
}

/** Signs on another thread, which takes a sixth of the event loop time of a signature on this one. */
const signInThreadPool = promisify(sign);

const base64url = (text: string): string => Buffer.from(text).toString('base64url');

interface Pair {
  privateKey: KeyObject;
  publicKey: KeyObject;
  jwk: JWK;
}

/** The DER header before the 32 bytes of an Ed25519 private key (RFC 8410 §7). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');

function loadPair(seed: string): Pair {
  const der = Buffer.concat([PKCS8_PREFIX, Buffer.from(seed, 'hex')]);
  const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const publicKey = createPublicKey(privateKey);
  const { crv, kty, x } = publicKey.export({ format: 'jwk' });
  // The thumbprint of RFC 7638: exactly these members in this order. jose would load WebCrypto at every start.
  const kid = hash('sha256', JSON.stringify({ crv, kty, x }), 'base64url');
  // `alg` is EdDSA, because most clients do not support the newer name Ed25519.
  return { privateKey, publicKey, jwk: { kty, crv, x, kid, use: 'sig', alg: 'EdDSA' } as JWK };
}
