// `npm run test:mutants`: breaks the engines on purpose, one way at a time, in a copy of what was built, and has
// the tests that must notice run on it. Ends with 1 when they do not, or when a text to replace is not where it was.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Test file and the beginning of a test's name. */
const SQLITE = { races: ['sqlite', 'sqlite: races'], refusals: ['sqlite', 'sqlite: refusals'] };
const MONGODB = { races: ['mongodb', 'mongodb: races'], refusals: ['mongodb', 'mongodb: refusals'] };

const mutants = [
  {
    name: 'SQLite: updateOne reads, and then writes under the lock what it has read',
    file: 'sqlite-collection.js',
    text: `updateOne(where, change) {
            const clause = clauseOf(where);
            return write(() => {
                const found = find(clause);`,
    replacement: `async updateOne(where, change) {
            const clause = clauseOf(where);
            const found = await read(() => find(clause));
            return write(() => {`,
    tests: [SQLITE.races],
  },
  {
    name: 'SQLite: a transaction takes the write lock only when it writes',
    file: 'sqlite-connection.js',
    text: "'BEGIN IMMEDIATE'",
    replacement: "'BEGIN'",
    tests: [SQLITE.races],
  },
  {
    name: 'SQLite: commits are not synced',
    file: 'sqlite.js',
    text: 'synchronous = FULL',
    replacement: 'synchronous = OFF',
    tests: [['sqlite', 'the file is whole after a kill, and commits are synced']],
  },
  {
    name: 'SQLite: writes are acknowledged before their commit',
    file: 'sqlite-connection.js',
    text: `this.sql('COMMIT').run();
            for (const tell of settle)
                tell();`,
    replacement: `for (const tell of settle)
                tell();
            this.sql('COMMIT').run();`,
    tests: [['sqlite', 'when the commit fails, every write of it is refused']],
  },
  {
    name: 'both: a filter may ask for undefined',
    file: 'checks.js',
    text: `export function valueProblem(value) {
    if (typeof value === 'boolean')`,
    replacement: `export function valueProblem(value) {
    if (typeof value === 'boolean' || value === undefined)`,
    tests: [SQLITE.refusals, MONGODB.refusals],
  },
  {
    name: 'MongoDB: updateOne reads, and then writes what it has read',
    file: 'mongodb-collection.js',
    text: 'await collection.findOneAndUpdate(allOf(filter, ...guards), ',
    replacement: `await collection.findOneAndUpdate(
                        { _id: (await collection.findOne(allOf(filter, ...guards)))?._id ?? '' }, `,
    tests: [MONGODB.races],
  },
  {
    name: 'MongoDB: writes are acknowledged before the majority has them in its journal',
    file: 'mongodb.js',
    text: "w: 'majority', j: true,",
    replacement: 'w: 1, j: false,',
    tests: [['mongodb', "a host's client is used and left open"]],
  },
];

const root = fileURLToPath(new URL('../..', import.meta.url));
const copy = mkdtempSync(join(tmpdir(), 'saas-backend-mutants-'));
process.once('exit', () => rmSync(copy, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
for (const name of ['dist', 'package.json']) cpSync(join(root, name), join(copy, name), { recursive: true });
symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));

const wanted = new Map(mutants.flatMap(({ tests }) => tests).map((test) => [test.join(), test]));
for (const test of wanted.values()) {
  const failure = run(test);
  if (failure) fail(`Without any mutant '${test[1]}' fails: ${failure}`);
}
const hasMongod = !existsSync(join(copy, 'dist/skipped/mongodb.txt'));

let survivors = 0;
for (const mutant of mutants) {
  console.log(mutant.name);
  const module = join(copy, 'dist/src/storage', mutant.file);
  const original = readFileSync(module, 'utf8');
  if (original.split(mutant.text).length !== 2)
    fail(`The text to replace does not stand once in ${mutant.file}:\n${mutant.text}`);
  writeFileSync(
    module,
    original.replace(mutant.text, () => mutant.replacement),
  );
  for (const test of mutant.tests) {
    if (!hasMongod && test[0] === 'mongodb') {
      console.log('  not tried on MongoDB: there is no mongod (docs/storage.md)');
      continue;
    }
    const failure = run(test);
    if (!failure) survivors++;
    console.log(failure ? `  caught by: ${failure}` : `  SURVIVED '${test[1]}'`);
  }
  writeFileSync(module, original);
}
if (survivors > 0) fail(`${survivors} survived`);

/** The first failing assertion of one test; null when all of it holds. */
function run([file, name]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [`dist/test/storage/${file}.test.js`], {
    cwd: copy,
    encoding: 'utf8',
    env: { ...process.env, TAP: '1', TAP_BAIL: '1', TAP_TIMEOUT: '60', TAP_GREP: `/^${name}/` },
  });
  const lines = stdout.split('\n');
  // A filter that lets nothing run proves nothing.
  const ran = lines.some(
    (line) => line.startsWith(`# Subtest: ${name}`) || line.includes('there is no mongod'),
  );
  if (status === 0) return ran ? null : fail(`There is no test '${name}' in ${file}.test.ts`);
  const index = lines.findIndex((line) => /^ *not ok /.test(line));
  const group = lines.slice(0, index).findLast((line) => /^ *# Subtest: /.test(line)) ?? name;
  const assertion = lines[index]?.replace(/^ *not ok \d+ - /, '') ?? stderr.trim().split('\n').at(-1);
  return `${group.replace(/^ *# Subtest: /, '')}: ${assertion}`;
}

function fail(reason) {
  console.error(reason);
  process.exit(1);
}
