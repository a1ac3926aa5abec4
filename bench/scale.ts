/** `npm run bench:scale`: a large store of saas-backend, its size, its purge and its admin area. */
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import mongodbPlugin from '@fastify/mongodb';
import { DAY } from '../src/core/kernel/clock.js';
import { LEASE_COLLECTION, LEASE_FIELDS, type LeaseDocument } from '../src/core/ops/jobs.js';
import type { Collection, Store } from '../src/core/storage/collection.js';
import { readCollection } from '../src/core/storage/inspect.js';
import { openStore } from '../src/core/storage/open.js';
import { type SessionDocument, sessionCollection, userCollection } from '../src/saas/auth/store.js';
import { readArguments } from './arguments.js';
import { Lab, type Served } from './lab.js';
import { drive, repeating, request } from './load.js';
import { startMongod } from './mongod.js';
import { createProgress } from './progress.js';
import { RECORD_KINDS, randomTime, recordPages } from './record-rows.js';
import { machineReadable, type Result, table } from './report.js';
import { quantile } from './rounds.js';
import { bearer, JSON_BODY, ME, PASSWORD, probe } from './saas-rows.js';
import { id, session, user } from './size-row.js';

const help = `Fills a store with users and sessions and measures what grows with it: bytes per document, the admin area, the purge of
expired sessions, and the latency of other requests meanwhile.

Usage
  npm run bench:scale -- [options]

Options
  --engine <name>      sqlite or mongodb (sqlite); mongodb takes the server of the tests, see docs/storage.md
  --users <number>     (100000)
  --sessions <number>  unexpired ones (500000)
  --expired <number>   expired ones (200000)
  --records <number>   of each of these: subscriptions, payments, payment events, e-mails, audit records (0)
  --seconds <number>   measuring time of each figure (20)
  --json <file>        also writes the results as JSON
  --help

Examples
  npm run bench:scale
  npm run bench:scale -- --engine mongodb --users 1000000 --sessions 5700000`;

const OPTIONS = {
  engine: { type: 'string', default: 'sqlite' },
  users: { type: 'string', default: '100000' },
  sessions: { type: 'string', default: '500000' },
  expired: { type: 'string', default: '200000' },
  records: { type: 'string', default: '0' },
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
const records = values.records === '0' ? 0 : countOf(values.records);
if (values.engine !== 'sqlite' && values.engine !== 'mongodb')
  usageError(`there is no engine '${values.engine}'.`);

/** Documents per call of `insertMany`. */
const BATCH = 500;

const OPERATORS = 4;
const ADMIN = { ADMIN_USERNAME: 'operator', ADMIN_PASSWORD: 'a long sentence of the operator' };
const ADMIN_AREA = '/admin';
const BASIC = `Basic ${Buffer.from(`${ADMIN.ADMIN_USERNAME}:${ADMIN.ADMIN_PASSWORD}`).toString('base64')}`;

/** Sessions of the user whose page is measured. */
const BUSY_SESSIONS = 10_000;
const PAGE_VIEWS = 25;

const lab = new Lab();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
const mongod = values.engine === 'mongodb' ? await startMongod() : undefined;
const file = join(lab.folder(), 'store.db');
const uri = mongod?.newDatabase() ?? `sqlite:${file}`;
const results: Result[] = [];

const userIds = Array.from({ length: users }, () => id('usr_'));
await fill('users', users, userCollection, (index) => ({
  ...user('x'.repeat(97)),
  id: userIds[index] as string,
  emailVerified: index % 10 !== 0,
  ...(index % 1000 === 0 && { suspendedAt: Date.now() }),
}));
await fill('sessions', sessions, sessionCollection, () => sessionUntil(Date.now() + 30 * DAY));
results.push(...(await sizes()));
if (records > 0) {
  for (const { name, collection, make } of RECORD_KINDS)
    await fill(name, records, collection, (index) => make(index, randomUserId(), randomTime()));
}
results.push(...(await admin()));
results.push(...(await firstPages()));
await fill('sessions', expired, sessionCollection, () => sessionUntil(Date.now() - DAY));
results.push(...(await purge()));
if (mongod) results.push(...(await ttl()));
await mongod?.clear();

process.stdout.write(`${table(results)}\n`);
if (values.json)
  writeFileSync(
    values.json,
    machineReadable(results, { engine: values.engine, users, sessions, expired, records, seconds }),
  );
process.exit();

function sessionUntil(expiresAt: number): SessionDocument {
  return { ...session(), userId: randomUserId(), expiresAt };
}

function randomUserId(): string {
  return userIds[Math.floor(Math.random() * users)] as string;
}

/** Inserts documents and adds the rate to the results. */
async function fill<T extends { id: string }>(
  name: string,
  count: number,
  collectionOf: (store: Store) => Collection<T>,
  make: (index: number) => T,
): Promise<void> {
  const progress = createProgress({ name: `${name} inserted`, write: (done) => done.toLocaleString('en') });
  const store = await openStore(uri);
  const collection = collectionOf(store);
  const since = performance.now();
  for (let from = 0; from < count; from += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - from) }, (_, index) => make(from + index));
    await collection.insertMany(batch);
    progress.show(from + batch.length, count);
  }
  progress.end();
  results.push({
    what: `insert ${count.toLocaleString('en')} ${name}`,
    value: (count * 1000) / (performance.now() - since),
    unit: '/s',
  });
  await store.close();
}

