import { once } from 'node:events';
import t, { type Test } from 'tap';
import { closing, PROGRAMS, type ProgramName, startTarget, statusesOf, type Target } from './target.js';

/** Malformed requests, sent to both programs as their users start them. */

t.jobs = 4;

/** Processor time for which one request may block all others, in milliseconds. */
const STALL = 200;

/** Where each program reads JSON without authentication, at most 16 KiB. */
const JSON_PATHS: Record<ProgramName, string> = {
  'saas-backend': '/api/auth/login',
  idp: '/v1/accounts',
};

/** Answered with 200 if parsed as a second request. */
const SMUGGLED = 'GET /health HTTP/1.1\r\nhost: smuggled\r\n\r\n';

const LAST = SMUGGLED.replace('host:', 'connection: close\r\nhost:');

/** Host headers, and the status of a request with each (RFC 9112 §3.2). */
const HOSTS: readonly [status: number, ...lines: string[]][] = [
  [400],
  [400, 'host: a.example', 'host: b.example'],
  [400, 'Host: a.example', 'x: y', 'HOST: a.example'],
  [400, 'host:', 'host: a.example'],
  ...[
    'a.example, b.example',
    'a.example b.example',
    'a.example/',
    'a.example?',
    'a.example#',
    'user@a.example',
    'https://a.example',
    'a.example:https',
    'a.example:80:80',
    '::1',
    '[::1',
    '[a.example]',
    'a%2.example',
    'a\\b.example',
    'a"b.example',
    'b\xfccher.example',
    'a\tb',
  ].map((value): [number, string] => [400, `host: ${value}`]),
  ...[
    '',
    'a.example',
    'a.example:',
    'a_b.example:8080',
    '127.0.0.1:80',
    '[::1]:80',
    '[fe80::1%eth0]:80',
    'a%2Db.example',
    'localhost.',
  ].map((value): [number, string] => [200, `host: ${value}`]),
];

/** Heads and bodies whose end a proxy and a server may interpret differently. */
function ambiguous(path: string): Record<string, string> {
  const head = (...lines: string[]) =>
    [`POST ${path} HTTP/1.1`, 'host: x', 'content-type: application/json', ...lines, '', ''].join('\r\n');
  const chunked = 'transfer-encoding: chunked';
  const length = `content-length: ${SMUGGLED.length}`;
  const empty = '0\r\n\r\n';
  return {
    'length, then coding': head(length, chunked) + empty + SMUGGLED,
    'coding, then length': head(chunked, length) + empty + SMUGGLED,
    'length of nothing, and coding': `${head('content-length: 0', chunked)}2a\r\n${SMUGGLED}`,
    'two lengths': head('content-length: 0', length) + SMUGGLED,
    'the same length twice': head(length, length) + SMUGGLED,
    'two codings': head(chunked, 'transfer-encoding: identity') + empty + SMUGGLED,
    'a blank before the colon': head('transfer-encoding : chunked', length) + empty + SMUGGLED,
    'a blank before the colon of a length': head('content-length : 0', length) + SMUGGLED,
    'a folded coding': head('transfer-encoding:\r\n chunked', length) + empty + SMUGGLED,
    'a folded header': head('x: y\r\n transfer-encoding: chunked', length) + SMUGGLED,
    'a bare LF': head('x: y\ntransfer-encoding: chunked', length) + empty + SMUGGLED,
    'a bare CR': head('x: y\rtransfer-encoding: chunked', length) + empty + SMUGGLED,
    'a NUL': head(`x: y\0${chunked}`, length) + empty + SMUGGLED,
    'a coding of HTTP/1.0': head(chunked, length).replace('/1.1', '/1.0') + empty + SMUGGLED,
    'lines that end with LF': head(length).replaceAll('\r\n', '\n') + SMUGGLED,
    'a name with a blank': head('content length: 0', length, chunked) + empty + SMUGGLED,
    'no name': head(`: ${chunked}`, length, chunked) + empty + SMUGGLED,
    'a chunk longer than it says': `${head(chunked)}1\r\n{}\r\n${empty}${SMUGGLED}`,
    'a chunk that ends with LF': `${head(chunked)}2\r\n{}\n${empty}${SMUGGLED}`,
    'a chunk extension of 20 KB': `${head(chunked)}2;x=${'y'.repeat(20_000)}\r\n{}\r\n${empty}${SMUGGLED}`,
    'a chunk extension with LF': `${head(chunked)}2;x\n{}\r\n${empty}${SMUGGLED}`,
    'a trailer of 20 KB': `${head(chunked)}2\r\n{}\r\n0\r\nx: ${'y'.repeat(20_000)}\r\n\r\n${SMUGGLED}`,
    'another version': head(length).replace('/1.1', '/1.2') + SMUGGLED,
    'HTTP/0.9': `GET /health\r\n\r\n${SMUGGLED}`,
    'HTTP/2 by prior knowledge': `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${SMUGGLED}`,
    'no host': `POST ${path} HTTP/1.1\r\n${length}\r\n\r\n${SMUGGLED}`,
    'two hosts': head('host: y', length) + SMUGGLED,
    'a negative length': head('content-length: -1') + SMUGGLED,
    'a list of lengths': head('content-length: 5, 5') + SMUGGLED,
    'another coding': head('transfer-encoding: xchunked', length) + empty + SMUGGLED,
    'a size that is none': `${head(chunked)}0x5\r\n{}\r\n${empty}${SMUGGLED}`,
    TLS: `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${SMUGGLED}`,
  };
}

