/**
 * Breaks the product, one defect at a time, and runs the tests that must notice. A mutant is an edit of the source, in
 * `test/<folder>/mutants.mjs`. It is made in a copy, of which that one file is compiled again.
 *
 * @typedef {object} Mutant
 * @property {string} name what the broken product does
 * @property {string} file below `src`
 * @property {string} [in] the function, method or constant that contains the text; the whole file if it is absent
 * @property {string} replace must occur there once; any white space matches any other
 * @property {string} by
 * @property {[file: string, title: string][]} [tests] each of them must fail: a file below `test`, and how the title begins
 * @property {[configuration: string, event: string]} [campaign] must find a problem instead: `npm run torture -- --help`
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { parseSync, transformSync, Visitor } from 'rolldown/utils';

const HELP = `Breaks the product, one defect (mutant) at a time and in a copy, and runs the tests that must notice. Exits with 1 if
a mutant survives or cannot be tried.

Usage
  npm run test:mutants -- [options] [text ...]

With texts, only the mutants whose "folder: name" contains one of them.

Options
  --changed       only mutants of the folders of src and test that differ from the main branch
  --shard <k/n>   the k-th of n shares
  --rounds <n>    tries each mutant n times: a test that notices it only sometimes counts as one that does not (1)
  --help`;

/** Most tests wait for one process, so two of them share two processors. */
const WORKERS = 2;

/** Five times the duration of the slowest tests, on a busy machine. */
const TEST_SECONDS = 300;

/** A campaign meets a race by chance, so a defect must show in one of several, which have different seeds. */
const CAMPAIGNS = 15;
const CAMPAIGN_SECONDS = 200;

/** Without a line for so long, one says what is running. */
const SILENCE_MS = 9_000;

const { values: options, positionals: texts } = readArguments();
const mutants = await selected();
if (mutants.length === 0) {
  console.log('No mutant is selected.');
  process.exit(0);
}

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

const startedAt = Date.now();
const secondsSince = (time) => `${((Date.now() - time) / 1000).toFixed(1)} s`;
/** The processes that run now, each the first of a group. */
const groups = new Set();
/** What runs now, with its start. */
const running = new Map();
let lastLineAt = startedAt;
let ended = 0;
print(`${mutants.length} mutants, ${WORKERS} at a time`);
setInterval(() => {
  if (Date.now() - lastLineAt < SILENCE_MS) return;
  print([...running].map(([label, since]) => `… ${label} (${secondsSince(since)})`).join('\n'));
}, 1000).unref();

const mongod = await startMongod();
const copies = Array.from({ length: WORKERS }, copyBuild);

/** Why the tests of a file cannot prove anything: by file and title. Absent if they can. */
const unusable = new Map();
const wanted = mutants.flatMap(({ tests = [] }) => tests);
const files = [...new Set(wanted.map(([file]) => file))].map((file) => [
  file,
  wanted.filter(([other]) => other === file),
]);
await inParallel(files, ([file]) => `without a mutant: ${file}`, tryFile);
/** Of the mutants: `caught`, `skipped`, `survived` or `error`, with a text that says more. */
const outcomes = new Map();
await inParallel(mutants, ({ label }) => label, tryMutant);
await mongod?.stop();
report();

