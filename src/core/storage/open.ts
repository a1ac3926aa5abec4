/** Opens a store by its URI. */
import type { Store } from './collection.js';
import { engineOf, storeUriProblem } from './engines.js';
import { requireExisting } from './existing.js';
import type { HostDatabase, HostPool } from './host-database.js';

/** The `check` of an option for a store URI. */
export function invalidStoreUri(uri: string): string | undefined {
  const problem = storeUriProblem(uri);
  return problem === null ? undefined : `is not a valid store URI: ${problem}.`;
}

/** Opens the store of a URI, or in a host's database. */
export async function openStore(source: string | HostDatabase | HostPool): Promise<Store> {
  if (typeof source === 'string') return (await engineOf(source).load()).open(source);
  return 'pool' in source
    ? (await import('./postgresql/store.js')).openPostgresql(source)
    : (await import('./mongodb/store.js')).openMongodb(source);
}

/** Opens an existing store and never creates a SQLite file. @throws StoreUnavailable */
export async function openExistingStore(uri: string): Promise<Store> {
  requireExisting(uri);
  return openStore(uri);
}
