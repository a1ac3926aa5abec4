import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { type Logger, pino } from 'pino';
import { completeEnvironment } from '../src/core/config/options.js';
import { MINUTE, SECOND } from '../src/core/kernel/clock.js';
import { createLogStream, logIdentity } from '../src/core/server/log.js';
import { stopGracefully } from './graceful-stop.js';
import type { Program } from './program.js';
import { fail, say } from './terminal.js';
import { relayMetrics } from './worker-metrics.js';

export { createMetricsPeers } from './worker-metrics.js';

/**
 * `serve --workers N`: a primary process that serves nothing itself, and workers that share its port. Each worker is a
 * complete server, so everything that holds for several processes on one store holds for workers.
 */

/** What a worker reports when it listens. */
export interface Announcement {
  logLevel: string;
  /** What the program prints once it is ready. */
  text: string | null;
}

/** The message that asks a worker to stop. */
const STOP = 'stop';

/** Longer than a worker takes to finish its requests and to close its store. */
const STOP_TIMEOUT_MS = 15 * SECOND;

const FIRST_RESTART_DELAY_MS = SECOND / 4;
const MAX_RESTART_DELAY_MS = 30 * SECOND;

/** A worker that ran this long has not failed at its start. */
const STABLE_AFTER_MS = MINUTE;

/** Threads of libuv that hashing leaves to the file system and DNS. */
const OTHER_THREADS = 2;

/** The delay before the next worker, after a number of workers in a row that ended soon after their start. */
export function restartDelay(failures: number): number {
  return Math.min(FIRST_RESTART_DELAY_MS * 2 ** Math.max(0, failures - 1), MAX_RESTART_DELAY_MS);
}

export const isPrimary = cluster.isPrimary;

/** Starts the workers and keeps their number until a signal ends the program. */
export async function supervise(program: Program['name'], count: number): Promise<void> {
  // Hashing uses libuv's threads: together, the workers get as many for it as there are processors.
  const threads = OTHER_THREADS + Math.max(1, Math.floor(availableParallelism() / count));
  completeEnvironment({ UV_THREADPOOL_SIZE: String(threads) });
  const relay = relayMetrics();
  const fork = () => {
    const worker = cluster.fork();
    relay(worker);
    return worker;
  };
  // The first worker alone checks the configuration, prepares the store and takes the port.
  const first = fork();
  const announcement = await announced(first);
  if (typeof announcement === 'number') process.exit(announcement);
  const { logLevel, text } = announcement;
  const log = pino({ level: logLevel, base: logIdentity(program) }, createLogStream());
  const { add, stop } = keepRunning(fork, log);
  stopGracefully({ logger: log, delay: STOP_TIMEOUT_MS }, async ({ err, signal }) => {
    if (err) log.fatal({ err }, 'stopping the workers after an uncaught error');
    else log.info({ signal }, 'stopping the workers');
    await stop();
  });
  add(first);
  const others = Array.from({ length: count - 1 }, fork);
  for (const worker of others) add(worker);
  await Promise.all(others.map(announced));
  if (text !== null) say(text);
}

/** Resolves when a worker listens; with its exit code if it ends before. */
function announced(worker: Worker): Promise<Announcement | number> {
  return new Promise((resolve) => {
    worker.on('message', (message: Announcement) => {
      if ('logLevel' in message) resolve(message);
    });
    // A worker that a signal ended has no exit code.
    worker.once('exit', (code: number | null) => resolve(code ?? 1));
  });
}

/** Replaces the workers that end. */
function keepRunning(fork: () => Worker, log: Logger) {
  const running = new Set<Worker>();
  const timers = new Set<NodeJS.Timeout>();
  let isStopping = false;

  const add = (worker: Worker, failures = 0): void => {
    const startedAt = performance.now();
    running.add(worker);
    closeUnconfirmedConnections(worker);
    worker.once('exit', (code: number | null, signal: string | null) => {
      running.delete(worker);
      if (isStopping) return;
      const isStable = performance.now() - startedAt >= STABLE_AFTER_MS;
      replace(worker, { code, signal, failures: isStable ? 1 : failures + 1 });
    });
  };

  const replace = (
    { process: { pid } }: Worker,
    { code, signal, failures }: { code: number | null; signal: string | null; failures: number },
  ): void => {
    const restartMs = restartDelay(failures);
    const details = { worker: pid, code, signal, restartMs };
    if (code === 0) log.info(details, 'a worker was stopped and will be replaced');
    else log.error(details, 'a worker ended unexpectedly and will be replaced');
    const timer = setTimeout(() => {
      timers.delete(timer);
      add(fork(), failures);
    }, restartMs);
    timers.add(timer);
  };

  const stop = async (): Promise<void> => {
    isStopping = true;
    for (const timer of timers) clearTimeout(timer);
    const codes = await Promise.all(
      [...running].map(async (worker) => {
        const exit = once(worker, 'exit');
        // A worker that has lost its channel is ending already.
        if (worker.isConnected()) worker.send(STOP);
        const [code] = await exit;
        return code as number | null;
      }),
    );
    if (codes.some((code) => code !== 0)) throw new Error('A worker did not stop in order.');
  };

  return { add, stop };
}

/** A message of Node's cluster module that hands a connection to a worker. */
interface Handover {
  act?: string;
  seq?: number;
}

/**
 * Closes the connections that a worker was handed and had not confirmed when it ended. Node keeps them open in the primary
 * (its `round_robin_handle.js` closes a connection when it is confirmed), where their clients would wait forever.
 */
function closeUnconfirmedConnections({ process: child }: Worker): void {
  const unconfirmed = new Map<number, { close?(): void }>();
  const send = child.send.bind(child) as (...parameters: unknown[]) => boolean;
  child.send = (message: Handover, handle?: unknown, ...rest: unknown[]) => {
    if (message.act === 'newconn' && message.seq !== undefined && handle)
      unconfirmed.set(message.seq, handle as { close?(): void });
    return send(message, handle, ...rest);
  };
  child.on('internalMessage', ({ ack }: { ack?: number }) => {
    if (ack !== undefined) unconfirmed.delete(ack);
  });
  child.once('exit', () => {
    for (const connection of unconfirmed.values()) connection.close?.();
    unconfirmed.clear();
  });
}

/** In a worker: ends the program if the store exists in one process only. */
export function requireSharedStore(program: Program, { databaseUri }: { databaseUri?: string }): void {
  if (databaseUri !== 'sqlite::memory:') return;
  const remedy = 'Choose a file, or start one process without --workers.';
  fail(1, `${program.name} cannot start: workers cannot share sqlite::memory:. ${remedy}`);
}

/** In a worker: reports to the primary that this worker listens. */
export function announce(announcement: Announcement): void {
  process.send?.(announcement);
}

/**
 * In a worker: calls `stop` once, when the primary asks for it or when this process alone is asked to end by SIGTERM. A
 * terminal sends SIGINT, and a service manager SIGTERM, to the primary and to all workers.
 */
export function followPrimary(stop: () => void): void {
  let isStopping = false;
  const stopOnce = () => {
    if (!isStopping) stop();
    isStopping = true;
  };
  process.on('message', (message) => {
    if (message === STOP) stopOnce();
  });
  process.on('SIGTERM', stopOnce);
  process.on('SIGINT', () => undefined);
}
