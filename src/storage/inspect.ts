/** From a store's URI to whether it could be opened, without creating or changing anything. */
import { accessSync, closeSync, constants, existsSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { StoreUnavailable } from './collection.js';
import { SCHEMA_VERSION } from './sqlite/store.js';

/** Of a SQLite file: its first 16 bytes, and where the layout stands (https://sqlite.org/fileformat2.html). */
const MAGIC = 'SQLite format 3\0';
const HEADER_BYTES = 100;
const USER_VERSION = 60;

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

function inspectSqlite(file: string): string {
  const state = statSync(file, { throwIfNoEntry: false });
  if (!state) {
    allow(nearestFolder(dirname(file)), 'Name a file in a folder where this user may write.');
    return 'does not exist yet; the first start creates it';
  }
  if (!state.isFile()) {
    throw new StoreUnavailable(`${file} is not a file`, { remedy: 'Name a file.' });
  }
  allow(file, 'Let this user read and write it.');
  allow(dirname(file), 'Let this user write in the folder: SQLite keeps its log beside the file.');
  if (state.size > 0) checkHeader(file);
  return `is there, ${(state.size / 2 ** 20).toFixed(1)} MiB`;
}

function checkHeader(file: string): void {
  const header = Buffer.alloc(HEADER_BYTES);
  const descriptor = openSync(file, 'r');
  try {
    readSync(descriptor, header, 0, HEADER_BYTES, 0);
  } finally {
    closeSync(descriptor);
  }
  if (header.toString('latin1', 0, MAGIC.length) !== MAGIC) {
    const remedy = 'Name another file, or restore the last backup.';
    throw new StoreUnavailable(`${file} is not a SQLite database`, { remedy });
  }
  const version = header.readUInt32BE(USER_VERSION);
  if (version > SCHEMA_VERSION) {
    const remedy = 'Install that version again, or restore the backup made before it.';
    throw new StoreUnavailable(`${file} was written by a newer version`, { remedy });
  }
  if (version === 0) {
    throw new StoreUnavailable(`${file} is the database of another program`, {
      remedy: 'Name another file.',
    });
  }
}

function allow(path: string, remedy: string): void {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new StoreUnavailable(`this user may not read and write ${path} (${code})`, { cause, remedy });
  }
}

/** The folder, or the one in which it would be created. */
function nearestFolder(folder: string): string {
  return existsSync(folder) ? folder : nearestFolder(dirname(folder));
}
