/**
 * Breaks the compiled product, one defect at a time and in a copy, and runs the tests that must notice.
 * `MUTANT=text` tries only the defects with that text in their names, `MUTANT_SHARE=3` every third of them, and
 * `MUTANT_ROUNDS=20` each of them as many times: a test that notices a defect only sometimes counts as one that does not.
 *
 * @typedef {{ name: string, file: string, text: string, replacement: string, tests: [file: string, name: string][] }} Mutant
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * Exits with 1 if a mutant survives, if its text does not occur exactly once, or if a test fails without a mutant.
 *
 * @param {string} room the folder below `src` and `test` that all of them are in
 * @param {Mutant[]} mutants
 */
export function runMutants(room, mutants) {
  const rounds = Number(process.env.MUTANT_ROUNDS ?? 1);
  const share = Number(process.env.MUTANT_SHARE ?? 1);
  const tried = mutants
    .filter(({ name }) => name.includes(process.env.MUTANT ?? ''))
    .filter((_, index) => index % share === 0);
  const copy = copyBuild();
  for (const mutant of mutants)
    replaceOnce(readFileSync(join(copy, 'dist/src', room, mutant.file), 'utf8'), mutant);
  /** The failure of each round, null if there was none. */
  const run = (test) => Array.from({ length: rounds }, () => firstFailure(copy, room, test));

  const wanted = new Map(tried.flatMap(({ tests }) => tests).map((test) => [test.join(), test]));
  for (const test of wanted.values()) {
    const failure = run(test).find((failure) => failure !== null);
    if (failure) fail(`Without any mutant '${test[1]}' fails: ${failure}`);
  }
  const hasMongod = !existsSync(join(copy, 'dist/skipped/mongodb.txt'));

  let survivors = 0;
  for (const mutant of tried) {
    console.log(mutant.name);
    const module = join(copy, 'dist/src', room, mutant.file);
    const original = readFileSync(module, 'utf8');
    writeFileSync(module, replaceOnce(original, mutant));
    for (const test of mutant.tests) {
      if (!hasMongod && test[0] === 'mongodb') {
        console.log('  not tried on MongoDB: there is no mongod (docs/storage.md)');
        continue;
      }
      const failures = run(test).filter((failure) => failure !== null);
      if (failures.length < rounds) survivors++;
      const times = rounds > 1 ? ` (${rounds - failures.length} of ${rounds} times)` : '';
      console.log(
        failures.length < rounds ? `  SURVIVED '${test[1]}'${times}` : `  caught by: ${failures[0]}`,
      );
    }
    writeFileSync(module, original);
  }
  if (survivors > 0) fail(`${survivors} survived`);
}

/** A copy of the build that can be changed, until this process ends. */
export function copyBuild() {
  const root = fileURLToPath(new URL('..', import.meta.url));
  const copy = mkdtempSync(join(tmpdir(), 'saas-backend-mutants-'));
  process.once('exit', () => rmSync(copy, { recursive: true, force: true }));
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
  for (const name of ['dist', 'lists', 'templates', 'docs/openapi', 'package.json'])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

/**
 * A module with the defect. Exits with 1 unless the text to replace stands in it once.
 *
 * @param {string} original
 * @param {Pick<Mutant, 'file' | 'text' | 'replacement'>} mutant
 */
export function replaceOnce(original, { file, text, replacement }) {
  if (original.split(text).length !== 2) fail(`The text to replace does not stand once in ${file}:\n${text}`);
  return original.replace(text, () => replacement);
}

/** The first failing assertion of one test; null if all pass. */
function firstFailure(copy, room, [file, name]) {
  const pattern = name.replace(/[[\]]/g, '\\$&');
  // A test that is killed leaves its databases behind, of 300 MB each.
  const temporary = mkdtempSync(join(copy, 'tmp-'));
  const { pid, status, stdout, stderr } = spawnSync(process.execPath, [`dist/test/${room}/${file}.test.js`], {
    cwd: copy,
    encoding: 'utf8',
    detached: true,
    env: {
      ...process.env,
      TMPDIR: temporary,
      TAP: '1',
      TAP_BAIL: '1',
      TAP_TIMEOUT: '120',
      TAP_GREP: `/^${pattern}/`,
    },
  });
  endGroup(pid);
  rmSync(temporary, { recursive: true, force: true });
  const lines = stdout.split('\n');
  // A filter that matches no test proves nothing.
  const isSkipped = file === 'mongodb' && existsSync(join(copy, 'dist/skipped/mongodb.txt'));
  const ran = isSkipped || lines.some((line) => line.startsWith(`# Subtest: ${name}`));
  if (status === 0) return ran ? null : fail(`There is no test '${name}' in ${file}.test.ts`);
  const index = lines.findIndex((line) => /^ *not ok /.test(line));
  const group = lines.slice(0, Math.max(0, index)).findLast((line) => /^ *# Subtest: /.test(line)) ?? name;
  const assertion = lines[index]?.replace(/^ *not ok \d+ - /, '') ?? stderr.trim().split('\n').at(-1);
  return `${group.replace(/^ *# Subtest: /, '')}: ${assertion}`;
}

/** A test that ends at its first failure leaves its programs running. */
export function endGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    // All of them have already ended.
    if (error.code !== 'ESRCH') throw error;
  }
}

function fail(reason) {
  console.error(reason);
  process.exit(1);
}
