import type { Clock } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { CommitParts, Effect } from '../../core/ops/commit.js';
import { type Change, type Collection, nullIfTaken } from '../../core/storage/collection.js';
import { applyChange } from '../../core/storage/semantics.js';

const versionConflict = () =>
  httpErrors.VERSION_CONFLICT({
    message: 'The settings were changed in the meantime. Reload them and repeat the change.',
  });

const MAX_AGE_MS = 1_000;

interface VersionedDocument {
  id: string;
  version: number;
}

/**
 * Settings in one document, of which every process has a copy that is at most one second old.
 * @param defaults the document until the first change, in version 0, which is not stored
 */
export function createVersionedDocument<T extends VersionedDocument>(
  collection: Collection<T>,
  defaults: T,
  { commit, clock }: { commit: CommitParts; clock: Clock },
) {
  const { id } = defaults;
  const documents = collection as unknown as Collection<VersionedDocument>;
  let latest: { document: T; at: number } | undefined;

  const updateCache = (document: T): T => {
    latest = { document, at: clock.now() };
    return document;
  };
  const readStored = async (): Promise<T> => ((await documents.findOne({ id })) as T | null) ?? defaults;
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
     * Changes the fields that `valuesOf` returns if the stored version is `version`, and increments it.
     *
     * @param recordOf what is stored in the same commit
     * @throws VERSION_CONFLICT, and what `valuesOf` throws
     */
    async update(
      version: number,
      valuesOf: (before: T) => Partial<Omit<T, 'id' | 'version'>>,
      recordOf?: (before: T, after: T) => Effect | undefined,
    ): Promise<T> {
      const before = await readStored();
      if (before.version !== version) throw versionConflict();
      const change: Change<VersionedDocument> = { set: valuesOf(before), inc: { version: 1 } };
      const after = applyChange(before, change as Change<T>);
      const write = version === 0 ? documents.inserting(after) : documents.changing({ id, version }, change);
      const outcome = await commit([write, recordOf?.(before, after)]).catch(nullIfTaken);
      if (!outcome?.committed) throw versionConflict();
      // Before the next `await`, so that this change cannot overwrite a later one in the cache.
      return updateCache(after);
    },
  };
}
