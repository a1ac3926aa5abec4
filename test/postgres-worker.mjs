/** The PostgreSQL server that all test processes share (`test/run.mjs`), in a thread of its own, like `mongod-worker.mjs`. */
import { parentPort } from 'node:worker_threads';
import { startPostgres } from '../dist/test/kit/postgres.js';

// Not synced: these tests kill processes, not the server.
const server = await startPostgres({ max_connections: '400', fsync: 'off' });
parentPort.once('message', async () => {
  await server.stop();
  parentPort.postMessage('stopped');
});
parentPort.postMessage(server.uri);