function readArguments() {
  try {
    const parsed = parseArgs({
      options: {
        changed: { type: 'boolean', default: false },
        shard: { type: 'string', default: '1/1' },
        rounds: { type: 'string', default: '1' },
        help: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    });
    const [share, shares] = parsed.values.shard.split('/').map(Number);
    if (!(share >= 1 && share <= shares)) throw new Error("--shard is '<k>/<n>', for example 2/6.");
    const rounds = Number(parsed.values.rounds);
    if (!(rounds >= 1)) throw new Error('--rounds is a number from 1.');
    if (parsed.values.help) {
      console.log(HELP);
      process.exit(0);
    }
    return { ...parsed, values: { ...parsed.values, share, shares, rounds } };
  } catch (error) {
    console.error(`${error.message}\n\n${HELP}`);
    process.exit(2);
  }
}

/** The mutants that the arguments select, with their labels. */
async function selected() {
  const folders = readdirSync('test', { recursive: true })
    .filter((name) => basename(name) === 'mutants.mjs' && dirname(name) !== '.')
    .map(dirname);
  const lists = await Promise.all(
    folders.map(async (folder) => {
      const { default: list } = await import(`./${folder}/mutants.mjs`);
      return list.map((mutant) => ({ ...mutant, label: `${folder}: ${mutant.name}` }));
    }),
  );
  const all = lists.flat();
  const twice = all.find(({ label }, index) => all.findIndex((other) => other.label === label) < index);
  if (twice) throw new Error(`Two mutants have the name '${twice.label}'.`);
  const changed = options.changed ? changedFolders() : null;
  return all
    .filter(({ label }) => texts.length === 0 || texts.some((text) => label.includes(text)))
    .filter((mutant) => !changed || foldersOf(mutant).some((folder) => changed.has(folder)))
    .filter((_, index) => index % options.shares === options.share - 1);
}

/** The folders that a mutant and its tests are in. */
function foldersOf({ label, file, tests = [] }) {
  return [label.split(':')[0], ...[file, ...tests.map(([test]) => test)].map(dirname)].map(domainOf);
}

/** Of `saas/auth/sign-in`: `saas/auth`. */
const domainOf = (folder) => folder.split('/').slice(0, 2).join('/');

/** The folders of `src` and `test` that differ from the main branch, committed or not. */
function changedFolders() {
  const git = (...args) => execFileSync('git', args, { encoding: 'utf8' }).trim();
  const branches = git('for-each-ref', '--format=%(refname)', 'refs/remotes/origin/main', 'refs/heads/main');
  const base = git('merge-base', 'HEAD', branches.split('\n').at(-1) || 'HEAD');
  const paths = [git('diff', '--name-only', base), git('ls-files', '--others', '--exclude-standard')];
  const folders = paths.join('\n').match(/(?<=^(?:src|test)\/).+(?=\/)/gm);
  return new Set(folders?.map(domainOf));
}

/** A copy of the build that can be changed, until this process ends. */
function copyBuild() {
  const copy = mkdtempSync(join(tmpdir(), 'saas-backend-mutants-'));
  // PostgreSQL, which root runs as another user, reaches its folder below.
  chmodSync(copy, 0o711);
  process.once('exit', () => {
    for (const pid of groups) endGroup(pid);
    rmSync(copy, { recursive: true, force: true });
  });
  for (const name of ['dist', 'src', 'templates', 'docs/openapi', 'package.json'])
    cpSync(name, join(copy, name), { recursive: true });
  symlinkSync(join(process.cwd(), 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

/** Started once for all tests, as by `test/run.mjs`. */
async function startMongod() {
  const { MONGOMS_SYSTEM_BINARY, TEST_MONGODB_URI } = process.env;
  const isWanted = mutants.some(({ tests = [] }) =>
    tests.some(([file]) => file.startsWith('core/storage/mongodb')),
  );
  if (!isWanted || !MONGOMS_SYSTEM_BINARY || TEST_MONGODB_URI) return null;
  const worker = new Worker(new URL('mongod-worker.mjs', import.meta.url));
  const [uri] = await once(worker, 'message');
  process.env.SHARED_MONGODB_URI = uri;
  return {
    async stop() {
      worker.postMessage('stop');
      await once(worker, 'message');
    },
  };
}

/** Calls a function with each item and a copy of the build. It returns what a line says about the item. */
async function inParallel(items, labelOf, work) {
  const queue = items.values();
  const one = async (copy) => {
    for (const item of queue) {
      const label = labelOf(item);
      const since = Date.now();
      running.set(label, since);
      const result = await work(item, copy);
      running.delete(label);
      print(`${label}\n  ${result} (${secondsSince(since)})`);
    }
  };
  await Promise.all(copies.map(one));
}

/** Runs the tests of a file without a mutant. */
async function tryFile([file, tests], copy) {
  const titles = [...new Set(tests.map(([, title]) => title))];
  const { failure, ran } = await run(copy, file, titles);
  const folder = join(copy, 'dist/skipped');
  const skipped = existsSync(folder)
    ? readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'))
    : [];
  rmSync(folder, { recursive: true, force: true });
  const missing = titles.filter((title) => !ran(title));
  for (const title of failure ? titles : missing) {
    if (failure) unusable.set(`${file} ${title}`, { error: `without a mutant, ${file} fails: ${failure}` });
    else if (skipped.length > 0) unusable.set(`${file} ${title}`, { skipped: skipped[0].split('\n')[0] });
    else unusable.set(`${file} ${title}`, { error: `there is no test '${title}' in test/${file}.test.ts` });
  }
  return failure
    ? `FAILED: ${failure}`
    : `${titles.length - missing.length} of ${titles.length} tests passed`;
}

async function tryMutant(mutant, copy) {
  const end = (outcome, text) => {
    outcomes.set(mutant, { outcome, text });
    ended++;
    return `${ended}/${mutants.length} ${text}`;
  };
  const target = join(copy, 'dist/src', mutant.file.replace(/\.ts$/, '.js'));
  let code;
  try {
    code = compile(mutant.file, edit(readFileSync(join(copy, 'src', mutant.file), 'utf8'), mutant));
  } catch (error) {
    return end('error', `ERROR: ${error.message}`);
  }
  const tests = mutant.tests ?? [];
  const reasons = tests.map((test) => unusable.get(test.join(' '))).filter(Boolean);
  const problem = reasons.find(({ error }) => error);
  if (problem) return end('error', `ERROR: ${problem.error}`);
  if (tests.length > 0 && reasons.length === tests.length)
    return end('skipped', `not tried: ${reasons[0].skipped}`);

  const original = readFileSync(target);
  writeFileSync(target, code);
  const checks = mutant.campaign
    ? [() => problemOf(copy, mutant.campaign)]
    : tests
        .filter((test) => !unusable.has(test.join(' ')))
        .map(
          ([file, title]) =>
            () =>
              run(copy, file, [title]).then(({ failure }) => failure),
        );
  const found = [];
  const missed = [];
  for (const check of checks)
    for (let round = 0; round < options.rounds; round++) {
      const failure = await check();
      (failure === null ? missed : found).push(failure);
    }
  writeFileSync(target, original);
  if (missed.length === 0) return end('caught', `caught by ${found[0]}`);
  return end('survived', `SURVIVED ${missed.length} of ${missed.length + found.length} times`);
}

/** The source with the defect. @throws if the text does not occur once where it must */
function edit(source, { file, in: name, replace, by }) {
  const pattern = new RegExp(replace.trim().split(/\s+/).map(escaped).join('\\s+'), 'g');
  const ranges = name === undefined ? [{ start: 0, end: source.length }] : declarationsOf(file, source, name);
  const where = name === undefined ? file : `${name} of ${file}`;
  if (ranges.length === 0) throw new Error(`there is no ${where}`);
  const found = [...source.matchAll(pattern)].filter(({ index }) =>
    ranges.some(({ start, end }) => start <= index && index < end),
  );
  if (found.length !== 1) throw new Error(`the text occurs ${found.length} times in ${where}: ${replace}`);
  const [{ index, 0: text }] = found;
  return source.slice(0, index) + by + source.slice(index + text.length);
}

/** Where functions, methods, classes, properties and constants of this name are in a file. */
function declarationsOf(file, source, name) {
  const ranges = [];
  const collect = (node) => {
    if ((node.id ?? node.key)?.name === name) ranges.push(node);
  };
  new Visitor({
    FunctionDeclaration: collect,
    FunctionExpression: collect,
    ClassDeclaration: collect,
    VariableDeclarator: collect,
    MethodDefinition: collect,
    PropertyDefinition: collect,
    Property: collect,
  }).visit(parseSync(file, source).program);
  return ranges;
}

/** As `tsconfig.json` compiles it: its types can be erased file by file. */
function compile(file, source) {
  const { code, errors } = transformSync(file, source, {
    target: 'es2023',
    tsconfig: false,
    typescript: { onlyRemoveTypeImports: true },
  });
  if (errors.length > 0) throw new Error(`it does not compile: ${errors[0].message}`);
  return code;
}

function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

function needsServer(file) {
  const source = readFileSync(`test/${file}.test.ts`, 'utf8');
  return /on(?:Mongod|OwnPostgres|Postgres|ReplicaSet|Servers)\(/.test(source);
}

/** Runs tests of a file. `failure` is the first failing assertion, null if all pass; `ran` says whether there is such a test. */
async function run(copy, file, titles) {
  const { status, stdout, stderr } = await program(copy, [`dist/test/${file}.test.js`], TEST_SECONDS + 10, {
    TAP: '1',
    TAP_BAIL: '1',
    TAP_TIMEOUT: String(TEST_SECONDS),
    TAP_GREP: `/^(?:${titles.map(escaped).join('|')})/`,
    // Where one engine is enough, no server is waited for: the selected tests of a file can end before it runs.
    ...(!needsServer(file) && { TEST_ENGINES: 'sqlite' }),
  });
  const lines = stdout.split('\n');
  const ran = (title) => lines.some((line) => line.startsWith(`# Subtest: ${title}`));
  if (status === 0) return { failure: null, ran };
  const index = lines.findIndex((line) => /^ *not ok /.test(line));
  const group = lines.slice(0, Math.max(0, index)).findLast((line) => /^ *# Subtest: /.test(line)) ?? file;
  const assertion =
    lines[index]?.replace(/^ *not ok \d+ - /, '') ??
    (/^.*Error.*$/m.exec(stderr)?.[0] || `exit code ${status}`);
  return { failure: `${group.replace(/^ *# Subtest: /, '')}: ${assertion}`, ran };
}

/** What one of several campaigns finds, null if none finds anything. */
async function problemOf(copy, [configuration, event]) {
  for (let seed = 1; seed <= CAMPAIGNS; seed++) {
    const which = ['--configuration', configuration, '--event', event, '--seed', String(seed)];
    const args = ['dist/test/campaign/torture/run.js', '--rounds', '1', ...which];
    const { status, stdout, stderr } = await program(copy, args, CAMPAIGN_SECONDS, {});
    const problem = stdout.split('\n').find((line) => line.includes('again: npm run torture'));
    if (status === 1 && problem) return problem.trim();
    if (status !== 0) print(stderr);
  }
  return null;
}

/** Runs a program of the copy, and ends what it has started: a test that fails leaves its programs running. */
async function program(copy, args, seconds, env) {
  // It also leaves its databases behind, of 300 MB each.
  const temporary = mkdtempSync(join(copy, 'tmp-'));
  chmodSync(temporary, 0o711);
  const child = spawn(process.execPath, args, {
    cwd: copy,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, TMPDIR: temporary, ...env },
  });
  groups.add(child.pid);
  const timer = setTimeout(() => endGroup(child.pid), seconds * 1000);
  const output = Promise.all([textOf(child.stdout), textOf(child.stderr)]);
  const [status] = await once(child, 'exit');
  clearTimeout(timer);
  endGroup(child.pid);
  groups.delete(child.pid);
  const [stdout, stderr] = await output;
  rmSync(temporary, { recursive: true, force: true });
  return { status, stdout, stderr };
}

function endGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    // All of them have already ended.
    if (error.code !== 'ESRCH') throw error;
  }
}

function print(text) {
  lastLineAt = Date.now();
  console.log(text);
}

/** What is not as it should be, and the command that tries just that. */
function report() {
  const of = (outcome) => mutants.filter((mutant) => outcomes.get(mutant).outcome === outcome);
  const problems = [...of('survived'), ...of('error')];
  const counts = [
    `${of('caught').length} caught`,
    `${of('survived').length} survived`,
    `${of('error').length} errors`,
    `${of('skipped').length} not tried`,
  ];
  console.log(`\n${counts.join(', ')}, in ${Math.round((Date.now() - startedAt) / 1000)} s`);
  for (const mutant of problems) {
    console.log(`\n${mutant.label}\n  ${outcomes.get(mutant).text}`);
    console.log(`  src/${mutant.file}${mutant.in ? `, ${mutant.in}` : ''}: ${mutant.replace}`);
    console.log(`  npm run test:mutants -- ${JSON.stringify(mutant.label)}`);
  }
  process.exitCode = problems.length > 0 ? 1 : 0;
}
