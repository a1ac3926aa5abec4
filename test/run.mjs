/**
 * Runs test files and reports. Without files it runs a suite of `.ci/sections.mjs`.
 *
 *   node test/run.mjs [--suite tests] [--timeout <seconds without an assertion>] [--results <file>] [dist/test/<folder>/<file>.test.js ...]
 *
 * A test file is an ordinary program. The `tap` command starts it with a module loader that records every import for
 * coverage and for `tap --changed`, and hands that loader on to all programs that the test starts. This project uses
 * neither, and the loader doubles the time that a test file takes to start.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { filesOfSuite } from '../.ci/sections.mjs';
import { endGroup, stacksOf } from '../.ci/watchdog.mjs';
import { Report } from './reporter.mjs';

/** Two more than there are processors: many tests wait for time limits and starting programs. */
const JOBS = availableParallelism() + 2;

/** Twice what the databases and packages of a run need at a time. */
const ROOM_BYTES = 4 * 2 ** 30;

/**
 * A process takes the next file until it is this old: loading the product and compiling it at run time takes longer than most
 * files, but a process keeps the memory of all its files.
 */
const PROCESS_SECONDS = 120;

/** Files that meet what others have left in their process: hashes that are counted, a disk that is full. */
const ALONE = ['dist/test/saas/auth/throttle.test.js', 'dist/test/core/storage/products.test.js'];

/** Longest duration of one test that prints assertions. */
const TEST_SECONDS = 600;

/** Seconds of each file in earlier runs, so that the longest ones start first. */
const MEASURED = 'node_modules/.cache/saas-backend/test-seconds.json';

const { values, positionals } = parseArgs({
  options: {
    suite: { type: 'string', default: 'tests' },
    timeout: { type: 'string', default: '180' },
    results: { type: 'string' },
  },
  allowPositionals: true,
});
const timeoutMs = Number(values.timeout) * 1000;

const files = positionals.length > 0 ? positionals : filesOfSuite(values.suite);
const measured = readMeasured();
// Where nothing is measured, the length of a file is the best guess.
const secondsOf = (file) => measured[file] ?? statSync(file).size / 5000;
const queue = files.toSorted((one, other) => secondsOf(other) - secondsOf(one));

function readMeasured() {
  try {
    return JSON.parse(readFileSync(MEASURED, 'utf8'));
  } catch (error) {
    if (error.code === 'ENOENT') return {};
    throw error;
  }
}

function writeMeasured(results) {
  for (const { file, seconds } of results) measured[file] = seconds;
  mkdirSync(dirname(MEASURED), { recursive: true });
  writeFileSync(MEASURED, JSON.stringify(measured, null, 1));
}

/**
 * A folder in memory, if there is enough: otherwise most tests wait for the disk, on which nothing that they check depends.
 * They kill processes, not machines.
 */
function temporaryFolder() {
  const prefix = '/dev/shm/saas-backend-tests-';
  if (process.env.TMPDIR || !hasRoom(dirname(prefix))) return {};
  // Of runs that a signal has ended while their programs still wrote.
  for (const other of foldersOf(prefix)) if (!isRunning(other.slice(prefix.length))) remove(other);
  const folder = prefix + process.pid;
  // Other users cannot list it, but PostgreSQL, which root runs as another user, reaches its own folder.
  mkdirSync(folder, { mode: 0o711 });
  process.once('exit', () => remove(folder));
  return { TMPDIR: folder };
}

const remove = (folder) => rmSync(folder, { recursive: true, force: true });

const foldersOf = (prefix) =>
  readdirSync(dirname(prefix))
    .map((name) => join(dirname(prefix), name))
    .filter((path) => path.startsWith(prefix));

function isRunning(pid) {
  try {
    return process.kill(Number(pid), 0);
  } catch (error) {
    // EPERM: it is the process of another user, like its folder.
    return error.code !== 'ESRCH';
  }
}

function hasRoom(folder) {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize >= ROOM_BYTES;
  } catch (error) {
    if (error.code === 'ENOENT') return false;
    throw error;
  }
}

