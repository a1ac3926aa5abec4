/** Rows of several workers on one port and one database. */
import { availableParallelism } from 'node:os';
import { performance } from 'node:perf_hooks';
import type { Served } from './lab.js';
import { drive, hammer } from './load.js';
import type { Mongod } from './mongod.js';
import type { Result } from './report.js';
import { compareAnew, type Measure, type Row, result, serve } from './rounds.js';
import { bearer, ME, refreshing, register } from './saas-rows.js';

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
    const results: Result[] = [];
    for (const [what, load, goal] of [
      [`GET ${ME}`, reading, least],
      ['POST /api/auth/refresh', rotating, undefined],
    ] as const) {
      const usage = new Usage(bench.mongod);
      const usageOfOne = new Usage(bench.mongod);
      const compared = await compareAnew({ ...bench, row: `${bench.row}, ${what}` }, async () => {
        const measureOf = async (workers: number): Promise<Measure> =>
          load(await serve(bench, 'saas-backend', { workers }), clients);
        return { measure: usage.of(await measureOf(count)), floor: usageOfOne.of(await measureOf(1)) };
      });
      results.push(
        result(`${what}, ${count} workers`, 'one process', compared, goal),
        ...usage.share(),
        ...usage.perRequest('mongod for each request'),
        ...usageOfOne.perRequest('mongod for each request to one process'),
      );
    }
    return results;
  };
}

async function reading({ url }: Served, clients: number): Promise<Measure> {
  const headers = (await register(url, clients)).map(({ accessToken }) => bearer(accessToken));
  return (seconds) => hammer(url + ME, clients, seconds, headers);
}

async function rotating({ url }: Served, clients: number): Promise<Measure> {
  const sessions = (await register(url, clients)).map(({ refreshToken }) => refreshing(refreshToken));
  return (seconds) => drive(url, sessions, seconds);
}

/** How many processors mongod uses meanwhile: when it cannot use more, further workers do not help. */
class Usage {
  readonly #mongod: Mongod | undefined;
  #processor = 0;
  #elapsed = 0;
  #requests = 0;

  constructor(mongod: Mongod | undefined) {
    this.#mongod = mongod;
  }

  /** Observes a measurement. */
  of(measure: Measure): Measure {
    return async (seconds) => {
      const [since, before] = [performance.now(), this.#mongod?.processorTime()];
      const rate = await measure(seconds);
      const after = this.#mongod?.processorTime();
      if (before !== undefined && after !== undefined) {
        this.#processor += after - before;
        const elapsed = (performance.now() - since) / 1000;
        this.#elapsed += elapsed;
        this.#requests += rate * elapsed;
      }
      return rate;
    };
  }

  share(): Result[] {
    if (this.#elapsed === 0) return [];
    const value = this.#processor / this.#elapsed;
    return [{ what: '… used by mongod', value, unit: `of ${availableParallelism()} processors` }];
  }

  perRequest(what: string): Result[] {
    if (this.#requests === 0) return [];
    return [{ what: `… ${what}`, value: (this.#processor * 1e6) / this.#requests, unit: 'µs' }];
  }
}
