/** How both programs stop: by a signal under load, with background work, and with a full log disk. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { Agent, createServer as createHttpServer, request } from 'node:http';
import { type AddressInfo, connect, createServer as createListener, type Socket } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { createLogStream } from '../../src/core/server/log.js';
import { openStore } from '../../src/core/storage/open.js';
import { createServer } from '../../src/index.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { testOptions } from '../kit/app.js';
import { serverPort } from '../kit/port.js';
import { compiled, startCommand, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';
import { waitUntil } from '../kit/wait.js';

const SAAS = compiled('bin/saas-backend.js');
const IDP = compiled('bin/idp.js');

/** The result of a request: its status, or the error and whether the server may have received it. */
type End = { status: number } | { error: string };

/** One request over a keep-alive connection. */
function send(agent: Agent, url: URL, method: string, body?: object): Promise<End> {
  return new Promise((resolve) => {
    const headers = { 'content-type': 'application/json' };
    const sent = request(url, { agent, method, headers }, (response) => {
      response.resume();
      response.on('end', () => resolve({ status: response.statusCode ?? 0 }));
      response.on('error', (error) => resolve({ error: `torn: ${error.message}` }));
    });
    sent.on('error', (error: NodeJS.ErrnoException) => resolve({ error: error.code ?? error.message }));
    sent.end(body && JSON.stringify(body));
  });
}

t.test('SIGTERM under load loses nothing that was accepted', async (t) => {
  const cwd = temporaryFolder(t);
  const uri = `sqlite:${join(cwd, 'app.db')}`;
  const env = { DATABASE_URI: uri, LOG_LEVEL: 'info' };
  const program = startProgram(t, SAAS, { args: ['-p', '0'], cwd, env });
  const url = await program.url();
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const acknowledged: string[] = [];
  const ends: End[] = [];
  let isOver = false;
  // A second signal would end it at once.
  let isAsked = false;
  let number = 0;
  const lane = async (): Promise<void> => {
    for (let failures = 0; failures < 3 && !isOver; ) {
      const email = `n${number++}@example.test`;
      const body = { email, password: 'a sentence is fine' };
      const end = await send(agent, new URL('/api/auth/register', url), 'POST', body);
      ends.push(end);
      if ('status' in end && end.status === 201) acknowledged.push(email);
      if (!('status' in end) || end.status === 503) failures++;
      if (acknowledged.length < 20 || isAsked) continue;
      isAsked = true;
      program.signal('SIGTERM');
    }
  };
  const lanes = Array.from({ length: 16 }, lane);
  t.equal(await program.ended(), 0, 'the exit code');
  isOver = true;
  await Promise.all(lanes);
  const wrong = ends.filter((end) =>
    'status' in end ? ![201, 503].includes(end.status) : /torn/.test(end.error),
  );
  t.same(wrong, []);
  const store = await openStore(uri);
  t.teardown(() => store.close());
  t.equal(
    await userCollection(store).count(),
    acknowledged.length,
    'each answer is true: 201 is stored, and whatever was refused is not',
  );
});

t.test('background jobs stop with the first refused request, not after the last', async (t) => {
  const connections: Socket[] = [];
  const smtp = createListener((socket) => {
    connections.push(socket);
    socket
      .resume()
      .on('error', () => undefined)
      .write('220 hello\r\n');
  });
  smtp.listen(0, '127.0.0.1');
  t.teardown(() => smtp.close());
  await once(smtp, 'listening');
  const { port: smtpPort } = smtp.address() as AddressInfo;
  const env = { EMAIL_SMTP_URL: `smtp://127.0.0.1:${smtpPort}` };
  const program = startProgram(t, SAAS, { args: ['-p', '0'], cwd: temporaryFolder(t), env });
  const url = new URL(await program.url());
  const person = { email: 'ada@example.test', password: 'a sentence is fine' };
  for (const path of ['register', 'forgot-password']) {
    const body = JSON.stringify(person);
    const headers = { 'content-type': 'application/json' };
    await (await fetch(new URL(`/api/auth/${path}`, url), { method: 'POST', headers, body })).text();
  }
  // Sending the mail hangs: the server greets and then sends nothing more.
  await waitUntil('the check of the server and the mail', async () => connections.length === 2);
  const [, mail] = connections as [Socket, Socket];
  const socket = connect(Number(url.port), url.hostname).on('error', () => undefined);
  t.teardown(() => socket.destroy());
  const type = 'content-type: application/json\r\ncontent-length: 9\r\nexpect: 100-continue';
  socket.write(`POST /api/auth/login HTTP/1.1\r\nhost: x\r\n${type}\r\n\r\n`);
  // The program has the request once it asks for the body, which is never sent.
  await once(socket, 'data');
  const first = Promise.race([mail, socket].map((one) => once(one, 'close').then(() => one)));
  const ended = program.terminate();
  t.equal(await first, mail, 'both hang, and the mail is given up before the request');
  socket.destroy();
  t.equal(await ended, 0);
});

