import t from 'tap';
import { bounded } from '../../../src/core/outbound/bounded-fetch.js';

const CHUNK = 64 * 1024;

/** A response of the given number of chunks, and how many of them were read. */
function responseOf(chunks: number) {
  const read = { chunks: 0, isCancelled: false };
  const body = new ReadableStream({
    pull(controller) {
      if (read.chunks === chunks) return controller.close();
      read.chunks++;
      controller.enqueue(new Uint8Array(CHUNK));
    },
    cancel() {
      read.isCancelled = true;
    },
  });
  return { response: new Response(body, { status: 201, headers: { 'x-a': 'b' } }), read };
}

t.test('a response of a megabyte is read', async (t) => {
  const { response } = responseOf(16);
  const { status, headers, body } = await bounded(response);
  t.equal(status, 201);
  t.equal(headers.get('x-a'), 'b');
  t.ok(body);
  const empty = await bounded(new Response(null, { status: 204 }));
  t.equal(empty.body, null);
});

t.test('a longer one is refused, and not read to its end', async (t) => {
  const { response, read } = responseOf(1000);
  await t.rejects(bounded(response), { message: /longer than 1048576 bytes/ });
  t.ok(read.chunks < 20, `${read.chunks} chunks`);
  t.equal(read.isCancelled, true, 'the connection is closed');
});
