/** Runs the test files that `test/run.mjs` names in TEST_FILES, one after the other in this process. */
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

for (const file of JSON.parse(process.env.TEST_FILES)) await import(pathToFileURL(resolve(file)).href);
