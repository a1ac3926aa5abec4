/** Checks whether a program could use a store, without changing it. */
import { statfsSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { shapeOf } from './checks.js';
import type { Collection, Declaration } from './collection.js';
import { missingFile } from './existing.js';
import { loadDriver } from './sqlite/driver.js';
import { tryDatabaseFile } from './sqlite/file.js';
import { readSqliteCollection, sqliteCollectionNames, tryDatabase } from './sqlite/store.js';

/**
 * Describes the state of a store.
 *
 * @param uri a URI that `storeUriProblem` accepts
 * @throws StoreUnavailable, or another error that would prevent the start
 */
export async function inspectStore(uri: string): Promise<string> {
  if (uri === 'sqlite::memory:') return 'is kept in memory and is lost when the program stops';
  if (uri.startsWith('sqlite:')) return inspectSqlite(resolve(uri.slice('sqlite:'.length)));
  await (await import('./mongodb/store.js')).inspectMongodb(uri);
  return 'answers';
}

/** The time of the database server of a store that `inspectStore` accepts; `null` if the database has no clock of its own. */
export async function serverTimeOf(uri: string): Promise<number | null> {
  return uri.startsWith('sqlite:') ? null : (await import('./mongodb/store.js')).mongodbTime(uri);
}

/**
 * Reads a collection of a store that `inspectStore` accepts, even while another version uses it. Changes nothing.
 *
 * @param declaration the fields that `read` uses in filters
 * @returns the result of `read`; `null` if the store does not have the collection or one of these fields
 */
export async function readCollection<T extends { id: string }, R>(
  uri: string,
  name: string,
  read: (documents: Pick<Collection<T>, 'page' | 'count'>) => Promise<R>,
  declaration: Declaration<T> = {},
): Promise<R | null> {
  if (uri === 'sqlite::memory:' || missingFile(uri) !== null) return null;
  const shape = shapeOf(name, declaration);
  if (uri.startsWith('sqlite:')) return readSqliteCollection(uri.slice('sqlite:'.length), shape, read);
  return (await import('./mongodb/store.js')).readMongodbCollection(uri, shape, read);
}

/** The names of the collections of an existing store, sorted. Changes nothing. */
export async function collectionNames(uri: string): Promise<string[]> {
  const names = uri.startsWith('sqlite:')
    ? await sqliteCollectionNames(uri.slice('sqlite:'.length))
    : await (await import('./mongodb/store.js')).mongodbCollectionNames(uri);
  // Other names belong to the engines.
  return names.filter((name) => /^[a-z]\w*$/i.test(name) && !name.startsWith('sqlite_')).sort();
}

async function inspectSqlite(file: string): Promise<string> {
  const size = sizeOf(file);
  const { version, module } = await loadDriver();
  const library = `(SQLite ${version} of ${module})`;
  if (size === null) {
    tryDatabaseFile(file);
    return `does not exist yet; the first start creates it ${library}`;
  }
  await tryDatabase(file);
  return `is there, ${(size / 2 ** 20).toFixed(1)} MiB ${library}`;
}

/** Free space below which a disk counts as full: a log of writes grows by some megabytes before it is moved into the file. */
const LOW_SPACE_MIB = 64;

/**
 * Describes that the disk of a SQLite file is nearly full; undefined if it is not, or if that is not known.
 *
 * @param freeBytesOf reads the free space of the disk of a folder
 */
export function lowSpace(
  uri: string,
  freeBytesOf: (folder: string) => number = freeBytes,
): { message: string; remedy: string } | undefined {
  if (!uri.startsWith('sqlite:') || uri === 'sqlite::memory:') return undefined;
  const folder = dirname(resolve(uri.slice('sqlite:'.length)));
  let free: number;
  try {
    free = freeBytesOf(folder) / 2 ** 20;
  } catch {
    // The folder does not exist yet, or the file system does not tell.
    return undefined;
  }
  if (free >= LOW_SPACE_MIB) return undefined;
  return {
    message: `names a file on a disk with ${Math.floor(free)} MiB left: when it is full, nothing can be written`,
    remedy: 'Free up disk space.',
  };
}

function freeBytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/** The size of a file; `null` if it does not exist or is a folder. */
function sizeOf(path: string): number | null {
  try {
    const state = statSync(path);
    return state.isDirectory() ? null : state.size;
  } catch {
    return null;
  }
}
