/** Opens a store by its URI. */
import type { Store } from './collection.js';
import { existingFile } from './existing.js';
import type { HostDatabase } from './host-database.js';
import { isPostgresqlUri, postgresqlUriProblem } from './postgresql/source.js';
import { openSqlite } from './sqlite/store.js';

const MONGODB = /^mongodb(?:\+srv)?:\/\/[^/?#\s]+\/[^/?#\s]+/;

/** Describes why a store URI is invalid, without the URI, which may contain a password; null if it is valid. */
export function storeUriProblem(uri: string): string | null {
  if (MONGODB.test(uri)) return null;
  if (uri.startsWith('mongodb'))
    return 'a MongoDB URI names its hosts and its database: mongodb://host:27017/name';
  if (isPostgresqlUri(uri)) return postgresqlUriProblem(uri);
  if (!uri.startsWith('sqlite:'))
    return `a store URI begins with sqlite:, postgres://, mongodb:// or mongodb+srv://, like sqlite:data/app.db${schemeOf(uri)}`;
  const path = uri.slice('sqlite:'.length);
  if (path === '' || path.endsWith('/') || path.includes('\0'))
    return 'a SQLite URI names a file: sqlite:data/app.db';
  // Ambiguous: as a URL, the first folder would be a host; as a path, it would be absolute.
  if (/^\/\/[^/]/.test(path)) return 'a SQLite URI has no host: sqlite:data/app.db or sqlite:/var/lib/app.db';
  return null;
}

/** The scheme of a URI, the only part that a message may contain. */
function schemeOf(uri: string): string {
  const [scheme] = /^[a-z][a-z+.-]{0,20}:(?=\/\/)/i.exec(uri) ?? [];
  return scheme === undefined ? '' : `; given: ${scheme}…`;
}

/** The `check` of an option for a store URI. */
export function invalidStoreUri(uri: string): string | undefined {
  const problem = storeUriProblem(uri);
  return problem === null ? undefined : `is not a valid store URI: ${problem}.`;
}

/** Opens the store of a URI or in a host's database. The MongoDB engine is loaded on demand. */
export async function openStore(source: string | HostDatabase): Promise<Store> {
  const problem = typeof source === 'string' ? storeUriProblem(source) : null;
  if (problem) throw new TypeError(problem);
  if (typeof source === 'string' && source.startsWith('sqlite:')) {
    return openSqlite(source.slice('sqlite:'.length));
  }
  if (typeof source === 'string' && isPostgresqlUri(source))
    return (await import('./postgresql/store.js')).openPostgresql(source);
  return (await import('./mongodb/store.js')).openMongodb(source);
}

/** Opens an existing store and never creates a SQLite file. @throws StoreUnavailable */
export async function openExistingStore(uri: string): Promise<Store> {
  if (uri.startsWith('sqlite:')) existingFile(uri);
  return openStore(uri);
}
