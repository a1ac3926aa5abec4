/** Copies a store to an empty one of any engine. */
import { createHash } from 'node:crypto';
import { systemClock } from '../kernel/clock.js';
import { LEASE_COLLECTION, LEASE_FIELDS, type LeaseDocument } from '../ops/jobs.js';
import { type Collection, nullIfTaken, type Store, StoreUnavailable } from '../storage/collection.js';
import { engineOf } from '../storage/engines.js';
import { requireExisting } from '../storage/existing.js';
import { collectionNames, inspectStore, readCollection } from '../storage/inspect.js';
import { openStore } from '../storage/open.js';
import { pagesOf } from '../storage/pages.js';
import { beginCopy, rejectUnfinishedSource, type UnfinishedCopy } from './unfinished-copy.js';

type Document = { id: string };

/** Number and SHA-256 of the documents of a collection, in the order of their ids. */
export interface CopiedCollection {
  name: string;
  documents: number;
  sha256: string;
}

export interface CopyOptions {
  /** URI of the source. Every program that uses it must have stopped. */
  from: string;
  /** URI of the target: without a document of the product, or an unfinished copy of the same source. */
  to: string;
  /** Declares the collections of the product. */
  declareCollections: (store: Store) => void;
  /** The total is absent when counting takes too long. */
  onProgress?: (phase: 'copied' | 'verified', documents: number, total?: number) => void;
  /** Whether the source is unused although a program used it in the last 90 seconds: after a kill, or for a backup. */
  stopped?: boolean | undefined;
  now?: () => number;
}

/** A running program takes a lease at least once a minute. */
const IN_USE_MS = 90_000;

const STOP =
  'Stop all programs that use it and repeat the command; after a crash or a kill, wait 90 seconds first';

/**
 * Copies all documents, then reads both stores again and compares them. Can be repeated after an interruption: it goes on
 * after the last batch.
 *
 * @returns the collections; whether an earlier call had copied a part; those of the source that the product does not know
 * @throws StoreUnavailable if the source is in use, the target is not empty, or the copy differs from its source
 */
export async function copyStore({
  from,
  to,
  declareCollections,
  onProgress = () => {},
  stopped = false,
  now = systemClock.now,
}: CopyOptions): Promise<{ collections: CopiedCollection[]; resumed: boolean; ignored: string[] }> {
  const owner = await inspectStores(from, to);
  const lastUse = await readLastUse(from);
  if (!stopped && lastUse > now() - IN_USE_MS) throw inUse();
  const store = await openStore(to);
  try {
    const known = declared(store, declareCollections);
    await store.ready();
    const ignored = (await collectionNames(from)).filter(
      (name) => name !== LEASE_COLLECTION && !known.has(name),
    );
    const total = await countDocuments(from, [...known.keys()]);
    const copy = await beginCopy(store, owner, { collections: known.values(), now });
    const { previous } = copy;
    const report = createCounter((count) => onProgress('copied', count, total));
    for (const [name, target] of known) {
      if (name < (previous?.collection ?? '')) continue;
      const after = name === previous?.collection ? previous.position : undefined;
      await copyCollection({ from, name, target, copy, after, report });
    }
    const collections = await verify(from, known, {
      copy,
      report: createCounter((count) => onProgress('verified', count, total)),
    });
    if ((await readLastUse(from)) > lastUse) throw inUse();
    await copy.finish();
    return { collections, resumed: previous !== null, ignored };
  } finally {
    await store.close();
  }
}

/** Checks that both stores can take part. Returns what identifies the source. */
async function inspectStores(from: string, to: string): Promise<string> {
  requireExisting(from);
  await inspectStore(from);
  await rejectUnfinishedSource(from);
  if (to === 'sqlite::memory:') {
    throw new StoreUnavailable('an in-memory store is lost when the command ends', {
      remedy: 'Choose a file or the database of a server as the target.',
    });
  }
  const owner = identityOf(from);
  if (owner === identityOf(to)) {
    throw new StoreUnavailable('the source and the target are the same store', {
      remedy: 'Choose another target.',
    });
  }
  return owner;
}

/** A hash of the file, or of the server and the database. */
function identityOf(uri: string): string {
  return createHash('sha256').update(engineOf(uri).placeOf(uri)).digest('hex');
}

