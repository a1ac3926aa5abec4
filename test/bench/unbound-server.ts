/** One of the two servers without limits on the number of requests, which the programs do not offer. */
import cluster from 'node:cluster';
import { createIdentityServer, createServer } from '../../src/index.js';

const [name, port, workers = '1'] = process.argv.slice(2);
if (cluster.isPrimary && Number(workers) > 1) {
  for (let index = 0; index < Number(workers); index++) cluster.fork();
  // The workers end with it.
  process.once('SIGTERM', () => process.exit());
} else {
  const options = { host: '127.0.0.1', port: Number(port), limits: false };
  const server = name === 'idp' ? createIdentityServer(options) : createServer(options);
  process.once('SIGTERM', () => void server.stop());
  await server.start();
}
