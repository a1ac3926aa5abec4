import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Clock } from './clock.js';

/** The source of randomness. Tests pass a reproducible one. */
export interface Random {
  /** `size` cryptographically strong random bytes. */
  bytes(size: number): Buffer;
}

/** Size of the pool of random bytes: filling it costs ten times as much as taking bytes from it. */
const POOL_BYTES = 4096;
let pool = Buffer.alloc(0);

export const systemRandom: Random = {
  bytes(size) {
    if (pool.length < size) pool = randomBytes(Math.max(POOL_BYTES, size));
    const bytes = Buffer.from(pool.subarray(0, size));
    // Used bytes must not remain in memory.
    pool.fill(0, 0, size);
    pool = pool.subarray(size);
    return bytes;
  },
};

/** A bearer secret: `prefix` and 256 random bits as 43 base64url characters. */
export function newToken(random: Random, prefix = ''): string {
  return prefix + random.bytes(32).toString('base64url');
}

/**
 * An identifier that sorts by creation time: `prefix`, 48 bits of time and 80 random bits in hexadecimal. Ascending keys
 * keep inserts fast in both engines. Identifiers are not secrets.
 */
export function newId(prefix: string, clock: Clock, random: Random): string {
  return prefix + clock.now().toString(16).padStart(12, '0') + random.bytes(10).toString('hex');
}

/** An exclusive upper bound for the identifiers created up to `time`. */
export function idsUntil(prefix: string, time: number): string {
  return prefix + (time + 1).toString(16).padStart(12, '0');
}

/** SHA-256 as 43 base64url characters: the form in which bearer secrets are stored. */
export function sha256(text: string): string {
  return hash('sha256', text, 'base64url');
}

/** Compares a secret with a stored SHA-256 in constant time. */
export function isSecretOf(secret: string, storedHash: string): boolean {
  const [presented, stored] = [Buffer.from(sha256(secret)), Buffer.from(storedHash)];
  return presented.length === stored.length && timingSafeEqual(presented, stored);
}

/**
 * No secret has this hash, because the last of 43 base64url characters of 32 bytes encodes four bits only. Comparing with
 * it takes the same work for an unknown account as for a known one.
 */
export const UNUSED_HASH = '_'.repeat(43);

/** Compares two secrets in constant time; both are hashed to equal length first. */
export function secretsEqual(left: string, right: string): boolean {
  const digest = (text: string) => hash('sha256', text, 'buffer');
  return timingSafeEqual(digest(left), digest(right));
}

/**
 * Names of secrets that are equal, in pairs. Surrounding whitespace and the case of a hexadecimal key are ignored, because
 * one secret could be guessed from the other.
 */
export function equalSecrets(secrets: Record<string, string | undefined>): [name: string, twin: string][] {
  const plain = Object.entries(secrets).map(([name, secret = '']) => [name, plainSecret(secret)] as const);
  return plain.flatMap(([name, secret], index) =>
    plain
      .slice(index + 1)
      .filter(([, other]) => secret !== '' && other === secret)
      .map(([twin]): [string, string] => [name, twin]),
  );
}

function plainSecret(secret: string): string {
  const trimmed = secret.trim();
  return /^[0-9a-f]{64}$/i.test(trimmed) ? trimmed.toLowerCase() : trimmed;
}

/** Placeholders for secrets from READMEs and sample configurations. */
const PLACEHOLDERS =
  /(change|replace)[-_ ]?(me|this|it)|place[-_ ]?holder|^([-_ ]?(your|my|the|some|super|default|access|refresh|jwt|admin|test|dev|webhook|signing))*[-_ ]?(secret|password|passwd|token|key)([-_ ]?(key|here|value|\d+))?$|^(admin|example|insecure)/i;

/**
 * Describes why a secret is too weak for production; `undefined` if it is not.
 *
 * @param minimum required length in bytes
 * @param remedy how to generate a better one
 */
export function secretWeakness(
  secret: string,
  minimum: number,
  remedy = 'Generate one: openssl rand -base64 48',
): string | undefined {
  if (secret.trim() === '') return 'is blank.';
  if (PLACEHOLDERS.test(secret)) return `is a placeholder from an example. ${remedy}`;
  if (Buffer.byteLength(secret) < minimum) return `is shorter than ${minimum} bytes. ${remedy}`;
  return new Set(secret).size < 6 ? `repeats a few characters. ${remedy}` : undefined;
}