/** Bytes per document. */
async function sizes(): Promise<Result[]> {
  if (!mongod) {
    const value = statSync(file).size / (users + sessions);
    return [{ what: 'a document of the file takes', value, unit: 'bytes' }];
  }
  const client = await new mongodbPlugin.mongodb.MongoClient(uri).connect();
  try {
    // Writes everything to the files.
    await client.db('admin').command({ fsync: 1 });
    const found: Result[] = [];
    for (const name of ['users', 'sessions']) {
      const { count, size, storageSize, totalIndexSize } = await client.db().command({ collStats: name });
      found.push(
        { what: `${name}: a document uncompressed`, value: size / count, unit: 'bytes' },
        { what: `${name}: … on disk`, value: storageSize / count, unit: 'bytes' },
        { what: `${name}: … in the indexes`, value: totalIndexSize / count, unit: 'bytes' },
      );
    }
    return found;
  } finally {
    await client.close();
  }
}

async function start(): Promise<{ served: Served; p99: () => Promise<number> }> {
  const served = await lab.unbound('saas-backend', 'scale', { uri, more: ADMIN });
  const body = JSON.stringify({ email: `${id('')}@example.com`, password: PASSWORD });
  const answer = await fetch(`${served.url}/api/auth/register`, { method: 'POST', headers: JSON_BODY, body });
  const { data } = (await answer.json()) as { data: { accessToken: string } };
  const me = repeating(request('GET', ME, bearer(data.accessToken)), 200);
  return { served, p99: async () => quantile(await probe(served.url, me, seconds), 0.99) };
}

/** Four operators who open the page again as soon as they have it. */
async function admin(): Promise<Result[]> {
  const { served, p99 } = await start();
  const alone = await p99();
  const page = request('GET', ADMIN_AREA, { authorization: BASIC });
  const operators = Array.from({ length: OPERATORS }, () => repeating(page, 200));
  const [value, pages] = await Promise.all([p99(), drive(served.url, operators, seconds)]);
  const connections = mongod ? [await connectionsOf()] : [];
  await end(served);
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
async function firstPages(): Promise<Result[]> {
  const store = await openStore(uri);
  const [busy = ''] = userIds;
  const own = Array.from({ length: BUSY_SESSIONS }, () => ({
    ...sessionUntil(Date.now() + 30 * DAY),
    userId: busy,
  }));
  const collection = sessionCollection(store);
  for (let from = 0; from < own.length; from += BATCH)
    await collection.insertMany(own.slice(from, from + BATCH));
  const email = (await userCollection(store).findOne({ id: userIds[users >> 1] as string }))?.email ?? '';
  await store.close();
  const { served } = await start();
  const pages = {
    'users, the newest': 'users',
    'users by a prefix of one character': `users?q=${email.slice(0, 1)}`,
    'users by a whole address': `users?q=${encodeURIComponent(email)}`,
    'a user by ID': `users?q=${busy}`,
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
  await end(served);
  return found;
}

/** A program that has not purged yet deletes the expired sessions from its start on. */
async function purge(): Promise<Result[]> {
  const store = await openStore(uri);
  await store.collection<LeaseDocument>(LEASE_COLLECTION, LEASE_FIELDS).deleteOne({ id: 'session-purge' });
  await store.close();
  const { served, p99 } = await start();
  const before = await expiredCount();
  const since = performance.now();
  const value = await p99();
  const after = await expiredCount();
  const elapsed = performance.now() - since;
  await end(served);
  const perSecond = ((before - after) * 1000) / elapsed;
  return [
    { what: 'purge of expired sessions', value: perSecond, unit: '/s' },
    { what: '… 30,000,000 sessions take', value: 30_000_000 / perSecond / 3600, unit: 'hours' },
    { what: `p99 of ${ME} meanwhile`, value, unit: 'ms' },
  ];
}

/** The same number of expired sessions with a date, which mongod deletes itself. */
async function ttl(): Promise<Result[]> {
  const client = await new mongodbPlugin.mongodb.MongoClient(uri).connect();
  try {
    const documents = client.db().collection('ttl');
    for (let from = 0; from < expired; from += BATCH) {
      const batch = Array.from({ length: BATCH }, () => ({
        ...session(),
        endsAt: new Date(Date.now() - DAY),
      }));
      await documents.insertMany(batch);
    }
    await documents.createIndexes([
      { key: { userId: 1, createdAt: 1, id: 1 } },
      { key: { expiresAt: 1, id: 1 } },
    ]);
    const { served, p99 } = await start();
    await documents.createIndex({ endsAt: 1 }, { expireAfterSeconds: 0 });
    let before = await documents.countDocuments();
    // mongod looks for expired documents once a minute.
    for (const all = before; before === all; before = await documents.countDocuments()) await sleep(100);
    const since = performance.now();
    const value = await p99();
    const after = await documents.countDocuments();
    const perSecond = ((before - after) * 1000) / (performance.now() - since);
    await end(served);
    return [
      { what: 'deleted by a TTL index instead', value: perSecond, unit: '/s' },
      { what: `p99 of ${ME} meanwhile`, value, unit: 'ms' },
    ];
  } finally {
    await client.close();
  }
}

async function expiredCount(): Promise<number> {
  const where = { expiresAt: { lt: Date.now() } };
  const count = await readCollection<SessionDocument, number>(
    uri,
    'sessions',
    (documents) => documents.count(where),
    { numbers: ['expiresAt'] },
  );
  return count ?? 0;
}

async function connectionsOf(): Promise<Result> {
  const client = await new mongodbPlugin.mongodb.MongoClient(uri).connect();
  try {
    const { connections } = await client.db('admin').command({ serverStatus: 1 });
    return { what: 'connections of mongod, with this one', value: connections.current, unit: '' };
  } finally {
    await client.close();
  }
}

async function end({ pid }: Served): Promise<void> {
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
