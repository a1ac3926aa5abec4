/** One of the two servers without limits on the number of requests, which the programs do not offer. */
import { createIdentityServer, createServer } from '../src/index.js';

const [name, port] = process.argv.slice(2);
const options = { host: '127.0.0.1', port: Number(port), limits: false };
const server = name === 'idp' ? createIdentityServer(options) : createServer(options);
process.once('SIGTERM', () => void server.stop());
await server.start();
