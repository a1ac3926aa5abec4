/** Runs the test files that `test/run.mjs` names in TEST_FILES, one after the other in this process. */
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';

// With a teardown outside of tests, tap would end as soon as it has no test, while a file prepares something for its first one.
Object.defineProperty(t, 'idle', { value: false, configurable: true });

for (const file of JSON.parse(process.env.TEST_FILES)) await import(pathToFileURL(resolve(file)).href);

delete t.idle;
if (t.idle) t.emit('idle');
