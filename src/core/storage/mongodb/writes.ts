/** Writes of several documents, one after another. */
import { type Collection, nullIfTaken, type Write } from '../collection.js';
import { changeTo } from '../semantics.js';

/** A write of one document. */
export interface MongodbWrite extends Write {
  /** False if no document matches, or if the id or a unique value exists. */
  make(): Promise<boolean>;
}

/** The part of a collection that creates writes. */
export function mongodbWrites<T extends { id: string }>(
  collection: string,
  { insert, changeOne }: Pick<Collection<T>, 'insert' | 'changeOne'>,
): Pick<Collection<T>, 'inserting' | 'changing' | 'replacing'> {
  const writing = (make: () => Promise<boolean>): MongodbWrite => ({
    collection,
    make: async () => (await make().catch(nullIfTaken)) ?? false,
  });
  return {
    inserting: (doc) => writing(() => insert(doc).then(() => true)),
    changing: (where, change) => writing(() => changeOne(where, change)),
    replacing: (where, before, after) => writing(() => changeOne(where, changeTo(before, after))),
  };
}

/** Makes the writes in this order, up to the first that cannot be made. */
export async function writeInOrder(writes: readonly MongodbWrite[]): Promise<boolean> {
  for (const write of writes) if (!(await write.make())) return false;
  return true;
}
