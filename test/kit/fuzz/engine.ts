import { performance } from 'node:perf_hooks';
import type { FastifyInstance, RouteOptions } from 'fastify';
import type { FakeClock } from '../clock.js';
import { watchStalls } from '../stall.js';
import { type Dice, diceOf } from '../stripe-simulator.js';
import { exchangeAlone, type FuzzAnswer, FuzzConnection } from './connection.js';
import { EVIL, MARKUP, mutate, mutateBytes } from './mutations.js';
import { bytesOf, type FuzzRequest } from './request.js';

/** Sends valid requests with mutations over real sockets, by clients that learn from the answers. */

export interface Route {
  method: string;
  /** With its parameters: `/invite/:token`. */
  url: string;
  schema: RouteOptions['schema'];
}

/** A product under test, listening. */
export interface FuzzTarget {
  url: string;
  routes: readonly Route[];
  /** Routes whose answers other requests need: they are requested more often. */
  busiest: readonly Route[];
  clock: FakeClock;
  /** A client with public knowledge. */
  visitor(dice: Dice): Visitor;
  /** The codes that a 503 may have. */
  unavailable: readonly string[];
  /** The code in the JSON of an error; `undefined` if it has another shape. */
  codeOf(body: unknown): string | undefined;
  /** Answers that the OpenAPI document does not describe. */
  undocumented?: string[];
  /** Signs in as usual. @throws if that no longer works */
  prove(): Promise<void>;
  stop(): Promise<void>;
}

/** A client: drafts requests that are valid as far as it knows, and learns from the answers. */
export interface Visitor {
  draft(route: Route): FuzzRequest;
  learn(request: FuzzRequest, answer: FuzzAnswer): Promise<void> | void;
  /** A secret or an identifier that it has found. */
  known(): string;
}

export interface FuzzOptions {
  requests: number;
  seed: number;
  /** Concurrent clients. */
  clients?: number;
  progress?: (done: number) => void;
}

export interface FuzzResult {
  requests: number;
  seconds: number;
  /** Processor time, client and server together. */
  cpuSeconds: number;
  /** Status → how often. */
  statuses: Record<number, number>;
  /** The longest delay of the event loop, client and server together, in milliseconds of processor time. */
  longestStall: number;
  /** Routes that no request reached, and those that never succeeded. */
  untouched: string[];
  unsuccessful: string[];
  problems: string[];
}

/** Collects every route of a server that is about to be built. */
export function collectRoutes(fastify: FastifyInstance): Route[] {
  const routes: Route[] = [];
  fastify.addHook('onRoute', ({ method, url, schema }) => {
    for (const verb of [method].flat()) {
      if (verb !== 'HEAD' && verb !== 'OPTIONS') routes.push({ method: verb, url, schema });
    }
  });
  return routes;
}

/** How often the clock moves, and by how much: past the expiry of codes, forms, tokens, sessions. */
const MOVES = 0.001;
const SPANS = [1, 1, 31, 61, 16 * 60, 3601].map((seconds) => seconds * 1000);

const VALID = 0.4;
const BUSIEST = 0.25;
const BROKEN_BYTES = 0.02;