/** As `test/kit/engine.ts` says. */
const isTested = (engine) => process.env.TEST_ENGINES?.split(',').includes(engine) ?? true;

/** Started once for all files; see `test/core/storage/mongod.ts`. Returns how to stop it. */
async function startMongod() {
  const { MONGOMS_SYSTEM_BINARY, TEST_MONGODB_URI } = process.env;
  if (!isTested('mongodb') || !MONGOMS_SYSTEM_BINARY || TEST_MONGODB_URI || files.length === 1)
    return async () => {};
  return startServer('mongod-worker.mjs', 'SHARED_MONGODB_URI');
}

/** Also for the stores of the products; see `test/kit/engine.ts`. */
async function startPostgres() {
  const isNeeded = isTested('postgresql') && !(isTested('sqlite') && files.length === 1);
  if (!isNeeded || process.env.TEST_POSTGRESQL_URI) return async () => {};
  // The tests that need it try again, and report the reason.
  return startServer('postgres-worker.mjs', 'SHARED_POSTGRESQL_URI').catch(() => async () => {});
}

async function startServer(script, variable) {
  const worker = new Worker(new URL(script, import.meta.url));
  [process.env[variable]] = await once(worker, 'message');
  return async () => {
    worker.postMessage('stop');
    await once(worker, 'message');
  };
}

/** The next file of a process, which has run `previous`. */
function nextFile(previous, startedAt) {
  if (previous === undefined) return queue.shift();
  // Other suites start programs or need a processor, descriptors and memory of their own.
  const isFull = Date.now() - startedAt > PROCESS_SECONDS * 1000 || values.suite !== 'tests';
  if (isFull || ALONE.includes(previous)) return undefined;
  const index = queue.findIndex((file) => !ALONE.includes(file));
  return index < 0 ? undefined : queue.splice(index, 1)[0];
}

/** Runs files in one process until there are none or it is old. */
async function runProcess(report) {
  const startedAt = Date.now();
  const child = spawn(
    process.execPath,
    ['--max-semi-space-size=64', '--disable-warning=ExperimentalWarning', 'test/files.mjs'],
    { stdio: ['ignore', 'pipe', 'inherit', 'ipc'], detached: true },
  );
  running.add(child.pid);
  const output = report.follow(child.stdout);
  let file;
  let isOver = false;
  const timer = setTimeout(() => end(`silent for ${values.timeout} s`), timeoutMs);
  child.stdout.on('data', () => timer.refresh());
  child.on('message', (message) => {
    // tap sends its time limit, too.
    if (message !== 'next') return;
    file = nextFile(file, startedAt);
    isOver = file === undefined;
    if (file) output.start(file);
    child.send(file ?? null);
  });
  /** The process with its programs. */
  async function end(reason) {
    isOver = true;
    output.fail(reason, await stacksOf(child.pid));
    endGroup(child.pid);
  }
  const [code, signal] = await once(child, 'close');
  clearTimeout(timer);
  await output.ended;
  if (!isOver) output.fail(signal ? `ended by ${signal}` : `ended with exit code ${code}`);
  endGroup(child.pid);
  running.delete(child.pid);
}

Object.assign(process.env, temporaryFolder(), {
  TAP: '1',
  TAP_TIMEOUT: String(Math.max(TEST_SECONDS, Number(values.timeout))),
});
/** Processes with a group of their own, which a signal to this one does not reach. */
const running = new Set();
process.once('exit', () => running.forEach(endGroup));
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

const report = new Report(files.length);
const stopServers = await Promise.all([startMongod(), startPostgres()]);
await Promise.all(
  Array.from({ length: Math.min(JOBS, files.length) }, async () => {
    while (queue.length > 0) await runProcess(report);
  }),
);
await Promise.all(stopServers.map((stop) => stop()));
const { results, failed } = report.summarize();
writeMeasured(results);
if (values.results) writeFileSync(values.results, JSON.stringify(results));
process.exitCode = failed > 0 ? 1 : 0;
