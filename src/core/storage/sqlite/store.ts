/** The embedded engine: one SQLite file (or memory) that any number of processes can share. */
import { resolve } from 'node:path';
import { performance } from 'node:perf_hooks';
import { checkedStore } from '../checked-store.js';
import type { Shape } from '../checks.js';
import { type Collection, type Store, StoreUnavailable } from '../collection.js';
import { createTable, hasColumns, hasTable, sqliteCollection } from './collection.js';
import { Connection, type Database } from './connection.js';
import { loadDriver } from './driver.js';
import { isBusy, retryWhileBusy } from './errors.js';
import { createDatabaseFile } from './file.js';
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

/** Opens (and creates) a database file, or `:memory:`. */
export async function openSqlite(path: string): Promise<Store> {
  return createSqliteStore(await openDatabase(path));
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

/** Checks whether {@link openDatabase} would succeed for an existing file, without changing it. @throws the error of opening it */
export async function tryDatabase(file: string): Promise<void> {
  const { DatabaseSync } = await loadDriver();
  const db = await retryWhileBusy(() => new DatabaseSync(file), LOCK_TIMEOUT_MS);
  try {
    await retryWhileBusy(() => configure(db, file, 'ROLLBACK'), LOCK_TIMEOUT_MS);
  } finally {
    db.close();
  }
}

/**
 * Reads a collection of an existing file of any version, without creating tables, columns or indexes.
 *
 * @returns the result of `read`; `null` if the collection or one of its fields does not exist
 */
export async function readSqliteCollection<T extends { id: string }, R>(
  path: string,
  shape: Shape,
  read: (documents: Pick<Collection<T>, 'page' | 'count'>) => Promise<R>,
): Promise<R | null> {
  const { DatabaseSync } = await loadDriver();
  const db = await retryWhileBusy(() => new DatabaseSync(resolve(path)), LOCK_TIMEOUT_MS);
  const connection = new Connection(db, LOCK_TIMEOUT_MS, () => performance.now());
  try {
    await retryWhileBusy(() => db.exec(PRAGMAS), LOCK_TIMEOUT_MS);
    const isPresent = await connection.read(() => hasColumns(connection, shape));
    return isPresent ? await read(sqliteCollection<T>(shape, connection, () => undefined)) : null;
  } finally {
    await connection.close();
  }
}

/** The names of the tables of an existing file. */
export async function sqliteCollectionNames(path: string): Promise<string[]> {
  const { DatabaseSync } = await loadDriver();
  const db = await retryWhileBusy(() => new DatabaseSync(resolve(path)), LOCK_TIMEOUT_MS);
  const connection = new Connection(db, LOCK_TIMEOUT_MS, () => performance.now());
  try {
    const tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    const rows = await connection.read(() => connection.sql<{ name: string }>(tables).all());
    return rows.map(({ name }) => name);
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
  if (version > SCHEMA_VERSION) {
    throw new StoreUnavailable(
      `${file} was written by a newer version (layout ${version}, this one reads ${SCHEMA_VERSION})`,
      { remedy: 'Install that version again, or restore the backup made before it.' },
    );
  }
  if (version === 0 && tables > 0) {
    throw new StoreUnavailable(`${file} belongs to another program`, {
      remedy: 'Choose another file.',
    });
  }
  return version;
}
