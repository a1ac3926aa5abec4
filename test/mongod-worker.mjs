/**
 * The mongod that all test processes share (`test/run.mjs`), in a thread of its own: mongod writes its log to a pipe, and stops
 * at the next line while nobody reads, for example while the main thread parses the results of a process.
 */
import { parentPort } from 'node:worker_threads';
import { startReplicaSet } from '../dist/test/kit/mongod.js';
import { serverPort } from '../dist/test/kit/port.js';

const set = await startReplicaSet({ ports: [await serverPort()] });
parentPort.once('message', async () => {
  await set.stop();
  parentPort.postMessage('stopped');
});
parentPort.postMessage(set.getUri());
