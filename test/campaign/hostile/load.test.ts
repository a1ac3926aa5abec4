import t from 'tap';
import { PASSWORD } from '../../kit/app.js';
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

t.jobs = 2;

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
}

t.test('a token in differently padded headers uses the memory of one', async (t) => {
  // Less than the headers take together; the program ends if it keeps them.
  const target = await startTarget(t, 'saas-backend', { NODE_OPTIONS: '--max-old-space-size=96' });
  const response = await fetch(`http://127.0.0.1:${target.port}/api/auth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ email: 'ada@example.test', password: PASSWORD }),
  });
  const { accessToken: token } = ((await response.json()) as { data: { accessToken: string } }).data;
  // Each header differs: by its padding and, once all paddings are used, by the case of its scheme.
  const ask = (index: number) => {
    const scheme = ['Bearer', 'bearer', 'BEARER', 'BeArEr'][Math.floor(index / 5000)];
    const padding = ' '.repeat(9000 + (index % 5000));
    return `GET /api/auth/me HTTP/1.1\r\nhost: x\r\nauthorization: ${scheme}${padding}${token}\r\n\r\n`;
  };
  for (let asked = 0; asked < sizeOf(15_000, 20_000); asked += 100) {
    const requests = Array.from({ length: 100 }, (_, index) => ask(asked + index));
    const statuses = statusesOf(await target.tell(requests.join(''), 100));
    if (!statuses.every((status) => status === 200)) throw new Error(`answered ${statuses.join()}`);
  }
  t.same((await target.probe()).inherited, []);
});
