import { createCipheriv, pbkdf2, scrypt, timingSafeEqual } from 'node:crypto';
import { channel } from 'node:diagnostics_channel';
import { promisify } from 'node:util';

/** Password hashes imported from other systems, which are replaced when their owner signs in. */

/** A stored hash whose format or cost differs from those of `hashArgon2`. */
export interface ForeignHash {
  /** Hashes of one family differ in their cost only. */
  family: string;
  /** In a unit of the family. */
  cost: number;
  /** A hash of this family and cost that matches no password. */
  decoy: string;
  /**
   * Verifies a password.
   *
   * @param target cost of verifying a wrong password, if higher than the cost of this hash
   */
  check(password: string, target?: number): Promise<boolean>;
}

/** Publishes `{ family, cost }` for each verification of a wrong password, for tests and diagnostics. */
export const passwordWork = channel('saas-backend.password-work');

/** Parses a hash of another system; `null` if its format is unknown or its cost too high. */
export function readForeignHash(stored: string): ForeignHash | null {
  for (const [pattern, read] of FORMATS) {
    const match = pattern.exec(stored);
    if (match) return read(match.groups as Groups, stored);
  }
  return null;
}

type Groups = Record<string, string>;

/** Fixed parameters of Better Auth, which its hashes do not contain. */
const BETTER_AUTH = { N: 16_384, r: 16, p: 1 };

const FORMATS: [RegExp, (groups: Groups, stored: string) => ForeignHash | null][] = [
  // bcrypt: Supabase and most others.
  [
    /^\$2[aby]\$(?<cost>\d\d)\$[./A-Za-z0-9]{53}$/,
    ({ cost }, stored) => (isBetween(4, Number(cost), MAX.bcryptCost) ? bcrypt(stored, Number(cost)) : null),
  ],
  // PHC strings of scrypt, as passlib and libsodium write them.
  [
    /^\$scrypt\$ln=(?<ln>\d{1,2}),r=(?<r>\d{1,4}),p=(?<p>\d{1,3})\$(?<salt>[\w+/.-]{1,256})\$(?<key>[\w+/.-]{1,256})$/,
    ({ ln, r, p, salt = '', key = '' }) =>
      scryptHash({ N: 2 ** Number(ln), r: Number(r), p: Number(p) }, decode(salt), decode(key)),
  ],
  // Django's scrypt: its salt is text.
  [
    /^scrypt\$(?<N>\d{1,9})\$(?<salt>[^$]{1,256})\$(?<r>\d{1,4})\$(?<p>\d{1,3})\$(?<key>[\w+/]{1,256}={0,2})$/,
    ({ N, r, p, salt = '', key = '' }) =>
      scryptHash({ N: Number(N), r: Number(r), p: Number(p) }, Buffer.from(salt), decode(key)),
  ],
  // Firebase, as Supabase writes it, with the parameters of the project: ss is its salt separator, sk its signer key.
  [
    /^\$fbscrypt\$v=1,n=(?<n>\d{1,2}),r=(?<r>\d{1,4}),p=(?<p>\d{1,3})(?:,ss=(?<ss>[\w+/-]{0,64}={0,2}))?,sk=(?<sk>[\w+/-]{22,256}={0,2})\$(?<salt>[\w+/-]{1,256}={0,2})\$(?<key>[\w+/-]{22,256}={0,2})$/,
    ({ n, r, p, ss = '', sk = '', salt = '', key = '' }) =>
      firebaseHash(
        { N: 2 ** Number(n), r: Number(r), p: Number(p) },
        Buffer.concat([decode(salt), decode(ss)]),
        {
          signerKey: decode(sk),
          encrypted: decode(key),
        },
      ),
  ],
  // Better Auth: its salt is the hexadecimal text, not the bytes it encodes.
  [
    /^(?<salt>[0-9a-f]{32}):(?<key>[0-9a-f]{128})$/,
    ({ salt = '', key = '' }) => {
      const hash = scryptHash(BETTER_AUTH, Buffer.from(salt), Buffer.from(key, 'hex'));
      return hash && { ...hash, check: (password) => hash.check(password.normalize('NFKC')) };
    },
  ],
  // PHC strings of PBKDF2, and those of passlib, which omit `i=`.
  [
    /^\$pbkdf2(?:-(?<digest>sha1|sha256|sha512))?\$(?:i=)?(?<rounds>\d{1,9})(?:,l=\d{1,3})?\$(?<salt>[\w+/.-]{1,256})\$(?<key>[\w+/.-]{1,256})$/,
    ({ digest = 'sha1', rounds, salt = '', key = '' }) =>
      pbkdf2Hash(digest, Number(rounds), decode(salt), decode(key)),
  ],
  // Django's PBKDF2.
  [
    /^pbkdf2_(?<digest>sha1|sha256)\$(?<rounds>\d{1,9})\$(?<salt>[^$]{1,256})\$(?<key>[\w+/]{1,256}={0,2})$/,
    ({ digest = '', rounds, salt = '', key = '' }) =>
      pbkdf2Hash(digest, Number(rounds), Buffer.from(salt), decode(key)),
  ],
];