/** When a program last held a lease of the store. Programs that stop gracefully set the ends of their leases to 0. */
async function readLastUse(uri: string): Promise<number> {
  const lastUse = await readCollection<LeaseDocument, number>(
    uri,
    LEASE_COLLECTION,
    async (leases) => {
      let latest = 0;
      for await (const some of pagesOf(leases, { sort: 'id' })) {
        latest = Math.max(latest, ...some.map(({ until }) => until));
      }
      return latest;
    },
    LEASE_FIELDS,
  );
  return lastUse ?? 0;
}

function inUse(): StoreUnavailable {
  return new StoreUnavailable('a program uses the source', { remedy: `${STOP}, or pass --stopped.` });
}

/** The collections of the product in the target by name, sorted, without the leases. */
function declared(
  store: Store,
  declareCollections: CopyOptions['declareCollections'],
): Map<string, Collection<Document>> {
  const found: [string, Collection<Document>][] = [];
  declareCollections({
    ...store,
    collection<T extends Document>(name: string, declaration: Parameters<typeof store.collection<T>>[1]) {
      const collection = store.collection<T>(name, declaration);
      // Of other fields than the ID, a copy knows nothing.
      found.push([name, collection as unknown as Collection<Document>]);
      return collection;
    },
  });
  return new Map(found.filter(([name]) => name !== LEASE_COLLECTION).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The number of documents of the source, for the progress; undefined if counting takes too long. */
async function countDocuments(uri: string, names: string[]): Promise<number | undefined> {
  let total = 0;
  for (const name of names) {
    try {
      total += (await readCollection(uri, name, (documents) => documents.count())) ?? 0;
    } catch (error) {
      if (error instanceof StoreUnavailable) return undefined;
      throw error;
    }
  }
  return total;
}

function createCounter(show: (count: number) => void): (more: number) => void {
  let count = 0;
  return (more) => {
    count += more;
    show(count);
  };
}

interface CollectionCopy {
  from: string;
  name: string;
  target: Collection<Document>;
  copy: UnfinishedCopy;
  after: string | undefined;
  report: (more: number) => void;
}

/** Copies in batches, and records the position after each. */
async function copyCollection({ from, name, target, copy, after, report }: CollectionCopy): Promise<void> {
  if (after === undefined) await copy.record({ collection: name });
  await readCollection<Document, void>(from, name, async (source) => {
    const where = after === undefined ? {} : { id: { gt: after } };
    for await (const batch of pagesOf(source, { where, sort: 'id' })) {
      await copy.mayWrite();
      const isNew = await target.insertMany(batch);
      for (const document of isNew ? [] : batch) {
        await copy.mayWrite();
        // An interrupted copy may have inserted it. The comparison finds one that differs.
        await target.insert(document).catch(nullIfTaken);
      }
      const last = batch.at(-1);
      if (last) await copy.record({ collection: name, position: last.id });
      report(batch.length);
    }
  });
}

/** Compares all documents of both stores. */
async function verify(
  from: string,
  known: Map<string, Collection<Document>>,
  { copy, report }: Pick<CollectionCopy, 'copy' | 'report'>,
): Promise<CopiedCollection[]> {
  const verified: CopiedCollection[] = [];
  const different: string[] = [];
  for (const [name, target] of known) {
    const [source, copied] = await Promise.all([
      readCollection<Document, CopiedCollection>(from, name, (documents) =>
        checksum(name, documents, copy.mayWrite),
      ),
      checksum(name, target, (more) => {
        report(more);
        return copy.mayWrite();
      }),
    ]);
    const { documents, sha256 } = source ?? { documents: 0, sha256: EMPTY_SHA256 };
    if (copied.documents !== documents || copied.sha256 !== sha256) different.push(name);
    verified.push(copied);
  }
  if (different.length === 0) return verified;
  throw new StoreUnavailable(`the target differs from the source in ${different.join(', ')}`, {
    remedy:
      'One of them was changed since the copy began. Stop all programs, delete the target and copy again.',
  });
}

const EMPTY_SHA256 = createHash('sha256').digest('hex');

async function checksum(
  name: string,
  collection: Pick<Collection<Document>, 'page'>,
  progress: (more: number) => Promise<void>,
): Promise<CopiedCollection> {
  const hash = createHash('sha256');
  let documents = 0;
  for await (const batch of pagesOf(collection, { sort: 'id' })) {
    hash.update(batch.map(canonical).join(''));
    documents += batch.length;
    await progress(batch.length);
  }
  return { name, documents, sha256: hash.digest('hex') };
}

/** The engines order the fields differently, and both keep nested values as they are. */
function canonical(document: Document): string {
  return `${JSON.stringify(Object.entries(document).sort(([a], [b]) => (a < b ? -1 : 1)))}\n`;
}
