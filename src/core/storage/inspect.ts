/** Checks whether a program could use a store, without changing it. */
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { ReadableCollection, ReadableDatabase } from './checked-store.js';
import { shapeOf } from './checks.js';
import type { Declaration } from './collection.js';
import { engineOf } from './engines.js';
import { fileOf, missingFile } from './existing.js';

/**
 * Describes the state of a store.
 *
 * @param uri a URI that `storeUriProblem` accepts
 * @throws StoreUnavailable, or another error that would prevent the start
 */
export async function inspectStore(uri: string): Promise<string> {
  return (await engineOf(uri).load()).inspect(uri);
}

/** Passes a store that `inspectStore` accepts to `step`, even while another version uses it; `null` if it does not exist. */
async function readDatabase<R>(
  uri: string,
  step: (database: ReadableDatabase) => Promise<R>,
): Promise<R | null> {
  if (uri === 'sqlite::memory:' || missingFile(uri) !== null) return null;
  return (await engineOf(uri).load()).read(uri, step);
}

/** The time of the database server of a store that `inspectStore` accepts; `null` if the database has no clock of its own. */
export function serverTimeOf(uri: string): Promise<number | null> {
  return readDatabase(uri, async ({ serverTime }) => (await serverTime?.()) ?? null);
}

/**
 * Reads a collection of a store that `inspectStore` accepts, even while another version uses it. Changes nothing.
 *
 * @param declaration the fields that `read` uses in filters
 * @returns the result of `read`; `null` if the store does not have the collection or one of these fields
 */
export function readCollection<T extends { id: string }, R>(
  uri: string,
  name: string,
  read: (documents: ReadableCollection<T>) => Promise<R>,
  declaration: Declaration<T> = {},
): Promise<R | null> {
  return readDatabase(uri, async (database) => {
    const documents = await database.collection<T>(shapeOf(name, declaration));
    return documents && (await read(documents));
  });
}

/** The names of the collections of an existing store, sorted. Changes nothing. */
export async function collectionNames(uri: string): Promise<string[]> {
  const names = (await readDatabase(uri, (database) => database.collectionNames())) ?? [];
  // Other names belong to the engines.
  return names.filter((name) => /^[a-z]\w*$/i.test(name) && !name.startsWith('sqlite_')).sort();
}

/** Free space below which a disk counts as full: a log of writes grows by some megabytes before it is moved into the file. */
const LOW_SPACE_MIB = 64;

/**
 * Describes that the disk of a SQLite file is nearly full; undefined if it is not, or if that is not known.
 *
 * @param freeBytesOf reads the free space of the disk of a folder
 */
export function lowDiskSpace(
  uri: string,
  freeBytesOf: (folder: string) => number = freeBytes,
): { message: string; remedy: string } | undefined {
  const file = fileOf(uri);
  if (file === null) return undefined;
  let free: number;
  try {
    free = freeBytesOf(dirname(file)) / 2 ** 20;
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
