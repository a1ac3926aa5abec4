/** `npm run bench:timing`: whether response times reveal what responses do not. Goals are reported, never asserted. */
import { createHash, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { readArguments } from './arguments.js';
import { Lab } from './lab.js';
import { drive, expectStatus, request } from './load.js';
import { tell } from './progress.js';
import { machineReadable, type Result, table } from './report.js';
import { startMongod } from './servers.js';
import type { TimingRow } from './timing-classes.js';
import { IDP_TIMING_ROWS } from './timing-idp-rows.js';
import { SAAS_TIMING_ROWS } from './timing-saas-rows.js';

const ROWS = { ...SAAS_TIMING_ROWS, ...IDP_TIMING_ROWS };

const GOAL = [0.45, 0.55] as const;

/** Sent until the connection may end. */
const IDLE = request('GET', '/health');

const help = `Measures how well response times reveal the reason of a rejection: the area under the ROC curve (AUC) of one class
of requests against another, which is 0.5 if the time reveals nothing and 0 or 1 if it reveals everything.

Usage
  npm run bench:timing -- [options]

Options
  --only <rows>        some of ${Object.keys(ROWS).join(', ')}; separated by commas
  --requests <number>  of each class (2000)
  --seed <text>        determines the order of the requests (random)
  --mongodb            on MongoDB (test/core/storage/README.md) instead of SQLite
  --quick              60 requests of each class: only checks that the benchmark runs
  --json <file>        also writes the results as JSON
  --help

Passwords are hashed at the cost of production. Limits are off.`;

const OPTIONS = {
  only: { type: 'string' },
  requests: { type: 'string', default: '2000' },
  seed: { type: 'string' },
  mongodb: { type: 'boolean', default: false },
  quick: { type: 'boolean', default: false },
  json: { type: 'string' },
} as const;

const { values, usageError } = readArguments('bench:timing', help, OPTIONS);
const names = values.only?.split(',') ?? Object.keys(ROWS);
const unknown = names.find((name) => !Object.hasOwn(ROWS, name));
if (unknown !== undefined) usageError(`there is no row '${unknown}'.`);
const requests = values.quick ? 60 : Number(values.requests);
if (!(Number.isSafeInteger(requests) && requests > 0)) {
  usageError(`--requests takes a whole number, not '${values.requests}'.`);
}
const seed = values.seed ?? randomBytes(6).toString('hex');

const mongod = values.mongodb ? await startMongod().catch(withoutMongod) : undefined;
const lab = new Lab(undefined, mongod?.newDatabase);
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
const results: Result[] = [];
for (const name of names) {
  for (const row of await (ROWS[name] as (typeof ROWS)[string])(lab)) {
    results.push(...compareClasses(row, await measure(row)));
  }
  await lab.clear();
}
process.stdout.write(`seed ${seed}, ${requests} requests of each class\n\n${table(results)}\n`);
if (values.json)
  writeFileSync(
    values.json,
    machineReadable(results, { seed, requests, store: values.mongodb ? 'mongodb' : 'sqlite' }),
  );
await mongod?.stop();
process.exit();

function withoutMongod({ message }: Error): never {
  return usageError(`there is no mongod (test/core/storage/README.md): ${message.split('\n')[0]}`);
}

/** Milliseconds of every request, by class. Classes alternate in random order, independent of the machine's load. */
async function measure({ name, url, expected, classes }: TimingRow): Promise<Map<string, number[]>> {
  const times = new Map<string, number[]>(Object.keys(classes).map((label) => [label, []]));
  const order = shuffled([...times.keys()].flatMap((label) => Array<string>(requests).fill(label)));
  // The first requests warm the server up.
  const warmUp = order.slice(0, Math.min(100, requests));
  const calls = [...warmUp, ...order];
  let [index, since] = [0, 0];
  const client = {
    next: () => {
      const text = classes[calls[index] ?? '']?.() ?? IDLE;
      since = performance.now();
      return text;
    },
    take: (answer: Parameters<typeof expectStatus>[0]) => {
      const elapsed = performance.now() - since;
      if (index >= calls.length) return;
      expectStatus(answer, ...[expected].flat());
      if (index >= warmUp.length) times.get(calls[index] as string)?.push(elapsed);
      index++;
    },
  };
  while (index < calls.length) {
    const text = `${name}: ${index} of ${calls.length}`;
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
    else tell(text);
    await drive(url, [client], 1).catch((cause: Error) => {
      throw new Error(`${name}: ${cause.message}`, { cause });
    });
  }
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  return times;
}

/** Compares every class with the first. */
function compareClasses({ name }: TimingRow, times: Map<string, number[]>): Result[] {
  const [[reference, base], ...others] = [...times] as [[string, number[]], ...[string, number[]][]];
  return others.map(([label, sample]) => {
    const value = areaUnderRoc(sample, base);
    const goal = { text: `${GOAL[0]}–${GOAL[1]}`, met: value >= GOAL[0] && value <= GOAL[1] };
    return { what: `${name}: ${label} or ${reference}`, value, unit: 'AUC', goal };
  });
}

/** How often a value of the first sample is larger than one of the second; equal ones count half. */
function areaUnderRoc(positive: readonly number[], negative: readonly number[]): number {
  const sorted = negative.toSorted((a, b) => a - b);
  const wins = positive.map(
    (value) => (rank(sorted, (other) => other < value) + rank(sorted, (other) => other <= value)) / 2,
  );
  return wins.reduce((sum, count) => sum + count, 0) / (positive.length * negative.length);
}

/** The length of the prefix of a sorted list that fulfils a condition. */
function rank(sorted: readonly number[], holds: (value: number) => boolean): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(sorted[middle] as number)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The Fisher-Yates shuffle, with bytes derived from the seed. */
function shuffled(items: string[]): string[] {
  const bytes = createHash('shake256', { outputLength: items.length * 4 })
    .update(seed)
    .digest();
  for (let last = items.length - 1; last > 0; last--) {
    const other = bytes.readUInt32LE(last * 4) % (last + 1);
    [items[last], items[other]] = [items[other] as string, items[last] as string];
  }
  return items;
}
