import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { compareSync } from 'bcryptjs';

/** bcrypt in JavaScript takes its thread for as long as it runs, so it gets one that serves nobody else. */

const THREAD = `
  const { parentPort, workerData: [module, ...rest] } = require('node:worker_threads');
  import(module).then(({ compareHere }) => parentPort.postMessage(compareHere(...rest)));
`;

/**
 * Whether the password, or its first 72 bytes, is the one that was hashed.
 *
 * @param decoys compared as well with a wrong password, so that it takes longer
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

/** Runs in the thread. */
export function compareHere(password: string, hash: string, decoys: readonly string[]): boolean {
  if (compareSync(password, hash)) return true;
  for (const decoy of decoys) compareSync(password, decoy);
  return false;
}
