import { once } from 'node:events';
import type { Socket } from 'node:net';
import t from 'tap';
import {
  closing,
  growthOf,
  HEALTH,
  KNOWS_MEMORY,
  PROGRAMS,
  type ProgramName,
  sizeOf,
  startTarget,
  statusesOf,
  type Target,
} from './target.js';

/** Many concurrent attackers, while another client is served. `npm run test:hostile` runs the full numbers. */

// At full size, one set of idle connections takes all descriptors that this process may have.
t.jobs = sizeOf(2, 1);

const MEBIBYTE = 2 ** 20;
const UPLOAD: Record<ProgramName, string> = { 'saas-backend': '/api/auth/login', idp: '/token' };

/** Requests of other clients during an attack; few, because each allocates memory until the next collection. */
const OTHERS = 100;

/** Sends other requests repeatedly until `work` is done; returns how many were served. */
async function serveDuring(target: Target, work: Promise<unknown>): Promise<number> {
  let isDone = false;
  const done = work.finally(() => {
    isDone = true;
  });
  let served = 0;
  while (!isDone && served < OTHERS) {
    const text = await target.tell(HEALTH);
    if (!text.startsWith('HTTP/1.1 200 '))
      throw new Error(`another client was answered ${text.slice(0, 200)}`);
    served++;
  }
  await done;
  return served;
}

/** Sends that many bytes while the server accepts them, and returns the response. */
async function upload(target: Target, head: string, bytes: number, chunked: boolean): Promise<string> {
  const socket = target.open().setEncoding('latin1');
  let text = '';
  socket.on('data', (chunk: string) => {
    text += chunk;
  });
  const closed = closing(socket);
  const piece = Buffer.alloc(MEBIBYTE / 16, 0x20);
  const framed = chunked
    ? Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')])
    : piece;
  socket.write(head);
  for (let sent = 0; sent < bytes && !socket.destroyed; sent += piece.length) {
    if (!socket.write(framed))
      await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), closed]);
  }
  socket.end(chunked ? '0\r\n\r\n' : '');
  await closed;
  return text;
}

for (const name of PROGRAMS) {
  t.test(
    `${name}: concurrent large uploads do not use up memory`,
    { buffered: true, skip: !KNOWS_MEMORY && 'the memory of a process cannot be asked for' },
    async (t) => {
      const target = await startTarget(t, name);
      const [count, bytes] = [sizeOf(20, 100), sizeOf(4, 100) * MEBIBYTE];
      const head = `POST ${UPLOAD[name]} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`;
      for (const [what, line, isChunked] of [
        ['with a length', `content-length: ${bytes}`, false],
        ['in chunks', 'transfer-encoding: chunked', true],
        ['that were announced', `content-length: ${bytes}\r\nexpect: 100-continue`, false],
      ] as const) {
        let answers: string[] = [];
        let served = 0;
        const growth = await growthOf(target, async () => {
          const uploads = Promise.all(
            Array.from({ length: count }, () => upload(target, `${head}${line}\r\n\r\n`, bytes, isChunked)),
          ).then((texts) => {
            answers = texts;
          });
          served = await serveDuring(target, uploads);
        });
        const statuses = answers.flatMap(statusesOf).filter((status) => status !== 100);
        t.equal(statuses.length, count, `${what}: all received an answer`);
        t.ok(
          statuses.every((status) => status === 413),
          `${what}: nothing else`,
        );
        t.ok(
          growth < 32 * MEBIBYTE,
          `${what}: ${(growth / MEBIBYTE).toFixed(1)} MiB, ${served} others served`,
        );
      }
    },
  );

  t.test(
    `${name}: idle connections use little memory and are closed`,
    { buffered: true, skip: !KNOWS_MEMORY && 'the memory of a process cannot be asked for' },
    async (t) => {
      const limit = name === 'idp' ? 'IDP_MAX_CONNECTIONS_PER_ADDRESS' : 'MAX_CONNECTIONS_PER_ADDRESS';
      const target = await startTarget(t, name, { [limit]: '16384' });
      const count = sizeOf(3000, 10_000);
      const sockets: Socket[] = [];
      t.teardown(() => {
        for (const socket of sockets) socket.destroy();
      });
      const ends: Promise<unknown>[] = [];
      const open = async () => {
        const socket = target.open();
        sockets.push(socket);
        await once(socket, 'connect');
        ends.push(closing(socket.resume()));
        // Half of them send an incomplete request.
        if (sockets.length % 2 === 0) socket.write('GET /health HTTP/1.1\r\nhost: ');
      };
      let served = 0;
      const growth = await growthOf(target, async () => {
        const all = async () => {
          for (let opened = 0; opened < count; opened += 100) {
            await Promise.all(Array.from({ length: Math.min(100, count - opened) }, open));
          }
        };
        served = await serveDuring(target, all());
        t.match(await target.tell(HEALTH), /^HTTP\/1\.1 200 /, 'another client is served meanwhile');
      });
      const each = growth / count / 1024;
      t.ok(
        growth < 16 * MEBIBYTE + count * 16 * 1024,
        `${count} cost ${each.toFixed(1)} KiB each, ${served} others served`,
      );
      await Promise.all(ends);
      t.match(await target.tell(HEALTH), /^HTTP\/1\.1 200 /, 'and after them');
    },
  );
}
