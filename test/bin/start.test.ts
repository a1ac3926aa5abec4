import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** What a start of the programs loads beside the bundle. */

/** Cannot be bundled: SQLite without `node:sqlite`, and password hashing with the libraries that it loads. */
const NATIVE = ['@photostructure/sqlite', 'argon2', '@phc/format', 'node-gyp-build'];

/** Prints the packages that are imported, in the thread of the hooks, and at exit those that are required. */
const HOOK = `
  import { createRequire, register } from 'node:module';
  import { writeSync } from 'node:fs';
  const report = (path) => {
    const [, name] = /.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)\\//.exec(path) ?? [];
    if (name) writeSync(1, '\\nloaded ' + name + '\\n');
  };
  const hooks = "import { writeSync } from 'node:fs'; const report = " + report +
    '; export async function load(url, context, next) { report(url); return next(url, context); }';
  register('data:text/javascript,' + encodeURIComponent(hooks));
  const { cache } = createRequire(import.meta.url);
  process.on('exit', () => Object.keys(cache).forEach(report));
`;

for (const name of ['saas-backend', 'idp']) {
  t.test(`${name} finds every package that each start loads in the bundle, except native ones`, async (t) => {
    const cwd = temporaryFolder(t);
    const hook = join(cwd, 'hook.mjs');
    writeFileSync(hook, HOOK);
    const script = compiled(`package/bin/${name}.js`);
    const env = { NODE_OPTIONS: `--import=${hook}` };
    const program = startProgram(t, script, { cwd, args: ['serve', '-p', '0'], env });
    await program.url();
    t.equal(await program.terminate(), 0);
    const loaded = program.lines.flatMap((line) => /^loaded (.+)$/.exec(line)?.[1] ?? []);
    t.ok(loaded.includes('argon2'), 'the hook sees packages');
    const others = [...new Set(loaded)].filter((one) => !NATIVE.includes(one));
    t.same(others, [], 'see IN_PROGRAMS in bundle.mjs');
  });
}
