import { type Clock, DAY, HOUR, isRecent, SECOND } from '../kernel/clock.js';
import type { Job } from '../ops/jobs.js';
import type { Passwords } from '../passwords/hasher.js';
import { type Collection, nullIfTaken, type Store } from '../storage/collection.js';
import type { UserDocument, Users } from './store.js';

/**
 * Which kinds of foreign password hashes the accounts have. While there are any, a failed login does the work of all of
 * them, so that its duration does not tell imported accounts from others and from unknown ones.
 */

/** One per account with a foreign hash; `id` is that of the user. */
export interface ForeignHashDocument {
  id: string;
  family: string;
  cost: number;
  decoy: string;
  createdAt: number;
}

export type ForeignHashCollection = Collection<ForeignHashDocument>;

export function foreignHashCollection(store: Store): ForeignHashCollection {
  return store.collection<ForeignHashDocument>('foreignHashes', { indexes: [['family', 'cost']] });
}

type Owner = Pick<UserDocument, 'id' | 'passwordHash'>;

export interface ForeignHashes {
  /** Before a user is stored, so that a crash in between leaves too much work and never too little. */
  add(user: Owner): Promise<void>;
  /** After the hash of a user is replaced or the user is gone. @param before the user with the former hash */
  remove(before: Owner): Promise<void>;
  /** The most costly hash of each family, at most one second old. */
  decoys(): Promise<readonly string[]>;
  /** Corrects what a crash, an earlier version or another program left. */
  recount: Job;
}

const MAX_AGE_MS = SECOND;
const BATCH = 200;

export function createForeignHashes({
  documents,
  users,
  passwords,
  clock,
}: {
  documents: ForeignHashCollection;
  users: Users;
  passwords: Pick<Passwords, 'foreignWork'>;
  clock: Clock;
}): ForeignHashes {
  let latest: { decoys: Promise<string[]>; at: number } | undefined;

  /** Jumps from family to family, so that many accounts take no longer than few. */
  const readDecoys = async (): Promise<string[]> => {
    const decoys: string[] = [];
    let where: { family?: { gt: string } } = {};
    for (;;) {
      const [first] = (await documents.page({ where, sort: 'family', limit: 1 })).items;
      if (!first) return decoys;
      const { family } = first;
      const [most = first] = (await documents.page({ where: { family }, sort: 'cost', desc: true, limit: 1 }))
        .items;
      decoys.push(most.decoy);
      where = { family: { gt: family } };
    }
  };

  const add = async ({ id, passwordHash }: Owner): Promise<void> => {
    const work = passwordHash === undefined ? null : passwords.foreignWork(passwordHash);
    if (work) await documents.insert({ id, ...work, createdAt: clock.now() }).catch(nullIfTaken);
  };

  return {
    add,

    async remove({ id, passwordHash }) {
      if (passwordHash !== undefined && passwords.foreignWork(passwordHash))
        await documents.deleteOne({ id });
    },

    decoys() {
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

    recount: {
      everySeconds: DAY / SECOND,
      async run({ signal }) {
        await forEach(users, signal, add);
        await forEach(documents, signal, async ({ id, family, cost, createdAt }) => {
          const user = await users.findOne({ id });
          // The user may be about to be stored.
          if (!user && isRecent(createdAt, { now: clock.now(), within: HOUR })) return;
          const work = user?.passwordHash === undefined ? null : passwords.foreignWork(user.passwordHash);
          if (work?.family !== family || work.cost !== cost) await documents.deleteOne({ id, family, cost });
        });
      },
    },
  };
}

/** Calls `act` with each document, in small steps, until `signal` ends it. */
async function forEach<T extends { id: string }>(
  collection: Pick<Collection<T>, 'page'>,
  signal: AbortSignal,
  act: (document: T) => Promise<void>,
): Promise<void> {
  let after: string | null | undefined;
  while (after !== null && !signal.aborted) {
    const page = await collection.page({
      sort: 'id' as Parameters<typeof collection.page>[0]['sort'],
      limit: BATCH,
      ...(after !== undefined && { after }),
    });
    await Promise.all(page.items.map(act));
    after = page.next;
  }
}

/** How many foreign hashes of each family the users have, by looking at every user. */
export async function countForeignHashes(
  users: Pick<Users, 'page'>,
  passwords: Pick<Passwords, 'foreignWork'>,
): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  await forEach(users, new AbortController().signal, async ({ passwordHash }) => {
    const work = passwordHash === undefined ? null : passwords.foreignWork(passwordHash);
    if (work) counts.set(work.family, (counts.get(work.family) ?? 0) + 1);
  });
  return counts;
}
