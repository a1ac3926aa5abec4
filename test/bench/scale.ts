/** `npm run bench:scale`: a large store of saas-backend, its size, its purge, its admin area, and requests that do not depend on it. */
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import argon2 from 'argon2';
import { DAY } from '../../src/core/kernel/clock.js';
import { newId } from '../../src/core/kernel/secrets.js';
import { LEASE_COLLECTION, LEASE_FIELDS, type LeaseDocument } from '../../src/core/ops/jobs.js';
import { STANDARD_COST } from '../../src/core/passwords/argon2.js';
import type { Collection, Store } from '../../src/core/storage/collection.js';
import { readCollection } from '../../src/core/storage/inspect.js';
import { openStore } from '../../src/core/storage/open.js';
import {
  type SessionDocument,
  sessionCollection,
  type UserDocument,
  userCollection,
} from '../../src/saas/auth/store.js';
import { readArguments } from './arguments.js';
import { Lab, type Served } from './lab.js';
import { ask, drive, hammer, repeating, request } from './load.js';
import {
  MEMBERS,
  membershipAt,
  membershipsIn,
  ORGANIZATIONS,
  organizationAt,
  organizationRequests,
  organizationsIn,
} from './organization-rows.js';
import { createProgress, tell } from './progress.js';
import { RECORD_KINDS, randomTime, recordPages } from './record-rows.js';
import { machineReadable, type Result, table } from './report.js';
import { compare, type Measure, quantile, result } from './rounds.js';
import { type Account, bearer, JSON_BODY, loginOf, ME, PASSWORD, probe, refreshing } from './saas-rows.js';
import { connectionsOf, sizesOf } from './scale-figures.js';
import { type DatabaseServer, mongodAt, onPostgresql, postgresqlAt, SERVERS } from './servers.js';
import { id, session, user } from './size-row.js';

const help = `Fills a store with users and sessions and measures what grows with it: bytes per document, the admin area, the purge of
expired sessions, and the latency of other requests meanwhile; and sign-ins, which should take as long as in a small store.

Usage
  npm run bench:scale -- [options]

Options
  --engine <name>      sqlite, postgresql or mongodb (sqlite); the servers are those of the tests, see test/core/storage/README.md
  --database <uri>     an empty database, which is filled, or one that was filled with the same options; it remains
  --fill               only fills it
  --users <number>     (100000)
  --sessions <number>  unexpired ones (500000)
  --expired <number>   expired ones (200000)
  --records <number>   of each of these: subscriptions, payments, payment events, e-mails, audit records (0)
  --organizations <number>  with ten members each; of the requests, those of members only (0)
  --seconds <number>   measuring time of each figure (20)
  --json <file>        also writes the results as JSON
  --help

Examples
  npm run bench:scale
  npm run bench:scale -- --engine postgresql --users 1000000 --sessions 5700000`;

const OPTIONS = {
  engine: { type: 'string', default: 'sqlite' },
  database: { type: 'string' },
  fill: { type: 'boolean', default: false },
  users: { type: 'string', default: '100000' },
  sessions: { type: 'string', default: '500000' },
  expired: { type: 'string', default: '200000' },
  records: { type: 'string', default: '0' },
  organizations: { type: 'string', default: '0' },
  seconds: { type: 'string', default: '20' },
  json: { type: 'string' },
} as const;

const { values, usageError, countOf } = readArguments('bench:scale', help, OPTIONS);
const [users, sessions, expired, seconds] = [
  values.users,
  values.sessions,
  values.expired,
  values.seconds,
].map(countOf) as [number, number, number, number];
const [records, organizations] = [values.records, values.organizations].map((count) =>
  count === '0' ? 0 : countOf(count),
) as [number, number];
if (values.fill && !values.database) usageError('--fill needs --database.');

/** Documents per call of `insertMany`, and calls at the same time. */
const BATCH = 500;
const CALLS = 4;

/** Of the store with which the large one is compared. */
const SMALL = 1000;
/** Users with a password, evenly spread over the store. */
const PEOPLE = 64;
const CLIENTS = 32;

const OPERATORS = 4;
const ADMIN = { ADMIN_USERNAME: 'operator', ADMIN_PASSWORD: 'a long sentence of the operator' };
const ADMIN_AREA = '/admin';
const BASIC = `Basic ${Buffer.from(`${ADMIN.ADMIN_USERNAME}:${ADMIN.ADMIN_PASSWORD}`).toString('base64')}`;

