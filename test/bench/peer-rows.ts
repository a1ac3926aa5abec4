/** Servers of the same kind as peers, side by side with saas-backend: reading the user, and refreshing a session. */
import { type Client, drive, expectStatus, hammer } from './load.js';
import type { Result } from './report.js';
import { type Bench, compareAnew, type Row, result, serve } from './rounds.js';
import { bearer, ME, PASSWORD, REFRESHERS, refreshing, register } from './saas-rows.js';

/** A server that is no dependency; the help of the bench describes it. */
export interface Peer {
  name: string;
  /** The environment variable with the path of its program. */
  variable: string;
  /** Starts it with that many users. */
  open(bench: Bench, program: string, users: number): Promise<PeerServer>;
}

export interface PeerServer {
  url: string;
  /** Each reads its user from the database, repeatedly. */
  readers: Client[];
  /** Each refreshes its session, repeatedly. */
  refreshers: Client[];
}

/** @param least the goal of both */
export function peer({ name, variable, open }: Peer, least: number): Row {
  return async (bench) => {
    const program = process.env[variable];
    if (!program) return [{ what: `… and ${name}`, skipped: `${variable} is not set` }];
    const compareWith = async (what: string, part: 'readers' | 'refreshers'): Promise<Result> => {
      const compared = await compareAnew({ ...bench, row: `${bench.row}, ${what}` }, async () => {
        const { url } = await serve(bench, 'saas-backend');
        const accounts = await register(url, REFRESHERS);
        const headers = accounts.map(({ accessToken }) => bearer(accessToken));
        const own = accounts.map(({ refreshToken }) => refreshing(refreshToken));
        const peer = await open(bench, program, REFRESHERS);
        return {
          measure: (seconds) =>
            part === 'readers' ? hammer(url + ME, REFRESHERS, seconds, headers) : drive(url, own, seconds),
          floor: (seconds) => drive(peer.url, peer[part], seconds),
        };
      });
      return result(what, name, compared, least);
    };
    return [
      await compareWith(`GET ${ME}`, 'readers'),
      await compareWith('POST /api/auth/refresh', 'refreshers'),
    ];
  };
}

/** Posts JSON to a peer. @throws unless it succeeds */
export async function post<T>(url: string, body: object): Promise<T> {
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as T;
}

/** The addresses of that many users, with the password of all of them. */
export const peerUsers = (count: number): { email: string; password: string }[] =>
  Array.from({ length: count }, (_, number) => ({
    email: `person-${number}@example.com`,
    password: PASSWORD,
  }));

/** A client that sends what the last answer contained. @param next encodes the request */
export function following(
  first: string,
  next: (token: string) => string,
  tokenIn: (body: string) => string,
): Client {
  let token = first;
  return {
    next: () => next(token),
    take(answer) {
      expectStatus(answer, 200);
      token = tokenIn(answer.body);
    },
  };
}
