/**
 * Runs test files and reports. Without arguments it runs all of them but the system tests, with `--system` only these.
 *
 *   node test/run.mjs [--timeout=<seconds for each process>] [--system] [dist/test/<folder>/<file>.test.js ...]
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
  options: {
    timeout: { type: 'string', default: TIMEOUT_SECONDS },
    system: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});

/**
 * Tests of whole programs: kills, races of several processes, random sequences, attacks, browsers, proxies, other products and
 * the packed tarball. They take as long as all others together.
 */
const SYSTEM_TESTS = new Set(
  `
  account/races
  auth/account-races auth/explore auth/processes
  billing/crashes
  bin/audit bin/backup bin/doctor bin/documents bin/idp bin/login bin/programs bin/start bin/store-copy bin/stores bin/users bin/workers
  browser/csrf browser/pages browser/passkeys browser/sign-in
  canaries
  certification/basic certification/logout
  client/browser
  deploy/deploy
  documents/commands
  factors/explore
  federation/explore federation/upstreams
  fuzz
  host/lost-responses
  hostile/connections hostile/growth hostile/guards hostile/load hostile/wire
  life/kills life/login-code-kills life/upgrade
  oidc/assertion-fuzz oidc/backchannel oidc/delegation-races oidc/device-races oidc/identity-assertion-races oidc/kills
  oidc/processes oidc/purge oidc/rotation
  operators/races
  package/package
  passkeys/explore passkeys/processes
  provisioning/acceptance provisioning/mailed-link-races
  proxy/proxies
  relying-parties/ecosystems relying-parties/es256 relying-parties/mcp relying-parties/parties
  storage/outage
  webhooks/kills webhooks/processes webhooks/processes
  `
    .trim()
    .split(/\s+/),
);

const nameOf = (file) => file.slice('dist/test/'.length, -'.test.js'.length);

/** Every compiled test file, in a stable order. */
const allTestFiles = () =>
  readdirSync('dist/test', { recursive: true })
    .filter((name) => name.endsWith('.test.js'))
    .map((name) => `dist/test/${name.replaceAll('\\', '/')}`)
    .sort();

/** Throws for a system test that does not exist, which would otherwise run with the others under its new name. */
function filesOfSuite() {
  const all = allTestFiles();
  const missing = [...SYSTEM_TESTS].filter((name) => !all.some((file) => nameOf(file) === name));
  if (missing.length > 0) throw new Error(`no test file: ${missing.join(', ')}`);
  return all.filter((file) => SYSTEM_TESTS.has(nameOf(file)) === values.system);
}

const isWholeSuite = positionals.length === 0;
const files = isWholeSuite ? filesOfSuite() : positionals;

/**
 * Processor seconds of the longest files, with the programs that they start; any other takes about two. Wrong figures only
 * make the end of a run wait for one process.
 */
const SECONDS = {
  'account/account': 8,
  'account/passkeys': 8,
  'account/races': 12,
  'agents/agents': 7,
  'agents/tokens': 14,
  'auth/account-races': 21,
  'auth/accounts': 5,
  'auth/explore': 18,
  'auth/foreign-hashes': 12,
  'auth/links-outage': 7,
  'auth/processes': 22,
  'auth/sessions': 5,
  'auth/suspension': 8,
  'auth/throttle': 10,
  'billing/changes': 11,
  'billing/checkout': 13,
  'billing/crashes': 26,
  'billing/details': 6,
  'billing/entitlement': 10,
  'billing/figures': 16,
  'billing/links': 5,
  'billing/payments': 10,
  'billing/plans': 6,
  'billing/resync': 6,
  'billing/subscription': 9,
  'billing/usage': 12,
  'bin/audit': 8,
  'bin/backup': 5,
  'bin/doctor': 32,
  'bin/idp': 14,
  'bin/programs': 28,
  'bin/store-copy': 36,
  'bin/stores': 10,
  'bin/users': 12,
  'bin/workers': 14,
  'browser/csrf': 32,
  'browser/pages': 55,
  'browser/sign-in': 22,
  canaries: 18,
  'client/browser': 20,
  'client/client': 16,
  'deploy/deploy': 12,
  'documents/commands': 40,
  'documents/snippets': 5,
  fuzz: 95,
  'host/fastify': 9,
  'host/lost-responses': 10,
  'host/middleware': 5,
  'host/neighbours': 6,
  'hostile/connections': 12,
  'hostile/growth': 10,
  'hostile/guards': 6,
  'hostile/load': 11,
  'hostile/wire': 14,
  'http/scope': 6,
  'life/kills': 22,
  'life/login-code-kills': 12,
  'life/stop': 7,
  'life/upgrade': 15,
  'oidc/authorize': 5,
  'oidc/interactions': 5,
  'oidc/backchannel': 20,
  'oidc/client-keys': 8,
  'oidc/delegation-races': 8,
  'oidc/delegations': 10,
  'oidc/device-races': 10,
  'oidc/device': 8,
  'oidc/dpop': 10,
  'oidc/kills': 14,
  'oidc/par': 9,
  'oidc/processes': 14,
  'oidc/purge': 8,
  'oidc/rotation': 10,
  'operators/races': 27,
  'ops/audit': 5,
  'ops/jobs': 8,
  'ops/metrics': 8,
  'package/package': 30,
  'passkeys/processes': 25,
  'passwords/hasher': 5,
  'provisioning/acceptance': 32,
  'provisioning/stolen-token': 7,
  'proxy/proxies': 8,
  'relying-parties/es256': 9,
  'relying-parties/mcp': 16,
  'relying-parties/parties': 5,
  'server/server': 5,
  'settings/custom': 6,
  'storage/mongodb': 19,
  'storage/outage': 12,
  'storage/products': 9,
  'throttle/throttle': 12,
};
const OTHER_SECONDS = 2;

const secondsOf = (file) => SECONDS[nameOf(file)] ?? OTHER_SECONDS;
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/**
 * Seconds of the files that share a process (`test/files.mjs`): loading the product and compiling it at run time takes
 * longer than most files. Files that are named have a process each: a campaign at full size needs its own file descriptors,
 * memory and time limit.
 */
const SECONDS_PER_PROCESS = isWholeSuite ? 35 : 0;

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
