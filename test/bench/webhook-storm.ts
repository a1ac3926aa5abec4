/** `npm run bench:webhooks`: webhook storms, seed by seed. Exits with 1 if anything differs from the provider. */
import { performance } from 'node:perf_hooks';
import { type StormResult, storm } from '../kit/stripe-storm.js';
import { readArguments } from './arguments.js';
import { createProgress } from './progress.js';

const help = `Delivers the events of many subscriptions late, in any order, repeated and forged, to processes that are killed
while they work, by a provider whose API fails at times, and compares the final state with the provider's.

Usage
  npm run bench:webhooks -- [options]

Options
  --seeds <number>          number of storms (100)
  --from <number>           the first seed (1)
  --subscriptions <number>  of each storm (500)
  --events <number>         of each storm (10000)
  --help

Examples
  npm run bench:webhooks
  npm run bench:webhooks -- --seeds 1 --from 42`;

const OPTIONS = {
  seeds: { type: 'string', default: '100' },
  from: { type: 'string', default: '1' },
  subscriptions: { type: 'string', default: '500' },
  events: { type: 'string', default: '10000' },
} as const;

const { values, countOf } = readArguments('bench:webhooks', help, OPTIONS);
const [seeds, from, subscriptions, events] = [
  values.seeds,
  values.from,
  values.subscriptions,
  values.events,
].map(countOf) as [number, number, number, number];

const sum = { events: 0, deliveries: 0, forged: 0, kills: 0, calls: 0, uncertain: 0 };
let wrong = 0;
const progress = createProgress({ name: 'storms', write: (count) => count.toFixed(1) });
const begin = performance.now();
for (let done = 0; done < seeds; done++) {
  progress.show(done, seeds);
  const result = await storm(from + done, { subscriptions, events });
  for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += result[name];
  if (result.problems.length > 0) tell(from + done, result);
}
progress.end();
const shown = Object.entries(sum).map(([name, count]) => `${name.padEnd(12)}${count.toLocaleString('en')}`);
process.stdout.write(
  `${shown.join('\n')}\n${seeds - wrong} of ${seeds} seeds ended as the provider has it, ` +
    `in ${Math.round((performance.now() - begin) / 1000)} s\n`,
);
process.exit(wrong > 0 ? 1 : 0);

function tell(seed: number, { problems }: StormResult): void {
  wrong++;
  progress.end();
  process.stdout.write(`seed ${seed}: ${problems.length} problems\n  ${problems.slice(0, 5).join('\n  ')}\n`);
}
