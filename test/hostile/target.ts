import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import type { Test } from 'tap';
import { SECRETS } from '../kit/app.js';
import { ADMIN_TOKEN } from '../kit/idp.js';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** A program as its users start it, and what its enemies send. */

export interface Target {
  port: number;
  pid: number;
  /** Sends bytes on a connection of their own, says nothing more, and answers with all that comes back. */
  tell(bytes: string | Buffer): Promise<string>;
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

/** In development, where this machine may ask as often as it likes. */
export async function startTarget(t: Test, name: ProgramName): Promise<Target> {
  const program = startProgram(t, compiled(`package/bin/${name}.js`), {
    args: ['serve', '-p', '0', '--log-level', 'error'],
    cwd: temporaryFolder(t),
    env: { ...ENVIRONMENT[name], NODE_OPTIONS: `--import=${compiled('test/hostile/probe.js')}` },
  });
  const url = await program.url();
  const port = Number(new URL(url).port);
  let probes = 0;
  const open = () => connect(port, '127.0.0.1').on('error', () => {});
  return {
    port,
    pid: program.pid,
    open,
    async tell(bytes) {
      const socket = open().setEncoding('latin1');
      socket.end(bytes);
      return (await socket.toArray().catch(() => [])).join('');
    },
    async probe() {
      process.kill(program.pid, 'SIGWINCH');
      const [, text = ''] = await program.printed(new RegExp(`^probe (\\{"look":${++probes},.*)`));
      return JSON.parse(text) as Probe;
    },
  };
}

/** The statuses of all answers in a text. */
export function statusesOf(text: string): number[] {
  return [...text.matchAll(/(?:^|\r\n\r\n|\})HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

/** Whether the memory of another process can be asked for. */
export const KNOWS_MEMORY = process.platform === 'linux';

/** The most memory that `work` made a process hold beyond what it held before, in bytes. */
export async function growthOf(pid: number, work: () => Promise<void>): Promise<number> {
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
