import { type Clock, SECOND } from '../../../core/kernel/clock.js';
import type { Passwords } from '../../../core/passwords/hasher.js';
import type { Collection, Store, Write } from '../../../core/storage/collection.js';
import { pagesOf } from '../../../core/storage/pages.js';
import type { UserDocument, Users } from '../store.js';

/**
 * The password hashes that were imported from other systems. While there are any, a failed login does the work of each
 * algorithm, so that its duration does not disclose which accounts were imported or exist.
 */

/** One for each account with an imported hash, under the id of the user. */
export interface ForeignHashDocument {
  id: string;
  family: string;
  cost: number;
  decoy: string;
}

export type ForeignHashCollection = Collection<ForeignHashDocument>;

export function foreignHashCollection(store: Store): ForeignHashCollection {
  return store.collection<ForeignHashDocument>('foreignHashes', {
    indexes: [['family', 'cost']],
    numbers: ['cost'],
  });
}

type HashOwner = Pick<UserDocument, 'id' | 'passwordHash'>;

export type ForeignHashes = ReturnType<typeof createForeignHashes>;

const MAX_AGE_MS = SECOND;

export function createForeignHashes({
  documents,
  passwords,
  clock,
}: {
  documents: ForeignHashCollection;
  passwords: Pick<Passwords, 'foreignWork'>;
  clock: Clock;
}) {
  let latest: { decoys: Promise<string[]>; at: number } | undefined;

  /** Skips from family to family, so that its duration does not depend on the number of accounts. */
  const readDecoys = async (): Promise<string[]> => {
    const decoys: string[] = [];
    let where: { family?: { gt: string } } = {};
    for (;;) {
      const [first] = (await documents.page({ where, sort: 'family', limit: 1 })).items;
      if (!first) return decoys;
      const { family } = first;
      const [costliest = first] = (
        await documents.page({ where: { family }, sort: 'cost', desc: true, limit: 1 })
      ).items;
      decoys.push(costliest.decoy);
      where = { family: { gt: family } };
    }
  };

  return {
    /** For the commit that stores a user; undefined without an imported hash. */
    adding({ id, passwordHash }: HashOwner): Write | undefined {
      const work = passwordHash === undefined ? null : passwords.foreignWork(passwordHash);
      return work ? documents.ensuring({ id, ...work }) : undefined;
    },

    /** For the commit that replaces the hash of a user; undefined without an imported one. */
    async removing({ id, passwordHash }: HashOwner): Promise<Write | undefined> {
      const isForeign = passwordHash !== undefined && passwords.foreignWork(passwordHash) !== null;
      return isForeign && (await documents.findOne({ id })) ? documents.deleting({ id }) : undefined;
    },

    /** Deletes what is stored for a user. */
    forget: (userId: string) => documents.deleteOne({ id: userId }),

    /** The most expensive hash of each family, read at most one second ago. */
    decoys(): Promise<readonly string[]> {
      const now = clock.now();
      if (!latest || Math.abs(now - latest.at) >= MAX_AGE_MS) {
        const decoys = readDecoys();
        const reading = { decoys, at: now };
        latest = reading;
        decoys.catch(() => {
          if (latest === reading) latest = undefined;
        });
      }
      return latest.decoys;
    },
  };
}

/** Counts the imported hashes of each family by reading every user. */
export async function countForeignHashes(
  users: Pick<Users, 'page'>,
  passwords: Pick<Passwords, 'foreignWork'>,
): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for await (const page of pagesOf(users, { sort: 'id' })) {
    for (const { passwordHash } of page) {
      const work = passwordHash === undefined ? null : passwords.foreignWork(passwordHash);
      if (work) counts.set(work.family, (counts.get(work.family) ?? 0) + 1);
    }
  }
  return counts;
}
