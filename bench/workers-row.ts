/** Rows of several workers on one port and one SQLite file. */
import { cpuSeconds, type Served } from './lab.js';
import { drive, hammer } from './load.js';
import type { Result } from './report.js';
import { type Bench, compareAnew, type Measure, result } from './rounds.js';
import { bearer, ME, refreshing, register } from './saas-rows.js';

const WORKERS = 2;
const CLIENTS = 64;

/**
 * Two workers compared with one process: requests per second, and requests per second of processor time that the servers
 * took. The load generator shares the processors, so the second figure tells what two workers serve on two processors of
 * their own: twice the ratio.
 */
export async function workers(bench: Bench): Promise<Result[]> {
  const results: Result[] = [];
  for (const [what, load] of Object.entries({ [`GET ${ME}`]: reading, 'POST /api/auth/refresh': rotating })) {
    for (const perProcessor of [false, true]) {
      const compared = await compareAnew({ ...bench, row: `${bench.row}, ${what}` }, async () => {
        const measureOf = async (count: number): Promise<Measure> => {
          const served = await bench.lab.unbound('saas-backend', bench.row, { workers: count });
          const measure = await load(served);
          return perProcessor ? perSecondOfProcessor(served, measure) : measure;
        };
        return { measure: await measureOf(WORKERS), floor: await measureOf(1) };
      });
      const name = perProcessor
        ? `${what}, ${WORKERS} workers, per processor`
        : `${what}, ${WORKERS} workers`;
      results.push(result(name, 'one process', compared, perProcessor ? 0.85 : undefined));
    }
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

function perSecondOfProcessor({ pid }: Served, measure: Measure): Measure {
  return async (seconds) => {
    const before = cpuSeconds(pid);
    const rate = await measure(seconds);
    return (rate * seconds) / (cpuSeconds(pid) - before);
  };
}
