import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
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
  /** Number of requests in progress, including those that wait. An upgraded connection has one that never ends. */
  active: number;
  /** The latest response, which is the last one to be sent. */
  latest: ServerResponse | null;
  /** Pipelined requests that wait until the response before is sent. */
  waiting: [IncomingMessage, ServerResponse][];
}

/** The connections of one address block. */
interface Source {
  block: string;
  count: number;
  idle: Set<Connection>;
}

/**
 * Limits the connections of a server: at the limit, a new connection replaces the one that has been idle longest, or is
 * rejected if none is idle. It never interrupts requests in progress. Those of one connection are processed one after
 * another (`RequestQueues`).
 */
export function trackConnections(server: Server, limits: ConnectionLimits) {
  const connections = new Connections(limits);
  // Fastify's, which would process all pipelined requests at once.
  const [handle] = server.listeners('request') as [RequestListener];
  server.off('request', handle);
  const requests = new RequestQueues(connections, handle);
  let isClosing = false;
  let whenEmpty: (() => void) | undefined;

  const endAfter = (response: ServerResponse, socket: Socket) =>
    response.once('close', () => {
      // A pipelined request may still be in progress.
      if (connections.get(socket)?.latest === response) socket.end();
    });

  server.on('connection', (socket: Socket) => {
    const connection = connections.admit(socket);
    if (!connection) {
      socket.destroy();
      return;
    }
    socket.on('close', () => {
      requests.drop(connection);
      if (connections.count === 0) whenEmpty?.();
    });
    // Node calls this to close a connection after its last response.
    const { destroySoon } = socket;
    socket.destroySoon = () => {
      if (connection.latest?.req.complete === false) closeConnection(socket);
      else destroySoon.call(socket);
    };
  });
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const connection = connections.get(socket);
    // The response before it announces the end: the client sends this request again elsewhere (RFC 9112 §9.6).
    if (connection?.latest && !connection.latest.closed && !connection.latest.shouldKeepAlive) return;
    // Node sends `Connection: close` and closes the connection after the response.
    if (isClosing) response.shouldKeepAlive = false;
    if (connection) requests.add(connection, request, response);
    // Node emits what was pipelined until a connection was closed. Others are unknown if a host passes on its own requests.
    else if (!socket.destroyed) handle(request, response);
  });
  // An upgraded connection, such as a WebSocket, is active until it closes. The listener is added after another one,
  // because with any listener Node accepts upgrades.
  const handled = new Set<string | symbol>();
  server.on('newListener', (event) => {
    if ((event !== 'upgrade' && event !== 'connect') || handled.has(event)) return;
    handled.add(event);
    server.prependListener(event, ({ socket }: IncomingMessage) => {
      const connection = connections.get(socket);
      if (connection) connections.begin(connection);
    });
  });

  return {
    get count() {
      return connections.count;
    },

    /**
     * Accepts no further connections, and announces the end of each with its next response (`Connection: close`), so that requests
     * on their way are still answered. Resolves after `timeoutMs`, or when all connections are closed.
     */
    async announceEnd(timeoutMs: number): Promise<void> {
      isClosing = true;
      // The method of `node:http` would also destroy connections on which the next request is on its way. In Bun there is no other.
      if (server.listening && server instanceof NetServer) NetServer.prototype.close.call(server);
      for (const { latest } of connections.all()) {
        if (latest && !latest.headersSent) latest.shouldKeepAlive = false;
      }
      if (connections.count === 0) return;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        whenEmpty = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    },

    /**
     * Closes idle connections immediately and all others after `timeoutMs`: a closing Node.js server waits for every connection and
     * no longer checks its own timeouts.
     */
    end(timeoutMs: number): void {
      isClosing = true;
      for (const { socket, latest } of connections.all()) {
        if (!latest || latest.closed) socket.destroy();
        else endAfter(latest, socket);
      }
      setTimeout(() => server.closeAllConnections(), timeoutMs).unref();
    },
  };
}

/** The open connections, with those that are idle in the order in which they became so. */
class Connections {
  readonly #limits: ConnectionLimits;
  readonly #open = new Map<Socket, Connection>();
  readonly #sources = new Map<string, Source>();
  readonly #idle = new Set<Connection>();

  constructor(limits: ConnectionLimits) {
    this.#limits = limits;
  }

