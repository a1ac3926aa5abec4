import { createPublicKey } from 'node:crypto';

/** Public keys with which clients prove who they are: Ed25519, P-256 and RSA. */

export type PublicJwk = CurveJwk | RsaJwk;

interface CurveJwk {
  kty: 'OKP' | 'EC';
  crv: 'Ed25519' | 'P-256';
  x: string;
  y?: string;
  kid?: string;
}

interface RsaJwk {
  kty: 'RSA';
  n: string;
  e: string;
  /** Absent: both. */
  alg?: RsaAlgorithm;
  kid?: string;
}

const RSA_ALGORITHMS = ['PS256', 'RS256'] as const;

type RsaAlgorithm = (typeof RSA_ALGORITHMS)[number];

/** The algorithms of their signatures. RFC 9864 calls EdDSA with this curve Ed25519. */
export const CLIENT_KEY_ALGORITHMS = ['EdDSA', 'Ed25519', 'ES256', ...RSA_ALGORITHMS] as const;

export type ClientKeyAlgorithm = (typeof CLIENT_KEY_ALGORITHMS)[number];

/** The curve of a key, or RSA, for people. */
export const keyTypeOf = (key: PublicJwk): string => (key.kty === 'RSA' ? key.kty : key.crv);

/** Bounds of RSA keys: less is not safe, and more takes too long to verify. */
const [MIN_RSA_BITS, MAX_RSA_BITS] = [2048, 4096];
const [MIN_RSA_EXPONENT, MAX_RSA_EXPONENT] = [65_537n, 2n ** 32n];

const MAX_KEYS = 10;

const MAX_KID_LENGTH = 256;

const COORDINATE = /^[\w-]{43}$/;

/** Whether a key can have made a signature with this algorithm. */
export function fitsAlgorithm(key: PublicJwk, algorithm: ClientKeyAlgorithm): boolean {
  const isRsa = isRsaAlgorithm(algorithm);
  if (key.kty === 'RSA') return isRsa && (key.alg ?? algorithm) === algorithm;
  return !isRsa && (key.crv === 'P-256') === (algorithm === 'ES256');
}

const isRsaAlgorithm = (name: unknown): name is RsaAlgorithm => RSA_ALGORITHMS.some((one) => one === name);

type ReadKeys = { keys: PublicJwk[] } | { problem: string };

/**
 * Reads a JWK Set (RFC 7517 §5). Of a document that the client publishes, keys of other types are skipped.
 *
 * @param isPublished false if every key must be usable
 */
export function readJwkSet(value: unknown, isPublished: boolean): ReadKeys {
  const listed = isObject(value) ? value['keys'] : undefined;
  if (!Array.isArray(listed)) return { problem: 'must be a JWK Set, like {"keys":[…]}' };
  const read = listed.slice(0, isPublished ? 100 : MAX_KEYS + 1).map(readKey);
  // A document with a private key has published it.
  const secret = read.find((key) => 'isSecret' in key);
  if (secret && 'problem' in secret) return secret;
  const unusable = read.find((key) => 'problem' in key);
  if (!isPublished && unusable && 'problem' in unusable) return { problem: unusable.problem };
  const keys = read.flatMap((key) => ('problem' in key ? [] : [key]));
  if (keys.length === 0) return { problem: 'must contain a public key on Ed25519 or P-256, or of RSA' };
  return keys.length > MAX_KEYS ? { problem: `must contain at most ${MAX_KEYS} keys` } : { keys };
}

function readKey(value: unknown): PublicJwk | { problem: string; isSecret?: true } {
  if (!isObject(value)) return { problem: 'must contain keys as JSON objects' };
  const { kty, crv, x, y, kid, use, alg } = value;
  if (['d', 'k', 'p', 'q', 'dp', 'dq', 'qi', 'oth'].some((name) => Object.hasOwn(value, name)))
    return {
      problem: 'must contain public keys only; this one is private, so create another one',
      isSecret: true,
    };
  if (kid !== undefined && !isKeyId(kid)) {
    return { problem: `must have kid values of 1 to ${MAX_KID_LENGTH} printable characters` };
  }
  if (use !== undefined && use !== 'sig') return { problem: 'must contain keys for signatures (use: sig)' };
  const named = kid === undefined ? {} : { kid };
  if (kty === 'RSA') return readRsaKey(value, named);
  const isEd25519 = kty === 'OKP' && crv === 'Ed25519';
  const isP256 = kty === 'EC' && crv === 'P-256';
  const algorithms: readonly unknown[] = isP256 ? ['ES256'] : ['EdDSA', 'Ed25519'];
  if ((!isEd25519 && !isP256) || (alg !== undefined && !algorithms.includes(alg)))
    return {
      problem: 'must contain keys on Ed25519 (EdDSA) or P-256 (ES256), or of RSA (PS256, RS256), only',
    };
  if (!isCoordinate(x) || (isP256 && !isCoordinate(y)))
    return { problem: 'contains a key that is not valid' };
  const key: PublicJwk =
    isP256 && isCoordinate(y)
      ? { kty: 'EC', crv: 'P-256', x, y, ...named }
      : { kty: 'OKP', crv: 'Ed25519', x, ...named };
  return isKey(key) ? key : { problem: 'contains a key that is not valid' };
}

function readRsaKey(
  { n, e, alg }: Record<string, unknown>,
  named: { kid?: string },
): RsaJwk | { problem: string } {
  if (alg !== undefined && !isRsaAlgorithm(alg))
    return { problem: `must contain RSA keys for ${RSA_ALGORITHMS.join(' or ')} only` };
  const [modulus, exponent] = [readNumber(n), readNumber(e)];
  const bits = modulus?.toString(2).length ?? 0;
  if (bits < MIN_RSA_BITS || bits > MAX_RSA_BITS)
    return { problem: `must contain RSA keys of ${MIN_RSA_BITS} to ${MAX_RSA_BITS} bits only` };
  const isExponent =
    exponent !== undefined && exponent >= MIN_RSA_EXPONENT && exponent < MAX_RSA_EXPONENT && isOdd(exponent);
  if (!isExponent || modulus === undefined || !isOdd(modulus))
    return { problem: 'contains an RSA key that is not valid: e must be 65537, or an odd number above it' };
  return { kty: 'RSA', n: String(n), e: String(e), ...(alg !== undefined && { alg }), ...named };
}

const isOdd = (number: bigint): boolean => number % 2n === 1n;

/** A number as Base64urlUInt (RFC 7518 §2), which has one form. */
function readNumber(text: unknown): bigint | undefined {
  if (typeof text !== 'string' || text.length > MAX_RSA_BITS / 4) return undefined;
  const bytes = Buffer.from(text, 'base64url');
  const isCanonical = bytes.length > 0 && bytes[0] !== 0 && bytes.toString('base64url') === text;
  return isCanonical ? BigInt(`0x${bytes.toString('hex')}`) : undefined;
}

const isCoordinate = (text: unknown): text is string => typeof text === 'string' && COORDINATE.test(text);

const isKeyId = (text: unknown): text is string =>
  typeof text === 'string' && /^[\x21-\x7e]+$/.test(text) && text.length <= MAX_KID_LENGTH;

/** Refuses points that are not on the curve. */
function isKey(key: PublicJwk): boolean {
  try {
    createPublicKey({ key: { ...key }, format: 'jwk' });
    return true;
  } catch {
    return false;
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
