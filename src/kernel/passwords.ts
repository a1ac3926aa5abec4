import { availableParallelism } from 'node:os';
import argon2 from 'argon2';
import { Gate, type IsGone } from './gate.js';
import { threadPoolSize } from './options.js';
import { readForeignHash } from './passwords-foreign.js';
import type { Random } from './secrets.js';

/** Password hashing: argon2id behind one gate for the whole process, whoever asks. */

/** Cost of one hash: memory in KiB, passes, lanes (RFC 9106). */
export interface HashingCost {
  memoryCost: number;
  timeCost: number;
  parallelism: number;
}

/** OWASP's first choice for argon2id: 19 MiB, two passes, one lane. */
export const STANDARD_COST: HashingCost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** A stored hash may ask for at most this much work; more is a poisoned record, not a password. */
const MOST: HashingCost = { memoryCost: 262_144, timeCost: 10, parallelism: 8 };

export const PASSWORD_BYTES = { min: 8, max: 1024 };

export interface Passwords {
  /** Says what is wrong with a new password (a sentence), or `null`. */
  problem(password: string): string | null;
  /** Asked before there is any work for a request that would have to wait. @throws OVERLOADED when too many wait */
  ensureRoom(): Promise<void>;
  /** The argon2id hash in PHC form. @throws OVERLOADED when too many wait */
  hash(password: string, isGone?: IsGone): Promise<string>;
  /** Whether a hash that somebody brings along can be verified: argon2, or of another system. */
  accepts(hash: string): boolean;
  /**
   * Compares with a stored hash; `null` stands for an account without one, or for none, and costs the same work.
   * `outdated` tells that the hash was made at another cost or in another way and should be made anew.
   * @throws OVERLOADED when too many wait
   */
  verify(
    stored: string | null,
    password: string,
    isGone?: IsGone,
  ): Promise<{ ok: boolean; outdated: boolean }>;
}

/**
 * Lets few hashes run at once and bounds how many wait. argon2 occupies the threads that the file system
 * and DNS use too: unbounded, a flood of logins stalls everything else for seconds.
 */
const processGate = new Gate(Math.max(1, Math.min(availableParallelism(), threadPoolSize() - 2)), 128);

/** Password hashing at `cost`. Both plugins of a process share the gate, whatever their cost. */
export function createPasswords(random: Random, cost: HashingCost = STANDARD_COST): Passwords {
  const digest = (password: string) =>
    argon2.hash(password.normalize('NFC'), { type: argon2.argon2id, salt: random.bytes(16), ...cost });
  // Made at the cost in force, so that an unknown account takes as long as a known one; and made now, past the
  // gate, because a flood of logins must not decide whether there is one.
  const dummy = digest('the password of nobody');
  dummy.catch(() => undefined);

  return {
    problem: passwordProblem,
    ensureRoom: () => processGate.ensureRoom(),
    hash: (password, isGone) => processGate.run(() => digest(password), isGone),
    accepts: (hash) => isAcceptableHash(hash) || readForeignHash(hash) !== null,
    async verify(stored, password, isGone) {
      const foreign = stored === null ? null : readForeignHash(stored);
      if (foreign) {
        const isRight = async () => isTypable(password) && (await foreign(password));
        const ok = await processGate.run(isRight, isGone);
        return { ok, outdated: ok };
      }
      if (stored === null || !isAcceptableHash(stored)) {
        const nobody = await dummy;
        await processGate.run(() => verifyQuietly(nobody, password), isGone);
        return { ok: false, outdated: false };
      }
      const ok = await processGate.run(() => verifyQuietly(stored, password), isGone);
      return { ok, outdated: ok && argon2.needsRehash(stored, cost) };
    },
  };
}

/** Whether the text is what somebody typed: replaced bytes and halves of characters make different passwords equal. */
const isIntact = (password: string): boolean => password.isWellFormed() && !password.includes('\ufffd');

function passwordProblem(password: string): string | null {
  if (!isIntact(password)) return 'contains characters that are not valid Unicode';
  const bytes = Buffer.byteLength(password.normalize('NFC'));
  if (bytes < PASSWORD_BYTES.min) return `must be at least ${PASSWORD_BYTES.min} bytes long`;
  if (bytes > PASSWORD_BYTES.max) return `must be at most ${PASSWORD_BYTES.max} bytes long`;
  return null;
}

/**
 * argon2 obeys the parameters inside a stored hash, and a planted one could ask for gigabytes. At what is below
 * the least of RFC 9106 it throws.
 */
function isAcceptableHash(stored: string): boolean {
  const parameters =
    /^\$argon2(?:id|i|d)\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{16,}$/.exec(
      stored,
    );
  if (!parameters) return false;
  const [memory, time, lanes] = parameters.slice(1).map(Number) as [number, number, number];
  const isEnough = lanes >= 1 && time >= 1 && memory >= 8 * lanes;
  return isEnough && memory <= MOST.memoryCost && time <= MOST.timeCost && lanes <= MOST.parallelism;
}

/** Whether it can be anybody's password at all. */
function isTypable(password: string): boolean {
  return isIntact(password) && Buffer.byteLength(password) <= PASSWORD_BYTES.max * 4;
}

async function verifyQuietly(stored: string, password: string): Promise<boolean> {
  if (!isTypable(password)) return false;
  return argon2.verify(stored, password.normalize('NFC'));
}
