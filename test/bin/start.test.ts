import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';
import { words } from '../kit/words.js';

/** What a start of the programs loads. */

/** Packages of features that are not configured, or that no request has used. */
const LAZY = words(`
  @fastify/mongodb @node-rs/argon2 @observablehq/plot @simplewebauthn/server bcryptjs csv-stringify linkedom
  mongodb nodemailer openid-client otpauth prom-client stripe uqr`);

/** Prints the packages that are imported, in the thread of the hooks, and at exit those that are required. */
const HOOK = `
  import { createRequire, register } from 'node:module';
  import { writeSync } from 'node:fs';
  const seen = new Set();
  const report = (path) => {
    const [, name] = /.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)\\//.exec(path) ?? [];
    if (!name || seen.has(name)) return;
    seen.add(name);
    writeSync(1, '\\nloaded ' + name + '\\n');
  };
  const hooks = "import { writeSync } from 'node:fs'; const seen = new Set(); const report = " + report +
    '; export async function load(url, context, next) { report(url); return next(url, context); }';
  register('data:text/javascript,' + encodeURIComponent(hooks));
  const { cache } = createRequire(import.meta.url);
  process.on('exit', () => Object.keys(cache).forEach(report));
`;

for (const name of ['saas-backend', 'idp']) {
  t.test(`${name} loads no package of a feature that is not configured`, async (t) => {
    const cwd = temporaryFolder(t);
    const hook = join(cwd, 'hook.mjs');
    writeFileSync(hook, HOOK);
    const env = { NODE_OPTIONS: `--import=${hook}` };
    const program = startProgram(t, compiled(`bin/${name}.js`), { cwd, args: ['serve', '-p', '0'], env });
    await program.url();
    t.equal(await program.terminate(), 0);
    const loaded = new Set(program.lines.flatMap((line) => /^loaded (.+)$/.exec(line)?.[1] ?? []));
    t.ok(loaded.has('fastify'), 'the hook sees packages');
    t.same(
      LAZY.filter((one) => loaded.has(one)),
      [],
    );
  });
}