/** Sessions of the user whose page is measured. */
const BUSY_SESSIONS = 10_000;
const PAGE_VIEWS = 25;

const lab = new Lab();
const server = await serverOf(values.engine, values.database);
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void end(1));
const passwordHash = await argon2.hash(PASSWORD, { type: argon2.argon2id, ...STANDARD_COST });
const results: Result[] = [];
try {
  const uri = values.database ?? newDatabase();
  await fillStore(uri, users, sessions, organizations);
  if (!values.fill) await measure(uri);
  process.stdout.write(`${table(results)}\n`);
  if (values.json)
    writeFileSync(
      values.json,
      machineReadable(results, {
        engine: values.engine,
        users,
        sessions,
        expired,
        records,
        organizations,
        seconds,
      }),
    );
  await end(0);
} catch (error) {
  console.error(error);
  await end(1);
}

async function end(code: number): Promise<never> {
  await lab.clear();
  await server?.stop();
  process.exit(code);
}

/** The server of the engine, or that of the URI; `undefined` for SQLite. */
async function serverOf(engine: string, uri: string | undefined): Promise<DatabaseServer | undefined> {
  if (uri?.startsWith('postgres')) return postgresqlAt(uri);
  if (uri?.startsWith('mongodb')) return mongodAt(uri);
  if (engine === 'postgresql') return SERVERS.PostgreSQL();
  if (engine === 'mongodb') return SERVERS.MongoDB();
  return engine === 'sqlite' ? undefined : usageError(`there is no engine '${engine}'.`);
}

function newDatabase(): string {
  return server?.newDatabase() ?? `sqlite:${join(lab.folder(), 'store.db')}`;
}

async function measure(uri: string): Promise<void> {
  if (organizations > 0) {
    results.push(...(await growth(uri)));
    return;
  }
  results.push(...(await sizesOf(uri, { users, sessions })));
  results.push(...(await admin(uri)));
  results.push(...(await firstPages(uri)));
  results.push(...(await growth(uri)));
  await fill(uri, 'expired sessions', expired, sessionCollection, () =>
    sessionUntil(Date.now() - DAY, users),
  );
  results.push(...(await purge(uri)));
}

/** Does nothing if there are users. */
async function fillStore(uri: string, users: number, sessions: number, organizations: number): Promise<void> {
  const store = await openStore(uri);
  const isFilled = (await userCollection(store).count({}, 1)) > 0;
  await store.close();
  if (isFilled) return;
  const people = new Set(peopleIn(users));
  await fill(uri, 'users', users, userCollection, (index) => userAt(index, people.has(index)));
  const expiresAt = Date.now() + 30 * DAY;
  await fill(uri, 'sessions', sessions, sessionCollection, () => sessionUntil(expiresAt, users));
  for (const { name, collection, make } of records > 0 ? RECORD_KINDS : [])
    await fill(uri, name, records, collection, (index) => make(index, randomUserId(users), randomTime()));
  if (organizations > 0) {
    await fill(uri, 'organizations', organizations, organizationsIn, organizationAt);
    await fill(uri, 'members', organizations * MEMBERS, membershipsIn, (index) =>
      membershipAt(index, userIdAt(index % users)),
    );
  }
  // As PostgreSQL does by itself within a minute.
  if (uri.startsWith('postgres')) await onPostgresql(uri, ['VACUUM ANALYZE']);
}

/** The numbers of the users with a password. */
function peopleIn(users: number): number[] {
  return Array.from({ length: PEOPLE }, (_, number) => Math.floor((number * users) / PEOPLE));
}

function userAt(index: number, isPerson: boolean): UserDocument {
  return {
    ...user(isPerson ? passwordHash : 'x'.repeat(97)),
    id: userIdAt(index),
    email: emailAt(index),
    emailVerified: index % 10 !== 0,
    ...(index % 1000 === 0 && !isPerson && { suspendedAt: Date.now() }),
  };
}

function digestOf(index: number): Buffer {
  return createHash('sha256').update(String(index)).digest();
}

/** The same ones in each run, with the times and the random parts of usual ones. */
function userIdAt(index: number): string {
  return newId('usr_', { now: () => index }, { bytes: (size) => digestOf(index).subarray(0, size) });
}

