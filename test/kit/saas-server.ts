/** `createServer` as a program: `node saas-server.js '<options as JSON>'`. */
import { createServer } from '../../src/saas/server.js';

await createServer(JSON.parse(process.argv[2] ?? '{}')).start();