/** @throws if signing in fails afterwards */
export async function fuzz(target: FuzzTarget, options: FuzzOptions): Promise<FuzzResult> {
  const { requests, seed, clients = 32, progress = () => {} } = options;
  const tally = new Map<string, Set<number>>();
  const statuses: Record<number, number> = {};
  const problems: string[] = [];
  const unhandled = (error: unknown) => problems.push(`unhandled: ${String(error)}`);
  process.on('unhandledRejection', unhandled).on('uncaughtException', unhandled);
  const stalls = watchStalls();
  const since = performance.now();
  const cpuSince = process.cpuUsage();
  let done = 0;
  // In turn, so that no route is left out by chance.
  let turn = 0;
  const nextRoute = () => target.routes[turn++ % target.routes.length] as Route;

  const work = async (number: number): Promise<void> => {
    const dice = diceOf(seed * 1000 + number);
    const visitor = target.visitor(dice);
    const connection = new FuzzConnection(target.url);
    while (done < requests) {
      progress(done++);
      if (dice.happens(MOVES)) target.clock.advance(dice.one(SPANS));
      const route = dice.happens(BUSIEST) ? dice.one(target.busiest) : nextRoute();
      const request = visitor.draft(route);
      const isValid = dice.happens(VALID);
      if (!isValid) mutate(request, () => visitor.known(), dice);
      const sent = bytesOf(request);
      const isBroken = dice.happens(BROKEN_BYTES);
      const bytes = isBroken ? mutateBytes(sent.bytes, dice) : sent.bytes;
      const answer = isBroken ? await exchangeAlone(target.url, bytes) : await connection.exchange(sent);
      const found = answer
        ? problemsOf(answer, target)
        : isBroken || bytes.length > 16_000
          ? []
          : ['no answer'];
      if (connection.strays > 0) found.push('bytes that answer nothing');
      connection.strays = 0;
      for (const problem of found) {
        problems.push(
          `${problem}\n  ${show(bytes.toString('latin1'))}\n  ${show(answer?.head)} ${show(answer?.body)}`,
        );
      }
      if (!answer) continue;
      statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
      if (isBroken) continue;
      // A spoilt request may have another method than the route.
      const name = `${request.method} ${route.url}`;
      tally.set(name, (tally.get(name) ?? new Set()).add(answer.status));
      if (answer.status < 400) await visitor.learn(request, answer);
    }
    connection.end();
  };

  try {
    await Promise.all(Array.from({ length: clients }, (_, number) => work(number)));
    await target.prove();
  } finally {
    stalls.end();
    process.off('unhandledRejection', unhandled).off('uncaughtException', unhandled);
  }
  problems.push(...(target.undocumented ?? []));
  if (Reflect.has({}, 'x')) problems.push('Object.prototype has a property x');
  const { user, system } = process.cpuUsage(cpuSince);
  const names = target.routes.map(({ method, url }) => `${method} ${url}`);
  const hasSucceeded = (name: string) => [...(tally.get(name) ?? [])].some((status) => status < 400);
  return {
    requests: done,
    cpuSeconds: (user + system) / 1e6,
    seconds: (performance.now() - since) / 1000,
    statuses,
    longestStall: stalls.longest(),
    untouched: names.filter((name) => !tally.has(name)),
    unsuccessful: names.filter((name) => !hasSucceeded(name)),
    problems,
  };
}

/** Reports what no answer may contain, whatever the request. */
function problemsOf(answer: FuzzAnswer, { codeOf, unavailable }: FuzzTarget): string[] {
  const { status, head, body, header } = answer;
  const problems: string[] = [];
  // Node itself refuses a request without a host, always with these bytes.
  if (
    /^HTTP\/1\.1 400 Bad Request\r\nConnection: close\r\nDate: [^\r]*\r\nTransfer-Encoding: chunked$/.test(
      head,
    )
  )
    return [];
  const type = header('content-type') ?? '';
  const isJson = type.startsWith('application/json');
  const parsed = isJson && body !== '' ? parse(body) : undefined;
  if (!(status >= 200 && status < 600)) problems.push('a status that there is not');
  const code = codeOf(parsed);
  if (status >= 500 && !(status === 503 && unavailable.includes(code ?? '')))
    problems.push(`a failure of ours: ${status}`);
  if (parsed === null) problems.push('JSON that is none');
  if (status >= 400 && isJson && body !== '' && code === undefined)
    problems.push('an error in another shape');
  if (header('x-content-type-options') !== 'nosniff') problems.push('no X-Content-Type-Options');
  if (header('x-request-id') === undefined) problems.push('no X-Request-Id');
  if (leadsAway(header('location'))) problems.push(`a way to ${EVIL}`);
  if (/^set-cookie: *fuzz/im.test(head)) problems.push('a header of the client');
  if (type.startsWith('text/html') && body.includes(MARKUP)) problems.push('markup of the client');
  // Scripts are files of the package, which contain no part of a request.
  const isScript = status === 200 && type.startsWith('text/javascript');
  if (!isScript && /node_modules|\bat \S+ \([^\s)]*:\d|SQLITE_|file:\/\//.test(body))
    problems.push('something of the inside');
  return problems;
}

/** Whether a redirect leaves for the address of an attacker, or runs a script. A path may contain anything. */
function leadsAway(location: string | undefined): boolean {
  if (location === undefined) return false;
  if (!URL.canParse(location, 'http://own.test')) return location.includes(EVIL);
  const { protocol, hostname } = new URL(location, 'http://own.test');
  return hostname.endsWith(EVIL) || protocol === 'javascript:';
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const show = (text = ''): string => JSON.stringify(text.length > 1500 ? `${text.slice(0, 1500)}…` : text);
