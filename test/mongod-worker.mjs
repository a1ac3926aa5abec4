/**
 * The mongod that all test processes share (`test/run.mjs`), in a thread of its own: mongod writes its log to a pipe, and stops
 * at the next line while nobody reads, for example while the main thread parses the results of a process.
 */
import { parentPort } from 'node:worker_threads';
import { MongoMemoryReplSet } from 'mongodb-memory-server-core';

process.env.MONGOMS_SYSTEM_BINARY_VERSION_CHECK ??= 'false';
const set = await MongoMemoryReplSet.create({
  replSet: { storageEngine: 'wiredTiger' },
  instanceOpts: [{ launchTimeout: 120_000 }],
});
parentPort.once('message', async () => {
  await set.stop();
  parentPort.postMessage('stopped');
});
parentPort.postMessage(set.getUri());
