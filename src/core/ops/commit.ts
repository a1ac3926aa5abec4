import type { Commit, Store, Write } from '../storage/collection.js';

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
