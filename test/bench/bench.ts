/** `npm run bench`. Each row describes what it measures and why; goals are reported, never asserted. */
import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { readArguments } from './arguments.js';
import { engineRows, stopServers } from './engine-rows.js';
import { discovery, jwks } from './idp-rows.js';
import { Lab } from './lab.js';
import { tell } from './progress.js';
import { machineReadable, type Result, table } from './report.js';
import type { Row } from './rounds.js';
import { size } from './size-row.js';
import { start } from './start-row.js';

const ROWS: Record<string, Row> = { start, jwks, discovery, ...engineRows, size };

const help = `Measures both programs against baselines of the same run.

Usage
  npm run bench -- [options]

Options
  --only <rows>       some of ${Object.keys(ROWS).join(', ')}; separated by commas.
                      postgresql, mongodb: all rows of that engine
  --seconds <number>  total measuring time of each figure (9)
  --starts <number>   of each program, because the processes of one differ in speed (3)
  --quick             one start of each program: only checks that the benchmark runs
  --json <file>       also writes the results as JSON
  --profile <folder>  writes a CPU profile of the program for each row; slows it down
  --help

Examples
  npm run bench
  npm run bench -- --only me,refresh --seconds 20 --json bench.json

hello is bare Fastify, jwt is Fastify with @fastify/jwt, hash is argon2.verify, oidc-provider is that library with its memory
adapter. The rows named peer compare with the programs whose paths are in POCKETBASE (PocketBase 0.38: go install
github.com/pocketbase/pocketbase/examples/base@v0.38.0) and SUPABASE_AUTH (Supabase Auth 2.196, on the same PostgreSQL).
PostgreSQL and mongod are those of the tests (test/core/storage/README.md); rows are skipped without one.`;

const OPTIONS = {
  only: { type: 'string' },
  seconds: { type: 'string', default: '9' },
  starts: { type: 'string', default: '3' },
  quick: { type: 'boolean', default: false },
  json: { type: 'string' },
  profile: { type: 'string' },
} as const;

const { values, usageError, countOf } = readArguments('bench', help, OPTIONS);
const rows = values.only?.split(',').flatMap(rowsNamed) ?? Object.keys(ROWS);
const seconds = Number(values.seconds);
const starts = values.quick ? 1 : countOf(values.starts);
const unknown = rows.find((row) => !Object.hasOwn(ROWS, row));
if (unknown !== undefined) usageError(`there is no row '${unknown}'.`);
if (!(seconds > 0 && seconds <= 600))
  usageError(`--seconds takes a number up to 600, not '${values.seconds}'.`);

const lab = new Lab(values.profile && resolve(values.profile));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void end(1));
const results: Result[] = [];
try {
  for (const row of rows) {
    const bench = { lab, row, seconds, starts, quick: values.quick, progress };
    results.push(...(await (ROWS[row] as Row)(bench)));
    await lab.clear();
  }
} catch (error) {
  console.error(error);
  await end(1);
}
await end(0);

/** Reports the rows that were measured, also after a signal. */
async function end(code: number): Promise<never> {
  progress('');
  process.stdout.write(`${table(results)}\n`);
  if (values.json) writeFileSync(values.json, machineReadable(results, { seconds, starts }));
  await stopServers();
  process.exit(code);
}

/** A row, or the block of rows whose names begin with it. */
function rowsNamed(name: string): string[] {
  const block = Object.keys(ROWS).filter((row) => row.startsWith(`${name}-`));
  return block.length > 0 && !Object.hasOwn(ROWS, name) ? block : [name];
}

function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
  else tell(text);
}