/** Everything received over a connection until it ends. */
async function read(socket: ReturnType<typeof connect>): Promise<string> {
  let text = '';
  socket.setEncoding('utf8').on('data', (more) => {
    text += more;
  });
  await once(socket, 'close');
  return text;
}

// RFC 9112 §9.6: requests behind the response that announces the end are not processed, and clients send them again.
t.test('a stop ends a pipeline with the response that announces it', async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const begun: string[] = [];
  for (const name of ['one', 'two'])
    server.fastify.get(`/${name}`, async () => {
      begun.push(name);
      await opened;
      return name;
    });
  const { port } = await server.start();
  const allArrived = new Promise<void>((resolve) => {
    server.fastify.server.on('request', ({ url }) => url === '/ready' && resolve());
  });
  const socket = connect(port, '127.0.0.1');
  const answers = read(socket);
  const ask = (path: string) => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`;
  socket.write(ask('/one'));
  await waitUntil('the first request', async () => begun.length === 1);
  const stopped = server.stop();
  socket.write(ask('/two') + ask('/ready'));
  await allArrived;
  open();
  t.match(await answers, /^HTTP\/1.1 200 [\s\S]*connection: close[\s\S]*one$/i);
  t.same(begun, ['one']);
  await stopped;
});

t.test('a stop does not close connections of a server in front', async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  await server.fastify.ready();
  // Forwards requests as in Fastify's guide for serverless platforms.
  const front = createHttpServer((request, response) => {
    server.fastify.server.emit('request', request, response);
  });
  t.teardown(() => front.close());
  const accepted = once(front, 'connection');
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');
  const socket = connect((front.address() as AddressInfo).port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
  const [answer] = await once(socket, 'data');
  t.match(String(answer), /^HTTP\/1\.1 200 /);
  await server.stop();
  t.notOk((await accepted)[0].destroyed);
});

const isLinux = process.platform === 'linux';

const PRODUCTION = {
  NODE_ENV: 'production',
  DATABASE_URI: 'sqlite::memory:',
  PUBLIC_URL: 'https://app.example',
  JWT_ACCESS_SECRET: 'b7d1f0c25e8a4396b7d1f0c25e8a4396',
  JWT_REFRESH_SECRET: 'f0c25e8a4396b7d1f0c25e8a4396b7d1',
  IDP_DATABASE_URI: 'sqlite::memory:',
  IDP_PUBLIC_URL: 'https://idp.example',
  IDP_ED25519_SEED: 'b7d1f0c25e8a4396f0c25e8a4396b7d1b7d1f0c25e8a4396f0c25e8a4396b7d1',
};

t.test('a full log disk blocks nothing', { skip: !isLinux && 'there is no /dev/full' }, async (t) => {
  const faults = [
    [SAAS, 'SIGTERM', 0],
    [IDP, 'SIGTERM', 0],
    [SAAS, 'SIGWINCH', 1],
  ] as const;
  const preload = join(temporaryFolder(t), 'fault.mjs');
  writeFileSync(preload, "process.once('SIGWINCH', () => { throw new Error('out of the blue') })");
  await Promise.all(
    faults.map(async ([script, signal, code]) => {
      const port = await serverPort();
      const serve = `exec "${process.execPath}" --import="${preload}" "${script}" serve --host 127.0.0.1 --port ${port} >/dev/full`;
      const program = startCommand(t, 'sh', {
        args: ['-c', serve],
        cwd: temporaryFolder(t),
        env: PRODUCTION,
      });
      const isReady = () =>
        fetch(`http://127.0.0.1:${port}/ready`).then(
          ({ status }) => status === 200,
          () => false,
        );
      await waitUntil('readiness', isReady);
      // An empty provider prints the link of its first operator, and may complain that it cannot.
      const complaints = script === IDP ? ['The output cannot be written (ENOSPC).'] : [];
      t.ok(['', ...complaints].includes(program.lines.join()), 'no log line is written to stderr');
      program.signal(signal);
      t.equal(await program.ended(), code, `${signal} ends it`);
    }),
  );
});

t.test('log lines that could not be written are counted, and partial lines are terminated', async (t) => {
  const out: string[] = [];
  const answers: (number | string)[] = [];
  const log = createLogStream((bytes) => {
    const next = answers.shift() ?? bytes.length;
    if (typeof next === 'string') throw Object.assign(new Error(next), { code: next });
    out.push(bytes.subarray(0, next).toString());
    return next;
  });
  answers.push('EAGAIN', 3, 'ENOSPC', 'ENOSPC');
  log.write('first\n');
  log.write('second\n');
  t.same(out, ['fir']);
  log.write('third\n');
  t.match(out.join(''), /^fir\n\{"level":40,"lost":2,[^\n]*\}\nthird\n$/);
  answers.push(...Array.from({ length: 60 }, () => 'EAGAIN'));
  log.write('fourth\n');
  t.ok(answers.length > 0, 'a reader that never reads is not waited for');
});
