/** Runs the test files that its parent (`test/run.mjs`) names, one after the other in this process. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { END } from './reporter.mjs';

// With a teardown outside of tests, tap would end as soon as it has no test, while a file prepares something for its first one.
Object.defineProperty(t, 'idle', { value: false, configurable: true });

// Node.js 20 fails to stop a timer of a connection that `fetch` has closed, and then ends the process: nodejs/undici#4755.
if (process.version.startsWith('v20.'))
  process.prependListener('uncaughtException', (error) => {
    const isClosedConnection = /'parser\.deref\(\.\.\.\)' as it is undefined/.test(error.message);
    // Without another listener, Node.js would not end any more.
    if (!isClosedConnection && process.listenerCount('uncaughtException') === 1) {
      console.error(error);
      process.exit(1);
    }
  });

/** The next file, null if there is none. */
function next() {
  return new Promise((resolve) => {
    process.once('message', (file) => {
      process.channel.unref();
      resolve(file);
    });
    // tap lets a process end although it could receive messages.
    process.channel.ref();
    process.send('next');
  });
}

/** Processor seconds of this process and of the programs that it has waited for. */
function processorSeconds() {
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  const own = (userCPUTime + systemCPUTime) / 1e6;
  if (process.platform !== 'linux') return own;
  // Clock ticks of 10 ms: proc_pid_stat(5), cutime and cstime.
  const [, fields = ''] = readFileSync('/proc/self/stat', 'utf8').split(') ');
  const [user, system] = fields.split(' ').slice(13, 15).map(Number);
  return own + (user + system) / 100;
}

for (let file = await next(); file !== null; file = await next()) {
  const startedAt = performance.now();
  const before = processorSeconds();
  await import(pathToFileURL(resolve(file)).href).catch((error) => t.error(error, 'the file can be loaded'));
  // Runs after the file's tests.
  await t.test(END, async () => {});
  const figures = { file, ms: performance.now() - startedAt, processor: processorSeconds() - before };
  t.pass(END + JSON.stringify(figures));
}
process.disconnect();

delete t.idle;
if (t.idle) t.emit('idle');
