/** Rows of several workers on one port and one database. */
import type { Served } from './lab.js';
import { drive, hammer } from './load.js';
import { compareAnew, type Measure, type Row, result, serve } from './rounds.js';
import { bearer, ME, refreshing, register } from './saas-rows.js';

const CLIENTS = 64;

/**
 * Workers compared with one process. Writes to a SQLite file take turns, so refreshes gain less.
 *
 * @param least the goal of `me`
 */
export function workers(count: number, least?: number): Row {
  return async (bench) => {
    const results = [];
    for (const [what, load, goal] of [
      [`GET ${ME}`, reading, least],
      ['POST /api/auth/refresh', rotating, undefined],
    ] as const) {
      const compared = await compareAnew({ ...bench, row: `${bench.row}, ${what}` }, async () => {
        const measureOf = async (workers: number): Promise<Measure> =>
          load(await serve(bench, 'saas-backend', { workers }));
        return { measure: await measureOf(count), floor: await measureOf(1) };
      });
      results.push(result(`${what}, ${count} workers`, 'one process', compared, goal));
    }
    return results;
  };
}

async function reading({ url }: Served): Promise<Measure> {
  const headers = (await register(url, CLIENTS)).map(({ accessToken }) => bearer(accessToken));
  return (seconds) => hammer(url + ME, CLIENTS, seconds, headers);
}

async function rotating({ url }: Served): Promise<Measure> {
  const sessions = (await register(url, CLIENTS)).map(({ refreshToken }) => refreshing(refreshToken));
  return (seconds) => drive(url, sessions, seconds);
}
