import { availableParallelism } from 'node:os';
import { Gate, type IsGone } from './gate.js';
import { threadPoolSize } from './options.js';
import {
  createArgon2Verify,
  type HashingCost,
  hashArgon2,
  isAcceptableArgon2,
  isOutdatedArgon2,
  STANDARD_COST,
} from './passwords-argon2.js';
import { readForeignHash } from './passwords-foreign.js';
import type { Random } from './secrets.js';

/** Password hashing: argon2id behind one gate for the whole process, whoever asks. */

export const PASSWORD_BYTES = { min: 8, max: 1024 };

export interface Passwords {
  /** Makes what unknown accounts are compared with, for which the first verification waits otherwise. Nobody waits for it here. */
  prepare(): void;
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
  const digest = async (password: string) => hashArgon2(password.normalize('NFC'), random.bytes(16), cost);
  let dummy: Promise<string> | undefined;
  // At the cost in force, so that an unknown account takes as long as a known one, and past the gate, because a flood of
  // logins must not decide whether there is one.
  const hashOfNobody = () => {
    dummy ??= digest('the password of nobody').catch((error: unknown) => {
      dummy = undefined;
      throw error;
    });
    return dummy;
  };

  return {
    prepare: () => void hashOfNobody().catch(() => undefined),
    problem: passwordProblem,
    ensureRoom: () => processGate.ensureRoom(),
    hash: (password, isGone) => processGate.run(() => digest(password), isGone),
    accepts: (hash) => isAcceptableArgon2(hash) || readForeignHash(hash) !== null,
    async verify(stored, password, isGone) {
      // Whoever is the first to be asked about waits for it, known or not.
      const nobody = await hashOfNobody();
      const foreign = stored === null ? null : readForeignHash(stored);
      if (foreign) {
        const isRight = async () => isTypable(password) && (await foreign(password));
        const ok = await processGate.run(isRight, isGone);
        return { ok, outdated: ok };
      }
      if (stored === null || !isAcceptableArgon2(stored)) {
        await processGate.run(() => verifyQuietly(nobody, password), isGone);
        return { ok: false, outdated: false };
      }
      const ok = await processGate.run(() => verifyQuietly(stored, password), isGone);
      return { ok, outdated: ok && isOutdatedArgon2(stored, cost) };
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

const verifyArgon2 = createArgon2Verify();

/** Whether it can be anybody's password at all. */
function isTypable(password: string): boolean {
  return isIntact(password) && Buffer.byteLength(password) <= PASSWORD_BYTES.max * 4;
}

async function verifyQuietly(stored: string, password: string): Promise<boolean> {
  if (!isTypable(password)) return false;
  return verifyArgon2(stored, password.normalize('NFC'));
}
