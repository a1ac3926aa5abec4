import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import { streamText } from '../../../src/core/http/streams.js';
import { waitUntil } from '../../kit/wait.js';

const MEBIBYTE = 2 ** 20;
const PAGES = 100;

/** A server whose `GET /pages` streams pages of one MiB, and a client that sends requests and reads nothing. */
async function start(t: Test) {
  const app = fastify();
  t.teardown(() => app.close());
  const counts = { read: 0, ended: 0, others: 0 };
  let serverSide: Socket | undefined;
  async function* pages() {
    for (; counts.read < PAGES; counts.read++) yield 'x'.repeat(MEBIBYTE);
  }
  app.get('/pages', (request, reply) => {
    serverSide = request.raw.socket;
    return streamText(request, reply, pages(), () => counts.ended++);
  });
  app.get('/other', () => `${++counts.others}`);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1').setEncoding('latin1');
  t.teardown(() => client.destroy());
  client.pause();
  const send = (path: string) => client.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
  return { client, counts, send, buffered: () => serverSide?.writableLength ?? 0 };
}

t.test('requests that are pipelined after an unread stream do not cause it to be read', async (t) => {
  const { client, counts, send, buffered } = await start(t);
  send('/pages');
  await waitUntil('the buffers are full', () => buffered() > 0);
  // One after another, since Node stops to read requests while their responses wait.
  for (let count = 1; count <= 40; count++) {
    send('/other');
    await waitUntil('the request was processed', () => counts.others === count);
  }
  t.ok(buffered() <= 2 * MEBIBYTE, `${buffered()} bytes wait for the client`);
  t.equal(counts.ended, 0);

  let text = '';
  client.on('data', (chunk: string) => {
    text = (text + chunk).slice(-1000);
  });
  client.resume();
  await waitUntil('the last response', () => text.endsWith('40'));
  t.equal(counts.read, PAGES, 'the stream is whole when the client reads it');
  t.equal(counts.ended, 1);
});

t.test('a stream ends when its client disconnects, also while it waits or is queued', async (t) => {
  const { client, counts, send, buffered } = await start(t);
  send('/pages');
  await waitUntil('the buffers are full', () => buffered() > 0);
  send('/pages');
  send('/other');
  await waitUntil('the requests were processed', () => counts.others === 1);
  client.destroy();
  await once(client, 'close');
  await waitUntil('both streams have ended', () => counts.ended === 2);
  t.ok(counts.read < PAGES);
});
