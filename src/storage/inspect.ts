/** From a store's URI to whether a program could start on it. Nothing that is tried remains. */
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { tryDatabaseFile } from './sqlite/file.js';
import { fileHasTable, tryDatabase } from './sqlite/store.js';

/**
 * Answers with a sentence on what is there.
 *
 * @param uri one that `storeUriProblem` finds nothing wrong with
 * @throws StoreUnavailable or what else a start on this store would end with
 */
export async function inspectStore(uri: string): Promise<string> {
  if (uri === 'sqlite::memory:') return 'is kept in memory and ends with the program';
  if (uri.startsWith('sqlite:')) return inspectSqlite(resolve(uri.slice('sqlite:'.length)));
  await (await import('./mongodb/store.js')).inspectMongodb(uri);
  return 'answers';
}

/** Whether a store that `inspectStore` finds nothing wrong with has this collection. Opening the collection would create it. */
export async function holdsCollection(uri: string, name: string): Promise<boolean> {
  if (uri === 'sqlite::memory:') return false;
  if (!uri.startsWith('sqlite:')) return (await import('./mongodb/store.js')).hasCollection(uri, name);
  const file = resolve(uri.slice('sqlite:'.length));
  return sizeOf(file) !== null && (await fileHasTable(file, name));
}

async function inspectSqlite(file: string): Promise<string> {
  const size = sizeOf(file);
  if (size === null) {
    tryDatabaseFile(file);
    return 'does not exist yet; the first start creates it';
  }
  await tryDatabase(file);
  return `is there, ${(size / 2 ** 20).toFixed(1)} MiB`;
}

/** Bytes of a file; `null` where a start would create it, or fail to. */
function sizeOf(path: string): number | null {
  try {
    const state = statSync(path);
    return state.isDirectory() ? null : state.size;
  } catch {
    return null;
  }
}
