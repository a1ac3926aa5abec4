import { type Commit, type Store, UniqueViolation, type Write } from '../storage/collection.js';

/** What follows from a change and is stored in its commit: a mail, an event or another job that a relay completes. */
export interface Effect {
  readonly writes: readonly Write[];
  /** Called once it is stored, for example to wake the relay. Must not throw. */
  afterCommit(): void;
}

/** The effect of one write. */
export const effectOf = (write: Write, afterCommit: () => void = () => undefined): Effect => ({
  writes: [write],
  afterCommit,
});

/** For a part that is not configured. */
export const NO_EFFECT: Effect = { writes: [], afterCommit: () => undefined };

/** A part of a commit; undefined parts are left out. */
export type CommitPart = Write | Effect | undefined;

/**
 * Makes writes that belong together, with what follows from them: all or nothing. Parts that are undefined are left out.
 *
 * @throws UniqueViolation with nothing written
 */
export type CommitParts = (parts: readonly CommitPart[]) => Promise<Commit>;

export function createCommit(store: Pick<Store, 'commit'>): CommitParts {
  return async (parts) => {
    const given = parts.filter((part) => part !== undefined);
    const outcome = await store.commit(given.flatMap((part) => ('writes' in part ? part.writes : [part])));
    if (outcome.committed) for (const part of given) if ('writes' in part) part.afterCommit();
    return outcome;
  };
}

/** What a function has decided about the documents that it has read. */
export interface Decision<T> {
  /** What to write; absent or empty: nothing. */
  readonly parts?: readonly CommitPart[];
  /** Returned once it is written. */
  readonly result: T;
  /** Whether to decide again, instead of failing, if a unique value is taken: `decide` then reads what has it. */
  readonly repeatIfTaken?: boolean;
}

/** One of any number of concurrent commits succeeds, so that only conditions that never hold need so many. */
const MAX_ATTEMPTS = 1000;

/**
 * Commits what `decide` has decided about the documents that it reads, and decides again if they have changed since.
 *
 * @throws what `decide` throws, and UniqueViolation with nothing written
 */
export async function decideAndCommit<T>(
  commit: CommitParts,
  decide: () => Promise<Decision<T>>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const { parts = [], result, repeatIfTaken = false } = await decide();
    if (parts.length === 0) return result;
    const outcome = await commit(parts).catch((error: unknown) => {
      if (repeatIfTaken && error instanceof UniqueViolation && attempt < MAX_ATTEMPTS) return null;
      throw error;
    });
    if (outcome?.committed) return result;
    if (attempt >= MAX_ATTEMPTS) throw new Error(`a write of ${outcome?.unmet.collection} is never possible`);
  }
}
