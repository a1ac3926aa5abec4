/** Copies a SQLite file at one point in time, even while other processes write to it. */
import { once } from 'node:events';
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { StoreUnavailable } from '../collection.js';
import { loadDriver } from './driver.js';
import { toStoreError } from './errors.js';

/** Progress in bytes. A copy has about the size of its source without free pages. */
export type BackupProgress = (written: number, source: number) => void;

const THREAD = `
  const { workerData: [file, source, target] } = require('node:worker_threads');
  import(file).then(({ vacuum }) => vacuum(source, target));
`;

const PROGRESS_INTERVAL_MS = 200;

/** Copies `source` to the new file `target`, which gets its name once it is complete and synced. */
export async function backupSqlite(
  source: string,
  target: string,
  onProgress: BackupProgress,
): Promise<void> {
  const partial = `${target}.partial`;
  reserve(partial);
  try {
    // Checked after the reservation, so that the second of two concurrent backups fails.
    if (existsSync(target)) throw taken(target);
    const report = () => onProgress(statSync(partial).size, statSync(source).size);
    const timer = setInterval(report, PROGRESS_INTERVAL_MS);
    // The copy blocks its thread.
    const worker = new Worker(THREAD, { eval: true, workerData: [import.meta.url, source, partial] });
    await once(worker, 'exit').finally(() => clearInterval(timer));
    sync(partial, 'r+');
    renameSync(partial, target);
    // Windows cannot sync a folder: its file system has a journal for names.
    if (process.platform !== 'win32') sync(dirname(target), 'r');
  } catch (error) {
    rmSync(partial, { force: true });
    throw toStoreError(error);
  }
}

/** Runs in a worker. SQLite's default cache is small, so the file grows steadily, which shows the progress. */
export async function vacuum(source: string, target: string): Promise<void> {
  const { DatabaseSync } = await loadDriver();
  const db = new DatabaseSync(source, { readOnly: true });
  try {
    db.exec('PRAGMA busy_timeout = 5000');
    db.prepare('VACUUM INTO ?').run(target);
  } finally {
    db.close();
  }
}

function reserve(partial: string): void {
  try {
    closeSync(openSync(partial, 'wx', 0o600));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') throw taken(partial);
    const remedy = 'Choose a file in an existing folder where this user can write.';
    throw new StoreUnavailable(`cannot create ${partial}: ${code}`, { cause: error, remedy });
  }
}

function taken(file: string): StoreUnavailable {
  return new StoreUnavailable(`${file} exists`, { remedy: 'Choose another file, or move the existing one.' });
}

/** @param flags on Windows, only a writable file can be synced */
function sync(path: string, flags: 'r' | 'r+'): void {
  const descriptor = openSync(path, flags);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
