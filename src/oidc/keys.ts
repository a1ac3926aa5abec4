import { createPrivateKey, createPublicKey, hash, type KeyObject, sign } from 'node:crypto';
import { promisify } from 'node:util';
import type { JWK } from 'jose';

/** The Ed25519 keys: one signs, all are published. */
export interface Keys {
  /** The JWK Set (RFC 7517): public halves only. */
  readonly jwks: { keys: JWK[] };
  /** A JWS (RFC 7515 §7.1) with `alg: EdDSA` over these claims, which the caller has made complete. */
  sign(claims: Record<string, unknown>): Promise<string>;
  /** The claims of a JWS that one of these keys has signed, whatever its age; else `null`. */
  verify(jws: string): Promise<Record<string, unknown> | null>;
}

/** @param seeds 64 hexadecimal characters each; the first signs */
export function createKeys(seeds: readonly [string, ...string[]]): Keys {
  const pairs = seeds.map(loadPair);
  const [{ privateKey, jwk }] = pairs as [Pair, ...Pair[]];
  const publicKeys = new Map(pairs.map(({ jwk, publicKey }) => [jwk.kid, publicKey]));
  const header = base64url(JSON.stringify({ alg: 'EdDSA', typ: 'JWT', kid: jwk.kid }));
  return {
    jwks: { keys: pairs.map((pair) => pair.jwk) },
    async sign(claims) {
      const input = `${header}.${base64url(JSON.stringify(claims))}`;
      const signature = await signElsewhere(null, Buffer.from(input), privateKey);
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
            if (!key) throw new JOSEError('none of our keys');
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

/** On another thread: there and back is a sixth of what the event loop would spend on the signature itself. */
const signElsewhere = promisify(sign);

const base64url = (text: string): string => Buffer.from(text).toString('base64url');

interface Pair {
  privateKey: KeyObject;
  publicKey: KeyObject;
  jwk: JWK;
}

/** What DER puts before the 32 bytes of an Ed25519 private key (RFC 8410 §7). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');

function loadPair(seed: string): Pair {
  const der = Buffer.concat([PKCS8_PREFIX, Buffer.from(seed, 'hex')]);
  const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const publicKey = createPublicKey(privateKey);
  const { crv, kty, x } = publicKey.export({ format: 'jwk' });
  // The thumbprint of RFC 7638: exactly these members in this order. Making it with jose would load WebCrypto at every start.
  const kid = hash('sha256', JSON.stringify({ crv, kty, x }), 'base64url');
  // `alg` is EdDSA and not Ed25519, which most clients do not know yet.
  return { privateKey, publicKey, jwk: { kty, crv, x, kid, use: 'sig', alg: 'EdDSA' } as JWK };
}
