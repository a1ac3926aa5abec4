/**
 * Runs test files and reports. Without arguments it runs all of them.
 *
 *   node test/run.mjs [--timeout=<seconds for each process>] [dist/test/<folder>/<file>.test.js ...]
 *
 * A test file is an ordinary program. The `tap` command starts it with a module loader that records every import for
 * coverage and for `tap --changed`, and hands that loader on to all programs that the test starts. This project uses
 * neither, and the loader doubles the time that a test file takes to start.
 */
import { once } from 'node:events';
import { mkdirSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import Reporter from './reporter.mjs';

/** One more than there are processors: many tests wait for time limits and starting programs. */
const JOBS = 3;

/** Three times the duration of the slowest process while two such runs share two processors. */
const TIMEOUT_SECONDS = '600';

/** Twice what the databases and packages of a run need at a time. */
const ROOM_BYTES = 4 * 2 ** 30;

const { values, positionals } = parseArgs({
  options: { timeout: { type: 'string', default: TIMEOUT_SECONDS } },
  allowPositionals: true,
});

/** Every compiled test file, in a stable order. */
const allTestFiles = () =>
  readdirSync('dist/test', { recursive: true })
    .filter((name) => name.endsWith('.test.js'))
    .map((name) => `dist/test/${name.replaceAll('\\', '/')}`)
    .sort();

const isWholeSuite = positionals.length === 0;
const files = isWholeSuite ? allTestFiles() : positionals;

/**
 * Seconds that the longest files take alone; any other takes about two. Wrong figures only make the end of a run wait for
 * one process.
 */
const SECONDS = {
  'auth/account-races': 30,
  'auth/explore': 8,
  'auth/foreign-hashes': 9,
  'auth/links-outage': 7,
  'auth/processes': 20,
  'auth/suspension': 5,
  'auth/throttle': 8,
  'billing/changes': 8,
  'billing/checkout': 10,
  'billing/crashes': 20,
  'billing/usage': 10,
  'bin/doctor': 25,
  'bin/documents': 10,
  'bin/idp': 10,
  'bin/programs': 28,
  'bin/store-copy': 35,
  'bin/stores': 9,
  'bin/users': 12,
  'bin/workers': 13,
  'browser/pages': 14,
  'browser/sign-in': 14,
  canaries: 12,
  fuzz: 10,
  'hostile/connections': 12,
  'hostile/load': 11,
  'hostile/wire': 16,
  'life/kills': 20,
  'life/stop': 8,
  'life/upgrade': 15,
  'oidc/processes': 15,
  'oidc/purge': 8,
  'oidc/rotation': 10,
  'package/package': 35,
  'provisioning/acceptance': 25,
  'proxy/proxies': 10,
  'storage/mongodb': 20,
  'storage/outage': 10,
  'storage/sqlite': 15,
  'throttle/throttle': 10,
};
const OTHER_SECONDS = 2;

const secondsOf = (file) => SECONDS[file.slice('dist/test/'.length, -'.test.js'.length)] ?? OTHER_SECONDS;
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/**
 * Seconds of the files that share a process (`test/files.mjs`): loading the product and compiling it at run time takes
 * longer than most files. Files that are named have a process each: a campaign at full size needs its own file descriptors,
 * memory and time limit.
 */
const SECONDS_PER_PROCESS = isWholeSuite ? 25 : 0;

/** The files of each process, which are neighbours. The longest comes first, so that none is left over at the end. */
function groupsOf(files) {
  const groups = [];
  for (const file of files) {
    const group = groups.at(-1);
    const hasRoom = group && sum([...group, file].map(secondsOf)) <= SECONDS_PER_PROCESS;
    if (hasRoom) group.push(file);
    else groups.push([file]);
  }
  const total = (group) => sum(group.map(secondsOf));
  return groups.sort((one, other) => total(other) - total(one));
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
  mkdirSync(folder, { mode: 0o700 });
  t.teardown(() => remove(folder));
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

/** Started once for all files; see `test/storage/mongod.ts`. */
async function startMongod() {
  const { MONGOMS_SYSTEM_BINARY, TEST_MONGODB_URI } = process.env;
  if (!MONGOMS_SYSTEM_BINARY || TEST_MONGODB_URI || files.length === 1) return {};
  const worker = new Worker(new URL('mongod-worker.mjs', import.meta.url));
  const [uri] = await once(worker, 'message');
  t.teardown(async () => {
    worker.postMessage('stop');
    await once(worker, 'message');
  });
  return { SHARED_MONGODB_URI: uri };
}

Object.assign(process.env, temporaryFolder());
const env = { ...process.env, TAP_TIMEOUT: values.timeout, ...(await startMongod()) };

t.pipe(new Reporter()).pipe(process.stdout);
t.register();
// Each file has a time limit, all of them together have none.
t.setTimeout(0);
t.jobs = JOBS;
const groups = groupsOf(files);
t.plan(groups.length);
for (const group of groups) {
  // `t.spawn` adds the loader to NODE_OPTIONS; `env` removes it again.
  t.spawn(
    'env',
    [
      '-u',
      'NODE_OPTIONS',
      process.execPath,
      '--enable-source-maps',
      '--max-semi-space-size=64',
      '--disable-warning=ExperimentalWarning',
      'test/files.mjs',
    ],
    {
      name: group.join(' '),
      buffered: true,
      env: { ...env, TEST_FILES: JSON.stringify(group) },
      timeout: Number(values.timeout) * 1000,
    },
  );
}
