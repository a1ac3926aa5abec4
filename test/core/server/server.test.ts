import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { mock } from 'node:test';
import t from 'tap';
import { createServer } from '../../../src/index.js';
import { testOptions } from '../../kit/app.js';
import { compiled, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { gate, waitUntil } from '../../kit/wait.js';

// Two of these tests wait for time-outs, so all run concurrently.
t.jobs = 4;

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

t.test(
  'what a trusted proxy says of a request is in the log, and nothing else',
  { buffered: true },
  async (t) => {
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const traceparent = `00-${trace}-00f067aa0ba902b7-01`;
    const start = async (more: object) => {
      const options = { ...testOptions(temporaryFolder(t)), logLevel: 'debug', ...more };
      const program = startProgram(t, compiled('test/kit/saas-server.js'), {
        args: [JSON.stringify(options)],
      });
      const url = await program.url();
      return async (headers: Record<string, string>, path = '/api/settings/public') => {
        const answer = await fetch(url + path, { headers });
        const id = answer.headers.get('x-request-id') ?? '';
        const lines = () => program.lines.filter((line) => line.includes(`"reqId":"${id}"`));
        await waitUntil('the request is logged', async () => lines().length > 0);
        return { id, log: JSON.parse(lines().at(-1) ?? '') };
      };
    };
    const behindProxy = await start({ trustProxy: ['127.0.0.1'] });
    t.match(await behindProxy({ 'x-request-id': 'edge-1.a:b=c', traceparent }), {
      id: 'edge-1.a:b=c',
      log: {
        reqId: 'edge-1.a:b=c',
        trace_id: trace,
        program: 'saas-backend',
        version: /^\d+\./,
        pid: Number,
      },
    });
    for (const id of ['a b', 'a"b', 'a{b', 'x'.repeat(129), '', 'a, b'])
      t.match(await behindProxy({ 'x-request-id': id }), { id: /^req_/ }, id);
    const wrong = [
      traceparent.toUpperCase(),
      `${traceparent}-more`,
      traceparent.replace(/^00/, 'ff'),
      traceparent.replace(trace, '0'.repeat(32)),
      traceparent.replace('00f067aa0ba902b7', '0'.repeat(16)),
      traceparent.slice(1),
      ` ${traceparent}, ${traceparent}`,
    ];
    for (const one of wrong) t.notOk((await behindProxy({ traceparent: one })).log.trace_id, one);
    const later = await behindProxy({ traceparent: `${traceparent.replace(/^00/, 'cc')}-more` });
    t.equal(later.log.trace_id, trace, 'a later version of the header');

    for (const options of [{}, { trustProxy: ['192.0.2.1'] }]) {
      const alone = await start(options);
      const untrusted = await alone({ 'x-request-id': 'edge-1', traceparent });
      t.match(untrusted.id, /^req_/, 'a client is no proxy');
      t.notOk(untrusted.log.trace_id);
    }

    t.equal((await behindProxy({}, '/health')).log.level, 20, 'a probe that succeeds is logged at debug');
    t.equal((await behindProxy({})).log.level, 30);
  },
);

t.test(
  'the log has one line of JSON for each request, with an ID of the server and the route',
  { buffered: true },
  async (t) => {
    const options = { ...testOptions(temporaryFolder(t)), logLevel: 'info' };
    const program = startProgram(t, compiled('test/kit/saas-server.js'), { args: [JSON.stringify(options)] });
    const headers = { 'x-request-id': 'chosen{"level":60}' };
    await fetch(`${await program.url()}/api/settings/public?x=chosen`, { headers });
    const [line] = await program.printed(/^.*"request completed".*$/);
    t.notMatch(line, 'chosen');
    t.match(JSON.parse(line), {
      reqId: /^req_/,
      req: { method: 'GET', route: '/api/settings/public', ip: '127.0.0.1' },
      statusCode: 200,
      responseTime: Number,
    });
  },
);

t.test('a stop finishes requests in progress and accepts no new ones', { buffered: true }, async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const [begun, finished] = [gate(), gate()];
  server.fastify.get('/slow', async () => {
    begun.open();
    await finished.opened;
    return 'done';
  });
  const { url } = await server.start();
  t.equal((await fetch(`${url}/ready`)).status, 200);
  const slow = fetch(`${url}/slow`);
  await begun.opened;
  const stopped = server.stop();
  t.equal(server.stop(), stopped, 'twice is once');
  t.equal(server.close, server.stop);
  finished.open();
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
  // All are sent at once, before the server stops to wait for them.
  const responses = await Promise.all(clients.map(({ ask }) => ask()));
  for (const response of responses) t.match(response, /^HTTP\/1.1 200 [\s\S]*connection: close/i);
  await Promise.all(clients.map(({ closed }) => closed));
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

// Alone, because it moves the timers of the process.
t.test('a slow start is waited for', async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  mock.timers.enable({ apis: ['setTimeout'] });
  server.fastify.register(async () => mock.timers.tick(50_000));
  try {
    await server.fastify.ready();
  } finally {
    mock.timers.reset();
  }
  t.equal((await server.fastify.inject('/ready')).statusCode, 200);
});
