/** The end of a connection whose client has not ended yet. */
import type { Socket } from 'node:net';
import { SECOND } from '../kernel/clock.js';

/** How long a client may take to hear its last answer. */
const LINGER = 3 * SECOND;

/** Bytes that this process discards in such a time. What is read is garbage to collect, so all connections share them. */
const MAX_DISCARDED = 4 * 1024 * 1024;

let discarded = 0;
const forgetDiscarded = () => {
  discarded = 0;
};

/**
 * Ends a connection whose client may still be sending. What arrives once it is closed brings a reset, and a reset makes
 * the client lose the answer: so only our half is closed at first, and what comes is discarded (RFC 9112 §9.6).
 *
 * @param lastWords sent before
 */
export function closeConnection(socket: Socket, lastWords = ''): void {
  socket.end(lastWords);
  // Node's parser listens there: what comes now is no request any more.
  socket.removeAllListeners('data');
  socket.on('data', ({ length }: Buffer) => {
    if (discarded === 0) setTimeout(forgetDiscarded, LINGER).unref();
    discarded += length;
    // The client cannot go on sending then, but it can read.
    if (discarded > MAX_DISCARDED) socket.pause();
  });
  // A body that nobody took has stopped the reading, and its parser, which would resume it, is gone: so it begins anew.
  socket.push('');
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), LINGER);
  socket.once('close', () => clearTimeout(timer));
}
