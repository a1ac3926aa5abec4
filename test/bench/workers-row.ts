/** Several workers on one port and one database. */
import type { Served } from './lab.js';
import { drive, hammer } from './load.js';
import type { Result } from './report.js';
import { compareAnew, type Measure, type Row, result, serve } from './rounds.js';
import { bearer, ME, refreshing, register } from './saas-rows.js';

const CLIENTS = 64;
/** With `--quick`: each one registers, which costs a password hash. */
const FEW_CLIENTS = 8;

/** Workers compared with one process. Writes to a SQLite file take turns, so refreshes gain less. */
export function workers(count: number): Row {
  return async (bench) => {
    const clients = bench.quick ? FEW_CLIENTS : CLIENTS;
    const results: Result[] = [];
    for (const [what, load] of [
      [`GET ${ME}`, reading],
      ['POST /api/auth/refresh', rotating],
    ] as const) {
      const compared = await compareAnew({ ...bench, row: `${bench.row}, ${what}` }, async () => {
        const measureOf = async (workers: number): Promise<Measure> =>
          load(await serve(bench, 'saas-backend', { workers }), clients);
        return { measure: await measureOf(count), floor: await measureOf(1) };
      });
      results.push(result(`${what}, ${count} workers`, 'one process', compared));
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
