import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Clock } from './clock.js';

/** The only source of randomness. Tests count and repeat it. */
export interface Random {
  /** `size` cryptographically strong random bytes. */
  bytes(size: number): Buffer;
}

/** Bytes drawn at once. A draw costs ten times what it costs to hand them out, whatever its size. */
const DRAW = 4096;
let drawn = Buffer.alloc(0);

export const systemRandom: Random = {
  bytes(size) {
    if (drawn.length < size) drawn = randomBytes(Math.max(DRAW, size));
    const bytes = Buffer.from(drawn.subarray(0, size));
    // What was handed out is nowhere to be found again.
    drawn.fill(0, 0, size);
    drawn = drawn.subarray(size);
    return bytes;
  },
};

/** A bearer secret: `prefix` and 256 random bits as 43 base64url characters. */
export function newToken(random: Random, prefix = ''): string {
  return prefix + random.bytes(32).toString('base64url');
}

/**
 * An identifier that sorts by creation: `prefix`, 48 bits of time and 80 random bits in hexadecimal.
 * Appended keys are what keeps inserts fast in both engines. It names things; it never guards them.
 */
export function newId(prefix: string, clock: Clock, random: Random): string {
  return prefix + clock.now().toString(16).padStart(12, '0') + random.bytes(10).toString('hex');
}

/** What every identifier sorts before that was made until `time`, and none that is made after it. */
export function idsUntil(prefix: string, time: number): string {
  return prefix + (time + 1).toString(16).padStart(12, '0');
}

/** SHA-256 as 43 base64url characters: the form in which the store keeps every bearer secret. */
export function sha256(text: string): string {
  return hash('sha256', text, 'base64url');
}

/** Whether `secret` is the one whose SHA-256 the store keeps, in a time that tells nothing. */
export function isSecretOf(secret: string, storedHash: string): boolean {
  const [presented, stored] = [Buffer.from(sha256(secret)), Buffer.from(storedHash)];
  return presented.length === stored.length && timingSafeEqual(presented, stored);
}

/**
 * No secret has this hash, because the last of 43 base64url characters of 32 bytes encodes four bits only. Comparing with
 * it takes the same work for an unknown account as for a known one.
 */
export const UNUSED_HASH = '_'.repeat(43);

/** Compares two secrets in a time that depends on neither (both sides are hashed to equal length first). */
export function secretsEqual(left: string, right: string): boolean {
  const digest = (text: string) => hash('sha256', text, 'buffer');
  return timingSafeEqual(digest(left), digest(right));
}

/**
 * Pairs of secrets that are the same, by name. Blanks around a secret and the case of a hexadecimal key make no
 * difference: the one would be guessed from the other.
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

/** What people leave in place of a secret, from READMEs, samples and the programs we learned from. */
const PLACEHOLDERS =
  /(change|replace)[-_ ]?(me|this|it)|place[-_ ]?holder|^([-_ ]?(your|my|the|some|super|default|access|refresh|jwt|admin|test|dev|webhook|signing))*[-_ ]?(secret|password|passwd|token|key)([-_ ]?(key|here|value|\d+))?$|^(admin|example|insecure)/i;

/**
 * Says why a secret must not protect anything real, or `undefined`.
 *
 * @param minimum its least length in bytes
 * @param remedy where a better one comes from
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
