import { join } from 'node:path';
import type { InjectOptions } from 'fastify';
import type { Test } from 'tap';
import { type AuditRecord, auditCollection } from '../../src/core/ops/audit.js';
import type { Server } from '../../src/core/server/assembly.js';
import type { Collection, Store } from '../../src/core/storage/collection.js';
import { openStore } from '../../src/core/storage/open.js';
import { type CreateServerOptions, createServer } from '../../src/saas/server.js';
import { type FakeClock, fakeClock } from './clock.js';
import { idsAsInserted, storeIn } from './engine.js';
import { checkAnswers, saasPaths } from './openapi.js';
import { type CountedRandom, countedRandom } from './random.js';
import { temporaryFolder } from './tmp.js';

/** Strong secrets with recognizable values, so that a leak names its source. */
export const SECRETS = {
  jwtAccessSecret: 'access-Zq7vLd0mXw4RkT9cYb2NfHs6Eg',
  jwtRefreshSecret: 'refresh-Jp3uEo8aVg5WiC1xMz7KtQr4Bn',
  paymentWebhookSecret: 'webhook-Bn6yFh2dSl9UjO0eGk5PvIa8',
  adminUsername: 'operator',
  adminPassword: 'Ht4:wXc8:Rq1zLmKd',
} as const;

export const PASSWORD = 'correct horse battery staple';

/** The cheapest hash of argon2. */
export const CHEAP = { memoryCost: 8, timeCost: 1, parallelism: 1 };

/** A code as a phone or an input method may give it: characters of full width, a dash, and marks around it that are invisible. */
export const copiedCode = (code: string): string =>
  `\u200f${code.replaceAll('-', '\u2013').replaceAll(/\w/g, (one) => String.fromCharCode(one.charCodeAt(0) + 0xfee0))}\u200b `;

export interface Call {
  /** Sent as JSON; a string or Buffer is sent as it is. */
  body?: unknown;
  /** Sent as a form; a string is sent as it is. */
  form?: Record<string, string> | string;
  headers?: Record<string, string>;
  /** Bearer token. */
  token?: string;
  /** The address of the client; 127.0.0.1 by default. */
  from?: string;
}

