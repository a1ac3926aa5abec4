import type { Clock } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { type Collection, nullIfTaken } from '../../core/storage/collection.js';

/** Settings in one document, of which every process has a copy that is at most one second old. */
export interface VersionedDocument<T> {
  /** The document as read at most one second ago, so that every process applies a change within two. */
  current(): Promise<T>;
  /** Returns the same, or `undefined` when it must be read from the store. */
  cached(): T | undefined;
  /** The document as last read, however old; the defaults before the first read. */
  latest(): T;
  /**
   * Changes the fields that `change` returns if the stored version is `version`, and increments it.
   * @throws VERSION_CONFLICT, and what `change` throws
   */
  update(version: number, change: (before: T) => Partial<T>): Promise<{ before: T; after: T }>;
}

const versionConflict = () =>
  httpErrors.VERSION_CONFLICT({
    message: 'The settings were changed in the meantime. Reload them and repeat the change.',
  });

const MAX_AGE_MS = 1_000;

/** What is needed of a collection; its declared types do not fit a generic document. */
interface Documents<T> {
  findOne(where: { id: string }): Promise<T | null>;
  insert(document: T): Promise<void>;
  updateOne(
    where: { id: string; version: number },
    change: { set: Partial<T>; inc: { version: 1 } },
  ): Promise<T | null>;
}

/** @param defaults the document until the first change, in version 0, which is not stored */
export function createVersionedDocument<T extends { id: string; version: number }>(
  collection: Collection<T>,
  defaults: T,
  clock: Clock,
): VersionedDocument<T> {
  const documents = collection as unknown as Documents<T>;
  const { id } = defaults;
  let latest: { document: T; at: number } | undefined;

  const updateCache = (document: T): T => {
    latest = { document, at: clock.now() };
    return document;
  };
  const readStored = async (): Promise<T> => (await documents.findOne({ id })) ?? defaults;
  const cached = () =>
    latest && Math.abs(clock.now() - latest.at) < MAX_AGE_MS ? latest.document : undefined;

  return {
    cached,
    latest: () => latest?.document ?? defaults,

    async current() {
      return cached() ?? updateCache(await readStored());
    },

    async update(version, change) {
      const before = await readStored();
      if (before.version !== version) throw versionConflict();
      const set = change(before);
      const first = { ...defaults, ...set, version: 1 };
      const after =
        version === 0
          ? await documents.insert(first).then(() => first, nullIfTaken)
          : await documents.updateOne({ id, version }, { set, inc: { version: 1 } });
      if (!after) throw versionConflict();
      // Before the next `await`, so that this change cannot overwrite a later one in the cache.
      updateCache(after);
      return { before, after };
    },
  };
}