  get(socket: Socket): Connection | undefined {
    return this.#open.get(socket);
  }

  get count(): number {
    return this.#open.size;
  }

  all(): Iterable<Connection> {
    return this.#open.values();
  }

  /** Adds a connection, in place of the longest idle one at a limit; `undefined` if none is idle. */
  admit(socket: Socket): Connection | undefined {
    const source = this.#sourceOf(socket.remoteAddress);
    if (!this.#hasRoomFor(source)) return undefined;
    const connection: Connection = { socket, source, latest: null, active: 0, waiting: [] };
    this.#open.set(socket, connection);
    if (source) {
      source.count++;
      this.#sources.set(source.block, source);
    }
    this.#markIdle(connection);
    return connection;
  }

  /** Counts the beginning of a request. Returns whether it is the only one. */
  begin(connection: Connection): boolean {
    if (connection.active++ > 0) return false;
    this.#markActive(connection);
    return true;
  }

  /** Counts the end of a request. */
  end(connection: Connection): void {
    if (--connection.active === 0 && this.#open.has(connection.socket)) this.#markIdle(connection);
  }

  /** Stops counting a connection, which stays open. Returns false if it was removed before. */
  remove(connection: Connection): boolean {
    const { socket, source } = connection;
    if (!this.#open.delete(socket)) return false;
    this.#markActive(connection);
    if (source && --source.count === 0) this.#sources.delete(source.block);
    return true;
  }

  #sourceOf(address: string | undefined): Source | undefined {
    if (address !== undefined && this.#limits.isProxy(address)) return undefined;
    const block = addressBlock(address);
    return this.#sources.get(block) ?? { block, count: 0, idle: new Set() };
  }

  #hasRoomFor(source: Source | undefined): boolean {
    const { total, perAddress } = this.#limits;
    if (source && source.count >= perAddress && !this.#closeLongestIdle(source.idle)) return false;
    return this.#open.size < total || this.#closeLongestIdle(this.#idle);
  }

  /** Returns false if none is idle. */
  #closeLongestIdle(among: ReadonlySet<Connection>): boolean {
    for (const connection of among) {
      // No request waits on an idle connection.
      this.remove(connection);
      connection.socket.destroy();
      return true;
    }
    return false;
  }

  #markIdle(connection: Connection): void {
    this.#idle.add(connection);
    connection.source?.idle.add(connection);
  }

  #markActive(connection: Connection): void {
    this.#idle.delete(connection);
    connection.source?.idle.delete(connection);
  }
}

/** Requests that may wait on all connections together, and one on each: an attacker may open many connections. */
const MAX_WAITING_REQUESTS = 4096;

/**
 * Processes the requests of each connection one after another, against an attacker who pipelines requests and reads nothing:
 * Node would process all of them at once and keep the responses, 25 MB for a chunk of 64 KiB, so that thirty connections
 * fill the memory. When too many wait, a connection with a further one is closed, which clients that pipeline have to expect
 * (RFC 9112 §9.3.2).
 */
class RequestQueues {
  readonly #connections: Connections;
  readonly #handle: RequestListener;
  /** Number of requests that wait, on all connections. */
  #waiting = 0;

  constructor(connections: Connections, handle: RequestListener) {
    this.#connections = connections;
    this.#handle = handle;
  }

  /** Processes a request, after those before it; or closes the connection if too many wait. */
  add(connection: Connection, request: IncomingMessage, response: ServerResponse): void {
    const { waiting, socket } = connection;
    connection.latest = response;
    if (this.#connections.begin(connection)) {
      this.#process(connection, request, response);
    } else if (waiting.length > 0 && this.#waiting >= MAX_WAITING_REQUESTS) {
      this.drop(connection);
      socket.destroy();
    } else {
      this.#waiting++;
      waiting.push([request, response]);
    }
  }

  /** Forgets a connection that is closed, with the requests that wait on it. */
  drop(connection: Connection): void {
    if (!this.#connections.remove(connection)) return;
    this.#waiting -= connection.waiting.length;
    connection.waiting = [];
  }

  #process(connection: Connection, request: IncomingMessage, response: ServerResponse): void {
    response.once('close', () => {
      this.#connections.end(connection);
      const next = connection.waiting.shift();
      if (!next) return;
      this.#waiting--;
      this.#process(connection, ...next);
    });
    this.#handle(request, response);
  }
}
