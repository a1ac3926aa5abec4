import type { Clock } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { nullIfTaken } from '../../core/storage/collection.js';

const versionConflict = () =>
  httpErrors.VERSION_CONFLICT({
    message: 'The settings were changed in the meantime. Reload them and repeat the change.',
  });

const MAX_AGE_MS = 1_000;

interface VersionedDocument {
  id: string;
  version: number;
}

/** The part of a collection in use. */
interface Documents<T extends VersionedDocument> {
  findOne(where: { id: T['id'] }): Promise<T | null>;
  insert(document: T): Promise<void>;
  updateOne(
    where: { id: T['id']; version: number },
    change: { set: Partial<T>; inc: { version: 1 } },
  ): Promise<T | null>;
}

/**
 * Settings in one document, of which every process has a copy that is at most one second old.
 * @param defaults the document until the first change, in version 0, which is not stored
 */
export function createVersionedDocument<T extends VersionedDocument>(
  documents: Documents<T>,
  defaults: T,
  clock: Clock,
) {
  const { id } = defaults as { id: T['id'] };
  let latest: { document: T; at: number } | undefined;

  const updateCache = (document: T): T => {
    latest = { document, at: clock.now() };
    return document;
  };
  const readStored = async (): Promise<T> => (await documents.findOne({ id })) ?? defaults;
  const cached = () =>
    latest && Math.abs(clock.now() - latest.at) < MAX_AGE_MS ? latest.document : undefined;

  return {
    /** Returns the same as `current`, or `undefined` when it must be read from the store. */
    cached,

    /** The document as last read, however old; the defaults before the first read. */
    latest: (): T => latest?.document ?? defaults,

    /** The document as read at most one second ago, so that every process applies a change within two. */
    async current(): Promise<T> {
      return cached() ?? updateCache(await readStored());
    },

    /**
     * Changes the fields that `change` returns if the stored version is `version`, and increments it.
     * @throws VERSION_CONFLICT, and what `change` throws
     */
    async update(version: number, change: (before: T) => Partial<T>): Promise<{ before: T; after: T }> {
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
