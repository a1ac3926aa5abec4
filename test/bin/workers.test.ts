import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { restartDelay } from '../../bin/workers.js';
import { basic } from '../kit/app.js';
import { parseMetrics } from '../kit/metrics.js';
import { compiled, type Program, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';
import { waitUntil } from '../kit/wait.js';

const SAAS = compiled('bin/saas-backend.js');
const IDP = compiled('bin/idp.js');

interface Line {
  pid: number;
  msg: string;
  worker?: number;
}

function logOf({ lines }: Program): Line[] {
  return lines.filter((line) => line.startsWith('{"level"')).map((line) => JSON.parse(line));
}

/** The processes that have begun to listen. */
function listening(program: Program): number[] {
  return logOf(program)
    .filter(({ msg }) => msg.startsWith('Server listening'))
    .map(({ pid }) => pid);
}

async function startWorkers(t: Test, script: string, args: string[] = [], env: Record<string, string> = {}) {
  const cwd = temporaryFolder(t);
  const given = ['serve', '-p', '0', '--workers', '2', ...args];
  const program = startProgram(t, script, { args: given, cwd, env });
  const [line] = await program.printed(/^\{"program".*|^ {2}Health.*/);
  const url = /http:\/\/[^\s"/]+/.exec(line)?.[0] ?? '';
  // The primary's line may be read before those of the workers.
  await waitUntil('the lines of both workers', () => listening(program).length === 2);
  return { program, url };
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Sends the head of a request and waits until a server asks for its body. */
async function openRequest(t: Test, url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  t.teardown(() => socket.destroy());
  const head =
    'content-type: application/json\r\ncontent-length: 2\r\nexpect: 100-continue\r\nconnection: close';
  socket.write(`POST /api/auth/login HTTP/1.1\r\nhost: x\r\n${head}\r\n\r\n`);
  await once(socket, 'data');
  return socket;
}

t.test('workers share a port, and one that is killed or stopped is replaced', async (t) => {
  const { program, url } = await startWorkers(t, IDP, ['--json']);
  const ready = program.lines.filter((line) => line.startsWith('{"program"'));
  t.match(
    ready.map((line) => JSON.parse(line)),
    [{ program: 'idp', url, pid: program.pid }],
  );
  const [first = 0, second = 0, ...others] = listening(program);
  t.ok(others.length === 0 && first !== second && ![first, second].includes(program.pid));

  const request = async () =>
    t.equal((await fetch(`${url}/jwks`, { headers: { connection: 'close' } })).status, 200);
  const hasServed = (worker: number) =>
    logOf(program).some(({ pid, msg }) => pid === worker && msg === 'request completed');
  const bothServe = async (workers: number[]) => {
    await request();
    return workers.every(hasServed);
  };
  await waitUntil('both workers serve', () => bothServe([first, second]));

  process.kill(second, 'SIGKILL');
  await program.printed(/"msg":"a worker ended unexpectedly and will be replaced"/);
  t.match(
    logOf(program).find(({ worker }) => worker !== undefined),
    { pid: program.pid, worker: second, signal: 'SIGKILL', code: null, restartMs: 250 },
  );
  await request();
  await waitUntil('a third worker', () => listening(program).length === 3);
  const third = listening(program)[2] ?? 0;
  await waitUntil('the third worker serves', () => bothServe([first, third]));

  process.kill(first, 'SIGTERM');
  await program.printed(/"worker":\d+,"code":0.*"msg":"a worker was stopped and will be replaced"/);
  await waitUntil('a fourth worker', () => listening(program).length === 4);
  const fourth = listening(program)[3] ?? 0;
  t.equal(await program.terminate(), 0);
  t.notOk([third, fourth].some(isRunning), 'no worker outlives the program');
});

t.test('a stop waits for the requests of every worker, whichever process receives the signal', async (t) => {
  const { program, url } = await startWorkers(t, SAAS);
  const workers = listening(program);
  // Connections are distributed in turn.
  const requests = await Promise.all([openRequest(t, url), openRequest(t, url)]);
  // A terminal sends SIGINT to every process, and a service manager SIGTERM.
  process.kill(program.pid, 'SIGTERM');
  await waitUntil(
    'both are stopping',
    () => logOf(program).filter(({ msg }) => msg === 'stopping').length === 2,
  );
  for (const pid of workers) {
    process.kill(pid, 'SIGINT');
    process.kill(pid, 'SIGTERM');
  }
  const answers = requests.map(async (socket) => {
    socket.write('{}');
    const [answer] = await once(socket, 'data');
    return String(answer).slice(0, 12);
  });
  t.same(await Promise.all(answers), ['HTTP/1.1 400', 'HTTP/1.1 400']);
  t.equal(await program.ended(), 0);
  t.notOk(workers.some(isRunning));
  t.notMatch(program.lines.join('\n'), /will be replaced/);
});

t.test('a second signal ends all workers at once', async (t) => {
  const { program, url } = await startWorkers(t, SAAS);
  const workers = listening(program);
  await openRequest(t, url);
  program.signal('SIGTERM');
  await program.printed(/"msg":"stopping the workers"/);
  program.signal('SIGTERM');
  t.equal(await program.ended(), 1);
  await waitUntil('the workers have ended', () => !workers.some(isRunning));
});

t.test('workers end with a primary that is killed', async (t) => {
  const { program } = await startWorkers(t, SAAS);
  const workers = listening(program);
  await program.kill();
  await waitUntil('the workers have ended', () => !workers.some(isRunning));
});

t.test('a start that fails is reported once, with the exit code of a server without workers', async (t) => {
  const run = async (env: Record<string, string>) => {
    const args = ['--workers', '3', '-p', '0'];
    const program = startProgram(t, SAAS, { args, cwd: temporaryFolder(t), env });
    return { code: await program.ended(), text: program.lines.join('\n') };
  };
  const unsafe = await run({ NODE_ENV: 'production' });
  t.equal(unsafe.code, 1);
  t.equal(unsafe.text.match(/JWT_ACCESS_SECRET is not set/g)?.length, 1, unsafe.text);
  const memory = await run({ DATABASE_URI: 'sqlite::memory:' });
  t.equal(memory.code, 1);
  t.same(memory, {
    code: 1,
    text: 'saas-backend cannot start: workers cannot share sqlite::memory:. Choose a file, or start one process without --workers.',
  });
});

t.test('workers that end at their start are replaced at growing intervals of up to 30 seconds', async (t) => {
  t.same(
    [1, 2, 3, 4, 7, 8, 9, 2000].map(restartDelay),
    [250, 500, 1000, 2000, 16_000, 30_000, 30_000, 30_000],
  );
});

t.test('every worker responds with the metrics of all workers', async (t) => {
  const password = 'a password of the operator';
  const env = { METRICS: 'true', ADMIN_PASSWORD: password, LOG_LEVEL: 'debug' };
  const { program, url } = await startWorkers(t, SAAS, ['--json'], env);
  const headers = { authorization: basic('admin', password), connection: 'close' };
  const scrape = async () => {
    const response = await fetch(`${url}/metrics`, { headers });
    t.equal(response.status, 200);
    return parseMetrics(await response.text());
  };
  const health = async () => {
    const metrics = await scrape();
    return metrics.sum('saas_backend_http_requests_total', { route: '/health', status: '200' });
  };
  const [first = 0, second = 0] = listening(program);
  const served = (worker: number, route: string) =>
    program.lines.filter((line) => line.includes(`"pid":${worker}`) && line.includes(`"${route}"`)).length;
  const REQUESTS = 40;
  for (let count = 0; count < REQUESTS; count++) {
    await fetch(`${url}/health`, { headers: { connection: 'close' } });
  }
  await waitUntil(
    'both workers have served',
    () => served(first, '/health') > 0 && served(second, '/health') > 0,
  );
  while (served(first, '/metrics') === 0 || served(second, '/metrics') === 0)
    t.equal(await health(), REQUESTS);
  const metrics = await scrape();
  t.ok(metrics.sum('process_resident_memory_bytes') > 0);
  t.ok(metrics.sum('saas_backend_job_lag_seconds') >= 0);

  // A worker that does not respond: the latest values count.
  process.kill(second, 'SIGSTOP');
  await waitUntil('the other worker responds', async () => {
    const response = await fetch(`${url}/metrics`, { headers, signal: AbortSignal.timeout(5000) }).catch(
      () => null,
    );
    if (!response) return false;
    const text = await response.text();
    t.equal(
      parseMetrics(text).sum('saas_backend_http_requests_total', { route: '/health', status: '200' }),
      REQUESTS,
    );
    return true;
  });
  // A worker that ends, also while the others wait for it.
  const pending = fetch(`${url}/metrics`, { headers }).then((response) => response.text());
  process.kill(second, 'SIGKILL');
  const texts = await Promise.all([pending.catch(() => null), program.printed(/"msg":"a worker ended/)]);
  if (texts[0] !== null) parseMetrics(texts[0]);
  t.equal(await health(), REQUESTS, 'the sum does not decrease');
  await waitUntil('a third worker', () => listening(program).length === 3);
  t.equal(await health(), REQUESTS);
  t.equal(await program.terminate(), 0);
});