export interface Answer {
  status: number;
  headers: Record<string, string | undefined>;
  text: string;
  /** The JSON of the answer; undefined if it is not JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  body: any;
}

/** The answer to a registration, and its credentials. */
export interface Account {
  email: string;
  password: string;
  id: string;
  accessToken: string;
  refreshToken: string;
}

export interface SaasApp {
  readonly server: Server;
  readonly clock: FakeClock;
  readonly random: CountedRandom;
  readonly databaseUri: string;
  /** The SQLite file. */
  readonly file: string;
  request(method: string, path: string, call?: Call): Promise<Answer>;
  /** Sends JSON to a path below `/api`. */
  post(path: string, body?: object, more?: Omit<Call, 'body'>): Promise<Answer>;
  /** The status of `GET /auth/me` with this access token. */
  me(account: Pick<Account, 'accessToken'>): Promise<number>;
  /** A request of the operator, with the header that a write of the admin area needs. */
  admin(method: string, path: string, body?: unknown): Promise<Answer>;
  /** Listens on a free port of 127.0.0.1 and returns the address. */
  listen(): Promise<string>;
  /** Registers a new user. */
  signUp(more?: { email?: string; name?: string; emailVerified?: boolean }): Promise<Account>;
  close(): Promise<void>;
}

/** Options for a store in `folder`, independent of the environment and the real time. */
export function testOptions(folder: string) {
  return {
    env: false,
    databaseUri: storeIn(folder, 'saas'),
    publicUrl: 'http://app.example.test',
    hashing: CHEAP,
    host: '127.0.0.1',
    port: 0,
    logLevel: 'silent',
    // No server listens at this address: e-mails stay in the outbox unless a test has a mail server.
    emailSmtpUrl: 'smtp://127.0.0.1:9',
    ...SECRETS,
  } as const satisfies CreateServerOptions;
}

/** The code of an error. */
export const errorOf = ({ body }: Pick<Answer, 'body'>): string | undefined => body?.error?.code;

let reopened = 0;

/** A complete backend on its own store; closes itself after the test. */
export async function saasApp(
  t: Test,
  options: CreateServerOptions & { clock?: FakeClock; random?: CountedRandom; folder?: string } = {},
): Promise<SaasApp> {
  const { clock = fakeClock(), folder = temporaryFolder(t), ...rest } = options;
  // IDs of an earlier app on the same store are taken.
  const seed = options.folder === undefined ? undefined : `app ${++reopened}`;
  const { random = countedRandom(seed), ...given } = rest;
  const server = createServer({ ...testOptions(folder), clock, random, ...given });
  t.teardown(() => stopQuietly(server));
  checkAnswers(t, server.fastify, saasPaths(given));
  await server.fastify.ready();

  let people = 0;
  const request: SaasApp['request'] = (method, path, call) => inject(server, method, path, call);
  return {
    server,
    clock,
    random,
    databaseUri: given.databaseUri ?? storeIn(folder, 'saas'),
    file: join(folder, 'saas.db'),
    request,
    post: (path, body, more) => request('POST', `/api${path}`, { ...more, body }),
    me: async ({ accessToken: token }) => (await request('GET', '/api/auth/me', { token })).status,
    admin: (method, path, body) =>
      request(method, path, { headers: ADMIN, ...(body !== undefined && { body }) }),
    listen: async () => (await server.start()).url,
    async signUp({ email = `person${++people}@example.test`, emailVerified = false, ...more } = {}) {
      const answer = await request('POST', '/api/auth/register', {
        body: { email, password: PASSWORD, ...more },
      });
      if (answer.status !== 201) throw new Error(`registration answered ${answer.status}: ${answer.text}`);
      const { user, accessToken, refreshToken } = answer.body.data;
      if (emailVerified) await server.fastify.saas.users.update({ id: user.id }, { emailVerified });
      return { email, password: PASSWORD, id: user.id, accessToken, refreshToken };
    },
    close: () => stopQuietly(server),
  };
}

/** Stops a server whose clients are done: it announces its end to nobody, and waits for nothing. */
export function stopQuietly(server: Pick<Server, 'fastify' | 'stop'>): Promise<void> {
  server.fastify.server.closeIdleConnections();
  return server.stop();
}

/** The application's store through a separate connection, as another process would open it. */
export async function storeOf(t: Test, app: SaasApp): Promise<Store> {
  return openAt(t, app.databaseUri);
}

type AuditIn = (store: Store) => Collection<AuditRecord>;

/** Where a store is, and its audit. */
const opened = new WeakMap<Store, { uri: string; auditIn: AuditIn }>();

/** A store of any engine, until the end of the test. */
export async function openAt(t: Test, uri: string, auditIn: AuditIn = auditCollection): Promise<Store> {
  const store = await openStore(uri);
  opened.set(store, { uri, auditIn });
  t.teardown(() => store.close());
  return store;
}

/** The audit records, the oldest first; equal times in the order of insertion if the store is from `openAt`. */
export async function auditOf(store: Store): Promise<AuditRecord[]> {
  const { uri, auditIn = auditCollection } = opened.get(store) ?? {};
  const { items } = await auditIn(store).page({ sort: 'id', limit: 1000 });
  if (uri === undefined || items.length === 0) return items;
  // The ids of one moment are random, and the clock of a test stands still.
  const inserted = await idsAsInserted(uri, 'audit');
  return items.sort(
    (one, other) => one.at - other.at || inserted.indexOf(one.id) - inserted.indexOf(other.id),
  );
}

/** The header of HTTP Basic. */
export function basic(
  username: string = SECRETS.adminUsername,
  password: string = SECRETS.adminPassword,
): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

/** The headers of the operator's writes. */
export const ADMIN = { authorization: basic(), 'x-requested-with': 'test' };

/** Sends a request to a server that need not listen. */
export async function inject(
  { fastify }: Pick<Server, 'fastify'>,
  method: string,
  url: string,
  { body, form, headers, token, from }: Call = {},
): Promise<Answer> {
  const isRaw = typeof body === 'string' || Buffer.isBuffer(body);
  const json = isRaw ? body : JSON.stringify(body);
  const payload = typeof form === 'object' ? new URLSearchParams(form).toString() : (form ?? json);
  const type = form === undefined ? 'application/json' : 'application/x-www-form-urlencoded';
  const response = await fastify.inject({
    method: method as NonNullable<InjectOptions['method']>,
    url,
    ...(from !== undefined && { remoteAddress: from }),
    headers: {
      ...(payload !== undefined && { 'content-type': type }),
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...headers,
    },
    ...(payload !== undefined && { payload }),
  });
  return {
    status: response.statusCode,
    headers: response.headers as Record<string, string | undefined>,
    text: response.body,
    body: parseJson(response.body),
  };
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