/** Bounds the verification of one hash to about a second and 256 MiB. */
const MAX = { bcryptCost: 14, scryptBytes: 256 * 2 ** 20, scryptBlocks: 2 ** 22, pbkdf2Rounds: 2_000_000 };

/** Length of the derived key: shorter keys can be guessed, and longer ones multiply the cost of PBKDF2. */
const KEY_BYTES = { min: 16, max: 64 };

const derivePbkdf2 = promisify(pbkdf2);
const deriveScrypt = promisify<
  string,
  Buffer,
  number,
  { N: number; r: number; p: number; maxmem: number },
  Buffer
>(scrypt);

/** OpenSSL includes the blocks of `p`. */
const maxMemoryOf = ({ N, r, p }: { N: number; r: number; p: number }): number =>
  128 * N * r + 128 * r * (p + 2) + 2 ** 16;

function scryptHash(
  cost: { N: number; r: number; p: number },
  salt: Buffer,
  key: Buffer,
): ForeignHash | null {
  const { N, r, p } = cost;
  const isPower = N > 1 && Number.isInteger(Math.log2(N));
  const bytes = 128 * N * r;
  if (!isPower || r < 1 || p < 1 || bytes > MAX.scryptBytes || N * r * p > MAX.scryptBlocks) return null;
  if (!isBetween(KEY_BYTES.min, key.length, KEY_BYTES.max)) return null;
  const maxmem = maxMemoryOf(cost);
  const family = `scrypt N=${N},r=${r},p=${p}, ${key.length} bytes`;
  return {
    family,
    cost: 1,
    decoy: `$scrypt$ln=${Math.log2(N)},r=${r},p=${p}$${base64(16)}$${base64(key.length)}`,
    async check(password) {
      const isRight = timingSafeEqual(
        await deriveScrypt(password, salt, key.length, { ...cost, maxmem }),
        key,
      );
      return isRight || publishWork(family, 1);
    },
  };
}

/** Firebase encrypts the key of the project with the one that it derives from the password (AES-256 in counter mode). */
function firebaseHash(
  cost: { N: number; r: number; p: number },
  salt: Buffer,
  { signerKey, encrypted }: { signerKey: Buffer; encrypted: Buffer },
): ForeignHash | null {
  // Of a key that no password derives: only the limits of its cost and the decoy matter.
  const hash = scryptHash(cost, salt, Buffer.alloc(32));
  if (!hash || signerKey.length !== encrypted.length) return null;
  return {
    ...hash,
    async check(password) {
      const derived = await deriveScrypt(password, salt, 32, { ...cost, maxmem: maxMemoryOf(cost) });
      const cipher = createCipheriv('aes-256-ctr', derived, Buffer.alloc(16));
      const isRight = timingSafeEqual(Buffer.concat([cipher.update(signerKey), cipher.final()]), encrypted);
      return isRight || publishWork(hash.family, 1);
    },
  };
}

function pbkdf2Hash(digest: string, rounds: number, salt: Buffer, key: Buffer): ForeignHash | null {
  if (!isBetween(1, rounds, MAX.pbkdf2Rounds) || !isBetween(KEY_BYTES.min, key.length, KEY_BYTES.max))
    return null;
  const family = `PBKDF2 ${digest}, ${key.length} bytes`;
  const derive = (password: string, times: number) => derivePbkdf2(password, salt, times, key.length, digest);
  return {
    family,
    cost: rounds,
    decoy: `$pbkdf2-${digest}$i=${rounds}$${base64(16)}$${base64(key.length)}`,
    async check(password, target = rounds) {
      if (timingSafeEqual(await derive(password, rounds), key)) return true;
      if (target > rounds) await derive(password, target - rounds);
      return publishWork(family, Math.max(target, rounds));
    },
  };
}

/** @param log binary logarithm of the rounds */
function bcrypt(stored: string, log: number): ForeignHash {
  const family = 'bcrypt';
  const decoyOf = (cost: number) => `$2b$${String(cost).padStart(2, '0')}$${'.'.repeat(53)}`;
  return {
    family,
    cost: 2 ** log,
    decoy: decoyOf(log),
    async check(password, target = 2 ** log) {
      // 2^log + 2^log + 2^(log + 1) + … is a power of two at each step, so decoys can reach the target.
      const missing = Math.max(0, Math.log2(target) - log);
      const decoys = Array.from({ length: missing }, (_, index) => decoyOf(log + index));
      const { compare } = await import('./bcrypt.js');
      return (await compare(password, stored, decoys)) || publishWork(family, 2 ** (log + missing));
    },
  };
}

function publishWork(family: string, cost: number): false {
  passwordWork.publish({ family, cost });
  return false;
}

/** Base64 of zeros. */
const base64 = (bytes: number): string =>
  Buffer.alloc(bytes)
    .toString('base64')
    .replace(/={1,2}$/, '');

/** Decodes base64 in every variant: with `+/`, `-_` or passlib's `./`, padded or not. */
function decode(text: string): Buffer {
  return Buffer.from(text.replaceAll('.', '+'), 'base64');
}

function isBetween(least: number, value: number, most: number): boolean {
  return value >= least && value <= most;
}
