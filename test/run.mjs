/**
 * Runs test files and reports. Without arguments it runs all of them.
 *
 *   node test/run.mjs [--timeout=<seconds for each process>] [dist/test/<folder>/<file>.test.js ...]
 *
 * A test file is an ordinary program. The `tap` command starts it with a module loader that records every import for
 * coverage and for `tap --changed`, and hands that loader on to all programs that the test starts. This project uses
 * neither, and the loader doubles the time that a test file takes to start.
 */
import { readdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { parseArgs } from 'node:util';
import { MongoMemoryReplSet } from 'mongodb-memory-server-core';
import t from 'tap';
import Reporter from './reporter.mjs';

/** One more than there are processors: many tests wait for time limits and starting programs. */
const JOBS = 3;

/** Three times the duration of the slowest process while two such runs share two processors. */
const TIMEOUT_SECONDS = '600';

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
 * Files of a folder that share a process (`test/files.mjs`): loading the product and compiling it at run time takes longer
 * than most files. Few enough that the processes take about equally long. Files that are named have a process each: a
 * campaign at full size needs its own file descriptors, memory and time limit.
 */
const FILES_PER_PROCESS = isWholeSuite ? 8 : 1;

/** The files of each process. */
function groupsOf(files) {
  const folders = new Map();
  for (const file of files) folders.set(dirname(file), [...(folders.get(dirname(file)) ?? []), file]);
  return [...folders.values()].flatMap((folder) => {
    const count = Math.ceil(folder.length / FILES_PER_PROCESS);
    return Array.from({ length: count }, (_, group) => folder.filter((_, index) => index % count === group));
  });
}

/** Started once for all files; see `test/storage/mongod.ts`. */
async function startMongod() {
  const { MONGOMS_SYSTEM_BINARY, TEST_MONGODB_URI } = process.env;
  if (!MONGOMS_SYSTEM_BINARY || TEST_MONGODB_URI || files.length === 1) return {};
  process.env.MONGOMS_SYSTEM_BINARY_VERSION_CHECK ??= 'false';
  const set = await MongoMemoryReplSet.create({
    replSet: { storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 120_000 }],
  });
  t.teardown(() => set.stop());
  return { SHARED_MONGODB_URI: set.getUri() };
}

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
