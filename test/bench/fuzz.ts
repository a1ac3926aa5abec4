/** `npm run fuzz`: valid requests with mutations to every route of a product. Exits with 1 if there is any problem or a route was not reached. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type FuzzResult, type FuzzTarget, fuzz } from '../kit/fuzz/engine.js';
import { idpTarget } from '../kit/fuzz/idp.js';
import { saasTarget } from '../kit/fuzz/saas.js';
import { readArguments } from './arguments.js';
import { createProgress } from './progress.js';

/** The products, each on its own store in a folder. */
const FUZZ_TARGETS: Record<string, (folder: string) => Promise<FuzzTarget>> = {
  idp: idpTarget,
  'saas-backend': saasTarget,
};

const help = `Sends valid requests (real codes, tokens, cookies, forms) with one to three mutations each to every route of a
product, over local sockets. No answer may be a server error, reveal internals, redirect to an attacker's address
or belong to another request, and afterwards signing in must still work.

Usage
  npm run fuzz -- [options]

Options
  --product <names>    ${Object.keys(FUZZ_TARGETS).join(', ')} or both, separated by a comma (both)
  --requests <number>  per product, over all routes (100000)
  --seed <number>      determines the requests (1)
  --clients <number>   concurrent clients (32)
  --json <file>        also writes the results as JSON
  --help`;

const OPTIONS = {
  product: { type: 'string', default: Object.keys(FUZZ_TARGETS).join(',') },
  requests: { type: 'string', default: '100000' },
  seed: { type: 'string', default: '1' },
  clients: { type: 'string', default: '32' },
  json: { type: 'string' },
} as const;

const { values, usageError, countOf } = readArguments('fuzz', help, OPTIONS);
const [requests, seed, clients] = [values.requests, values.seed, values.clients].map(countOf) as [
  number,
  number,
  number,
];
const products = values.product.split(',');
for (const product of products) {
  if (!Object.hasOwn(FUZZ_TARGETS, product)) usageError(`there is no product '${product}'.`);
}

// In memory if possible: the disk is not under test.
const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'fuzz-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
const results: Record<string, FuzzResult> = {};
for (const product of products) {
  const progress = createProgress({ name: 'requests', write: (count) => count.toFixed(0) });
  const target = await (FUZZ_TARGETS[product] as (typeof FUZZ_TARGETS)[string])(folder);
  const result = await fuzz(target, {
    requests,
    seed,
    clients,
    progress: (done) => progress.show(done, requests),
  });
  progress.end();
  await target.stop();
  results[product] = result;
  tell(product, result);
}
if (values.json) writeFileSync(values.json, `${JSON.stringify({ seed, clients, results }, null, 2)}\n`);
const isRight = ({ problems, untouched }: FuzzResult) => problems.length === 0 && untouched.length === 0;
process.exit(Object.values(results).every(isRight) ? 0 : 1);

function tell(product: string, result: FuzzResult): void {
  const { seconds, cpuSeconds, statuses, longestStall, untouched, unsuccessful, problems } = result;
  const lines = [
    `${product}: seed ${seed}, ${result.requests.toLocaleString('en')} requests in ${seconds.toFixed(1)} s, ${rate(result.requests, seconds)} a second, ${rate(result.requests, cpuSeconds)} a second of one core`,
    Object.entries(statuses)
      .map(([status, count]) => `${status}: ${count}`)
      .join(', '),
    `the loop stood still for ${longestStall.toFixed(0)} ms at most`,
    untouched.length > 0 ? `nothing reached ${untouched.join(', ')}` : 'every route was reached',
    `no success at ${unsuccessful.join(', ')}`,
    `${problems.length} problems`,
    ...problems.slice(0, 10),
  ];
  process.stdout.write(`${lines.join('\n')}\n\n`);
}

function rate(count: number, seconds: number): string {
  return Math.round(count / seconds).toLocaleString('en');
}
