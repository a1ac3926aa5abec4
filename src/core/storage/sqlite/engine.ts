/** What the engine does with a URI. */
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { EngineModule } from '../checked-store.js';
import { loadDriver } from './driver.js';
import { tryDatabaseFile } from './file.js';
import { openSqlite, readSqliteCollection, sqliteCollectionNames, tryDatabase } from './store.js';

export const engine: EngineModule = {
  open: (uri) => openSqlite(pathOf(uri)),
  inspect: inspectSqlite,
  serverTime: async () => null,
  readCollection: (uri, shape, read) => readSqliteCollection(pathOf(uri), shape, read),
  collectionNames: (uri) => sqliteCollectionNames(pathOf(uri)),
};

function pathOf(uri: string): string {
  return uri.slice('sqlite:'.length);
}

/** Whether a program could use the file of a URI, without changing it. */
async function inspectSqlite(uri: string): Promise<string> {
  if (uri === 'sqlite::memory:') return 'is kept in memory and is lost when the program stops';
  const file = resolve(pathOf(uri));
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

/** The size of a file; `null` if it does not exist or is a folder. */
function sizeOf(path: string): number | null {
  try {
    const state = statSync(path);
    return state.isDirectory() ? null : state.size;
  } catch {
    return null;
  }
}
