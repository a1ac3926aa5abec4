import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { connectionLimit } from '../../../src/core/server/descriptors.js';
import type { ServerOptions } from '../../../src/core/server/options.js';
import { createServer } from '../../../src/index.js';
import { testOptions } from '../../kit/app.js';
import { temporaryFolder } from '../../kit/tmp.js';

const HEALTH = 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n';
/** Its response has 200 KB. */
const OPENAPI = 'GET /api/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n';
/** A request that the server is processing as soon as it asks for its body. */
const LOGIN =
  'POST /api/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n' +
  'expect: 100-continue\r\n\r\n';

/** A connection that reads its answers one by one. */
interface Client {
  socket: Socket;
  write(text: string): void;
  /** The status of the next answer, or `closed`. */
  next(): Promise<string>;
}

async function begin(t: Test, own: ServerOptions, from: typeof startSaas = startSaas) {
  const port = await from(t, own);
  const connectFrom = async (localAddress?: string): Promise<Client> => {
    const socket = connect({ port, host: '127.0.0.1', ...(localAddress !== undefined && { localAddress }) });
    t.teardown(() => socket.destroy());
    socket.setEncoding('latin1').on('error', () => {});
    let text = '';
    let isClosed = false;
    const changed = () => new Promise<void>((resolve) => waiting.push(resolve));
    const waiting: (() => void)[] = [];
    const wake = () => {
      for (const resolve of waiting.splice(0)) resolve();
    };
    socket.on('data', (chunk: string) => {
      text += chunk;
      wake();
    });
    socket.on('close', () => {
      isClosed = true;
      wake();
    });
    await once(socket, 'connect');
    return {
      socket,
      write: (bytes) => void socket.write(bytes),
      async next() {
        for (;;) {
          const found = /HTTP\/1\.1 (\d{3}) [\s\S]*?\r\n\r\n/.exec(text);
          if (found) {
            text = text.slice(found.index + found[0].length);
            return String(found[1]);
          }
          if (isClosed) return 'closed';
          await changed();
        }
      },
    };
  };
  const idle = async (localAddress?: string): Promise<Client> => {
    const client = await connectFrom(localAddress);
    client.write(HEALTH);
    t.equal(await client.next(), '200');
    return client;
  };
  const isServed = async (client: Client): Promise<boolean> => {
    client.write(HEALTH);
    return (await client.next()) === '200';
  };
  return { connectFrom, idle, isServed };
}

async function startSaas(t: Test, own: ServerOptions): Promise<number> {
  const server = createServer({ ...testOptions(temporaryFolder(t)), ...own });
  t.teardown(() => server.stop());
  return (await server.start()).port;
}

t.test('beyond the limit of an address, its longest idle connection is closed', async (t) => {
  const { idle, isServed } = await begin(t, { maxConnectionsPerAddress: 4 });
  const clients: Client[] = [];
  for (let count = 0; count < 4; count++) clients.push(await idle());
  const [first, second, third, fourth] = clients as [Client, Client, Client, Client];
  t.ok(await isServed(first), 'used again, it is not the longest idle any more');
  const fifth = await idle();
  t.equal(await second.next(), 'closed');
  for (const kept of [first, third, fourth, fifth]) t.ok(await isServed(kept));
});

t.test('a request in progress is never cut off for a new connection', async (t) => {
  const { connectFrom, idle, isServed } = await begin(t, { maxConnectionsPerAddress: 4 });
  const busy = await connectFrom();
  busy.write(LOGIN);
  t.equal(await busy.next(), '100');
  const silent = await connectFrom();
  const others = [await idle(), await idle()];
  for (let count = 0; count < 4; count++) others.push(await idle());
  t.equal(await silent.next(), 'closed', 'a connection that has sent nothing is idle');
  for (const closed of others.slice(0, -3)) t.equal(await closed.next(), 'closed');
  busy.write('{}');
  t.equal(await busy.next(), '400', 'the request gets its answer');
  t.ok(await isServed(busy), 'and the connection lives on');
});

