import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { hangUp } from './hang-up.js';

/**
 * Lets a server end in time. Node waits for every connection, also for one that has sent nothing or half a
 * request, and stops looking at its time-outs once the server closes.
 *
 * @returns ends the connections without a request at once, and the others after `grace` milliseconds
 */
export function trackConnections(server: Server): (grace: number) => void {
  // By connection the latest answer: they leave in the order of their requests, so it tells for all.
  const open = new Map<Socket, ServerResponse | null>();
  let isEnding = false;

  const endAfter = (response: ServerResponse, socket: Socket) =>
    response.once('close', () => {
      // The answer to a request that came behind it may be under way.
      if (open.get(socket) === response) socket.end();
    });
  server.on('connection', (socket: Socket) => {
    open.set(socket, null);
    socket.on('close', () => open.delete(socket));
    // With this, Node closes a connection behind its last answer.
    const { destroySoon } = socket;
    socket.destroySoon = () => {
      if (open.get(socket)?.req.complete === false) hangUp(socket);
      else destroySoon.call(socket);
    };
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    // Of a request that a host brings from a server of its own, nobody says when its connection closes.
    if (open.has(socket)) open.set(socket, response);
    if (isEnding) endAfter(response, socket);
  });

  return (grace) => {
    isEnding = true;
    for (const [socket, response] of open) {
      if (!response || response.closed) socket.destroy();
      else endAfter(response, socket);
    }
    setTimeout(() => server.closeAllConnections(), grace).unref();
  };
}
