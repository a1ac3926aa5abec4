/** From a store's URI to whether a program could start on it. Nothing that is tried remains. */
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Collection } from './collection.js';
import { missingFile } from './existing.js';
import { tryDatabaseFile } from './sqlite/file.js';
import { readSqliteCollection, tryDatabase } from './sqlite/store.js';

/**
 * Answers with a sentence on what is there.
 *
 * @param uri one that `storeUriProblem` finds nothing wrong with
 * @throws StoreUnavailable or what else a start on this store would end with
 */
export async function inspectStore(uri: string): Promise<string> {
  if (uri === 'sqlite::memory:') return 'is kept in memory and is lost when the program stops';
  if (uri.startsWith('sqlite:')) return inspectSqlite(resolve(uri.slice('sqlite:'.length)));
  await (await import('./mongodb/store.js')).inspectMongodb(uri);
  return 'answers';
}

/**
 * Reads one collection of a store that `inspectStore` found nothing wrong with, and changes nothing: also of one that
 * another version is working on.
 *
 * @returns what `read` does; `null` where the store does not have the collection
 */
export async function readCollection<T extends { id: string }, R>(
  uri: string,
  name: string,
  read: (documents: Pick<Collection<T>, 'page'>) => Promise<R>,
): Promise<R | null> {
  if (uri === 'sqlite::memory:' || missingFile(uri) !== null) return null;
  if (uri.startsWith('sqlite:')) return readSqliteCollection(uri.slice('sqlite:'.length), name, read);
  return (await import('./mongodb/store.js')).readMongodbCollection(uri, name, read);
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
