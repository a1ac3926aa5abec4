/**
 * Runs the tests of the gate again and again beside programs that keep the processors busy, and lists what differed:
 *
 *   npm run test:flaky -- [--rounds 10] [dist/test/<folder>/<file>.test.js ...]
 *
 * Exits with 1 if a test failed in some rounds.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { filesOfSuite } from '../.ci/sections.mjs';

const { values, positionals } = parseArgs({
  options: { rounds: { type: 'string', default: '10' } },
  allowPositionals: true,
});
const rounds = Number(values.rounds);
const files = positionals.length > 0 ? positionals : [...filesOfSuite('tests'), ...filesOfSuite('programs')];
const folder = mkdtempSync(join(tmpdir(), 'saas-backend-flaky-'));

const busy = Array.from({ length: availableParallelism() }, () =>
  spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
);
process.once('exit', () => {
  for (const child of busy) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

/** Of each failed test, the rounds in which it failed. */
const failures = new Map();
for (let round = 1; round <= rounds; round++) {
  console.log(`\nRound ${round} of ${rounds}`);
  const results = join(folder, `${round}.json`);
  const child = spawn(process.execPath, ['test/run.mjs', '--results', results, ...files], {
    stdio: 'inherit',
  });
  const [code] = await once(child, 'close');
  if (code !== 0 && code !== 1) throw new Error(`test/run.mjs ended with exit code ${code}`);
  for (const { failures: titles } of JSON.parse(readFileSync(results, 'utf8')))
    for (const title of titles) failures.set(title, [...(failures.get(title) ?? []), round]);
}

console.log(failures.size === 0 ? `\nNo test failed in ${rounds} rounds.` : '\nFailed in rounds');
for (const [title, failed] of failures) console.log(`${failed.join(', ')}: ${title}`);
process.exit(failures.size === 0 ? 0 : 1);
