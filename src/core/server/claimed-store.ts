/** What keeps the two products out of each other's store: their collections have the same names. */
import type { Product } from '../ops/health.js';
import { LEASE_COLLECTION, LEASE_FIELDS, type LeaseDocument } from '../ops/jobs.js';
import { nullIfTaken, type Store, StoreUnavailable } from '../storage/collection.js';
import { readCollection } from '../storage/inspect.js';

/** A document in the leases, which a copy leaves out. Its owner is the product. */
const MARKER_ID = 'product';

/** Marks a store for a product. @throws StoreUnavailable if it is marked for the other one */
export async function claimStore(store: Store, product: Product): Promise<void> {
  const leases = store.collection<LeaseDocument>(LEASE_COLLECTION, LEASE_FIELDS);
  const marker = { id: MARKER_ID, owner: product, until: 0, term: 0, dueAt: 0 };
  const read = () => leases.findOne({ id: MARKER_ID });
  const insert = () => leases.insert(marker).then(() => marker, nullIfTaken);
  const known = (await read()) ?? (await insert()) ?? (await read());
  rejectOther(known?.owner, product);
}

/** The same for a store that must not be changed. */
export async function rejectStoreOfOther(uri: string, product: Product): Promise<void> {
  const owner = await readCollection<LeaseDocument, string | undefined>(
    uri,
    LEASE_COLLECTION,
    async (leases) => (await leases.page({ where: { id: MARKER_ID }, sort: 'id', limit: 1 })).items[0]?.owner,
  );
  rejectOther(owner ?? undefined, product);
}

function rejectOther(owner: string | undefined, product: Product): void {
  if (owner === undefined || owner === product) return;
  throw new StoreUnavailable(`the store belongs to ${owner}`, {
    remedy: `Choose another file or another database for ${product}.`,
  });
}
