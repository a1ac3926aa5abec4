/** What marks the target of `store copy` until it is complete, and keeps every other program away from it. */
import { hostname } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import { LEASE_COLLECTION, LEASE_FIELDS, type LeaseDocument } from '../ops/jobs.js';
import { type Collection, nullIfTaken, type Store, StoreUnavailable } from '../storage/collection.js';
import { readCollection } from '../storage/inspect.js';

/** A document in the leases of the target, which are not copied. Its owner identifies the source. */
interface CopyMarker extends LeaseDocument, CopyPosition {
  /** Where the command runs. */
  host: string;
  pid: number;
}

/** How far a copy has come. */
export interface CopyPosition {
  /** The collection that is being copied. Absent before the first one. */
  collection?: string;
  /** The id of its last document that is in the target, as are all documents before it. */
  position?: string;
}

/** The right of one command to write to the target. */
export type UnfinishedCopy = ReturnType<typeof ownedCopy>;

const MARKER_ID = 'store-copy';

/** A command on another machine that has not renewed its marker for this long has ended, and another one may take over. */
const TAKEOVER_MS = 2000;

/** How often a command renews its marker: much more often, because a renewal can be slow. */
const RENEWAL_MS = 500;

const HERE = { host: hostname(), pid: process.pid };

/**
 * Whether a process of this machine exists. One that is paused will write when it continues, so it is not taken for ended
 * however long it has been silent.
 */
function isAlive(pid: number): boolean {
  // After a restart of a container, this process may have the number of the previous one.
  if (pid === HERE.pid) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

type Pages = Pick<Collection<{ id: string }>, 'page'>;

const leasesOf = (store: Store): Collection<CopyMarker> =>
  store.collection<CopyMarker>(LEASE_COLLECTION, LEASE_FIELDS);

/** Prevents the start of a server on the target of an unfinished copy. @throws StoreUnavailable */
export async function rejectUnfinishedCopy(store: Store): Promise<void> {
  if ((await leasesOf(store).findOne({ id: MARKER_ID })) !== null) throw isUnfinished('the store');
}

/** Prevents that an unfinished copy is copied as if it were complete. @throws StoreUnavailable */
export async function rejectUnfinishedSource(uri: string): Promise<void> {
  const marked = await readCollection<CopyMarker, boolean>(uri, LEASE_COLLECTION, async (leases) => {
    const { items } = await leases.page({ where: { id: MARKER_ID }, sort: 'id', limit: 1 });
    return items.length > 0;
  });
  if (marked) throw isUnfinished('the source');
}

/**
 * Marks an empty target, or takes over the marker of a command that has ended. Takes some seconds if that one ran on another
 * machine.
 *
 * @param source identifies the source
 * @param collections the other collections of the product
 * @throws StoreUnavailable if the target contains documents, belongs to a copy of another source, or is being written
 */
export async function beginCopy(
  store: Store,
  source: string,
  { collections, now }: { collections: Iterable<Pages>; now: () => number },
): Promise<UnfinishedCopy> {
  const leases = leasesOf(store);
  const known = await leases.findOne({ id: MARKER_ID });
  if (known && known.owner !== source) {
    throw new StoreUnavailable('the target is an unfinished copy of another source', {
      remedy: 'Repeat that copy, or choose an empty target.',
    });
  }
  if (!known) {
    for (const collection of [leases, ...collections]) await rejectDocuments(collection);
    const marker = { id: MARKER_ID, owner: source, until: now(), term: 1, dueAt: 0, ...HERE };
    const inserted = await leases.insert(marker).then(() => marker, nullIfTaken);
    if (!inserted) throw isRunning();
    return ownedCopy(leases, inserted, { previous: null, now });
  }
  if (known.host === HERE.host) {
    if (isAlive(known.pid)) throw isRunning(known.pid);
  } else {
    // Whether the marker changes shows whether a command runs, although the clocks of two machines differ.
    await wait(TAKEOVER_MS);
  }
  const { term, until } = known;
  const taken = await leases.updateOne(
    { id: MARKER_ID, term, until },
    { set: { until: now(), ...HERE }, inc: { term: 1 } },
  );
  if (!taken) throw isRunning();
  return ownedCopy(leases, taken, { previous: known, now });
}

/** The copy of the command that has the current term. */
function ownedCopy(
  leases: Collection<CopyMarker>,
  { term }: CopyMarker,
  { previous, now }: { previous: CopyPosition | null; now: () => number },
) {
  const own = { id: MARKER_ID, term };
  let renewedAt = performance.now();
  const renew = async (position: CopyPosition = {}): Promise<void> => {
    const since = performance.now();
    const changed = await leases.updateOne(own, {
      set: { ...position, until: now() },
      ...(position.collection && !position.position && { unset: ['position'] }),
    });
    if (!changed) throw isTakenOver();
    renewedAt = since;
  };
  return {
    /** Where an interrupted command stopped; `null` if this command has begun the copy. */
    previous,
    /** Stores how far the copy has come. @throws StoreUnavailable if another command has taken over */
    record: renew,
    /** Must precede every batch of writes. @throws StoreUnavailable if another command has taken over */
    async mayWrite() {
      // Also after a pause of the process, which another command may have taken for its end.
      if (performance.now() - renewedAt >= RENEWAL_MS) await renew();
    },
    /** Opens the target to programs. @throws StoreUnavailable if another command has taken over or a program has started */
    async finish() {
      const { items } = await leases.page({ sort: 'id', limit: 2 });
      if (items.some(({ id }) => id !== MARKER_ID)) {
        throw new StoreUnavailable('a program has used the target during the copy', {
          remedy: 'Stop all programs, delete the target and copy again.',
        });
      }
      if (!(await leases.deleteOne(own))) throw isTakenOver();
    },
  };
}

async function rejectDocuments(collection: Pages): Promise<void> {
  const { items } = await collection.page({ sort: 'id', limit: 1 });
  if (items.length === 0) return;
  throw new StoreUnavailable('the target is in use: it contains documents', {
    remedy: 'Choose a new file or an empty database.',
  });
}

const isUnfinished = (store: string): StoreUnavailable =>
  new StoreUnavailable(`${store} is an unfinished copy of another one`, {
    remedy: 'Repeat `store copy` until it succeeds, or use the source.',
  });

const isRunning = (pid?: number): StoreUnavailable =>
  new StoreUnavailable('another command is copying into the target', {
    remedy:
      pid === undefined ? 'Wait until it has ended.' : `Wait until process ${pid} has ended, or end it.`,
  });

const isTakenOver = (): StoreUnavailable =>
  new StoreUnavailable('another command has continued this copy', {
    remedy: 'Wait until that one has ended.',
  });
