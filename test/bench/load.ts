/** Load over HTTP: each client sends a request, waits for the answer, and repeats. */
import { connect, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';

/** Answers per second to GET requests on that many connections, which use the sets of headers in turn. */
export function hammer(
  url: string,
  connections: number,
  seconds: number,
  headers: readonly Record<string, string>[] = [{}],
): Promise<number> {
  const { pathname, search } = new URL(url);
  const texts = headers.map((each) => request('GET', pathname + search, each));
  const clients = Array.from({ length: connections }, (_, index) =>
    repeating(texts[index % texts.length] as string, 200),
  );
  return drive(url, clients, seconds);
}

/** One client: supplies its next request and processes the answer. */
export interface Client {
  next(): string | Buffer;
  take(answer: Answer): void;
}

export interface Answer {
  status: number;
  head: string;
  body: string;
  /** Whether the server closes the connection after this answer. */
  isLast: boolean;
}

/** Encodes a request. */
export function request(
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body = '',
): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const length = body === '' ? '' : `content-length: ${Buffer.byteLength(body)}\r\n`;
  return `${method} ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n${lines.join('')}${length}\r\n${body}`;
}

/** Runs all clients concurrently, each on its own connection. Returns the answers per second. */
export async function drive(url: string, clients: readonly Client[], seconds: number): Promise<number> {
  const since = performance.now();
  const end = since + seconds * 1000;
  const counts = await Promise.all(clients.map((client) => converse(new URL(url), client, end)));
  const answered = counts.reduce((sum, count) => sum + count, 0);
  return (answered * 1000) / (performance.now() - since);
}

/** A server that answers nothing for as long will not answer: the programs give up a request earlier. */
const SILENCE_MS = 60_000;

/** `fetch` with that limit, and an error that names the address. */
export async function ask(url: string, init: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(url, { ...init, signal: AbortSignal.timeout(SILENCE_MS) });
  } catch (cause) {
    throw new Error(`${url} did not answer: ${(cause as Error).message}`, { cause });
  }
}

/** Bytes of one read. */
const READ_BYTES = 16_384;

/** Ends with the first answer after `end`, so that no request remains unanswered. */
function converse({ hostname, port }: URL, client: Client, end: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const buffer = Buffer.alloc(READ_BYTES);
    let count = 0;
    let pending = false;
    let received = '';
    let socket: Socket;

    // Not `socket.setTimeout`, which would reset a timer at every request and answer.
    let seen = -1;
    const watch = setInterval(() => {
      if (count === seen) fail(new Error(`${hostname}:${port} answered nothing for ${SILENCE_MS / 1000} s`));
      seen = count;
    }, SILENCE_MS);
    const fail = (error: unknown) => {
      clearInterval(watch);
      socket.removeAllListeners('close').destroy();
      reject(error);
    };
    const send = () => {
      pending = true;
      socket.write(client.next());
    };
    const open = () => {
      // Bypasses the stream buffers: a load generator that costs more than the server measures itself.
      const onread = { buffer, callback: receive };
      socket = connect({ host: hostname, port: Number(port), onread }).setNoDelay();
      socket.once('connect', send);
      socket.once('error', fail);
      // The programs close a connection after 10,000 requests and announce it in the last answer.
      socket.once('close', () => {
        if (pending) fail(new Error(`${hostname}:${port} hung up`));
        else if (performance.now() < end) open();
        else {
          clearInterval(watch);
          resolve(count);
        }
      });
    };
    /** @returns whether to read on */
    const receive = (bytes: number): boolean => {
      received += buffer.toString('latin1', 0, bytes);
      const answer = readAnswer(received);
      if (!answer) return true;
      received = '';
      pending = false;
      count++;
      try {
        client.take(answer);
      } catch (error) {
        fail(error);
        return false;
      }
      if (performance.now() >= end || answer.isLast) socket.end();
      else send();
      return true;
    };
    open();
  });
}

const HEAD_END = '\r\n\r\n';
const LENGTH = '\r\ncontent-length: ';
/** The same header from a peer. A second search costs less than ignoring the case. */
const LENGTH_OF_KOA = '\r\nContent-Length: ';
const CLOSE = '\r\nConnection: close';

/** Every answer of these servers has a Content-Length. */
function readAnswer(text: string): Answer | undefined {
  const headEnd = text.indexOf(HEAD_END);
  if (headEnd < 0) return undefined;
  const start = headEnd + HEAD_END.length;
  const head = text.slice(0, start);
  const own = head.indexOf(LENGTH);
  const at = own < 0 ? head.indexOf(LENGTH_OF_KOA) : own;
  if (at < 0) throw new Error(`no length in ${head}`);
  const length = Number.parseInt(head.slice(at + LENGTH.length), 10);
  const body = text.slice(start);
  if (body.length < length) return undefined;
  return { status: Number(text.slice(9, 12)), head, body, isLast: head.includes(CLOSE) };
}

/** A client that repeats one request and expects one of these statuses. */
export function repeating(text: string, ...accepted: number[]): Client {
  return { next: () => text, take: (answer) => expectStatus(answer, ...accepted) };
}

export function expectStatus({ status, body }: Answer, ...accepted: number[]): void {
  if (!accepted.includes(status)) throw new Error(`answered ${status}: ${body}`);
}
