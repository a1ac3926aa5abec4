import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import type { Test } from 'tap';
import { SECRETS } from '../../kit/app.js';
import { ADMIN_TOKEN } from '../../kit/idp.js';
import { compiled, startCommand } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** A program as its users start it, and the attacks on it. */

export interface Target {
  port: number;
  pid: number;
  /** Sends bytes on a new connection, and returns what it receives until there are that many answers. */
  tell(bytes: string | Buffer, answers?: number): Promise<string>;
  /** The same, with the client's half of the connection closed after the bytes. */
  tellLast(bytes: string): Promise<string>;
  open(): Socket;
  /** The measurements since the last call. @throws when the program has ended */
  probe(): Promise<Probe>;
}

export interface Probe {
  /** The most processor time between two turns of the event loop, in milliseconds. */
  longest: number;
  /** Additional properties of Object.prototype; there should be none. */
  inherited: string[];
}

export const PROGRAMS = ['saas-backend', 'idp'] as const;
export type ProgramName = (typeof PROGRAMS)[number];

const ENVIRONMENT: Record<ProgramName, Record<string, string>> = {
  'saas-backend': {
    ADMIN_USERNAME: SECRETS.adminUsername,
    ADMIN_PASSWORD: SECRETS.adminPassword,
    PAYMENT_WEBHOOK_SECRET: SECRETS.paymentWebhookSecret,
  },
  idp: { IDP_ADMIN_TOKEN: ADMIN_TOKEN },
};

const PROBE = `--import=${compiled('test/campaign/hostile/probe.js')}`;

/** Starts the program in development, where local requests are not limited. */
export async function startTarget(
  t: Test,
  name: ProgramName,
  more: Record<string, string> = {},
): Promise<Target> {
  const args = [compiled(`bin/${name}.js`), 'serve', '-p', '0', '--log-level', 'error', '--json'];
  const program = startCommand(t, process.execPath, {
    args,
    cwd: temporaryFolder(t),
    env: { ...ENVIRONMENT[name], ...more, NODE_OPTIONS: `${PROBE} ${more['NODE_OPTIONS'] ?? ''}` },
  });
  const port = Number((await program.printed(/"port":(\d+)/))[1]);
  let probes = 0;
  const open = () => connect(port, '127.0.0.1').on('error', () => {});
  return {
    port,
    pid: program.pid,
    open,
    tell: (bytes, answers = 1) =>
      new Promise((resolve) => {
        const socket = open().setEncoding('latin1');
        let text = '';
        let count = 0;
        socket.on('data', (chunk: string) => {
          // Counts an answer that is split at its beginning together with its rest.
          const seen = text.slice(-STATUS.length);
          text += chunk;
          count += statusesOf(seen + chunk).length - statusesOf(seen).length;
          if (count >= answers) socket.destroy();
        });
        socket.on('close', () => resolve(text));
        socket.write(bytes);
      }),
    async tellLast(bytes) {
      const socket = open().setEncoding('latin1');
      socket.end(bytes);
      return (await socket.toArray()).join('');
    },
    async probe() {
      process.kill(program.pid, 'SIGWINCH');
      const [, text = ''] = await program.printed(new RegExp(`^probe (\\{"look":${++probes},.*)`));
      return JSON.parse(text) as Probe;
    },
  };
}

/** Resolves when a connection is closed, for any reason. */
export const closing = (socket: Socket): Promise<void> =>
  new Promise((resolve) => socket.once('close', () => resolve()));

/** The statuses of all answers in a text. */
export function statusesOf(text: string): number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

const STATUS = 'HTTP/1.1 200 ';

/** Small in `npm test`, full size in `npm run test:hostile`. */
export const sizeOf = (usual: number, full: number): number =>
  process.env['HOSTILE'] === 'full' ? full : usual;

/** Whether the memory of another process can be read. */
export const KNOWS_MEMORY = process.platform === 'linux';

/** A request without credentials or limits. */
export const HEALTH = 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n';

/**
 * The peak memory of a process during `work`, beyond its memory before, in bytes. The process has served requests
 * before, so that compilation and the young generation of the heap are not attributed to the work.
 */
export async function growthOf({ pid, tell }: Target, work: () => Promise<void>): Promise<number> {
  await tell(HEALTH.repeat(5000), 5000);
  // Resets the peak (proc(5)).
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  const before = memoryOf(pid, 'VmRSS');
  await work();
  return memoryOf(pid, 'VmHWM') - before;
}

function memoryOf(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const [, kibibytes] =
    new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kibibytes) * 1024;
}
