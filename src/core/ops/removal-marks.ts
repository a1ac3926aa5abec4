import { newToken, type Random } from '../kernel/secrets.js';
import type { Collection } from '../storage/collection.js';

/** A document with which a person signs in. */
interface Removable {
  id: string;
  /** Identifies a removal that has begun and must leave another way to sign in. */
  leaving?: string;
}

/**
 * Keeps simultaneous removals from leaving an account without a way to sign in. Each removal marks its document first and then
 * looks for another one without a mark, in all collections, so that the removal that has marked last finds the one that stays.
 * A mark that a crash leaves is taken over by the next removal, and the next use of the document removes it.
 */
export function createRemovalMarks<T extends Removable>(
  collection: Pick<Collection<T>, 'changeOne'>,
  random: Random,
) {
  const documents = collection as Pick<Collection<Removable>, 'changeOne'>;
  return {
    /** Returns the mark, without which the document must not be removed; null if the document has changed since it was read. */
    async set({ id, leaving }: T): Promise<string | null> {
      if (leaving !== undefined) return leaving;
      const token = newToken(random);
      return (await documents.changeOne({ id, leaving: null }, { set: { leaving: token } })) ? token : null;
    },

    async clear(id: string, leaving: string): Promise<void> {
      await documents.changeOne({ id, leaving }, { unset: ['leaving'] });
    },
  };
}
