/** The embedded engine: one SQLite file (or memory), shared safely by any number of processes. */
import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { Shape } from './checks.js';
import { type Store, StoreUnavailable } from './collection.js';
import { guarded } from './guarded.js';
import { createTable, hasTable, sqliteCollection } from './sqlite-collection.js';
import { Connection, type Database } from './sqlite-connection.js';
import { isBusy, whileBusy } from './sqlite-errors.js';

/** The layout of the file. Raise it when a file written so can no longer be read by what came before. */
export const SCHEMA = 1;

/** Milliseconds to wait for a lock before a call is refused. */
const PATIENCE = 5000;

/** SQLite's own wait blocks the event loop, hence 5 ms; the rest of the patience is spent on timers. */
const PRAGMAS = `
  PRAGMA busy_timeout = 5;
  PRAGMA cache_size = -65536;
  PRAGMA synchronous = FULL;
`;

type Driver = new (path: string, options?: { readOnly?: boolean }) => Database;

/** Opens (and creates) a database file, or `:memory:`. */
export async function openSqlite(path: string): Promise<Store> {
  return storeOn(await openDatabase(path));
}

/** A file (or memory) as this version lays it out, on a connection set up for it. */
export async function openDatabase(path: string): Promise<Database> {
  const file = path === ':memory:' ? path : resolve(path);
  const DatabaseSync = await loadDriver();
  if (file !== ':memory:') createPrivately(file);
  const db = await whileBusy(() => new DatabaseSync(file), PATIENCE);
  try {
    await whileBusy(() => setUp(db, file), PATIENCE);
  } catch (error) {
    db.close();
    throw error;
  }
  return db;
}

/**
 * The store on an open database, which is its own from now on.
 *
 * @param patience milliseconds to wait for a lock
 * @param now milliseconds that only go forward
 */
export function storeOn(db: Database, patience = PATIENCE, now = () => performance.now()): Store {
  const connection = new Connection(db, patience, now);
  const tables: (() => Promise<void> | undefined)[] = [];
  const writable = writableAgain(connection);
  return guarded({
    collection(shape) {
      const exists = tableOf(connection, shape);
      tables.push(exists);
      return sqliteCollection(shape, connection, exists);
    },
    async ready() {
      await Promise.all(tables.map((exists) => exists()));
      await writable();
      await connection.read(() => connection.sql('PRAGMA user_version').get());
    },
    close: () => connection.close(),
  });
}

/** Creates the table at the first use, once; a failure is tried again by the next use. */
function tableOf(connection: Connection, shape: Shape): () => Promise<void> | undefined {
  let created = false;
  let creating: Promise<void> | undefined;
  return () => {
    if (created) return undefined;
    creating ??= connection
      .read(() => hasTable(connection, shape))
      // Where others write to the file already, nobody need wait for their lock.
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

/** Bytes for which there must be room before a file that has refused a write counts as writable. */
const ROOM = 65_536;

/**
 * Once a write was refused: tries whether the file takes one again, with room to spare, because what is only written over
 * may still fit where nothing new does. A file that refuses nothing is not written to.
 */
function writableAgain(connection: Connection): () => Promise<void> {
  const run = (text: string): void => void connection.sql(text).run();
  let forgiven = 0;
  let trying: Promise<void> | undefined;
  const tryToWrite = async (): Promise<void> => {
    const { refusals } = connection;
    // No collection can have this name. In two commits: what is freed in the one that took it never reaches the disk.
    await connection.write(() => {
      run('CREATE TABLE IF NOT EXISTS "room to write" (filler)');
      run(`INSERT INTO "room to write" VALUES (zeroblob(${ROOM}))`);
    });
    await connection.write(() => run('DROP TABLE IF EXISTS "room to write"'));
    forgiven = refusals;
  };
  return async () => {
    if (connection.refusals === forgiven) return;
    trying ??= tryToWrite().finally(() => {
      trying = undefined;
    });
    await trying;
  };
}

/** Node's own SQLite where it needs no flag (22.13 and later), else its drop-in. */
export async function loadDriver(): Promise<Driver> {
  const emit = process.emitWarning;
  // Node calls its SQLite experimental on each start; whoever runs the server can do nothing about it.
  process.emitWarning = (warning: string | Error, ...rest: unknown[]): void => {
    const ours = rest[0] === 'ExperimentalWarning' && String(warning).startsWith('SQLite');
    if (!ours) Reflect.apply(emit, process, [warning, ...rest]);
  };
  try {
    const builtin = process.getBuiltinModule('node:sqlite');
    if (builtin) return (builtin as { DatabaseSync: Driver }).DatabaseSync;
  } finally {
    process.emitWarning = emit;
  }
  return (await import('@photostructure/sqlite')).DatabaseSync as unknown as Driver;
}

/** SQLite gives its log and shared memory the mode of the database file. */
function createPrivately(file: string): void {
  try {
    createFolder(dirname(file));
    // Only where there is none yet: to close any descriptor of a file drops all locks we hold on it.
    closeSync(openSync(file, 'ax', 0o600));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    const remedy = 'Name a file in a folder where this user may write.';
    throw new StoreUnavailable(`cannot create ${file}: ${code}`, { cause: error, remedy });
  }
}

/** Node's `recursive` tries for ever where a folder is refused with ENOENT although its parent exists: in /proc. */
function createFolder(folder: string): void {
  if (existsSync(folder)) return;
  createFolder(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // Another process was first.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

function setUp(db: Database, file: string): void {
  db.exec(PRAGMAS);
  try {
    layOut(db, file);
  } catch (error) {
    // Who writes to a file that is laid out may do so for long, and has shown that it can be written.
    if (!isBusy(error) || layoutOf(db, file) !== SCHEMA) throw error;
  }
  db.exec('PRAGMA journal_mode = WAL');
}

/** Writes also where nothing changes, so that a file that cannot be written is found at the start. */
function layOut(db: Database, file: string): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    layoutOf(db, file);
    db.exec(`PRAGMA user_version = ${SCHEMA}; COMMIT`);
  } catch (error) {
    try {
      db.exec('ROLLBACK');
    } catch {
      // SQLite has rolled back by itself; the first error is the one to tell.
    }
    throw error;
  }
}

/** The layout of a file, 0 where it is empty. @throws where it is none of ours */
function layoutOf(db: Database, file: string): number {
  const { version, tables } = db
    .prepare(
      'SELECT user_version AS version, (SELECT count(*) FROM sqlite_schema) AS tables FROM pragma_user_version',
    )
    .get() as { version: number; tables: number };
  if (version > SCHEMA) {
    throw new Error(
      `${file} was written by a newer version (layout ${version}, this one reads ${SCHEMA}): ` +
        'install that version again, or restore the backup made before it',
    );
  }
  if (version === 0 && tables > 0) {
    throw new Error(`${file} is the database of another program: name another file`);
  }
  return version;
}
