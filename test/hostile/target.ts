import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import type { Test } from 'tap';
import { SECRETS } from '../kit/app.js';
import { ADMIN_TOKEN } from '../kit/idp.js';
import { compiled, startCommand } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** A program as its users start it, and what its enemies send. */

export interface Target {
  port: number;
  pid: number;
  /** Sends bytes on a connection of their own, and answers with what comes back until there are so many answers. */
  tell(bytes: string | Buffer, answers?: number): Promise<string>;
  /** The same with nothing to follow: the client's half of the connection is closed. */
  tellLast(bytes: string): Promise<string>;
  open(): Socket;
  /** What has become of it since the last call. @throws when it has ended */
  probe(): Promise<Probe>;
}

export interface Probe {
  /** The most processor time between two turns of the loop, in milliseconds. */
  longest: number;
  /** What every object has, and none should. */
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

/**
 * In development, where this machine may ask as often as it likes.
 *
 * @param descriptors that the program may have open at once, where that is not the limit of this process
 */
export async function startTarget(
  t: Test,
  name: ProgramName,
  more: Record<string, string> = {},
  descriptors?: number,
): Promise<Target> {
  const args = [compiled(`package/bin/${name}.js`), 'serve', '-p', '0', '--log-level', 'error', '--json'];
  const limited = ['-c', `ulimit -n ${descriptors} && exec "$0" "$@"`, process.execPath, ...args];
  const program = startCommand(t, descriptors === undefined ? process.execPath : 'sh', {
    args: descriptors === undefined ? args : limited,
    cwd: temporaryFolder(t),
    env: { ...ENVIRONMENT[name], ...more, NODE_OPTIONS: `--import=${compiled('test/hostile/probe.js')}` },
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
          // An answer that is torn in two at its very beginning is counted with the rest of it.
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

/** Resolves when a connection is closed, however it came to that. */
export const closing = (socket: Socket): Promise<void> =>
  new Promise((resolve) => socket.once('close', () => resolve()));

/** The statuses of all answers in a text. */
export function statusesOf(text: string): number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

const STATUS = 'HTTP/1.1 200 ';

/** Small in `npm test`, as large as anybody asks for in `npm run test:hostile`. */
export const sizeOf = (usual: number, full: number): number =>
  process.env['HOSTILE'] === 'full' ? full : usual;

/** Whether the memory of another process can be asked for. */
export const KNOWS_MEMORY = process.platform === 'linux';

/** Anybody may ask for it, as often as they like. */
export const HEALTH = 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n';

/**
 * The most memory that `work` made a process hold beyond what it held before, in bytes. Before, it has served for a
 * while: what it compiles at its first requests, and the room it takes for what is short-lived, are not of the work.
 */
export async function growthOf({ pid, tell }: Target, work: () => Promise<void>): Promise<number> {
  await tell(HEALTH.repeat(5000), 5000);
  // Forgets the peak (proc(5)).
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
