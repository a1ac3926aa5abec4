/** Chooses the SQLite of this process. */
import { StoreUnavailable } from '../collection.js';
import type { Database } from './connection.js';

export type DatabaseClass = new (path: string, options?: { readOnly?: boolean }) => Database;

export interface Driver {
  DatabaseSync: DatabaseClass;
  /** Of SQLite. */
  version: string;
  /** The module that contains it. */
  module: string;
}

let loading: Promise<Driver> | undefined;

/**
 * Loads Node's own SQLite, else its drop-in. @throws StoreUnavailable if neither is safe for several connections
 */
export function loadDriver(): Promise<Driver> {
  loading ??= chooseDriver(
    loadBuiltin(),
    // Has the same interface with other types.
    async () => (await import('@photostructure/sqlite')).DatabaseSync as unknown as DatabaseClass,
  );
  return loading;
}

/** @param builtin is absent where Node has none, or requires a flag (before 22.13) */
export async function chooseDriver(
  builtin: DatabaseClass | undefined,
  loadDropIn: () => Promise<DatabaseClass>,
): Promise<Driver> {
  const own = builtin && describe(builtin, 'node:sqlite');
  if (own && isSafe(own.version)) return own;
  const found = [own?.version];
  let cause: unknown;
  try {
    const other = describe(await loadDropIn(), '@photostructure/sqlite');
    if (isSafe(other.version)) return other;
    found.push(other.version);
  } catch (error) {
    // There is no build for this platform.
    cause = error;
  }
  const versions = found.filter((version) => version !== undefined).join(' and ');
  throw new StoreUnavailable(
    versions === ''
      ? '@photostructure/sqlite cannot be loaded'
      : `SQLite ${versions} can damage a file that several connections use`,
    { cause, remedy: 'Install Node.js 22.22.3, 24.15 or later, or use a MongoDB database.' },
  );
}

function loadBuiltin(): DatabaseClass | undefined {
  const emit = process.emitWarning;
  // Node warns on each start that its SQLite is experimental, which the operator cannot change.
  process.emitWarning = (warning: string | Error, ...rest: unknown[]): void => {
    const isAboutSqlite = rest[0] === 'ExperimentalWarning' && String(warning).startsWith('SQLite');
    if (!isAboutSqlite) Reflect.apply(emit, process, [warning, ...rest]);
  };
  try {
    const builtin = process.getBuiltinModule('node:sqlite') as { DatabaseSync: DatabaseClass } | undefined;
    return builtin?.DatabaseSync;
  } finally {
    process.emitWarning = emit;
  }
}

/** Asks the library itself: a distribution may link another one than Node was built with. */
function describe(DatabaseSync: DatabaseClass, module: string): Driver {
  const db = new DatabaseSync(':memory:');
  try {
    const { version } = db.prepare('SELECT sqlite_version() AS version').get() as { version: string };
    return { DatabaseSync, version, module };
  } finally {
    db.close();
  }
}

/**
 * Whether a checkpoint cannot skip committed pages: fixed in 3.51.3, and in the branches 3.50 (from .7) and 3.44 (from .6).
 * https://sqlite.org/wal.html#the_wal_reset_bug
 */
function isSafe(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number);
  if (major !== 3 || minor > 51) return major >= 3;
  const { [minor]: fixed } = { 51: 3, 50: 7, 44: 6 } as Record<number, number>;
  return fixed !== undefined && patch >= fixed;
}
