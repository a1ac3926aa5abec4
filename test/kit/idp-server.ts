/** `createIdentityServer` as a program: `node idp-server.js '<options as JSON>'`. */
import { createIdentityServer } from '../../src/idp/server.js';

await createIdentityServer(JSON.parse(process.argv[2] ?? '{}')).start();
