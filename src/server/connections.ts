import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { closeConnection } from '../http/close-connection.js';
import { addressBlock } from '../kernel/addresses.js';

/** How many connections a server keeps open. */
export interface ConnectionLimits {
  total: number;
  /** Of one address; an IPv6 address counts as its /64. */
  perAddress: number;
  /** Whether all clients of a proxy come from this address, so that only the total bounds it. */
  isProxy(address: string): boolean;
}

interface Connection {
  socket: Socket;
  /** Absent for a proxy. */
  source: Source | undefined;
  /** The latest answer: answers leave in the order of their requests, so it tells for all. */
  latest: ServerResponse | null;
  /** Requests whose answer has not ended. */
  active: number;
}

/** The connections of one address block. */
interface Source {
  block: string;
  count: number;
  idle: Set<Connection>;
}

/**
 * Bounds the connections of a server: where a limit is reached, the connection that has been idle for longest is closed
 * in favour of the new one, and the new one is refused where none is idle. Requests under way are never cut.
 *
 * Also lets the server end in time. Node waits for every connection, also for one that has sent nothing or half a
 * request, and stops looking at its time-outs once the server closes.
 *
 * @returns ends the connections without a request at once, and the others after `grace` milliseconds
 */
export function trackConnections(server: Server, limits: ConnectionLimits): (grace: number) => void {
  const open = new Map<Socket, Connection>();
  const sources = new Map<string, Source>();
  // In the order in which they became idle.
  const idle = new Set<Connection>();
  let isEnding = false;

  const sourceOf = (address: string | undefined): Source | undefined => {
    if (address !== undefined && limits.isProxy(address)) return undefined;
    const block = addressBlock(address);
    return sources.get(block) ?? { block, count: 0, idle: new Set() };
  };
  const add = (connection: Connection) => {
    const { socket, source } = connection;
    open.set(socket, connection);
    if (source) {
      source.count++;
      sources.set(source.block, source);
    }
    rest(connection);
  };
  const remove = (connection: Connection) => {
    const { socket, source } = connection;
    if (!open.delete(socket)) return;
    wake(connection);
    if (source && --source.count === 0) sources.delete(source.block);
  };
  const rest = (connection: Connection) => {
    idle.add(connection);
    connection.source?.idle.add(connection);
  };
  const wake = (connection: Connection) => {
    idle.delete(connection);
    connection.source?.idle.delete(connection);
  };
  /** False where none is idle. */
  const closeLongestIdle = (among: ReadonlySet<Connection>): boolean => {
    for (const connection of among) {
      remove(connection);
      connection.socket.destroy();
      return true;
    }
    return false;
  };
  const hasRoomFor = (source: Source | undefined): boolean => {
    if (source && source.count >= limits.perAddress && !closeLongestIdle(source.idle)) return false;
    return open.size < limits.total || closeLongestIdle(idle);
  };
  const endAfter = (response: ServerResponse, socket: Socket) =>
    response.once('close', () => {
      // The answer to a request that came behind it may be under way.
      if (open.get(socket)?.latest === response) socket.end();
    });

  server.on('connection', (socket: Socket) => {
    const source = sourceOf(socket.remoteAddress);
    if (!hasRoomFor(source)) {
      socket.destroy();
      return;
    }
    const connection: Connection = { socket, source, latest: null, active: 0 };
    add(connection);
    socket.on('close', () => remove(connection));
    // With this, Node closes a connection behind its last answer.
    const { destroySoon } = socket;
    socket.destroySoon = () => {
      if (connection.latest?.req.complete === false) closeConnection(socket);
      else destroySoon.call(socket);
    };
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = open.get(socket);
    // Of a request that a host brings from a server of its own, nobody says when its connection closes.
    if (connection) {
      connection.latest = response;
      if (connection.active++ === 0) wake(connection);
      response.once('close', () => {
        if (--connection.active === 0 && open.has(socket)) rest(connection);
      });
    }
    if (isEnding) endAfter(response, socket);
  });
  // Whoever takes a connection over, as for WebSockets, uses it until it closes: to Node it has no request. Only where
  // somebody does, because a listener makes Node accept upgrades.
  const takenOver = new Set<string | symbol>();
  server.on('newListener', (event) => {
    if ((event !== 'upgrade' && event !== 'connect') || takenOver.has(event)) return;
    takenOver.add(event);
    server.prependListener(event, ({ socket }: IncomingMessage) => {
      const connection = open.get(socket);
      if (!connection) return;
      connection.active++;
      wake(connection);
    });
  });

  return (grace) => {
    isEnding = true;
    for (const [socket, { latest }] of open) {
      if (!latest || latest.closed) socket.destroy();
      else endAfter(latest, socket);
    }
    setTimeout(() => server.closeAllConnections(), grace).unref();
  };
}
