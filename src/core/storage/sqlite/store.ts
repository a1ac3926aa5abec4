/** The embedded engine: one SQLite file (or memory) that any number of processes can share. */
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { performance } from 'node:perf_hooks';
import {
  checkedStore,
  type EngineModule,
  type ReadableDatabase,
  rejectNewerLayout,
} from '../checked-store.js';
import type { Shape } from '../checks.js';
import { type Store, StoreUnavailable } from '../collection.js';
import { createTable, hasColumns, hasTable, sqliteCollection } from './collection.js';
import { Connection, type Database } from './connection.js';
import { loadDriver } from './driver.js';
import { isBusy, retryWhileBusy } from './errors.js';
import { createDatabaseFile, tryDatabaseFile } from './file.js';
import { commit, type SqliteWrite } from './writes.js';

/** Version of the file layout. Increment it when older versions can no longer read the file. */
const SCHEMA_VERSION = 1;

/** How long a call waits for a lock before it fails. */
const LOCK_TIMEOUT_MS = 5000;

/** SQLite's own busy timeout blocks the event loop, so it is 5 ms; longer waits use timers. */
const PRAGMAS = `
  PRAGMA busy_timeout = 5;
  PRAGMA cache_size = -65536;
  PRAGMA synchronous = FULL;
`;

export const engine: EngineModule = {
  open: async (uri) => createSqliteStore(await openDatabase(pathOf(uri))),
  inspect: inspectSqlite,
  read: readSqlite,
};

function pathOf(uri: string): string {
  return uri.slice('sqlite:'.length);
}

/** Opens a file (or memory) in this version's layout and configures the connection. */
export async function openDatabase(path: string): Promise<Database> {
  const file = path === ':memory:' ? path : resolve(path);
  const { DatabaseSync } = await loadDriver();
  if (file !== ':memory:') createDatabaseFile(file);
  const db = await retryWhileBusy(() => new DatabaseSync(file), LOCK_TIMEOUT_MS);
  try {
    await retryWhileBusy(() => configure(db, file), LOCK_TIMEOUT_MS);
    await retryWhileBusy(() => db.exec('PRAGMA journal_mode = WAL'), LOCK_TIMEOUT_MS);
  } catch (error) {
    db.close();
    throw error;
  }
  return db;
}

