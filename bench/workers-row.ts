/** Rows of several workers on one port and one database. */
import { availableParallelism } from 'node:os';
import { performance } from 'node:perf_hooks';
import { processorTime, type Served } from './lab.js';
import { drive, hammer } from './load.js';
import { canLimitProcessors } from './processor-share.js';
import type { Result } from './report.js';
import { type Bench, compareAnew, type Measure, type Row, result, serve } from './rounds.js';
import { bearer, LONG_TURN, ME, refreshing, register } from './saas-rows.js';

const CLIENTS = 64;
/** With `--quick`: each one registers, which costs a password hash. */
const FEW_CLIENTS = 8;

/**
 * Workers compared with one process. Writes to a SQLite file take turns, so refreshes gain less.
 *
 * @param least the goal of `me`
 */
export function workers(count: number, least?: number): Row {
  return async (bench) => {
    const clients = bench.quick ? FEW_CLIENTS : CLIENTS;
    const mongod = bench.mongod?.pid;
    const results: Result[] = [];
    for (const [what, load, goal] of [
      [`GET ${ME}`, reading, least],
      ['POST /api/auth/refresh', rotating, undefined],
    ] as const) {
      const usages = {
        workers: new Usage(),
        one: new Usage(),
        mongod: new Usage(),
        mongodOfOne: new Usage(),
        load: new Usage(),
      };
      const compared = await compareAnew({ ...bench, row: `${bench.row}, ${what}` }, async () => {
        const measureOf = async (workers: number, own: Usage, database: Usage): Promise<Measure> => {
          const served = await serve(bench, 'saas-backend', { workers });
          const measured = usages.load.of(process.pid, await load(served, clients), ownProcessorTime);
          return database.of(mongod, own.of(served.pid, measured));
        };
        return {
          measure: await measureOf(count, usages.workers, usages.mongod),
          floor: await measureOf(1, usages.one, usages.mongodOfOne),
        };
      });
      results.push(
        result(`${what}, ${count} workers`, 'one process', compared, goal),
        ...usages.mongod.share('… used by mongod'),
        ...usages.workers.perRequest('… workers for each request'),
        ...usages.one.perRequest('… one process for each request'),
        ...usages.mongod.perRequest('… mongod for each request'),
        ...usages.mongodOfOne.perRequest('… mongod for each request to one process'),
        ...usages.load.perRequest('… the load generator for each request'),
      );
    }
    return results;
  };
}

/** Of a processor, for each process: it leaves room for mongod and the load generator on two. */
const SHARE = 0.4;

/**
 * What a second process adds where the processors are not what is full, as on a machine with one for each: both processes have
 * a share of a processor and clients of their own.
 */
export async function scaling(bench: Bench): Promise<Result[]> {
  const what = `GET ${ME}, 2 workers of ${SHARE} processors`;
  if (!canLimitProcessors()) return [{ what, skipped: 'it takes root, and control groups of Linux' }];
  const clients = bench.quick ? FEW_CLIENTS : CLIENTS;
  const limited = async (workers: number): Promise<Measure> => {
    const served = await serve(bench, 'saas-backend', { workers });
    const measure = await reading(served, workers * clients);
    // The JIT compiler takes more than the share.
    await measure(bench.quick ? 1 : 4);
    bench.lab.limit(served, SHARE);
    return measure;
  };
  const open = async () => ({ measure: await limited(2), floor: await limited(1) });
  return [result(what, 'one such process', await compareAnew(bench, open, LONG_TURN), 1.7)];
}

async function reading({ url }: Served, clients: number): Promise<Measure> {
  const headers = (await register(url, clients)).map(({ accessToken }) => bearer(accessToken));
  return (seconds) => hammer(url + ME, clients, seconds, headers);
}

async function rotating({ url }: Served, clients: number): Promise<Measure> {
  const sessions = (await register(url, clients)).map(({ refreshToken }) => refreshing(refreshToken));
  return (seconds) => drive(url, sessions, seconds);
}

/**
 * The processor time of a program during its measurements. On a machine without free processors, it tells what further
 * workers would give on a larger one: as much as they take no more for a request.
 */
class Usage {
  #processor = 0;
  #elapsed = 0;
  #requests = 0;

  /** Observes a measurement. Without a process, it reports nothing. */
  of(pid: number | undefined, measure: Measure, timeOf = processorTime): Measure {
    if (pid === undefined) return measure;
    return async (seconds) => {
      const [since, before] = [performance.now(), timeOf(pid)];
      const rate = await measure(seconds);
      const after = timeOf(pid);
      if (before !== undefined && after !== undefined) {
        this.#processor += after - before;
        const elapsed = (performance.now() - since) / 1000;
        this.#elapsed += elapsed;
        this.#requests += rate * elapsed;
      }
      return rate;
    };
  }

  share(what: string): Result[] {
    if (this.#elapsed === 0) return [];
    const value = this.#processor / this.#elapsed;
    return [{ what, value, unit: `of ${availableParallelism()} processors` }];
  }

  perRequest(what: string): Result[] {
    if (this.#requests === 0) return [];
    return [{ what, value: (this.#processor * 1e6) / this.#requests, unit: 'µs' }];
  }
}

/** Seconds of processor time of this process, without the programs that it has started. */
function ownProcessorTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}
