// Breaks billing on purpose, one way at a time, in a copy of what was built, and has the tests that must notice run on
// it. Ends with 1 when they do not, or when a text to replace is not where it was. Run by `npm run test:mutants`.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const STORM = ['storm', 'whatever the order'];

const mutants = [
  {
    name: 'an event counts as done before its effect',
    file: 'process.js',
    text: 'const { outcome, tellings } = await work(event)',
    replacement: "await claims.finish(claim, 'processed'); const { outcome, tellings } = await work(event)",
    tests: [['crashes', '[108] a kill at any step'], STORM],
  },
  {
    name: 'events are ordered by their second alone, and the last to come wins a tie',
    file: 'judge.js',
    text: 'if (event.created === stored.at) {',
    replacement: 'if (false) {',
    tests: [STORM],
  },
  {
    name: 'events are ordered by their second alone, and the first to come wins a tie',
    file: 'judge.js',
    text: 'if (event.created < stored.at)',
    replacement: 'if (event.created <= stored.at)',
    tests: [['subscription', 'of one second'], STORM],
  },
  {
    name: 'an invoice activates a canceled subscription',
    file: 'judge.js',
    text: "['past_due', 'unpaid', 'incomplete'].includes(status)",
    replacement: "['past_due', 'unpaid', 'incomplete', 'canceled'].includes(status)",
    tests: [['subscription', '[113] an invoice']],
  },
  {
    name: "an invoice concerns the customer's best subscription",
    file: 'process.js',
    text: 'await apply(event, subscriptionId, owner)',
    replacement:
      'await apply(event, isInvoice(event) ? ((await projector.best(userId))?.id ?? subscriptionId) : subscriptionId, { userId })',
    tests: [['subscription', '[113] an invoice']],
  },
  {
    name: 'what is over can begin again',
    file: 'judge.js',
    text: 'if (isTerminal(stored.status))',
    replacement: 'if (false)',
    tests: [['subscription', "[110] the specification's body"]],
  },
  {
    name: 'the projection is not written where it looks equal',
    file: 'project.js',
    text: 'if (await target.write(',
    replacement:
      'const last = (globalThis.lastProjections ??= new Map()); const text = status + plan; if (last.get(userId) === text) return; last.set(userId, text); if (await target.write(',
    tests: [STORM],
  },
  {
    name: 'a subscription is written over whatever was written meanwhile',
    file: 'write.js',
    text: '{ id, rev: stored.rev }, { set',
    replacement: '{ id }, { set',
    tests: [STORM],
  },
  {
    name: 'what waited for its owner is forgotten',
    file: 'process.js',
    text: "if (effect === 'inserted' || effect === 'known') {",
    replacement: 'if (false) {',
    tests: [['subscription', 'an event that says our user']],
  },
  {
    name: 'a claim whose worker is gone is held for ever',
    file: 'claims.js',
    text: 'leaseUntil: { lte: now } }',
    replacement: 'leaseUntil: { lte: 0 } }',
    tests: [['crashes', '[108] a kill at any step']],
  },
];

const root = fileURLToPath(new URL('../..', import.meta.url));
const copy = mkdtempSync(join(tmpdir(), 'saas-backend-mutants-'));
process.once('exit', () => rmSync(copy, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
for (const name of ['dist', 'lists', 'templates', 'package.json'])
  cpSync(join(root, name), join(copy, name), { recursive: true });
symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));

for (const [file, name] of new Map(
  mutants.flatMap(({ tests }) => tests).map((test) => [test.join(), test]),
).values()) {
  const failure = run([file, name]);
  if (failure) fail(`Without any mutant '${name}' fails: ${failure}`);
}
let survivors = 0;
for (const mutant of mutants) {
  console.log(mutant.name);
  const module = join(copy, 'dist/src/billing', mutant.file);
  const original = readFileSync(module, 'utf8');
  if (original.split(mutant.text).length !== 2)
    fail(`The text to replace does not stand once in ${mutant.file}:\n${mutant.text}`);
  writeFileSync(
    module,
    original.replace(mutant.text, () => mutant.replacement),
  );
  for (const test of mutant.tests) {
    const failure = run(test);
    if (!failure) survivors++;
    console.log(failure ? `  caught by: ${failure}` : `  SURVIVED '${test[1]}'`);
  }
  writeFileSync(module, original);
}
if (survivors > 0) fail(`${survivors} survived`);

/** The first failing assertion of one test; null when all of it holds. */
function run([file, name]) {
  const pattern = name.replace(/[[\]]/g, '\\$&');
  const { status, stdout, stderr } = spawnSync(process.execPath, [`dist/test/billing/${file}.test.js`], {
    cwd: copy,
    encoding: 'utf8',
    env: { ...process.env, TAP: '1', TAP_BAIL: '1', TAP_TIMEOUT: '120', TAP_GREP: `/^${pattern}/` },
  });
  const lines = stdout.split('\n');
  if (status === 0) {
    // A filter that lets nothing run proves nothing.
    const ran = lines.some((line) => line.startsWith(`# Subtest: ${name}`));
    return ran ? null : fail(`There is no test '${name}' in ${file}.test.ts`);
  }
  const assertion = lines.find((line) => /^ *not ok /.test(line))?.replace(/^ *not ok \d+ - /, '');
  return `${name}: ${assertion ?? stderr.trim().split('\n').at(-1)}`;
}

function fail(reason) {
  console.error(reason);
  process.exit(1);
}
