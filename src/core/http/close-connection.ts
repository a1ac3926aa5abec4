/** Closes a connection on which the client is still sending. */
import type { Socket } from 'node:net';
import { SECOND } from '../kernel/clock.js';

/** Time for a client to read the response before the connection is destroyed. */
const LINGER_TIMEOUT_MS = 3 * SECOND;

/** Bytes that all lingering connections together may discard, because reading them costs garbage collection. */
const MAX_DISCARDED_BYTES = 4 * 1024 * 1024;

let discardedBytes = 0;
const resetDiscarded = () => {
  discardedBytes = 0;
};

/**
 * Closes a connection gracefully: closes the sending half first and discards what arrives, because a reset could make the
 * client lose the response (RFC 9112 §9.6).
 *
 * @param finalData sent before closing
 */
export function closeConnection(socket: Socket, finalData = ''): void {
  socket.end(finalData);
  // Detaches Node's HTTP parser.
  socket.removeAllListeners('data');
  socket.on('data', ({ length }: Buffer) => {
    if (discardedBytes === 0) setTimeout(resetDiscarded, LINGER_TIMEOUT_MS).unref();
    discardedBytes += length;
    // A paused client can still read the response.
    if (discardedBytes > MAX_DISCARDED_BYTES) socket.pause();
  });
  // An unread body may have paused the socket, and the detached parser no longer resumes it.
  socket.push('');
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), LINGER_TIMEOUT_MS);
  socket.once('close', () => clearTimeout(timer));
}
