/**
 * The provider as a program with a clock controlled by the test: `node rotation-worker.js '{ clockFile, …options }'`.
 * SIGTERM ends it like the real program.
 */
import { readFileSync } from 'node:fs';
import { createIdentityServer } from '../../../src/idp/server.js';

const { clockFile, ...options } = JSON.parse(process.argv[2] ?? '{}');
const clock = { now: () => Number(readFileSync(clockFile, 'utf8')) };
const server = createIdentityServer({ ...options, clock });
process.once('SIGTERM', () => server.stop());
const { url } = await server.start();
console.log(`listening at ${url}`);
