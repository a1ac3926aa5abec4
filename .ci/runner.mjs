/** Runs sections of `.ci/sections.mjs`, one after the other: `.ci/run` the gate of a change, `.ci/campaign` everything else. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import { environmentOf, nodeFolder, stepsFor } from './needs.mjs';
import { SECTIONS, SLICES } from './sections.mjs';
import { endTree, reportFolder, stacksOf } from './watchdog.mjs';

/** Printed lines are at most this far apart. */
const HEARTBEAT_MS = 9000;
/** A section without output ends, with the stacks of its processes. */
const SILENCE_MS = 3 * 60_000;

const today = Math.floor(Date.now() / 86_400_000) % SLICES;
const help = `Runs the checks of this repository.

Usage
  .ci/run [--slice <0 to ${SLICES - 1}>] [--only <text>]...      the gate of a change, with a slice of the campaign (today: ${today})
  .ci/campaign [slice]... [--only <text>]...   the campaign: slices, or all of it

Options
  --only <text>   only the section of this name, without those before it; may be repeated
  --list          prints the sections
  --help

Environment
  CI_TOOLS        folder in which databases, other lines of Node.js and test programs are kept; else a new one

Examples
  .ci/run --only tests
  .ci/campaign 2
  .ci/campaign --only mutants`;

const { values, positionals } = parseArgs({
  options: {
    campaign: { type: 'boolean', default: false },
    slice: { type: 'string', default: String(today) },
    only: { type: 'string', multiple: true },
    list: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
if (values.help) {
  console.log(help);
  process.exit(0);
}
const sections = selected();
if (values.list) {
  for (const { name, part, run } of sections) console.log(`${String(part).padEnd(5)} ${name}: ${run}`);
  process.exit(0);
}

function selected() {
  const slices = (values.campaign ? positionals : [values.slice]).map(Number);
  const isAll = values.campaign && slices.length === 0;
  if (slices.some((slice) => !(Number.isInteger(slice) && slice >= 0 && slice < SLICES)))
    usageError(`a slice is a number from 0 to ${SLICES - 1}`);
  const inSlices = (part) => part !== 'gate' && (isAll || slices.includes(part));
  const { only } = values;
  if (only) {
    const unknown = only.filter((name) => !SECTIONS.some((section) => section.name === name));
    if (unknown.length > 0) usageError(`there is no section '${unknown[0]}'; see --list`);
    return SECTIONS.filter(({ name }) => only.includes(name));
  }
  // The campaign runs what the gate has built.
  return SECTIONS.filter(
    ({ name, part }) => inSlices(part) || (values.campaign ? name === 'install' : part === 'gate'),
  );
}

function usageError(message) {
  console.error(`${message}\n\n${help}`);
  process.exit(2);
}

const paint = (style, text) =>
  process.stdout.isTTY && !process.env.NO_COLOR ? styleText(style, text) : text;
const startedAt = Date.now();
const clock = (ms) => `${Math.floor(ms / 60_000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, '0')}`;

const tools = process.env.CI_TOOLS ?? mkdtempSync(join(tmpdir(), 'saas-backend-tools-'));
if (!process.env.CI_TOOLS) process.once('exit', () => rmSync(tools, { recursive: true, force: true }));
const reports = reportFolder();
let child;
for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, () => {
    if (child) endTree(child.pid);
    process.exit(1);
  });

const { steps, env } = stepsFor(sections, tools);

/** Runs a command until it ends or is silent. Returns why it failed, undefined if it has not. */
async function run({ name, run: command, node = 20 }) {
  const folder = nodeFolder(tools, node);
  child = spawn('bash', ['-euo', 'pipefail', '-c', command], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      CI: 'true',
      ...environmentOf(tools),
      ...env,
      ...reports.env,
      ...(folder && { PATH: `${folder}:${process.env.PATH}` }),
    },
  });
  const since = Date.now();
  let silentSince = since;
  let isSilent = false;
  const heartbeat = setInterval(() => console.log(`… ${name}: ${clock(Date.now() - since)}`), HEARTBEAT_MS);
  const watchdog = setInterval(async () => {
    if (Date.now() - silentSince < SILENCE_MS || isSilent) return;
    isSilent = true;
    console.log(await stacksOf(child.pid, reports.folder));
    endTree(child.pid);
  }, 1000);
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      process.stdout.write(chunk);
      silentSince = Date.now();
      heartbeat.refresh();
    });
  const [code, signal] = await once(child, 'close');
  clearInterval(heartbeat);
  clearInterval(watchdog);
  child = undefined;
  if (isSilent) return `silent for ${SILENCE_MS / 60_000} minutes; its stacks are above`;
  if (signal) return `ended by ${signal}`;
  return code === 0 ? undefined : `exit code ${code}`;
}

const done = [];
for (const section of [...steps, ...sections]) {
  console.log(paint('bold', `\n========== ${clock(Date.now() - startedAt)} ${section.name} ==========`));
  const since = Date.now();
  const failure = await run(section);
  done.push({ section, ms: Date.now() - since, failure });
  if (failure) console.log(paint('red', `${section.name}: ${failure}`));
  // Without these, everything else fails.
  if (failure && (steps.includes(section) || section.name === 'install')) break;
}

console.log(paint('bold', '\n========== Minutes =========='));
for (const { section, ms, failure } of done)
  console.log(
    `${clock(ms).padStart(6)}  ${section.name}${failure ? paint('red', `  FAILED: ${failure}`) : ''}`,
  );
console.log(`${clock(Date.now() - startedAt).padStart(6)}  in all`);
const failed = done.filter(({ failure }) => failure);
if (failed.length > 0) {
  console.log('\nTo repeat what failed:');
  for (const { section } of failed)
    console.log(steps.includes(section) ? `  ${section.run}` : `  .ci/campaign --only '${section.name}'`);
}
console.log(`\n${done.length - failed.length} passed, ${failed.length} failed`);
process.exitCode = failed.length > 0 ? 1 : 0;
