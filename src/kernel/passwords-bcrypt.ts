import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { compareSync } from 'bcryptjs';

/** bcrypt in JavaScript takes its thread for as long as it runs, so it gets one that serves nobody else. */

const THREAD = `
  const { parentPort, workerData: [module, password, hash] } = require('node:worker_threads');
  import(module).then(({ compareHere }) => parentPort.postMessage(compareHere(password, hash)));
`;

/** Whether the password, or its first 72 bytes, is the one that was hashed. */
export async function compare(password: string, hash: string): Promise<boolean> {
  const worker = new Worker(THREAD, { eval: true, workerData: [import.meta.url, password, hash] });
  try {
    const [isSame] = await once(worker, 'message');
    return isSame === true;
  } finally {
    await worker.terminate();
  }
}

/** Runs in the thread. */
export const compareHere: (password: string, hash: string) => boolean = compareSync;
