import { sha256 } from '../kernel/secrets.js';

/** A change about which the owner of an account gets a mail: enqueued before the change, and sent once it is stored. */
export interface StoredChange {
  /** Identifies the mail: one for each change, also if the same document is added again. */
  key: string;
  /** The change is stored once this field has reached the version. */
  versionField: string;
  version: number;
}

/** The changes of documents that are added and removed, and otherwise stay the same. */
export function createStoredChanges<Added extends string, Removed extends string>(
  name: string,
  added: Added,
  removed: Removed,
) {
  return {
    of: <Kind extends Added | Removed>(
      kind: Kind,
      account: string,
      { id, createdAt }: { id: string; createdAt: number },
    ): StoredChange & { kind: Kind } => ({
      kind,
      // With the account: someone else could otherwise replace the mail by naming the same document.
      key: sha256(`${kind} ${account} ${id} ${createdAt}`),
      versionField: `${name}-${kind} ${id}`,
      version: kind === added ? createdAt : createdAt + 1,
    }),

    /** The current value of the `versionField` of a change; undefined for any other field. */
    async readVersion(
      field: string,
      find: (id: string) => Promise<{ createdAt: number } | null>,
    ): Promise<number | undefined> {
      const [, change, id = ''] = /^([\w-]+) ([\w-]+)$/.exec(field) ?? [];
      const isAdded = change === `${name}-${added}`;
      if (!isAdded && change !== `${name}-${removed}`) return undefined;
      return (await find(id))?.createdAt ?? (isAdded ? 0 : Number.MAX_SAFE_INTEGER);
    },
  };
}
