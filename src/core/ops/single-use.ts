import { type Collection, nullIfTaken, type Store } from '../storage/collection.js';

/** What may be used once, in all processes together: proofs and tickets that are stored nowhere else. */

export interface UsedOnce {
  id: string;
  /** After this time, it is refused because it has expired. */
  expiresAt: number;
}

export const usedOnceCollection = (store: Store, name: string): Collection<UsedOnce> =>
  store.collection<UsedOnce>(name, { indexes: [['expiresAt']], numbers: ['expiresAt'] });

export type SingleUse = ReturnType<typeof createSingleUse>;

export function createSingleUse(used: Collection<UsedOnce>) {
  /** Whether this is the first use. */
  const claim = async (id: string, expiresAt: number): Promise<boolean> =>
    (await used.insert({ id, expiresAt }).then(() => true, nullIfTaken)) !== null;
  return {
    claim,

    /**
     * Runs the first use. If it fails, it has had no effect and can be tried again.
     *
     * @param keepsUse whether an error is an answer that continues the use
     * @returns null if it has been used
     */
    async run<T>(
      { id, expiresAt }: UsedOnce,
      use: () => Promise<T>,
      keepsUse: (error: unknown) => boolean = () => false,
    ): Promise<T | null> {
      if (!(await claim(id, expiresAt))) return null;
      try {
        return await use();
      } catch (error) {
        if (!keepsUse(error)) await used.deleteOne({ id });
        throw error;
      }
    },
  };
}
