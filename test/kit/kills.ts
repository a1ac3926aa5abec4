/** kill -9 of a server under load, with clients that repeat unanswered requests. */
import type { Test } from 'tap';
import { parseJson, SECRETS } from './app.js';
import { serverPort } from './port.js';
import { compiled, type Program, startProgram } from './process.js';
import { countedRandom } from './random.js';
import { temporaryFolder } from './tmp.js';
import { waitUntil } from './wait.js';

/** `npm run test:kills` sets more. */
const ROUNDS = Number(process.env['KILL_ROUNDS'] ?? 1);
const LANES = 6;

export interface Request {
  method: string;
  path: string;
  headers?: Record<string, string>;
  body?: string;
}

export interface Reply {
  status: number;
  location: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  body: any;
  /** How often it was sent. If more than once, the outcome of the earlier attempts is unknown. */
  sent: number;
}

/** A program that is killed repeatedly, as its clients use it. */
export interface KillableProgram {
  /** Sends until there is an answer. */
  ask(request: Request): Promise<Reply>;
  /** Counts an acknowledged change. */
  count(): void;
  isOver(): boolean;
  /** How often it was killed and has been replaced. */
  replaced(): number;
}

/** What a campaign kills. */
export interface Victim {
  url: string;
  /** Settles when a request can be sent. */
  isUp(): Promise<unknown>;
  /** Resolves when what was killed has been replaced. */
  kill(): Promise<void>;
}

/** A server of one process, which is started again after each kill. */
export async function oneProcess(t: Test, script: string, options: object): Promise<Victim> {
  const port = await serverPort();
  const start = () =>
    startProgram(t, compiled(script), { args: [JSON.stringify({ ...options, port, logLevel: 'info' })] });
  let program: Program = start();
  let isUp: Promise<unknown> = program.url();
  await isUp;
  return {
    url: `http://127.0.0.1:${port}`,
    isUp: () => isUp,
    async kill() {
      const dying = program.kill();
      isUp = dying.then(() => {
        program = start();
        return program.url();
      });
      await isUp;
    },
  };
}

/** `saas-backend --workers 2`, of which one worker at a time is killed. */
export async function workers(t: Test, databaseUri: string): Promise<Victim> {
  const program = startProgram(t, compiled('bin/saas-backend.js'), {
    args: ['-p', '0', '--workers', '2', '--json'],
    cwd: temporaryFolder(t),
    env: { DATABASE_URI: databaseUri, PAYMENT_WEBHOOK_SECRET: SECRETS.paymentWebhookSecret },
  });
  const url = JSON.parse((await program.printed(/^\{"program".*/))[0]).url;
  const pids = () =>
    program.lines
      .flatMap((line) => /"pid":(\d+),.*"msg":"Server listening/.exec(line)?.[1] ?? [])
      .map(Number);
  let killed = 0;
  return {
    url,
    isUp: () => Promise.resolve(),
    async kill() {
      // The oldest one.
      process.kill(pids()[killed++] as number, 'SIGKILL');
      await waitUntil('a new worker', () => pids().length === killed + 2);
    },
  };
}

/** Runs `lane` several times concurrently until the victim was killed that often and is running again. */
export async function underKills(
  t: Test,
  victim: Victim,
  lane: (killable: KillableProgram, number: number) => Promise<void>,
) {
  const random = countedRandom('kills');
  let acknowledged = 0;
  let killed = 0;
  let replaced = 0;
  let killAt = nextKill();
  let endAt = Number.POSITIVE_INFINITY;
  function nextKill(): number {
    return acknowledged + 10 + (random.bytes(1)[0] as number) / 4;
  }
  const die = async () => {
    killed++;
    killAt = Number.POSITIVE_INFINITY;
    await victim.kill();
    replaced++;
    if (killed < ROUNDS) killAt = nextKill();
    else endAt = nextKill();
  };
  const killable: KillableProgram = {
    async ask({ method, path, headers = {}, body }) {
      for (let sent = 1; ; sent++) {
        await victim.isUp();
        try {
          const answer = await fetch(victim.url + path, {
            method,
            headers,
            redirect: 'manual',
            // Nothing that is killed may leave a client without an answer and without an error.
            signal: AbortSignal.timeout(60_000),
            ...(body !== undefined && { body }),
          });
          const text = await answer.text();
          const location = answer.headers.get('location') ?? undefined;
          return { status: answer.status, location, body: parseJson(text), sent };
        } catch (error) {
          if (!(error instanceof TypeError)) throw error;
        }
      }
    },
    count() {
      if (++acknowledged >= killAt) void die();
    },
    isOver: () => acknowledged >= endAt,
    replaced: () => replaced,
  };
  await Promise.all(Array.from({ length: LANES }, (_, number) => lane(killable, number)));
  t.ok(killed >= ROUNDS, `${killed} kills, ${acknowledged} acknowledged`);
  return killable;
}

export const json = (path: string, body: unknown, headers: Record<string, string> = {}): Request => ({
  method: 'POST',
  path,
  headers: { 'content-type': 'application/json', ...headers },
  body: JSON.stringify(body),
});
