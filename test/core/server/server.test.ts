import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { openDatabase } from '../../../src/core/storage/sqlite/store.js';
import { createServer } from '../../../src/index.js';
import { basic, parseJson, SECRETS, saasApp, testOptions } from '../../kit/app.js';
import { compiled, startProgram } from '../../kit/process.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

// Two of these tests wait for time-outs, so all run concurrently.
t.jobs = 4;

const jtiOf = (token: string): string =>
  JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()).jti;

t.test('slow and silent clients are disconnected', { buffered: true }, async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const { port } = await server.start();
  const clients: Record<string, string> = {
    silent: '',
    'slow headers': 'GET /api/health HTTP/1.1\r\nHost: x\r\nX-Slow: ',
    'slow body':
      'POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{',
  };
  await Promise.all(
    Object.entries(clients).map(async ([name, begin]) => {
      const socket = connect(port, '127.0.0.1').on('error', () => {});
      socket.write(begin);
      const received = text(socket);
      const drip = begin === '' ? undefined : setInterval(() => socket.write(' '), 1000);
      const answer = await received;
      clearInterval(drip);
      t.match(answer, /^HTTP\/1\.1 408 /, name);
    }),
  );
  const { server: http } = server.fastify;
  t.match(http, { maxHeadersCount: 100, maxRequestsPerSocket: 10_000 });
});

t.test('a store that cannot write answers 503, and heals', { buffered: true }, async (t) => {
  const app = await saasApp(t);
  const { email, password, accessToken: token } = await app.signUp();
  const other = await openDatabase(app.file);
  other.exec('BEGIN IMMEDIATE');
  const login = () => app.request('POST', '/api/auth/login', { body: { email, password } });
  const busy = await login();
  t.equal(busy.status, 503);
  t.equal(busy.body.error.code, 'NOT_READY');
  t.match(busy.headers['retry-after'], /^\d+$/);
  t.notMatch(busy.text, /SQLite|locked/i);
  t.equal((await app.request('GET', '/api/auth/me', { token })).status, 200, 'reading goes on');
  other.exec('ROLLBACK');
  other.close();
  t.equal((await login()).status, 200);
});

t.test('the log, the database and its WAL contain no secret', { buffered: true }, async (t) => {
  const folder = temporaryFolder(t);
  const options = { ...testOptions(folder), logLevel: 'trace' };
  const program = startProgram(t, compiled('test/kit/saas-server.js'), { args: [JSON.stringify(options)] });
  const url = await program.url();
  const password = 'canary-password-Xw3';
  const canaries = new Set<string>([
    password,
    'canary',
    ...Object.values(SECRETS).slice(0, 3),
    SECRETS.adminPassword,
  ]);
  const send = async (method: string, path: string, headers: Record<string, string> = {}, body?: unknown) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        cookie: 'session=canary-cookie',
        'x-request-id': 'canary-request-id\n{"level":60}'.replace('\n', '%0a'),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const answer = (parseJson(await response.text()) ?? {}) as { data?: Record<string, string> };
    for (const name of ['accessToken', 'refreshToken']) {
      const token = answer.data?.[name];
      if (token) for (const canary of [token, token.split('.')[2] ?? '', jtiOf(token)]) canaries.add(canary);
    }
    return { status: response.status, data: answer.data ?? {} };
  };
  const person = { email: 'ada@example.test', password };
  await send('POST', '/api/auth/register', {}, person);
  const { data } = await send('POST', '/api/auth/login', {}, person);
  const { data: next } = await send('POST', '/api/auth/refresh', {}, { refreshToken: data['refreshToken'] });
  const signature = signWebhook('{}', SECRETS.paymentWebhookSecret, Date.now());
  canaries.add(signature.split('v1=')[1] as string);
  for (const headers of [
    { authorization: `Bearer ${next['accessToken']}` },
    { authorization: 'Bearer canary-token' },
    { authorization: basic() },
    { authorization: basic('operator', 'canary-admin') },
    { 'payment-signature': signature },
  ] as Record<string, string>[]) {
    if (headers['authorization']) canaries.add(headers['authorization'].split(' ')[1] as string);
    for (const path of [
      '/api/auth/me?token=canary-query',
      '/api/auth/register?token=canary-query',
      '/api/auth/login',
      '/api/auth/refresh',
      '/api/auth/logout',
      '/api/user/profile',
      '/api/global-settings',
      '/api/settings/public',
      '/api/billing/webhook',
      '/api/canary-path/x?token=canary-query',
      '/api/%zz?token=canary-query',
      '/%zz/canary-path?token=canary-query',
      '/canary-path?token=canary-query',
      '/admin?token=canary-query',
      '/admin/api/settings?token=canary-query',
      '/admin/canary-path',
      '/health?token=canary-query',
    ]) {
      for (const method of ['GET', 'HEAD']) await send(method, path, headers);
      for (const body of [
        { refreshToken: 'canary-refresh', email: 'canary@example.test', password: 'canary-other-password' },
        '{"password":"canary-broken',
        `{"password":"canary-large${'x'.repeat(20_000)}"}`,
      ]) {
        await send('POST', path, headers, body);
      }
    }
  }
  await send('GET', '/api/auth/me', { authorization: `Bearer ${next['accessToken']}` });

  const files = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'latin1'));
  t.ok(files.join('').includes('ada@example.test'), 'the files hold what was stored');
  t.ok(program.lines.length > 100, `${program.lines.length} lines`);
  for (const canary of canaries) {
    const line = program.lines.find((line) => line.includes(canary));
    t.equal(line, undefined, `log: ${canary.slice(0, 30)}`);
    if (canary !== 'canary')
      t.notOk(
        files.some((file) => file.includes(canary)),
        `store: ${canary.slice(0, 30)}`,
      );
  }
  const lines = program.lines.map((line) => parseJson(line) as Record<string, unknown>);
  const completed = lines.filter(({ msg }) => msg === 'request completed');
  t.ok(completed.length > 100);
  t.match(completed[0], {
    reqId: /^req_/,
    req: { method: 'POST', route: '/api/auth/register', ip: '127.0.0.1' },
    statusCode: 201,
    responseTime: Number,
  });
  t.notOk(
    lines.some((line) => line === undefined),
    'every line is JSON',
  );
});

