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
import { PASSWORD_LENGTH, PASSWORD_PROBLEMS } from './problems.js';

/** Password hashing with argon2id, limited by one semaphore per process. */

export type Passwords = ReturnType<typeof createPasswords>;

/** argon2 uses libuv's thread pool: without a limit, a flood of sign-ins blocks file system and DNS for seconds. */
const processSemaphore = new Semaphore(
  Math.max(1, Math.min(availableParallelism(), threadPoolSize() - 2)),
  128,
);

/** The hashes that this process computes, and those that wait. */
export const hashingLoad = (): { running: number; waiting: number } => processSemaphore.load;

/** Password hashing at `cost`. Both plugins of a process share the semaphore. */
export function createPasswords(random: Random, cost: HashingCost = STANDARD_COST) {
  const digest = async (password: string) => hashArgon2(password.normalize('NFC'), random.bytes(16), cost);
  let dummy: Promise<string> | undefined;
  // At the configured cost, so that unknown accounts take as long as known ones; outside the semaphore, because it must
  // exist even under load.
  const getDummyHash = () => {
    dummy ??= digest('the password of no account').catch((error: unknown) => {
      dummy = undefined;
      throw error;
    });
    return dummy;
  };

  /** Null for hashes of the configured cost. */
  const readForeign = (stored: string): ForeignHash | null => {
    if (!isAcceptableArgon2(stored)) return readForeignHash(stored);
    if (!isOutdatedArgon2(stored, cost)) return null;
    const { family, decoy } = argon2WorkOf(stored);
    return { family, cost: 1, decoy, check: (password) => verifyArgon2Counted(stored, password, family) };
  };

  return {
    /**
     * Computes the dummy hash for unknown accounts in the background, so that the first verification does not wait for
     * it.
     */
    prepare: () => void getDummyHash().catch(() => undefined),
    /** Describes what is wrong with a new password; `null` if it is valid. */
    problem: passwordProblem,
    /** Rejects a request early if the queue is full. @throws OVERLOADED */
    ensureCapacity: () => processSemaphore.ensureCapacity(),
    /** The argon2id hash in PHC format. @throws OVERLOADED if the queue is full */
    hash: (password: string, isDisconnected?: IsDisconnected): Promise<string> =>
      processSemaphore.run(() => digest(password), isDisconnected),
    /** Whether an imported hash can be verified. */
    accepts: (hash: string): boolean => isAcceptableArgon2(hash) || readForeignHash(hash) !== null,
    /** The cost of a stored hash, if it differs from those of `hash`; `null` also for unacceptable hashes. */
    foreignWork(stored: string): Pick<ForeignHash, 'family' | 'cost' | 'decoy'> | null {
      const foreign = readForeign(stored);
      return foreign && { family: foreign.family, cost: foreign.cost, decoy: foreign.decoy };
    },

    /**
     * Verifies a password. `stored` is `null` for an unknown account or one without a password, and takes the same time.
     * `outdated` is true if the hash should be replaced, because its format or cost differs from those of `hash`.
     *
     * @param decoys the most expensive hash of each family that any account has: a wrong password costs the work of all of
     *   them, whatever `stored` is
     * @throws OVERLOADED if the queue is full
     */
    async verify(
      stored: string | null,
      password: string,
      isDisconnected?: IsDisconnected,
      decoys: readonly string[] = [],
    ): Promise<{ ok: boolean; outdated: boolean }> {
      // For known accounts, too: otherwise the time of the first sign-in would show whether the account exists.
      const dummyHash = await getDummyHash();
      const foreign = stored === null ? null : readForeign(stored);
      const others = new Map(decoys.map((decoy) => [readForeign(decoy)?.family, readForeign(decoy)]));
      const own = stored !== null && isAcceptableArgon2(stored) ? stored : null;
      const verifyOwn = (hash: string) => verifyArgon2Counted(hash, password, 'own');
      const ok = await processSemaphore.run(async () => {
        if (!isPlausible(password)) return false;
        const isRight = foreign
          ? await foreign.check(password, others.get(foreign.family)?.cost)
          : (await verifyOwn(own ?? dummyHash)) && own !== null;
        if (isRight) return true;
        if (foreign) await verifyOwn(dummyHash);
        others.delete(foreign?.family);
        for (const other of others.values()) {
          // A disconnected client cannot measure the time.
          if (isDisconnected?.()) break;
          await other?.check(password);
        }
        return false;
      }, isDisconnected);
      return { ok, outdated: ok && foreign !== null };
    },
  };
}

/** Replacement characters and lone surrogates would make different passwords equal. */
const isIntact = (password: string): boolean => password.isWellFormed() && !password.includes('\ufffd');

function passwordProblem(password: string): string | null {
  if (!isIntact(password)) return PASSWORD_PROBLEMS.unreadable;
  const normalized = password.normalize('NFC');
  if (Buffer.byteLength(normalized) > PASSWORD_LENGTH.maxBytes) return PASSWORD_PROBLEMS.long;
  if ([...normalized].length < PASSWORD_LENGTH.minCharacters) return PASSWORD_PROBLEMS.short;
  return null;
}

const verifyArgon2 = createArgon2Verify();

/** Whether any valid password could be normalized to this text. */
function isPlausible(password: string): boolean {
  return isIntact(password) && Buffer.byteLength(password) <= PASSWORD_LENGTH.maxBytes * 4;
}

async function verifyArgon2Counted(stored: string, password: string, family: string): Promise<boolean> {
  const ok = await verifyArgon2(stored, password.normalize('NFC'));
  if (!ok) passwordWork.publish({ family, cost: 1 });
  return ok;
}
