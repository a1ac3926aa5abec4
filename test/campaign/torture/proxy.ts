/** A TCP proxy whose network has faults. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

export type Fault =
  /** Every packet arrives later. */
  | { kind: 'delay'; ms: number }
  /** Drops all data in both directions without closing the connection, until the fault ends. */
  | { kind: 'half-open' }
  /** Every nth response is cut in its middle by a reset. */
  | { kind: 'reset'; every: number };

interface Link {
  client: Socket;
  upstream: Socket;
  /** Whether bytes were swallowed, so that the connection cannot continue. */
  isBroken: boolean;
  /** Whether faults apply. */
  isConcerned: boolean;
}

export class FaultyProxy {
  /** The current fault, which applies to all connections that `concerns` accepts. */
  #fault: Fault | null = null;
  readonly #links = new Set<Link>();
  readonly #server: Server;
  readonly #concerns: (first: Buffer) => boolean;
  #target: number;
  #responses = 0;

  /**
   * @param targetPort a port of 127.0.0.1
   * @param concerns decides by the first bytes of a client
   */
  constructor(targetPort: number, concerns: (first: Buffer) => boolean = () => true) {
    this.#concerns = concerns;
    this.#target = targetPort;
    this.#server = createServer((client) => this.#accept(client, connect(this.#target, '127.0.0.1')));
  }

  /** Listens on 127.0.0.1, by default on a free port. */
  async listen(port = 0): Promise<number> {
    this.#server.listen(port, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  set fault(fault: Fault | null) {
    this.#fault = fault;
    if (fault) return;
    for (const link of this.#links) if (link.isBroken) end(link);
  }

  /** Another port from now on: connections to the earlier one end. */
  set target(port: number) {
    this.#target = port;
    for (const link of this.#links) end(link);
  }

  close(): void {
    this.#server.close();
    for (const link of this.#links) end(link);
  }

  #accept(client: Socket, upstream: Socket): void {
    const link: Link = { client, upstream, isBroken: false, isConcerned: false };
    this.#links.add(link);
    for (const socket of [client, upstream]) socket.setNoDelay().on('error', () => {});
    let isFirst = true;
    client.on('data', (bytes: Buffer) => {
      if (isFirst) link.isConcerned = this.#concerns(bytes);
      isFirst = false;
      this.#pass(link, upstream, bytes);
    });
    upstream.on('data', (bytes: Buffer) => {
      const fault = link.isConcerned ? this.#fault : null;
      if (fault?.kind === 'reset' && ++this.#responses % fault.every === 0) {
        client.write(bytes.subarray(0, bytes.length / 2), () => end(link));
      } else this.#pass(link, client, bytes);
    });
    client.on('close', () => this.#leave(link, upstream));
    upstream.on('close', () => this.#leave(link, client));
  }

  #pass(link: Link, to: Socket, bytes: Buffer): void {
    const fault = link.isConcerned ? this.#fault : null;
    if (fault?.kind === 'half-open') link.isBroken = true;
    if (link.isBroken) return;
    if (fault?.kind === 'delay') setTimeout(() => to.write(bytes), fault.ms);
    else to.write(bytes);
  }

  /** One end has closed. While nothing arrives, the other end does not learn of it. */
  #leave(link: Link, other: Socket): void {
    if (this.#fault?.kind === 'half-open' && link.isConcerned) link.isBroken = true;
    else {
      other.destroy();
      if (link.client.destroyed && link.upstream.destroyed) this.#links.delete(link);
    }
  }
}

function end({ client, upstream }: Link): void {
  client.resetAndDestroy();
  upstream.resetAndDestroy();
}
