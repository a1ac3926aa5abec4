/** Rows of several workers on one port and one SQLite file. */
import type { Served } from './lab.js';
import { drive, hammer } from './load.js';
import type { Result } from './report.js';
import { type Bench, compareAnew, type Measure, result } from './rounds.js';
import { bearer, ME, refreshing, register } from './saas-rows.js';

const WORKERS = 2;
const CLIENTS = 64;

/** Two workers compared with one process. Writes to a SQLite file take turns, so refreshes gain less. */
export async function workers(bench: Bench): Promise<Result[]> {
  const results: Result[] = [];
  for (const [what, load, least] of [
    [`GET ${ME}`, reading, 1.7],
    ['POST /api/auth/refresh', rotating, undefined],
  ] as const) {
    const compared = await compareAnew({ ...bench, row: `${bench.row}, ${what}` }, async () => {
      const measureOf = async (count: number): Promise<Measure> =>
        load(await bench.lab.unbound('saas-backend', bench.row, { workers: count }));
      return { measure: await measureOf(WORKERS), floor: await measureOf(1) };
    });
    results.push(result(`${what}, ${WORKERS} workers`, 'one process', compared, least));
  }
  return results;
}

async function reading({ url }: Served): Promise<Measure> {
  const headers = (await register(url, CLIENTS)).map(({ accessToken }) => bearer(accessToken));
  return (seconds) => hammer(url + ME, CLIENTS, seconds, headers);
}

async function rotating({ url }: Served): Promise<Measure> {
  const sessions = (await register(url, CLIENTS)).map(({ refreshToken }) => refreshing(refreshToken));
  return (seconds) => drive(url, sessions, seconds);
}
