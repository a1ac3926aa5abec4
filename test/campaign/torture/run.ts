/** `npm run torture`: failures of every kind under both programs. Exits with 1 if a client was told something untrue. */
import { writeFileSync } from 'node:fs';
import { readArguments } from '../../bench/arguments.js';
import { CONFIGURATIONS, endRound, nameOf, type RoundResult, runRound } from './campaign.js';
import { EVENT_NAMES } from './events.js';
import { type EventFigures, worstOf } from './figures.js';
import { describe } from './history.js';

const help = `Lets processes, databases, disks, clocks and networks fail under both programs, while clients record what they
are told, and compares the record with a model: reads and writes are linearizable, no acknowledged write is lost,
nothing is accepted twice, and no client that behaves is signed out.

Usage
  npm run torture -- [options]

Options
  --rounds <number>         configurations, in the order below, from the start again after the last one (3)
  --seed <number>           determines the events and the choices of the clients (1)
  --configuration <text>    only configurations whose name contains the text
  --event <text>            only events whose name contains the text
  --json <file>             also writes the results as JSON
  --help

Configurations
${CONFIGURATIONS.map((configuration) => `  ${nameOf(configuration)}`).join('\n')}

Events
${EVENT_NAMES.map((name) => `  ${name}`).join('\n')}

Examples
  npm run torture
  npm run torture -- --rounds 40 --seed 7
  npm run torture -- --configuration 'sqlite 4' --event 'kill -9' --rounds 1`;

const OPTIONS = {
  rounds: { type: 'string', default: '3' },
  seed: { type: 'string', default: '1' },
  configuration: { type: 'string', default: '' },
  event: { type: 'string', default: '' },
  json: { type: 'string' },
} as const;

const { values, usageError, countOf } = readArguments('torture', help, OPTIONS);
const rounds = countOf(values.rounds);
const seed = countOf(values.seed);
const configurations = CONFIGURATIONS.filter((one) => nameOf(one).includes(values.configuration));
if (configurations.length === 0) usageError(`there is no configuration '${values.configuration}'.`);
if (!EVENT_NAMES.some((name) => name.includes(values.event)))
  usageError(`there is no event '${values.event}'.`);
// Otherwise, programs and databases would continue to run.
for (const event of ['SIGINT', 'SIGTERM', 'uncaughtException', 'unhandledRejection'])
  process.once(event, async (reason: unknown) => {
    process.stderr.write(`torture: ${reason instanceof Error ? reason.stack : reason}\n`);
    await endRound();
    process.exit(1);
  });

const results: RoundResult[] = [];
for (let round = 0; round < rounds; round++) {
  const place = round % configurations.length;
  const configuration = configurations[place] as (typeof configurations)[number];
  const roundSeed = seed + round;
  say(`round ${round + 1} of ${rounds}: ${nameOf(configuration)}`);
  const result = await runRound({
    configuration,
    seed: roundSeed,
    only: values.event,
    onBegin: begin,
    onEnd: tell,
  });
  results.push(result);
  report(result);
}
if (values.json) {
  const command = process.argv.slice(2).join(' ');
  const at = new Date().toISOString();
  writeFileSync(values.json, `${JSON.stringify({ at, command, node: process.version, results }, null, 2)}\n`);
}
const problems = results.flatMap(({ violations }) => violations).length;
summarize();
process.exit(problems > 0 ? 1 : 0);

/** Progress, for people only. */
function begin(name: string, number: number, total: number): void {
  if (process.stdout.isTTY) process.stdout.write(`  ${number} of ${total}: ${name} …`);
}

function tell({ event, duration, writeGap, readGap, refused, unanswered }: EventFigures): void {
  if (process.stdout.isTTY) process.stdout.write('\r\x1b[K');
  say(
    `  ${event.padEnd(52)} ${seconds(duration)}, no write for ${seconds(writeGap)}, no read for ${seconds(readGap)}, ` +
      `${refused} refused, ${unanswered} unanswered`,
  );
}

function report(result: RoundResult): void {
  const { configuration, operations, acknowledged, missing, violations } = result;
  for (const reason of missing) say(`  not tried: ${reason}`);
  say(
    `  ${operations} requests, ${acknowledged} acknowledged, in ${result.seconds.toFixed(0)} s: ${violations.length} problems`,
  );
  const again = `npm run torture -- --rounds 1 --seed ${result.seed} --configuration '${configuration}'`;
  for (const { rule, key, problem, operations } of violations.slice(0, 10)) {
    say(`\n  ${problem} (${rule}, ${key}, ${configuration}; again: ${again})`);
    for (const operation of operations.slice(0, 16)) say(`    ${describe(operation)}`);
  }
}

function summarize(): void {
  const sum = (of: (result: RoundResult) => number) =>
    results.reduce((total, result) => total + of(result), 0).toLocaleString('en');
  const count = (...rules: string[]) =>
    sum(({ violations }) => violations.filter(({ rule }) => rules.includes(rule)).length);
  say('\nThe longest gaps of all rounds');
  for (const one of worstOf(results.flatMap(({ figures }) => figures)))
    say(
      `  ${one.configuration.padEnd(11)}${one.event.padEnd(52)} writes ${seconds(one.writeGap)}, reads ${seconds(one.readGap)}, ` +
        `${one.refused} refused, ${one.unanswered} unanswered`,
    );
  say(
    `\nseed ${seed}: ${sum(({ operations }) => operations)} requests, ${sum(({ acknowledged }) => acknowledged)} acknowledged; ` +
      `lost: ${count('durable', 'final', 'register')}; accepted twice: ${count('once', 'successor', 'stale-token', 'delivery')}; ` +
      `honest clients signed out: ${count('honest')}`,
  );
}

function seconds(milliseconds: number | null): string {
  return milliseconds === null ? '–' : `${(milliseconds / 1000).toFixed(1)} s`;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
