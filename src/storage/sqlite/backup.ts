/** A copy of a SQLite file as it is at one moment, whoever writes to it meanwhile. */
import { once } from 'node:events';
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { BackupProgress } from '../backup.js';
import { StoreUnavailable } from '../collection.js';
import { toStoreError } from './errors.js';
import { loadDriver } from './store.js';

const THREAD = `
  const { workerData: [module, source, target] } = require('node:worker_threads');
  import(module).then(({ vacuum }) => vacuum(source, target));
`;

/** Milliseconds between two reports of progress. */
const INTERVAL = 200;

/** Copies `source` to the new file `target`, which appears under its name only once it is complete and on disk. */
export async function backupSqlite(
  source: string,
  target: string,
  onProgress: BackupProgress,
): Promise<void> {
  const partial = `${target}.partial`;
  reserve(partial);
  try {
    // After the reservation, so that of two backups to one name the second is refused at the latest here.
    if (existsSync(target)) throw taken(target);
    const report = () => onProgress(statSync(partial).size, statSync(source).size);
    const timer = setInterval(report, INTERVAL);
    // The copy blocks its thread for as long as it takes.
    const worker = new Worker(THREAD, { eval: true, workerData: [import.meta.url, source, partial] });
    await once(worker, 'exit').finally(() => clearInterval(timer));
    sync(partial);
    renameSync(partial, target);
    sync(dirname(target));
  } catch (error) {
    rmSync(partial, { force: true });
    throw toStoreError(error);
  }
}

/** Runs in a thread of its own. It can only read, and keeps SQLite's small cache: the copy grows visibly. */
export async function vacuum(source: string, target: string): Promise<void> {
  const DatabaseSync = await loadDriver();
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

function sync(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