t.test('an upgraded connection is never idle', async (t) => {
  const server = createServer({ ...testOptions(temporaryFolder(t)), maxConnectionsPerAddress: 4 });
  t.teardown(() => server.stop());
  server.fastify.server.on('upgrade', (_request, socket) => {
    socket.on('error', () => {}).write('HTTP/1.1 101 Switching Protocols\r\n\r\n');
    socket.on('data', (chunk) => socket.write(chunk));
  });
  const { connectFrom, idle, isServed } = await begin(t, {}, async () => (await server.start()).port);
  const upgraded = await connectFrom();
  upgraded.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n');
  t.equal(await upgraded.next(), '101');
  const others: Client[] = [];
  for (let count = 0; count < 6; count++) others.push(await idle());
  for (const closed of others.slice(0, -3)) t.equal(await closed.next(), 'closed');
  // Looks like an answer when echoed.
  upgraded.write('HTTP/1.1 200 echo\r\n\r\n');
  t.equal(await upgraded.next(), '200');
  upgraded.socket.destroy();
  await once(upgraded.socket, 'close');
  const fresh = await idle();
  for (const kept of [...others.slice(-2), fresh]) t.ok(await isServed(kept));
});

t.test('when every connection of an address has a request in progress, a new one is refused', async (t) => {
  const { connectFrom, idle } = await begin(t, { maxConnectionsPerAddress: 4 });
  const busy: Client[] = [];
  for (let count = 0; count < 4; count++) {
    const client = await connectFrom();
    client.write(LOGIN);
    t.equal(await client.next(), '100');
    busy.push(client);
  }
  const refused = await connectFrom();
  t.equal(await refused.next(), 'closed');
  for (const client of busy) {
    client.write('{}');
    t.equal(await client.next(), '400', 'the others get their answers');
  }
  t.ok(await idle(), 'afterwards there is room again');
});

t.test('an address at its limit does not block other addresses', async (t) => {
  const { idle, isServed } = await begin(t, { maxConnectionsPerAddress: 4 });
  const other = await idle('127.0.0.2').catch(() => null);
  if (!other) return t.plan(0, 'this system has one loopback address only');
  for (let count = 0; count < 12; count++) await idle();
  t.ok(await isServed(other));
});

t.test('a listed proxy is bounded only by the total limit', async (t) => {
  const own = { maxConnections: 16, maxConnectionsPerAddress: 4, trustProxy: ['127.0.0.0/8'] };
  const { idle, isServed } = await begin(t, own);
  const clients: Client[] = [];
  for (let count = 0; count < 16; count++) clients.push(await idle());
  const newest = await idle();
  t.equal(await (clients[0] as Client).next(), 'closed', 'the longest idle of all');
  for (const kept of [...clients.slice(1), newest]) t.ok(await isServed(kept));
});

t.test('the total limit leaves file descriptors for everything else', async (t) => {
  t.equal(connectionLimit(16_384, 20_000), 16_384);
  t.equal(connectionLimit(16_384, 1024), 768);
  t.equal(connectionLimit(16_384, 256), 128);
  t.equal(connectionLimit(500, 1024), 500);
  t.equal(connectionLimit(16_384, Number.POSITIVE_INFINITY), 16_384);
});

/** Reads that many responses, or those that arrive before the connection closes. Returns their number. */
async function countResponses({ socket, next }: Client, expected: number): Promise<number> {
  socket.resume();
  let count = 0;
  while (count < expected && (await next()) === '200') count++;
  return count;
}

t.test(
  'pipelined requests are processed as their responses are read, and meanwhile others are',
  async (t) => {
    const { connectFrom, idle, isServed } = await begin(t, {});
    const [client, other] = [await connectFrom(), await idle()];
    client.socket.pause();
    client.write(OPENAPI.repeat(200));
    for (let count = 0; count < 20; count++) t.ok(await isServed(other));
    t.equal(await countResponses(client, 200), 200);
  },
);

t.test('a client that pipelines thousands of requests and reads nothing is disconnected', async (t) => {
  const { connectFrom, idle, isServed } = await begin(t, {});
  const [greedy, other] = [await connectFrom(), await idle()];
  greedy.socket.pause();
  greedy.write(OPENAPI.repeat(100) + HEALTH.repeat(9000));
  for (let count = 0; count < 20; count++) t.ok(await isServed(other));
  const received = await countResponses(greedy, 9100);
  t.ok(received < 100, `${received} of 9100 responses were sent`);
  other.write(OPENAPI + HEALTH + HEALTH);
  t.equal(await countResponses(other, 3), 3, 'others may pipeline');
});