function emailAt(index: number): string {
  return `${digestOf(index).toString('hex', 0, 6)}@example.com`;
}

function sessionUntil(expiresAt: number, users: number): SessionDocument {
  return { ...session(), userId: randomUserId(users), expiresAt };
}

function randomUserId(users: number): string {
  return userIdAt(Math.floor(Math.random() * users));
}

/** Inserts documents and adds the rate to the results. */
async function fill<T extends { id: string }>(
  uri: string,
  name: string,
  count: number,
  collectionOf: (store: Store) => Collection<T>,
  make: (index: number) => T,
): Promise<void> {
  const progress = createProgress({ name: `${name} inserted`, write: (done) => done.toLocaleString('en') });
  const store = await openStore(uri);
  const collection = collectionOf(store);
  const since = performance.now();
  let next = 0;
  const insertAll = async () => {
    while (next < count) {
      const from = next;
      next = Math.min(count, from + BATCH);
      await collection.insertMany(Array.from({ length: next - from }, (_, index) => make(from + index)));
      progress.show(next, count);
    }
  };
  await Promise.all(Array.from({ length: CALLS }, insertAll));
  progress.end();
  const value = (count * 1000) / (performance.now() - since);
  if (count > SMALL)
    results.push({ what: `insert ${count.toLocaleString('en')} ${name}`, value, unit: '/s' });
  await store.close();
}

async function start(uri: string): Promise<{ served: Served; p99: () => Promise<number> }> {
  const served = await lab.unbound('saas-backend', 'scale', { uri, more: ADMIN });
  const body = JSON.stringify({ email: `${id('')}@example.com`, password: PASSWORD });
  const answer = await fetch(`${served.url}/api/auth/register`, { method: 'POST', headers: JSON_BODY, body });
  const { data } = (await answer.json()) as { data: { accessToken: string } };
  const me = repeating(request('GET', ME, bearer(data.accessToken)), 200);
  return { served, p99: async () => quantile(await probe(served.url, me, seconds), 0.99) };
}

/** Four operators who open the page again as soon as they have it. */
async function admin(uri: string): Promise<Result[]> {
  const { served, p99 } = await start(uri);
  const alone = await p99();
  const page = request('GET', ADMIN_AREA, { authorization: BASIC });
  const operators = Array.from({ length: OPERATORS }, () => repeating(page, 200));
  const [value, pages] = await Promise.all([p99(), drive(served.url, operators, seconds)]);
  const connections = await connectionsOf(uri);
  await stop(served);
  return [
    ...connections,
    { what: `admin area, ${OPERATORS} operators`, value: pages, unit: 'pages/s' },
    {
      what: `p99 of ${ME} meanwhile`,
      value,
      unit: 'ms',
      floor: { name: 'alone', value: alone },
      ratio: value / alone,
    },
  ];
}

/** The median time of the first pages of lists and searches, of a user with many sessions, and of the overview. */
async function firstPages(uri: string): Promise<Result[]> {
  const store = await openStore(uri);
  const busy = userIdAt(1);
  const own = Array.from({ length: BUSY_SESSIONS }, () => ({
    ...sessionUntil(Date.now() + 30 * DAY, users),
    userId: busy,
  }));
  const collection = sessionCollection(store);
  for (let from = 0; from < own.length; from += BATCH)
    await collection.insertMany(own.slice(from, from + BATCH));
  await store.close();
  const email = emailAt(users >> 1);
  const { served } = await start(uri);
  const pages = {
    'users, the newest': 'users',
    'users by a prefix of one character': `users?q=${email.slice(0, 1)}`,
    'users by a whole address': `users?q=${encodeURIComponent(email)}`,
    'a user by ID': `users?q=${busy}`,
    'search of everything by a part of an address': `search?q=${email.slice(3, 9)}`,
    'search of everything by a whole address': `search?q=${encodeURIComponent(email)}`,
    'search of everything by a part that all addresses have': 'search?q=example',
    'suspended users': 'users?show=suspended',
    'unverified users': 'users?show=unverified',
    [`a user with ${BUSY_SESSIONS.toLocaleString('en')} sessions`]: `users/${busy}`,
    ...(records > 0 && recordPages(busy)),
    overview: '',
  };
  const found: Result[] = [];
  for (const [what, path] of Object.entries(pages)) {
    const times: number[] = [];
    for (let count = 0; count < PAGE_VIEWS; count++) {
      const since = performance.now();
      const answer = await fetch(`${served.url}${ADMIN_AREA}/${path}`, { headers: { authorization: BASIC } });
      await answer.text();
      if (answer.status !== 200) throw new Error(`${path} answered ${answer.status}`);
      times.push(performance.now() - since);
    }
    found.push({ what: `page: ${what}`, value: quantile(times, 0.5), unit: 'ms' });
    // It is counted once in a while, not for each view.
    if (path === '') found.push({ what: '… when it is counted', value: times[0] as number, unit: 'ms' });
  }
  await stop(served);
  return found;
}

