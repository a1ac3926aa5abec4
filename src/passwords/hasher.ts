import { availableParallelism } from 'node:os';
import { threadPoolSize } from '../config/options.js';
import type { Random } from '../kernel/secrets.js';
import { type IsDisconnected, Semaphore } from '../ops/semaphore.js';
import {
  argon2WorkOf,
  createArgon2Verify,
  type HashingCost,
  hashArgon2,
  isAcceptableArgon2,
  isOutdatedArgon2,
  STANDARD_COST,
} from './argon2.js';
import { type ForeignHash, passwordWork, readForeignHash } from './foreign.js';

/** Password hashing: argon2id behind one gate for the whole process, whoever asks. */

export const PASSWORD_BYTES = { min: 8, max: 1024 };

export interface Passwords {
  /** Makes what unknown accounts are compared with, for which the first verification waits otherwise. Nobody waits for it here. */
  prepare(): void;
  /** Says what is wrong with a new password (a sentence), or `null`. */
  problem(password: string): string | null;
  /** Asked before there is any work for a request that would have to wait. @throws OVERLOADED when too many wait */
  ensureCapacity(): Promise<void>;
  /** The argon2id hash in PHC form. @throws OVERLOADED when too many wait */
  hash(password: string, isDisconnected?: IsDisconnected): Promise<string>;
  /** Whether a hash that somebody brings along can be verified: argon2, or of another system. */
  accepts(hash: string): boolean;
  /** What a stored hash costs, if that differs from what `hash` makes; `null` also for what is no acceptable hash. */
  foreignWork(stored: string): Pick<ForeignHash, 'family' | 'cost' | 'decoy'> | null;
  /**
   * Compares with a stored hash; `null` stands for an account without one, or for none, and costs the same work.
   * `outdated` tells that the hash was made at another cost or in another way and should be made anew.
   *
   * @param decoys one hash of each family of foreign hashes that any account has, the most costly one: a wrong password
   *   costs the work of all of them, whatever `stored` is
   * @throws OVERLOADED when too many wait
   */
  verify(
    stored: string | null,
    password: string,
    isDisconnected?: IsDisconnected,
    decoys?: readonly string[],
  ): Promise<{ ok: boolean; outdated: boolean }>;
}

/**
 * Lets few hashes run at once and bounds how many wait. argon2 occupies the threads that the file system
 * and DNS use too: unbounded, a flood of logins stalls everything else for seconds.
 */
const processGate = new Semaphore(Math.max(1, Math.min(availableParallelism(), threadPoolSize() - 2)), 128);

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

  /** A hash that costs other work than ours. */
  const readForeign = (stored: string): ForeignHash | null => {
    if (!isAcceptableArgon2(stored)) return readForeignHash(stored);
    if (!isOutdatedArgon2(stored, cost)) return null;
    const { family, decoy } = argon2WorkOf(stored);
    return { family, cost: 1, decoy, check: (password) => verifyArgon2Counted(stored, password, family) };
  };

  return {
    prepare: () => void hashOfNobody().catch(() => undefined),
    problem: passwordProblem,
    ensureCapacity: () => processGate.ensureCapacity(),
    hash: (password, isDisconnected) => processGate.run(() => digest(password), isDisconnected),
    accepts: (hash) => isAcceptableArgon2(hash) || readForeignHash(hash) !== null,
    foreignWork(stored) {
      const foreign = readForeign(stored);
      return foreign && { family: foreign.family, cost: foreign.cost, decoy: foreign.decoy };
    },

    async verify(stored, password, isDisconnected, decoys = []) {
      // Whoever is the first to be asked about waits for it, known or not.
      const nobody = await hashOfNobody();
      const foreign = stored === null ? null : readForeign(stored);
      const others = new Map(decoys.map((decoy) => [readForeign(decoy)?.family, readForeign(decoy)]));
      const own = stored !== null && isAcceptableArgon2(stored) ? stored : null;
      const verifyOwn = (hash: string) => verifyArgon2Counted(hash, password, 'own');
      const ok = await processGate.run(async () => {
        if (!isTypable(password)) return false;
        const isRight = foreign
          ? await foreign.check(password, others.get(foreign.family)?.cost)
          : (await verifyOwn(own ?? nobody)) && own !== null;
        if (isRight) return true;
        if (foreign) await verifyOwn(nobody);
        others.delete(foreign?.family);
        for (const other of others.values()) {
          // Nobody measures how long it takes.
          if (isDisconnected?.()) break;
          await other?.check(password);
        }
        return false;
      }, isDisconnected);
      return { ok, outdated: ok && foreign !== null };
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

async function verifyArgon2Counted(stored: string, password: string, family: string): Promise<boolean> {
  const ok = await verifyArgon2(stored, password.normalize('NFC'));
  if (!ok) passwordWork.publish({ family, cost: 1 });
  return ok;
}