/** Whether a program could use the file of a URI, without changing it. */
async function inspectSqlite(uri: string): Promise<string> {
  if (uri === 'sqlite::memory:') return 'is kept in memory and is lost when the program stops';
  const file = resolve(pathOf(uri));
  const size = sizeOf(file);
  const { DatabaseSync, version, module } = await loadDriver();
  const library = `(SQLite ${version} of ${module})`;
  if (size === null) {
    tryDatabaseFile(file);
    return `does not exist yet; the first start creates it ${library}`;
  }
  const db = await retryWhileBusy(() => new DatabaseSync(file), LOCK_TIMEOUT_MS);
  try {
    await retryWhileBusy(() => configure(db, file, 'ROLLBACK'), LOCK_TIMEOUT_MS);
  } finally {
    db.close();
  }
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

/** Without creating tables, columns or indexes. */
async function readSqlite<R>(uri: string, step: (database: ReadableDatabase) => Promise<R>): Promise<R> {
  const { DatabaseSync } = await loadDriver();
  const db = await retryWhileBusy(() => new DatabaseSync(resolve(pathOf(uri))), LOCK_TIMEOUT_MS);
  const connection = new Connection(db, LOCK_TIMEOUT_MS, () => performance.now());
  try {
    await retryWhileBusy(() => db.exec(PRAGMAS), LOCK_TIMEOUT_MS);
    return await step({
      async collection<T extends { id: string }>(shape: Shape) {
        const isPresent = await connection.read(() => hasColumns(connection, shape));
        return isPresent ? sqliteCollection<T>(shape, connection, () => undefined) : null;
      },
      async collectionNames() {
        // Names of collections contain no spaces, and those of the indexes of texts do.
        const tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '% %'";
        const rows = await connection.read(() => connection.sql<{ name: string }>(tables).all());
        return rows.map(({ name }) => name);
      },
    });
  } finally {
    await connection.close();
  }
}

/**
 * Creates the store on an open database and takes ownership of it.
 *
 * @param lockTimeoutMs how long a call waits for a lock
 * @param now a monotonic clock, in milliseconds
 */
export function createSqliteStore(
  db: Database,
  lockTimeoutMs = LOCK_TIMEOUT_MS,
  now = () => performance.now(),
): Store {
  const connection = new Connection(db, lockTimeoutMs, now);
  const tables: (() => Promise<void> | undefined)[] = [];
  const writable = createWriteProbe(connection);
  return checkedStore({
    collection(shape) {
      const exists = tableOf(connection, shape);
      tables.push(exists);
      return sqliteCollection(shape, connection, exists);
    },
    commit: (writes) => commit(connection, writes as readonly SqliteWrite[]),
    async ready() {
      await Promise.all(tables.map((exists) => exists()));
      await writable();
      await connection.read(() => readSchemaVersion(db, 'the database file'));
    },
    close: () => connection.close(),
  });
}

/** Creates the table once, at its first use; after a failure, the next use tries again. */
function tableOf(connection: Connection, shape: Shape): () => Promise<void> | undefined {
  let created = false;
  let creating: Promise<void> | undefined;
  return () => {
    if (created) return undefined;
    creating ??= connection
      .read(() => hasTable(connection, shape))
      // An existing table needs no write lock, which other processes may hold.
      .then((isThere) => (isThere ? undefined : connection.write(() => createTable(connection, shape))))
      .then(() => {
        created = true;
      })
      .finally(() => {
        creating = undefined;
      });
    return creating;
  };
}

/** Free bytes required before a file that rejected a write counts as writable again. */
const PROBE_BYTES = 65_536;

/**
 * After a rejected write, checks whether the file is writable again. The probe needs free space, because overwriting a
 * page may succeed where adding one does not. Without a rejected write, nothing is written.
 */
function createWriteProbe(connection: Connection): () => Promise<void> {
  const run = (text: string): void => void connection.sql(text).run();
  let probedRefusals = 0;
  let trying: Promise<void> | undefined;
  const probe = async (): Promise<void> => {
    const { refusals } = connection;
    // Collection names contain no spaces, so this name is free. Two commits, because pages that one transaction both
    // allocates and frees are never written.
    await connection.write(() => {
      run('CREATE TABLE IF NOT EXISTS "room to write" (filler)');
      run(`INSERT INTO "room to write" VALUES (zeroblob(${PROBE_BYTES}))`);
    });
    await connection.write(() => run('DROP TABLE IF EXISTS "room to write"'));
    probedRefusals = refusals;
  };
  return async () => {
    if (connection.refusals === probedRefusals) return;
    trying ??= probe().finally(() => {
      trying = undefined;
    });
    await trying;
  };
}

function configure(db: Database, file: string, end: 'COMMIT' | 'ROLLBACK' = 'COMMIT'): void {
  db.exec(PRAGMAS);
  try {
    writeSchemaVersion(db, file, end);
  } catch (error) {
    // A busy file in the current layout is writable: another process is writing to it.
    if (!isBusy(error) || readSchemaVersion(db, file) !== SCHEMA_VERSION) throw error;
  }
}

/** Writes the version even if it is unchanged, so that a read-only file is detected at start. */
function writeSchemaVersion(db: Database, file: string, end: 'COMMIT' | 'ROLLBACK'): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    readSchemaVersion(db, file);
    db.exec(`PRAGMA user_version = ${SCHEMA_VERSION}; ${end}`);
  } catch (error) {
    try {
      db.exec('ROLLBACK');
    } catch {
      // SQLite has rolled back by itself; the first error is the one to report.
    }
    throw error;
  }
}

/** The layout version of a file; 0 when it is empty. @throws for files of newer versions or other programs */
function readSchemaVersion(db: Database, file: string): number {
  const { version, tables } = db
    .prepare(
      'SELECT user_version AS version, (SELECT count(*) FROM sqlite_schema) AS tables FROM pragma_user_version',
    )
    .get() as { version: number; tables: number };
  rejectNewerLayout(file, version, SCHEMA_VERSION);
  if (version === 0 && tables > 0) {
    throw new StoreUnavailable(`${file} belongs to another program`, {
      remedy: 'Choose another file.',
    });
  }
  return version;
}
