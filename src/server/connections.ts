import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
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
  /** Number of requests in progress, including those that wait. */
  active: number;
  /** Pipelined requests that wait until the response before is sent. */
  waiting: [IncomingMessage, ServerResponse][];
}

/** Requests that may wait on all connections together, and one on each. A chunk of 64 KiB contains up to 1,700. */
const MAX_WAITING_REQUESTS = 4096;

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
 * Requests of one connection are processed one after another. Node would process all pipelined ones at once and keep
 * their responses until the client reads: a page is a hundred times as long as its request. When too many wait, a
 * connection with a further one is closed, which clients that pipeline have to expect (RFC 9112 §9.3.2).
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
  let waitingRequests = 0;

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
    waitingRequests -= connection.waiting.length;
    connection.waiting = [];
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
    const connection: Connection = { socket, source, latest: null, active: 0, waiting: [] };
    add(connection);
    socket.on('close', () => remove(connection));
    // Node calls this to close a connection after its last response.
    const { destroySoon } = socket;
    socket.destroySoon = () => {
      if (connection.latest?.req.complete === false) closeConnection(socket);
      else destroySoon.call(socket);
    };
  });
  // Fastify's, which would process all of them at once.
  const [handle] = server.listeners('request') as [RequestListener];
  server.off('request', handle);
  const handleIn = (connection: Connection, request: IncomingMessage, response: ServerResponse) => {
    // Emitted once; `once` itself would take longer than the listener.
    response.on('close', () => {
      connection.active--;
      const next = connection.waiting.shift();
      if (next) {
        waitingRequests--;
        handleIn(connection, ...next);
      } else if (connection.active === 0 && open.has(connection.socket)) markIdle(connection);
    });
    handle(request, response);
  };
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const connection = open.get(socket);
    if (isClosing) endAfter(response, socket);
    if (!connection) {
      // Node emits what was pipelined until a connection was closed. Others are unknown if a host passes on its own requests.
      if (!socket.destroyed) handle(request, response);
      return;
    }
    connection.latest = response;
    if (connection.active++ === 0) {
      markActive(connection);
      handleIn(connection, request, response);
    } else if (connection.waiting.length > 0 && waitingRequests >= MAX_WAITING_REQUESTS) {
      remove(connection);
      socket.destroy();
    } else {
      waitingRequests++;
      connection.waiting.push([request, response]);
    }
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
