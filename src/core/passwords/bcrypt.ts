import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { compareSync } from 'bcryptjs';

/** bcrypt in JavaScript blocks its thread, so it runs in a worker. */

const THREAD = `
  const { parentPort, workerData: [file, ...rest] } = require('node:worker_threads');
  import(file).then(({ compareInWorker }) => parentPort.postMessage(compareInWorker(...rest)));
`;

/**
 * Verifies a password, of which bcrypt uses the first 72 bytes.
 *
 * @param decoys verified as well if the password is wrong, to equalize the time
 */
export async function compare(password: string, hash: string, decoys: readonly string[]): Promise<boolean> {
  const worker = new Worker(THREAD, { eval: true, workerData: [import.meta.url, password, hash, decoys] });
  try {
    const [isSame] = await once(worker, 'message');
    return isSame === true;
  } finally {
    await worker.terminate();
  }
}

/** Runs in the worker. */
export function compareInWorker(password: string, hash: string, decoys: readonly string[]): boolean {
  if (compareSync(password, hash)) return true;
  for (const decoy of decoys) compareSync(password, decoy);
  return false;
}
