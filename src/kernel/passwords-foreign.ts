import { pbkdf2, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

/** Password hashes that other systems made. They are verified as they are until their owner signs in once. */

/** Whether a password is the one that was hashed. */
export type Check = (password: string) => Promise<boolean>;

/**
 * What a stored hash of another system can be asked; `null` when it is of no known form, or when it asks for more
 * work than a password is worth.
 */
export function readForeignHash(stored: string): Check | null {
  for (const [pattern, read] of FORMS) {
    const match = pattern.exec(stored);
    if (match) return read(match.groups as Groups, stored);
  }
  return null;
}

type Groups = Record<string, string>;

/** Better Auth hashes with these, and does not write them down. */
const BETTER_AUTH = { N: 16_384, r: 16, p: 1 };

const FORMS: [RegExp, (groups: Groups, stored: string) => Check | null][] = [
  // bcrypt: Supabase and most others.
  [
    /^\$2[aby]\$(?<cost>\d\d)\$[./A-Za-z0-9]{53}$/,
    ({ cost }, stored) => (between(4, Number(cost), MOST.bcryptCost) ? bcrypt(stored) : null),
  ],
  // PHC strings of scrypt, as passlib and libsodium write them.
  [
    /^\$scrypt\$ln=(?<ln>\d{1,2}),r=(?<r>\d{1,4}),p=(?<p>\d{1,3})\$(?<salt>[\w+/.-]{1,256})\$(?<key>[\w+/.-]{1,256})$/,
    ({ ln, r, p, salt = '', key = '' }) =>
      scryptCheck({ N: 2 ** Number(ln), r: Number(r), p: Number(p) }, decode(salt), decode(key)),
  ],
  // Django's scrypt: its salt is text.
  [
    /^scrypt\$(?<N>\d{1,9})\$(?<salt>[^$]{1,256})\$(?<r>\d{1,4})\$(?<p>\d{1,3})\$(?<key>[\w+/]{1,256}={0,2})$/,
    ({ N, r, p, salt = '', key = '' }) =>
      scryptCheck({ N: Number(N), r: Number(r), p: Number(p) }, Buffer.from(salt), decode(key)),
  ],
  // Better Auth: its salt is the hexadecimal text, not what it stands for.
  [
    /^(?<salt>[0-9a-f]{32}):(?<key>[0-9a-f]{128})$/,
    ({ salt = '', key = '' }) => {
      const check = scryptCheck(BETTER_AUTH, Buffer.from(salt), Buffer.from(key, 'hex'));
      return check && ((password) => check(password.normalize('NFKC')));
    },
  ],
  // PHC strings of PBKDF2, and passlib's, which leave `i=` out.
  [
    /^\$pbkdf2(?:-(?<digest>sha1|sha256|sha512))?\$(?:i=)?(?<rounds>\d{1,9})(?:,l=\d{1,3})?\$(?<salt>[\w+/.-]{1,256})\$(?<key>[\w+/.-]{1,256})$/,
    ({ digest = 'sha1', rounds, salt = '', key = '' }) =>
      pbkdf2Check(digest, Number(rounds), decode(salt), decode(key)),
  ],
  // Django's PBKDF2.
  [
    /^pbkdf2_(?<digest>sha1|sha256)\$(?<rounds>\d{1,9})\$(?<salt>[^$]{1,256})\$(?<key>[\w+/]{1,256}={0,2})$/,
    ({ digest = '', rounds, salt = '', key = '' }) =>
      pbkdf2Check(digest, Number(rounds), Buffer.from(salt), decode(key)),
  ],
];

/** A planted hash costs at most about a second and 256 MiB. */
const MOST = { bcryptCost: 14, scryptBytes: 256 * 2 ** 20, scryptBlocks: 2 ** 22, pbkdf2Rounds: 2_000_000 };

/** Bytes of the result: shorter ones are guessed, and PBKDF2 pays for longer ones. */
const KEY_BYTES = { min: 16, max: 64 };

const derivePbkdf2 = promisify(pbkdf2);
const deriveScrypt = promisify<
  string,
  Buffer,
  number,
  { N: number; r: number; p: number; maxmem: number },
  Buffer
>(scrypt);

function scryptCheck(cost: { N: number; r: number; p: number }, salt: Buffer, key: Buffer): Check | null {
  const { N, r, p } = cost;
  const isPower = N > 1 && Number.isInteger(Math.log2(N));
  const bytes = 128 * N * r;
  if (!isPower || r < 1 || p < 1 || bytes > MOST.scryptBytes || N * r * p > MOST.scryptBlocks) return null;
  if (!between(KEY_BYTES.min, key.length, KEY_BYTES.max)) return null;
  // OpenSSL counts the blocks of `p`, too.
  const maxmem = bytes + 128 * r * (p + 2) + 2 ** 16;
  return async (password) =>
    timingSafeEqual(await deriveScrypt(password, salt, key.length, { ...cost, maxmem }), key);
}

function pbkdf2Check(digest: string, rounds: number, salt: Buffer, key: Buffer): Check | null {
  if (!between(1, rounds, MOST.pbkdf2Rounds) || !between(KEY_BYTES.min, key.length, KEY_BYTES.max))
    return null;
  return async (password) =>
    timingSafeEqual(await derivePbkdf2(password, salt, rounds, key.length, digest), key);
}

function bcrypt(stored: string): Check {
  return async (password) => (await import('./passwords-bcrypt.js')).compare(password, stored);
}

/** Base64 in every spelling: with `+/`, `-_` or passlib's `./`, padded or not. */
function decode(text: string): Buffer {
  return Buffer.from(text.replaceAll('.', '+'), 'base64');
}

function between(least: number, value: number, most: number): boolean {
  return value >= least && value <= most;
}