t.test('a stop finishes requests in progress and accepts no new ones', { buffered: true }, async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  let begin = () => {};
  let finish = (_answer: string) => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const finished = new Promise<string>((resolve) => {
    finish = resolve;
  });
  server.fastify.get('/slow', () => {
    begin();
    return finished;
  });
  const { url } = await server.start();
  t.equal((await fetch(`${url}/ready`)).status, 200);
  const slow = fetch(`${url}/slow`);
  await begun;
  const stopped = server.stop();
  t.equal(server.stop(), stopped, 'twice is once');
  t.equal(server.close, server.stop);
  finish('done');
  const answer = await slow;
  t.equal(answer.status, 200);
  t.equal(await answer.text(), 'done');
  await stopped;
  await t.rejects(fetch(`${url}/health`));
});

t.test('requests that are on their way at a stop are answered, and told to close', async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const { port } = await server.start();
  const clients = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const socket = connect(port, '127.0.0.1').setEncoding('latin1');
      t.teardown(() => socket.destroy());
      let text = '';
      socket.on('data', (chunk: string) => {
        text += chunk;
      });
      const ask = async () => {
        text = '';
        socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
        await waitUntil('the response', () => text.includes('}}'));
        return text;
      };
      t.match(await ask(), /^HTTP\/1.1 200 [\s\S]*connection: keep-alive/i);
      return { socket, ask, closed: once(socket, 'close') };
    }),
  );
  const stopped = server.stop();
  for (const { ask, closed } of clients) {
    t.match(await ask(), /^HTTP\/1.1 200 [\s\S]*connection: close/i);
    await closed;
  }
  await stopped;
});

t.test('a malformed request is refused in the shape of all errors', { buffered: true }, async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const { port } = await server.start();
  const ask = async (text: string) => {
    const socket = connect(port, '127.0.0.1');
    t.teardown(() => socket.destroy());
    socket.end(text);
    return (await socket.setEncoding('utf8').toArray()).join('');
  };
  const tooLong = await ask(`GET / HTTP/1.1\r\nhost: x\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`);
  t.match(tooLong, /^HTTP\/1.1 431 [\s\S]*x-request-id: req_[\s\S]*"code":"VALIDATION_ERROR"/);
  const torn = await ask(
    'GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n',
  );
  t.match(torn, /^HTTP\/1.1 400 [\s\S]*cache-control: no-store[\s\S]*"success":false/);
});

t.test('silent clients do not delay a stop', { buffered: true }, async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const { port } = await server.start();
  const ends = ['', 'GET /health HTTP/1.1\r\nhost:', 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n'].map(
    async (text) => {
      const socket = connect(port, '127.0.0.1');
      t.teardown(() => socket.destroy());
      socket.on('error', () => undefined).resume();
      const closed = once(socket, 'close');
      await once(socket, 'connect');
      if (text !== '') await new Promise((resolve) => socket.write(text, resolve));
      if (text.endsWith('\r\n\r\n')) await once(socket, 'data');
      return { socket, closed };
    },
  );
  const sockets = await Promise.all(ends);
  // Nor does a client that continues to send after a refusal.
  const deaf = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
  t.teardown(() => deaf.destroy());
  const head = 'POST /api/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json';
  deaf.write(`${head}\r\ncontent-length: ${2 ** 40}\r\n\r\n`);
  t.match(String(await once(deaf, 'data')), /^HTTP\/1.1 413 /);
  const sendOn = () => void deaf.write('x', (error) => error ?? setImmediate(sendOn));
  sendOn();
  const deafened = new Promise((resolve) => deaf.once('close', resolve));
  await server.stop();
  await Promise.all([...sockets.map(({ closed }) => closed), deafened]);
  t.same(
    [...sockets.map(({ socket }) => socket), deaf].map(({ closed }) => closed),
    [true, true, true, true],
  );
});

t.test(
  'a server stopped while it starts does not listen and cannot be restarted',
  { buffered: true },
  async (t) => {
    const server = createServer(testOptions(temporaryFolder(t)));
    t.teardown(() => server.stop());
    const started = server.start();
    await server.stop();
    const { url } = await started;
    t.notOk(server.fastify.server.listening);
    await t.rejects(fetch(`${url}/health`));
    await t.rejects(server.start(), { message: 'A stopped server cannot be restarted. Create a new one.' });
  },
);

t.test(
  'port 0 selects a free port, and the development address follows it',
  { buffered: true },
  async (t) => {
    const { publicUrl: _, ...options } = testOptions(temporaryFolder(t));
    const server = createServer(options);
    t.teardown(() => server.stop());
    const { url, port } = await server.start();
    t.equal(url, `http://127.0.0.1:${port}`);
    const response = await fetch(`${url}/api/auth/register`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email: 'ada@example.test', password: 'a long password' }),
    });
    const { data } = (await response.json()) as { data: { accessToken: string } };
    const claims = JSON.parse(Buffer.from(data.accessToken.split('.')[1] ?? '', 'base64url').toString());
    t.equal(claims.iss, `http://localhost:${port}`);
  },
);
