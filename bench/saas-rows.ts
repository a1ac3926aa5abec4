/** Rows of saas-backend. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Served } from './lab.js';
import { type Answer, ask, type Client, drive, expectStatus, hammer, repeating, request } from './load.js';
import { pocketBase } from './pocketbase.js';
import type { Result } from './report.js';
import {
  type Bench,
  type Comparison,
  compare,
  compareAnew,
  type Measure,
  quantile,
  type Row,
  result,
  serve,
} from './rounds.js';

export const JSON_BODY = { 'content-type': 'application/json' };
export const PASSWORD = 'a sentence is fine';
export const ME = '/api/auth/me';

/** Seconds of a turn for slow operations or many connections. */
export const LONG_TURN = 1.5;

export interface Account {
  user: { id: string };
  email: string;
  accessToken: string;
  refreshToken: string;
}

/** Reads the session and its user from the store each time. */
export function me(least = 0.9): Row {
  return async (bench) => {
    const compared = await compareAnew(bench, async () => {
      const { url } = await serve(bench, 'saas-backend');
      const accounts = await register(url, 32);
      const headers = accounts.map(({ accessToken }) => bearer(accessToken));
      const answer = await (await ask(url + ME, { headers: headers[0] ?? {} })).text();
      const floor = await jwtFloor(bench, answer);
      return {
        measure: (seconds) => hammer(url + ME, 32, seconds, headers),
        floor: (seconds) => hammer(floor.url, 32, seconds, [floor.headers]),
      };
    });
    return [result(`GET ${ME}`, 'jwt', compared, least)];
  };
}

const REFRESHERS = 64;

/** Sessions that each refresh with their latest token. */
export function refresh(least = 0.27): Row {
  return async (bench) => {
    const compared = await compareAnew(bench, async () => {
      const { measure } = await refreshers(bench);
      const floor = await jwtFloor(bench, '{"success":true}');
      return { measure, floor: (seconds) => hammer(floor.url, REFRESHERS, seconds, [floor.headers]) };
    });
    const row = result('POST /api/auth/refresh', 'jwt', compared, least);
    return bench.mongod ? [row] : [row, await aheadOfPeer(bench, compared)];
  };
}

/** Without POCKETBASE the goal is its ratio to `jwt`. */
async function aheadOfPeer(bench: Bench, toFloor: Comparison): Promise<Result> {
  const what = '… ahead of the nearest peer';
  const program = process.env['POCKETBASE'];
  if (!program) return result(what, 'jwt', toFloor, 0.35, ' (POCKETBASE is not set)');
  const ahead = await compareAnew({ ...bench, row: `${bench.row} of PocketBase` }, async () => {
    const { measure } = await refreshers(bench);
    const peer = await pocketBase(bench.lab, program, REFRESHERS);
    return { measure, floor: (seconds) => drive(peer.url, peer.clients, seconds) };
  });
  return result(what, 'PocketBase', ahead, 1);
}

async function refreshers(bench: Bench): Promise<{ measure: Measure }> {
  const { url } = await serve(bench, 'saas-backend');
  const sessions = (await register(url, REFRESHERS)).map(({ refreshToken }) => refreshing(refreshToken));
  return { measure: (seconds) => drive(url, sessions, seconds) };
}

/** `hash` uses the library that created the hashes; the program uses a faster one where possible. */
export async function login(bench: Bench): Promise<Result[]> {
  const open = async () => {
    const { url } = await serve(bench, 'saas-backend');
    const people = (await register(url, 8)).map(({ email }) => repeating(loginOf(email), 200));
    const floor = bench.lab.worker('floor-work');
    return {
      measure: (seconds: number) => drive(url, people, seconds),
      floor: (seconds: number) => floor.rate('hash', seconds),
    };
  };
  return [result('POST /api/auth/login', 'hash', await compareAnew(bench, open, LONG_TURN), 0.95)];
}

/** The latency of other requests while 200 clients log in as fast as possible. */
export async function flood(bench: Bench): Promise<Result[]> {
  const { url } = await serve(bench, 'saas-backend');
  const [attacked, reader, refresher] = (await register(url, 3)) as [Account, Account, Account];
  const others = [
    repeating(request('GET', ME, bearer(reader.accessToken)), 200),
    refreshing(refresher.refreshToken),
    repeating(request('GET', '/health'), 200),
  ];
  const flooding = Array.from({ length: 200 }, () => repeating(loginOf(attacked.email), 200, 503));
  const p99 = async (seconds: number) => {
    const latencies = await Promise.all(others.map((client) => probe(url, client, seconds)));
    return quantile(latencies.flat(), 0.99);
  };
  const p99Flooded = async (seconds: number) => {
    const [value] = await Promise.all([p99(seconds), drive(url, flooding, seconds)]);
    return value;
  };
  const { value, floor, ratio } = await compare(bench, p99Flooded, p99, LONG_TURN);
  const goal = { text: '< 50 ms', met: value < 50 };
  const what = 'p99 of others while 200 log in';
  return [{ what, value, unit: 'ms', floor: { name: 'alone', value: floor }, ratio, goal }];
}

/** Milliseconds per request of one client, at most 100 requests per second. */
export async function probe(url: string, client: Client, seconds: number): Promise<number[]> {
  const latencies: number[] = [];
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    let since = 0;
    const timed: Client = {
      next: () => {
        since = performance.now();
        return client.next();
      },
      take: (answer) => {
        latencies.push(performance.now() - since);
        client.take(answer);
      },
    };
    await drive(url, [timed], 0);
    await sleep(10);
  }
  return latencies;
}

export function refreshing(first: string): Client {
  let refreshToken = first;
  return {
    next: () => request('POST', '/api/auth/refresh', JSON_BODY, JSON.stringify({ refreshToken })),
    take: (answer: Answer) => {
      expectStatus(answer, 200);
      refreshToken = JSON.parse(answer.body).data.refreshToken;
    },
  };
}

export function loginOf(email: string): string {
  return request('POST', '/api/auth/login', JSON_BODY, JSON.stringify({ email, password: PASSWORD }));
}

export async function register(url: string, count: number): Promise<Account[]> {
  const accounts: Account[] = [];
  for (let number = 0; number < count; number++) {
    const email = `person-${number}@example.com`;
    const body = JSON.stringify({ email, password: PASSWORD });
    const answer = await ask(`${url}/api/auth/register`, { method: 'POST', headers: JSON_BODY, body });
    if (answer.status !== 201) throw new Error(`register answered ${answer.status}: ${await answer.text()}`);
    const { data } = (await answer.json()) as { data: Omit<Account, 'email'> };
    accounts.push({ ...data, email });
  }
  return accounts;
}

/** The `jwt` baseline, and the header that it requires. */
export async function jwtFloor(
  { lab }: Bench,
  json: string,
): Promise<Served & { headers: Record<string, string> }> {
  const floor = await lab.floor('jwt', json);
  const { token } = (await (await ask(`${floor.url}/token`)).json()) as { token: string };
  return { ...floor, headers: bearer(token) };
}

export function bearer(token: string): Record<string, string> {
  return { authorization: `Bearer ${token}` };
}
