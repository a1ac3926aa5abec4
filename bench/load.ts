/** Load over HTTP: clients that each ask, wait for the answer, and ask again. */
import { connect, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';

/** Answers per second to GETs on so many connections, which share the sets of headers. */
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

/** One client: says what it sends next and learns from the answer. */
export interface Client {
  next(): string;
  take(answer: Answer): void;
}

export interface Answer {
  status: number;
  head: string;
  body: string;
}

/** The text of a request, ready for the wire. */
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

/** Lets every client make its requests one after the other, on a connection of its own. Answers per second. */
export async function drive(url: string, clients: readonly Client[], seconds: number): Promise<number> {
  const since = performance.now();
  const end = since + seconds * 1000;
  const counts = await Promise.all(clients.map((client) => converse(new URL(url), client, end)));
  const answered = counts.reduce((sum, count) => sum + count, 0);
  return (answered * 1000) / (performance.now() - since);
}

/** Ends with the first answer after `end`, so that no client stops between a question and its answer. */
function converse({ hostname, port }: URL, client: Client, end: number): Promise<number> {
  return new Promise((resolve, reject) => {
    let count = 0;
    let pending = false;
    let received = '';

    const send = (socket: Socket) => {
      pending = true;
      socket.write(client.next());
    };
    const open = () => {
      const socket = connect(Number(port), hostname).setNoDelay().setEncoding('latin1');
      socket.once('connect', () => send(socket));
      socket.on('data', (chunk: string) => receive(socket, chunk));
      socket.once('error', reject);
      // The programs close a connection after 10,000 requests, and say so in the last answer.
      socket.once('close', () => {
        if (pending) reject(new Error(`${hostname}:${port} hung up`));
        else if (performance.now() < end) open();
        else resolve(count);
      });
    };
    const receive = (socket: Socket, chunk: string) => {
      received += chunk;
      const answer = readAnswer(received);
      if (!answer) return;
      received = '';
      pending = false;
      count++;
      try {
        client.take(answer);
      } catch (error) {
        socket.destroy();
        return reject(error);
      }
      if (performance.now() >= end || /^connection: close/im.test(answer.head)) socket.end();
      else send(socket);
    };
    open();
  });
}

/** Every answer of these servers has a Content-Length. */
function readAnswer(text: string): Answer | undefined {
  const headEnd = text.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const head = text.slice(0, headEnd);
  const length = Number(/^content-length: (\d+)/im.exec(head)?.[1]);
  const body = text.slice(headEnd + 4);
  return body.length < length ? undefined : { status: Number(head.slice(9, 12)), head, body };
}

/** A client that sends one request over and over and wants one of these answers. */
export function repeating(text: string, ...accepted: number[]): Client {
  return { next: () => text, take: (answer) => expectStatus(answer, ...accepted) };
}

export function expectStatus({ status, body }: Answer, ...accepted: number[]): void {
  if (!accepted.includes(status)) throw new Error(`answered ${status}: ${body}`);
}
