import { finished, Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';

/**
 * Serializes JSON as a stream. An async iterable of pages becomes one array, and pages are read as the client
 * consumes them. Properties that are `undefined` are omitted.
 *
 * @param onEnd called once, before the last chunk or when the stream is destroyed
 */
export function jsonStream(value: object, onEnd: () => void): Readable {
  let hasEnded = false;
  const end = () => {
    if (!hasEnded) onEnd();
    hasEnded = true;
  };
  const text = async function* () {
    yield* chunksOf(value);
    end();
  };
  const stream = Readable.from(text(), { objectMode: false });
  finished(stream, end);
  return stream;
}

/** Sends JSON as a stream, which also ends when the client disconnects. */
export function streamJson(
  { raw: { socket } }: FastifyRequest,
  reply: FastifyReply,
  value: object,
  onEnd: () => void = () => undefined,
): FastifyReply {
  const body = jsonStream(value, onEnd);
  // Node does not close a pipelined response that is still queued.
  const destroy = () => body.destroy();
  socket.once('close', destroy);
  finished(body, () => socket.off('close', destroy));
  if (socket.destroyed) destroy();
  return reply.type('application/json; charset=utf-8').send(body);
}

async function* chunksOf(value: unknown): AsyncGenerator<string, void, undefined> {
  if (isPages(value)) {
    let separator = '';
    yield '[';
    for await (const page of value) {
      if (page.length === 0) continue;
      yield separator + JSON.stringify(page).slice(1, -1);
      separator = ',';
    }
    yield ']';
  } else if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    let separator = '{';
    for (const [name, member] of Object.entries(value)) {
      if (member === undefined) continue;
      yield `${separator}${JSON.stringify(name)}:`;
      yield* chunksOf(member);
      separator = ',';
    }
    yield separator === '{' ? '{}' : '}';
  } else yield JSON.stringify(value);
}

const isPages = (value: unknown): value is AsyncIterable<readonly unknown[]> =>
  typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
