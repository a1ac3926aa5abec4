import { createPrivateKey, createPublicKey, hash, type KeyObject } from 'node:crypto';

/** Private keys that sign tokens, on Ed25519 and P-256, and the public keys with which others verify them. */

/** A public key of a JWK Set (RFC 7517). */
export interface SigningJwk {
  kty: string;
  crv: string;
  x: string;
  y?: string;
  kid: string;
  use: 'sig';
  alg: 'EdDSA' | 'ES256';
}

export interface SigningPair {
  privateKey: KeyObject;
  publicKey: KeyObject;
  jwk: SigningJwk;
}

/** Seeds published in RFC 8037 and in samples, whose private keys are public. */
const PUBLISHED_SEEDS: ReadonlySet<string> = new Set([
  '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60',
  '4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb',
  'c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7',
]);

/** Whether a text is a key of 32 bytes in hexadecimal. */
export const isHexKey = (text: string): boolean => /^[0-9a-f]{64}$/i.test(text);

/** Why a key in hexadecimal is not safe; `undefined` if it is. */
export const hexKeyWeakness = (hex: string, published = PUBLISHED_SEEDS): string | undefined =>
  published.has(hex.toLowerCase()) || new Set(hex.slice(0, 60)).size < 4
    ? 'is a published or trivial key. Generate one: openssl rand -hex 32'
    : undefined;

/** The DER header before the 32 bytes of an Ed25519 private key (RFC 8410 §7). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');

/** @param seed 64 hexadecimal characters */
export const ed25519Key = (seed: string): KeyObject =>
  createPrivateKey({
    key: Buffer.concat([PKCS8_PREFIX, Buffer.from(seed, 'hex')]),
    format: 'der',
    type: 'pkcs8',
  });

/** Reads an Ed25519 seed in hexadecimal, or a private key on P-256 in PEM. */
export function readSigningKey(text: string): { key: KeyObject } | { problem: string } {
  if (isHexKey(text)) return { key: ed25519Key(text) };
  const problem =
    'must be an Ed25519 seed of 64 hexadecimal characters (openssl rand -hex 32), or a private key on P-256 in PEM (openssl ecparam -name prime256v1 -genkey -noout).';
  try {
    const key = createPrivateKey(text);
    return key.asymmetricKeyDetails?.namedCurve === 'prime256v1' ? { key } : { problem };
  } catch {
    // The error of OpenSSL says less.
    return { problem };
  }
}

/** The key with its public half; `alg` is EdDSA, because most clients do not support the newer name Ed25519. */
export function signingPair(privateKey: KeyObject): SigningPair {
  const publicKey = createPublicKey(privateKey);
  const { crv = '', kty = '', x = '', y } = publicKey.export({ format: 'jwk' });
  const point = { x, ...(y !== undefined && { y }) };
  // RFC 7638: exactly these members in this order. jose would load WebCrypto at every start.
  const kid = hash('sha256', JSON.stringify({ crv, kty, ...point }), 'base64url');
  return { privateKey, publicKey, jwk: { kty, crv, ...point, kid, use: 'sig', alg: y ? 'ES256' : 'EdDSA' } };
}

/** The arguments of `sign` and `verify` of node:crypto. JWS has the two numbers of ECDSA, not their DER encoding (RFC 7518 §3.4). */
export const digestOf = ({ alg }: SigningJwk): 'sha256' | null => (alg === 'ES256' ? 'sha256' : null);
export const jwsKey = (key: KeyObject) => ({ key, dsaEncoding: 'ieee-p1363' as const });
