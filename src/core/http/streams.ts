import type { Socket } from 'node:net';
import { finished, Readable } from 'node:stream';
import { setImmediate as endOfTurn } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { currentBudget } from '../storage/request-budget.js';

/** What the last line of an incomplete text says. Its connection is broken as well, which a proxy may hide. */
export const INCOMPLETE = 'INCOMPLETE: the server failed before the end. Repeat the request.';

/**
 * Streams text that is read as the client consumes it, and not before. The stream also ends when the client disconnects. Its calls
 * of the store are limited one by one. If one fails, the text ends with a line that says so, and the connection is broken.
 *
 * @param onEnd called once, before the last chunk or when the stream is destroyed
 */
export function streamText(
  { raw: { socket } }: FastifyRequest,
  reply: FastifyReply,
  chunks: AsyncIterable<string>,
  onEnd: () => void = () => undefined,
): FastifyReply {
  let hasEnded = false;
  const end = () => {
    if (!hasEnded) onEnd();
    hasEnded = true;
  };
  currentBudget()?.end();
  const text = async function* () {
    let hasBegun = false;
    try {
      for await (const chunk of chunks) {
        hasBegun = true;
        yield chunk;
        await drained(socket);
      }
    } catch (error) {
      // Before the first chunk, the response is an ordinary one.
      if (hasBegun) {
        yield `\n${INCOMPLETE}\n`;
        // The response is corked until the end of the turn.
        await endOfTurn();
        await drained(socket);
      }
      throw error;
    }
    end();
  };
  const body = Readable.from(text(), { objectMode: false });
  finished(body, end);
  // Node does not close a pipelined response that is still queued.
  const destroy = () => body.destroy();
  socket.once('close', destroy);
  finished(body, () => socket.off('close', destroy));
  if (socket.destroyed) destroy();
  return reply.send(body);
}

/**
 * Serializes JSON as a stream. An async iterable of pages becomes one array, and pages are read as the client
 * consumes them. Properties that are `undefined` are omitted.
 *
 * @param onEnd called once, before the last chunk or when the stream is destroyed
 */
export function streamJson(
  request: FastifyRequest,
  reply: FastifyReply,
  value: object,
  onEnd?: () => void,
): FastifyReply {
  return streamText(request, reply.type('application/json; charset=utf-8'), chunksOf(value), onEnd);
}

/**
 * Resolves when a connection has been read or closed. The 'drain' event of a response does not suffice: Node emits it
 * whenever the response to a later, pipelined request is queued.
 */
async function drained(socket: Socket): Promise<void> {
  while (socket.writableNeedDrain && !socket.destroyed) {
    await new Promise<void>((resolve) => {
      const settle = () => {
        socket.off('drain', settle).off('close', settle);
        resolve();
      };
      socket.on('drain', settle).on('close', settle);
    });
  }
}

/** The text of `streamJson`. */
export async function* chunksOf(value: unknown): AsyncGenerator<string, void, undefined> {
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