/** The same requests to the large store and to a new one, by people who are evenly spread over it. */
async function growth(uri: string): Promise<Result[]> {
  const small = newDatabase();
  await fillStore(small, SMALL, 5 * SMALL, organizations > 0 ? SMALL : 0);
  const start = async (uri: string, size: number) => {
    const served = await lab.unbound('saas-backend', 'growth', { uri, more: ORGANIZATIONS });
    return { served, measures: await requestsOf(served, peopleIn(size)) };
  };
  const [large, few] = [await start(uri, users), await start(small, SMALL)];
  const found: Result[] = [];
  for (const [what, measure] of Object.entries(large.measures)) {
    const bench = { lab, row: what, seconds, starts: 1, quick: false, progress: tell };
    const compared = await compare(bench, measure, few.measures[what] as Measure);
    const [many, base] = [users, SMALL].map((count) => count.toLocaleString('en'));
    found.push(result(`${what} at ${many}`, `at ${base}`, compared, 0.9));
  }
  await Promise.all([stop(large.served), stop(few.served)]);
  return found;
}

async function requestsOf({ url }: Served, people: readonly number[]): Promise<Record<string, Measure>> {
  const emails = people.map(emailAt);
  const accounts: Account[] = [];
  for (const email of emails) {
    const body = JSON.stringify({ email, password: PASSWORD });
    const answer = await ask(`${url}/api/auth/login`, { method: 'POST', headers: JSON_BODY, body });
    if (answer.status !== 200) throw new Error(`login answered ${answer.status}: ${await answer.text()}`);
    accounts.push({ ...((await answer.json()) as { data: Account }).data, email });
  }
  if (organizations > 0)
    return organizationRequests(
      url,
      accounts.map(({ accessToken }, index) => ({ accessToken, number: people[index] as number })),
    );
  const headers = accounts.map(({ accessToken }) => bearer(accessToken));
  const rotating = accounts.map(({ refreshToken }) => refreshing(refreshToken));
  const logins = emails.slice(0, 8).map((email) => repeating(loginOf(email), 200));
  return {
    [`GET ${ME}`]: (seconds) => hammer(url + ME, CLIENTS, seconds, headers),
    'POST /api/auth/refresh': (seconds) => drive(url, rotating, seconds),
    'POST /api/auth/login': (seconds) => drive(url, logins, seconds),
  };
}

/** A program that has not purged yet deletes the expired sessions from its start on. */
async function purge(uri: string): Promise<Result[]> {
  const store = await openStore(uri);
  await store.collection<LeaseDocument>(LEASE_COLLECTION, LEASE_FIELDS).deleteOne({ id: 'session-purge' });
  await store.close();
  const { served, p99 } = await start(uri);
  const before = await expiredCount(uri);
  const since = performance.now();
  const value = await p99();
  const after = await expiredCount(uri);
  const elapsed = performance.now() - since;
  await stop(served);
  const perSecond = ((before - after) * 1000) / elapsed;
  return [
    { what: 'purge of expired sessions', value: perSecond, unit: '/s' },
    { what: '… 30,000,000 sessions take', value: 30_000_000 / perSecond / 3600, unit: 'hours' },
    { what: `p99 of ${ME} meanwhile`, value, unit: 'ms' },
  ];
}

async function expiredCount(uri: string): Promise<number> {
  const where = { expiresAt: { lt: Date.now() } };
  const count = await readCollection<SessionDocument, number>(
    uri,
    'sessions',
    (documents) => documents.count(where),
    { numbers: ['expiresAt'] },
  );
  return count ?? 0;
}

async function stop({ pid }: Served): Promise<void> {
  process.kill(pid, 'SIGTERM');
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return;
    }
    await sleep(50);
  }
}
