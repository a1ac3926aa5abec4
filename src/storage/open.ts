/** From a store's URI to an open store. */
import type { Store } from './collection.js';
import { existingFile } from './existing.js';
import type { HostDatabase } from './host-database.js';
import { openSqlite } from './sqlite/store.js';

const MONGODB = /^mongodb(?:\+srv)?:\/\/[^/?#\s]+\/[^/?#\s]+/;

/** What is wrong with a store URI, as a sentence without the URI (it may hold a password); null: nothing. */
export function storeUriProblem(uri: string): string | null {
  if (MONGODB.test(uri)) return null;
  if (uri.startsWith('mongodb'))
    return 'a MongoDB URI names its hosts and its database: mongodb://host:27017/name';
  if (!uri.startsWith('sqlite:'))
    return `a store URI begins with sqlite:, mongodb:// or mongodb+srv://, like sqlite:data/app.db${schemeOf(uri)}`;
  const path = uri.slice('sqlite:'.length);
  if (path === '' || path.endsWith('/') || path.includes('\0'))
    return 'a SQLite URI names a file: sqlite:data/app.db';
  // As a URL its first folder would be a host; as a path it would be absolute: nobody means either.
  if (/^\/\/[^/]/.test(path)) return 'a SQLite URI has no host: sqlite:data/app.db or sqlite:/var/lib/app.db';
  return null;
}

/** The scheme of a URI, of which nothing else may be shown. */
function schemeOf(uri: string): string {
  const [scheme] = /^[a-z][a-z+.-]{0,20}:(?=\/\/)/i.exec(uri) ?? [];
  return scheme === undefined ? '' : `; given: ${scheme}…`;
}

/** The same as the end of a sentence, for the check of an option. */
export function invalidStoreUri(uri: string): string | undefined {
  const problem = storeUriProblem(uri);
  return problem === null ? undefined : `is not a valid store URI: ${problem}.`;
}

/** Opens the store that a URI names, or one in the database of the host. An engine is loaded only when it is asked for. */
export async function openStore(source: string | HostDatabase): Promise<Store> {
  const problem = typeof source === 'string' ? storeUriProblem(source) : null;
  if (problem) throw new TypeError(problem);
  if (typeof source === 'string' && source.startsWith('sqlite:')) {
    return openSqlite(source.slice('sqlite:'.length));
  }
  return (await import('./mongodb/store.js')).openMongodb(source);
}

/** Opens a store that is there already: where a SQLite URI names none, none is made. @throws StoreUnavailable */
export async function openExistingStore(uri: string): Promise<Store> {
  if (uri.startsWith('sqlite:')) existingFile(uri);
  return openStore(uri);
}
