import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Lets a server end in time. Node waits for every connection, also for one that has sent nothing or half a
 * request, and stops looking at its time-outs once the server closes.
 *
 * @returns ends the connections without a request at once, and the others after `grace` milliseconds
 */
export function trackConnections(server: Server): (grace: number) => void {
  const open = new Set<Socket>();
  const requests = new WeakMap<Socket, number>();
  let isEnding = false;

  const count = (socket: Socket, change: 1 | -1): void => {
    const left = (requests.get(socket) ?? 0) + change;
    requests.set(socket, left);
    if (left === 0 && isEnding) socket.end();
  };
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    count(socket, 1);
    response.on('close', () => count(socket, -1));
  });

  return (grace) => {
    isEnding = true;
    for (const socket of open) if (!requests.get(socket)) socket.destroy();
    setTimeout(() => server.closeAllConnections(), grace).unref();
  };
}
