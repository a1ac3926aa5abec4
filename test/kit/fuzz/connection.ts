import { connect, type Socket } from 'node:net';
import type { Sent } from './request.js';

export interface FuzzAnswer {
  status: number;
  /** As received, including the status line. */
  head: string;
  body: string;
  header(name: string): string | undefined;
}

/** How long a server may wait for the rest of broken bytes, in milliseconds. */
const PATIENCE = 50;

/** Time limit of an answer in milliseconds; the server gives up earlier. */
const SILENCE = 15_000;

/** Sends requests one after the other over one connection, and reconnects when the server closes it. */
export class FuzzConnection {
  readonly #address: { host: string; port: number };
  #socket: Socket | undefined;
  #received = '';
  #pending: { isHead: boolean; resolve(answer: FuzzAnswer | null): void } | undefined;
  /** Received bytes that belong to no request: one request was read as two. */
  strays = 0;

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.#address = { host: hostname, port: Number(port) };
  }

  /** `null`: the server closed the connection without an answer. */
  exchange({ bytes, isHead }: Sent): Promise<FuzzAnswer | null> {
    return new Promise((resolve) => {
      this.#pending = { isHead, resolve };
      const socket = this.#socket ?? this.#open();
      socket.write(bytes);
    });
  }

  end(): void {
    this.#socket?.destroy();
  }

  #open(): Socket {
    const socket = connect(this.#address).setNoDelay().setEncoding('latin1');
    this.#socket = socket;
    this.#received = '';
    socket.on('data', (chunk) => this.#receive(socket, String(chunk)));
    // Longer than any request may take here: without an answer by then, there will be none.
    socket.setTimeout(SILENCE, () => socket.destroy());
    // The `close` event handles errors.
    socket.on('error', () => {});
    socket.on('close', () => {
      if (this.#socket !== socket) return;
      this.#socket = undefined;
      this.#settle(null);
    });
    return socket;
  }

  #receive(socket: Socket, chunk: string): void {
    if (this.#socket !== socket) return;
    this.#received += chunk;
    const answer = readAnswer(this.#received, this.#pending?.isHead === true);
    if (!this.#pending) this.strays++;
    if (!answer) return;
    const isLast = /^connection: close/im.test(answer.head);
    // An invalid request has no method, so its answer has a body even after HEAD; the connection ends here.
    if (this.#received.length > answer.length && !isLast) this.strays++;
    this.#received = '';
    if (isLast) {
      this.#socket = undefined;
      socket.destroy();
    }
    this.#settle(answer);
  }

  #settle(answer: FuzzAnswer | null): void {
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.resolve(answer);
  }
}

/** Sends arbitrary bytes on a new connection. `null`: there was no answer. */
export function exchangeAlone(url: string, bytes: Buffer): Promise<FuzzAnswer | null> {
  return new Promise((resolve) => {
    const { hostname, port } = new URL(url);
    const socket = connect({ host: hostname, port: Number(port) }).setEncoding('latin1');
    let received = '';
    const isHead = /^\s*HEAD /.test(bytes.toString('latin1', 0, 20));
    socket.setTimeout(PATIENCE, () => socket.destroy());
    socket.on('data', (chunk) => {
      received += chunk;
      if (readAnswer(received, isHead)) socket.destroy();
    });
    // The `close` event handles errors.
    socket.on('error', () => {});
    socket.on('close', () => resolve(readAnswer(received, isHead) ?? null));
    socket.write(bytes);
  });
}

function readAnswer(text: string, isHead: boolean): (FuzzAnswer & { length: number }) | undefined {
  const headEnd = text.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const head = text.slice(0, headEnd);
  const status = Number(head.slice(9, 12));
  // `100 Continue` comes before the answer.
  if (status < 200) {
    const rest = readAnswer(text.slice(headEnd + 4), isHead);
    return rest && { ...rest, length: rest.length + headEnd + 4 };
  }
  const header = (name: string) => new RegExp(`^${name}: (.*)$`, 'im').exec(head)?.[1];
  if (!isHead && header('transfer-encoding') === 'chunked') {
    const chunked = readChunks(text, headEnd + 4);
    return chunked && { status, head, header, ...chunked };
  }
  const size = isHead || status === 204 || status === 304 ? 0 : Number(header('content-length') ?? 0);
  const length = headEnd + 4 + size;
  if (text.length < length) return undefined;
  const body = Buffer.from(text.slice(headEnd + 4, length), 'latin1').toString();
  return { status, head, body, header, length };
}

/** The body of a chunked answer (RFC 9112 §7.1), and where it ends. */
function readChunks(text: string, start: number): { body: string; length: number } | undefined {
  let body = '';
  for (let at = start; ; ) {
    const sizeEnd = text.indexOf('\r\n', at);
    if (sizeEnd < 0) return undefined;
    const size = Number.parseInt(text.slice(at, sizeEnd), 16);
    const end = sizeEnd + 2 + size + 2;
    if (text.length < end) return undefined;
    if (size === 0) return { body: Buffer.from(body, 'latin1').toString(), length: end };
    body += text.slice(sizeEnd + 2, end - 2);
    at = end;
  }
}
