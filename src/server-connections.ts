import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { SECOND } from './kernel/clock.js';

/** How long a client may take to hear its last answer, and the bytes that are discarded for all of them in that time. */
const LINGER = 3 * SECOND;
const MOST_DISCARDED = 4 * 1024 * 1024;

/** Bytes discarded of late. What is read is garbage to collect, so the limit is one for all connections. */
let discarded = 0;
const forget = () => {
  discarded = 0;
};

/**
 * Ends a connection whose client may still be sending. What arrives once it is closed brings a reset, and a reset makes
 * the client lose the answer: so only our half is closed at first, and what comes is discarded (RFC 9112 §9.6).
 *
 * @param lastWords sent before
 */
export function hangUp(socket: Socket, lastWords = ''): void {
  socket.end(lastWords);
  // Node's parser listens there: what comes now is no request any more.
  socket.removeAllListeners('data');
  socket.on('data', ({ length }: Buffer) => {
    if (discarded === 0) setTimeout(forget, LINGER).unref();
    discarded += length;
    // The client cannot go on sending then, but it can read.
    if (discarded > MOST_DISCARDED) socket.pause();
  });
  // A body that nobody took has stopped the reading, and its parser, which would resume it, is gone: so it begins anew.
  socket.push('');
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), LINGER);
  socket.once('close', () => clearTimeout(timer));
}

/**
 * Lets a server end in time. Node waits for every connection, also for one that has sent nothing or half a
 * request, and stops looking at its time-outs once the server closes.
 *
 * @returns ends the connections without a request at once, and the others after `grace` milliseconds
 */
export function trackConnections(server: Server): (grace: number) => void {
  const open = new Set<Socket>();
  // Answers leave a connection in the order of their requests, so the latest tells for all.
  const latest = new WeakMap<Socket, ServerResponse>();
  let isEnding = false;

  const endAfter = (response: ServerResponse, socket: Socket) =>
    response.once('close', () => {
      // The answer to a request that came behind it may be under way.
      if (latest.get(socket) === response) socket.end();
    });
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    // With this, Node closes a connection behind its last answer.
    const closeNow = socket.destroySoon;
    socket.destroySoon = () => {
      if (latest.get(socket)?.req.complete === false) hangUp(socket);
      else closeNow.call(socket);
    };
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    latest.set(socket, response);
    if (isEnding) endAfter(response, socket);
  });

  return (grace) => {
    isEnding = true;
    for (const socket of open) {
      const response = latest.get(socket);
      if (!response || response.closed) socket.destroy();
      else endAfter(response, socket);
    }
    setTimeout(() => server.closeAllConnections(), grace).unref();
  };
}
