/** Whether the programs slow down as their stores grow: the same work on a small and on a large store. */
import { join } from 'node:path';
import argon2 from 'argon2';
import { sha256 } from '../src/core/kernel/secrets.js';
import { STANDARD_COST } from '../src/core/passwords/argon2.js';
import type { Store } from '../src/core/storage/collection.js';
import { openStore } from '../src/core/storage/open.js';
import { type PrincipalDocument, principalCollection } from '../src/idp/provisioning/store.js';
import { userCollection } from '../src/saas/auth/store.js';
import { basic, registerApplication, signIn } from './idp-rows.js';
import type { Program } from './lab.js';
import { ask, drive, hammer, repeating } from './load.js';
import type { Result } from './report.js';
import { type Bench, compare, type Measure, result } from './rounds.js';
import { bearer, JSON_BODY, loginOf, ME, PASSWORD } from './saas-rows.js';
import { id, user } from './size-row.js';

const SMALL = 1000;
const BATCH = 5000;
const CLIENTS = 32;
/** Signed-in people, evenly spread over the store. */
const PEOPLE = 64;
/** Measures the work without any benefit of caches; has no goal. */
const NEVER_TWICE = '… of another one each time';
const GENERATED = `agp_${'b'.repeat(43)}`;
const SECRET_HASH = sha256(GENERATED);

/** Inserts the document with this number. */
type Insert = (number: number) => Promise<void>;

/** The measurements of a program, by name. */
type Measures = Record<string, Measure>;

export async function growth(bench: Bench): Promise<Result[]> {
  const passwordHash = await argon2.hash(PASSWORD, { type: argon2.argon2id, ...STANDARD_COST });
  const people = (store: Store): Insert => {
    const users = userCollection(store);
    return (number) => users.insert({ ...user(passwordHash), email: emailOf(number) });
  };
  const agents = (store: Store): Insert => {
    const principals = principalCollection(store);
    return (number) => principals.insert(agent(number));
  };
  return [
    ...(await onBothSizes(bench, 'saas-backend', people, measuresOfPeople)),
    ...(await onBothSizes(bench, 'idp', agents, measuresOfAgents)),
  ];
}

async function onBothSizes(
  bench: Bench,
  program: Program,
  inserting: (store: Store) => Insert,
  measuresOf: (url: string, size: number) => Promise<Measures>,
): Promise<Result[]> {
  const large = bench.quick ? 10 * SMALL : 1000 * SMALL;
  const start = async (size: number): Promise<Measures> => {
    const file = join(bench.lab.folder(), `${program}.db`);
    await fill(bench, file, size, inserting);
    return measuresOf((await bench.lab.unbound(program, bench.row, { uri: `sqlite:${file}` })).url, size);
  };
  const [atLarge, atSmall] = [await start(large), await start(SMALL)];
  const [many, few] = [large, SMALL].map((count) => count.toLocaleString('en'));
  const results: Result[] = [];
  for (const [what, measure] of Object.entries(atLarge)) {
    const row = { ...bench, row: `${bench.row}, ${what}` };
    const compared = await compare(row, measure, atSmall[what] as Measure);
    results.push(result(`${what} at ${many}`, `at ${few}`, compared, what === NEVER_TWICE ? undefined : 0.9));
  }
  await bench.lab.clear();
  return results;
}

async function fill(
  { row, progress }: Bench,
  file: string,
  size: number,
  inserting: (store: Store) => Insert,
): Promise<void> {
  const store = await openStore(`sqlite:${file}`);
  const insert = inserting(store);
  for (let from = 0; from < size; from += BATCH) {
    progress(`${row}: ${from} of ${size} documents`);
    const count = Math.min(BATCH, size - from);
    await Promise.all(Array.from({ length: count }, (_, index) => insert(from + index)));
  }
  await store.close();
}

async function measuresOfPeople(url: string, size: number): Promise<Measures> {
  const emails = Array.from({ length: PEOPLE }, (_, index) => emailOf(Math.floor((index * size) / PEOPLE)));
  const headers: Record<string, string>[] = [];
  for (const email of emails) {
    const body = JSON.stringify({ email, password: PASSWORD });
    const answer = await ask(`${url}/api/auth/login`, { method: 'POST', headers: JSON_BODY, body });
    if (answer.status !== 200) throw new Error(`login answered ${answer.status}: ${await answer.text()}`);
    headers.push(bearer(((await answer.json()) as { data: { accessToken: string } }).data.accessToken));
  }
  const logins = emails.slice(0, 8).map((email) => repeating(loginOf(email), 200));
  return {
    [`GET ${ME}`]: (seconds) => hammer(url + ME, CLIENTS, seconds, headers),
    'POST /api/auth/login': (seconds) => drive(url, logins, seconds),
  };
}

async function measuresOfAgents(url: string, size: number): Promise<Measures> {
  const application = await registerApplication(url);
  const numbers = Array.from({ length: CLIENTS }, (_, index) => Math.floor((index * size) / CLIENTS));
  const agents = numbers.map((number) => {
    const credentials = basic(handleOf(number), GENERATED);
    return signIn(() => credentials, application);
  });
  const any = () => basic(handleOf(Math.floor(Math.random() * size)), GENERATED);
  const strangers = numbers.map(() => signIn(any, application));
  return {
    'code flow of an agent': async (seconds) => (await drive(url, agents, seconds)) / 2,
    // Each principal signs in at most once, so no cached read is reused.
    [NEVER_TWICE]: async (seconds) => (await drive(url, strangers, seconds)) / 2,
  };
}

function agent(number: number): PrincipalDocument {
  return {
    id: id('u_'),
    handle: handleOf(number),
    kind: 'agent',
    state: 'active',
    secretHash: SECRET_HASH,
    createdAt: number,
    updatedAt: number,
  };
}

function emailOf(number: number): string {
  return `person-${number}@example.com`;
}

function handleOf(number: number): string {
  return `agent-${number}@example.com`;
}