for (const name of PROGRAMS) {
  t.test(`${name} handles malformed HTTP`, { buffered: true }, async (t) => {
    const target = await startTarget(t, name);
    const isAlive = async (t: Test, what: string) => {
      const { inherited, longest } = await target.probe();
      t.same(inherited, [], `${what}: every object is as it was`);
      t.ok(longest < STALL, `${what}: no request waited for longer than ${longest.toFixed(0)} ms`);
      t.match(await target.tell(SMUGGLED), /^HTTP\/1\.1 200 /, `${what}: others are served`);
    };
    await target.probe();

    await t.test('ambiguous message lengths are refused', async (t) => {
      for (const [what, bytes] of Object.entries(ambiguous(JSON_PATHS[name]))) {
        const statuses = await answersTo(target, Buffer.from(bytes, 'latin1'));
        t.ok(statuses.length <= 1, `${what}: ${statuses}`);
        t.ok(
          statuses.every((status) => status >= 400 && status < 500),
          `${what}: ${statuses}`,
        );
      }
      t.same(
        await answersTo(target, Buffer.from(SMUGGLED + SMUGGLED)),
        [200, 200],
        'a second answer is seen',
      );
      await isAlive(t, 'smuggling');
    });

    await t.test('a request with a missing, repeated or invalid Host header is refused', async (t) => {
      // As from a trusted proxy: requests that it forwards are validated as well.
      const trusting = { TRUST_PROXY: '127.0.0.1', IDP_TRUST_PROXY: '127.0.0.1' };
      for (const asked of [target, await startTarget(t, name, trusting)]) {
        for (const [status, ...lines] of HOSTS) {
          const forwarded = ['x-forwarded-for: 203.0.113.9', 'x-forwarded-host: a.example'];
          for (const [path, expected] of [
            ['/health', status],
            // A path without a route, and one that no router accepts.
            ['/nothing-there', status === 200 ? 404 : 400],
            ['/%zz', 400],
          ] as const) {
            const head = [`GET ${path} HTTP/1.1`, ...lines, ...forwarded, '', ''].join('\r\n');
            const text = await asked.tell(Buffer.from(head + SMUGGLED, 'latin1'));
            t.match(
              text,
              new RegExp(`^HTTP/1\\.1 ${expected} [\\s\\S]*x-request-id: `, 'i'),
              `${path} ${lines}`,
            );
            if (status === 400 && path !== '/%zz') t.match(text, /^connection: close\r$/im);
          }
        }
        t.match(await asked.tell('GET /health HTTP/1.0\r\n\r\n'), /^HTTP\/1\.1 200 /, 'HTTP/1.0 has no Host');
      }
    });

    await t.test('oversized headers are refused', async (t) => {
      const request = (...lines: string[]) =>
        ['GET /health HTTP/1.1', 'host: x', ...lines, '', ''].join('\r\n');
      const x = 'x'.repeat(20_000);
      for (const [status, bytes] of [
        [431, request(`x: ${x}`)],
        [431, request(`${x}: x`)],
        [431, request(...Array<string>(2000).fill('cookie: x=y'))],
        // Node drops the last headers, above all those of a proxy with the address of the client; or, from 24 on,
        // rejects the request itself.
        ['4(00|31)', request(...Array<string>(120).fill('x: y'), 'x-forwarded-for: 203.0.113.9')],
        [431, `GET /health?${x} HTTP/1.1\r\nhost: x\r\n\r\n`],
        [400, `${x} / HTTP/1.1\r\nhost: x\r\n\r\n`],
        [200, request(...Array<string>(90).fill('cookie: x=y'))],
        [200, request('expect: the unexpected')],
      ] as const) {
        const text = await target.tell(bytes);
        t.match(text, new RegExp(`^HTTP/1\\.1 ${status} [\\s\\S]*x-request-id: `, 'i'), `${status}`);
        if (status !== 200) t.match(text, /^connection: close\r$/im);
      }
      await isAlive(t, 'headers');
    });

    await t.test(
      'clients rejected during an upload receive the error response, and nothing more',
      async (t) => {
        // One program for each: what a program discards within a few seconds has a limit.
        const [small, large] = await Promise.all([startTarget(t, name), startTarget(t, name)]);
        const path = JSON_PATHS[name];
        const piece = 'x'.repeat(2 ** 16);
        const chunk = `${piece.length.toString(16)}\r\n${piece}\r\n`;
        const json = 'content-type: application/json\r\n';
        const chunked = 'transfer-encoding: chunked\r\n\r\n';
        const length = (count: number) => `content-length: ${piece.length * count}\r\n\r\n`;
        for (const [statuses, begin, more = piece] of [
          [[413], `POST ${path} HTTP/1.1\r\nhost: x\r\n${json}${length(8)}`],
          [[413], `POST ${path} HTTP/1.1\r\nhost: x\r\n${json}${chunked}${chunk}`, chunk],
          [[413], `POST ${path} HTTP/1.0\r\n${json}${length(8)}`],
          [[404], `POST /nothing-there HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${length(8)}`],
          [[400], `POST ${path} HTTP/1.1\r\nhost: x\r\nhost: y\r\n${length(8)}`],
          [[400], 'GET / HTTP/1.1\r\nhost x\r\n'],
          [[431], `GET / HTTP/1.1\r\nhost: x\r\nx: ${piece}`],
          // Here the connection stays open, and the body is read to its end.
          [[404, 200], `POST /nothing-there HTTP/1.1\r\nhost: x\r\n${length(8)}`],
        ] as const) {
          const text = await sendAfterAnswer(small, begin, [...Array<string>(8).fill(more), LAST]);
          t.same(statusesOf(text), statuses, begin.slice(0, 80));
        }
        // More than the socket buffers of both sides.
        const begin = `POST ${path} HTTP/1.1\r\nhost: x\r\n${json}${length(63)}`;
        t.same(
          statusesOf(await sendAfterAnswer(large, begin + piece, Array<string>(62).fill(piece))),
          [413],
          '4 MB',
        );

        const socket = large.open();
        const closed = closing(socket);
        socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\n${json}${length(2 ** 30)}`);
        const sendOn = () => void socket.write(piece, (error) => error ?? sendOn());
        sendOn();
        await closed;
        t.ok(
          socket.bytesWritten < 2 ** 26,
          `an endless sender is disconnected, after ${socket.bytesWritten}`,
        );
        t.match(await large.tell(SMUGGLED), /^HTTP\/1\.1 200 /, 'others are served');
      },
    );
  });
}

/** Sends `begin`, waits for an answer, sends all pieces and only then reads the rest. Empty if sending failed. */
async function sendAfterAnswer(target: Target, begin: string, pieces: string[]): Promise<string> {
  const socket = target.open().setEncoding('latin1');
  socket.write(begin);
  await once(socket, 'readable');
  // A later request is answered later: by then the program has done what it does to the connection at once.
  await target.tell(SMUGGLED);
  for (const piece of pieces) await new Promise((resolve) => socket.write(piece, resolve));
  const received: string[] = await socket.toArray().catch(() => []);
  return received.join('');
}

/** The statuses of all answers to bytes that allow one at most, once the connection is closed. */
async function answersTo(target: Target, bytes: Buffer): Promise<number[]> {
  const socket = target.open().setEncoding('latin1');
  let text = '';
  socket.on('data', (chunk: string) => {
    text += chunk;
  });
  const closed = closing(socket);
  const first = Promise.race([once(socket, 'data'), closed]);
  socket.write(bytes);
  await first;
  // A later request is answered later: by then any further answer to these bytes has arrived.
  await target.tell(SMUGGLED);
  socket.destroy();
  await closed;
  return statusesOf(text);
}
