/** Rows of saas-backend. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Served } from './lab.js';
import { type Answer, ask, type Client, drive, expectStatus, hammer, repeating, request } from './load.js';
import type { Result } from './report.js';
import { type Bench, compareAnew, type Row, result, serve } from './rounds.js';

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
export function me(least: number): Row {
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

export const REFRESHERS = 64;

/** Sessions that each refresh with their latest token. */
export function refresh(least: number): Row {
  return async (bench) => {
    const compared = await compareAnew(bench, async () => {
      const { url } = await serve(bench, 'saas-backend');
      const accounts = await register(url, REFRESHERS);
      const sessions = accounts.map(({ refreshToken }) => refreshing(refreshToken));
      const floor = await jwtFloor(bench, '{"success":true}');
      return {
        measure: (seconds) => drive(url, sessions, seconds),
        floor: (seconds) => hammer(floor.url, REFRESHERS, seconds, [floor.headers]),
      };
    });
    return [result('POST /api/auth/refresh', 'jwt', compared, least)];
  };
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
