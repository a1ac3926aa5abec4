import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { closeConnection } from '../http/close-connection.js';
import { addressBlock } from '../kernel/addresses.js';

/** Limits on open connections. */
export interface ConnectionLimits {
  total: number;
  /** IPv6 addresses are counted by their /64. */
  perAddress: number;
  /** Whether an address is a trusted proxy, which only the total limits. */
  isProxy(address: string): boolean;
}

interface Connection {
  socket: Socket;
  /** Absent for a proxy. */
  source: Source | undefined;
  /** The latest response, which is the last one to be sent. */
  latest: ServerResponse | null;
  /** Number of requests in progress. */
  active: number;
}

/** The connections of one address block. */
interface Source {
  block: string;
  count: number;
  idle: Set<Connection>;
}

/**
 * Limits the connections of a server: at the limit, a new connection replaces the one that has been idle longest, or is
 * rejected if none is idle. Requests in progress are never interrupted.
 *
 * @returns closes idle connections immediately and all others after `timeoutMs`: a closing Node.js server waits for every
 *   connection and no longer checks its own timeouts
 */
export function trackConnections(server: Server, limits: ConnectionLimits): (timeoutMs: number) => void {
  const open = new Map<Socket, Connection>();
  const sources = new Map<string, Source>();
  // Ordered by the time at which they became idle.
  const idle = new Set<Connection>();
  let isClosing = false;

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
    markIdle(connection);
  };
  const remove = (connection: Connection) => {
    const { socket, source } = connection;
    if (!open.delete(socket)) return;
    markActive(connection);
    if (source && --source.count === 0) sources.delete(source.block);
  };
  const markIdle = (connection: Connection) => {
    idle.add(connection);
    connection.source?.idle.add(connection);
  };
  const markActive = (connection: Connection) => {
    idle.delete(connection);
    connection.source?.idle.delete(connection);
  };
  /** Returns false if none is idle. */
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
      // A pipelined request may still be in progress.
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
    // Node calls this to close a connection after its last response.
    const { destroySoon } = socket;
    socket.destroySoon = () => {
      if (connection.latest?.req.complete === false) closeConnection(socket);
      else destroySoon.call(socket);
    };
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = open.get(socket);
    // Unknown for requests that a host passes on from its own server.
    if (connection) {
      connection.latest = response;
      if (connection.active++ === 0) markActive(connection);
      // Emitted once; `once` itself would take longer than the listener.
      response.on('close', () => {
        if (--connection.active === 0 && open.has(socket)) markIdle(connection);
      });
    }
    if (isClosing) endAfter(response, socket);
  });
  // An upgraded connection, such as a WebSocket, is active until it closes. The listener is added after another one,
  // because with any listener Node accepts upgrades.
  const handled = new Set<string | symbol>();
  server.on('newListener', (event) => {
    if ((event !== 'upgrade' && event !== 'connect') || handled.has(event)) return;
    handled.add(event);
    server.prependListener(event, ({ socket }: IncomingMessage) => {
      const connection = open.get(socket);
      if (!connection) return;
      connection.active++;
      markActive(connection);
    });
  });

  return (timeoutMs) => {
    isClosing = true;
    for (const [socket, { latest }] of open) {
      if (!latest || latest.closed) socket.destroy();
      else endAfter(latest, socket);
    }
    setTimeout(() => server.closeAllConnections(), timeoutMs).unref();
  };
}
