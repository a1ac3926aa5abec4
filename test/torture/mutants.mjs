/**
 * Breaks the compiled product, one defect at a time and in a copy, and runs a short campaign that must notice. Exits with 1
 * when one survives or when a text to replace is not found. `MUTANT=text` tries only the defects with that text in their
 * names.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { copyBuild, endGroup, replaceOnce } from '../mutants.mjs';

/** Ten times the duration of a campaign with one event. */
const TIMEOUT_MS = 200_000;

/** A campaign meets a race by chance, on a busy machine one in five, so a defect must show in one of several. */
const CAMPAIGNS = 15;

const mutants = [
  {
    name: 'SQLite: writes are acknowledged before their commit',
    file: 'storage/sqlite/connection.js',
    text: `this.sql('COMMIT').run();
            commits++;
            for (const resolveWrite of settle)
                resolveWrite();`,
    replacement: `for (const resolveWrite of settle)
                resolveWrite();
            this.sql('COMMIT').run();`,
    campaign: ['sqlite 2 processes', 'disk full'],
  },
  {
    name: 'MongoDB: writes are acknowledged before a majority has journalled them',
    file: 'storage/mongodb/store.js',
    text: "w: 'majority', j: true,",
    replacement: 'w: 1, j: false,',
    campaign: ['mongodb 2 processes', 'primary alone, then killed'],
  },
  {
    name: 'MongoDB: reads use any member',
    file: 'storage/mongodb/store.js',
    text: "readConcern: { level: 'majority' },\n    readPreference: 'primary',",
    replacement: "readConcern: { level: 'majority' },\n    readPreference: 'nearest',",
    campaign: ['mongodb 2 processes', 'primary steps down'],
  },
  {
    name: 'saas-backend: a refresh rotates the session whichever token it presents',
    file: 'auth/refresh.js',
    text: 'currentId: presented, revokedAt: null,',
    replacement: 'revokedAt: null,',
    campaign: ['sqlite 2 processes', 'kill -9 of one process'],
  },
  {
    name: 'saas-backend: a repeated refresh counts as reuse',
    file: 'auth/refresh.js',
    text: 'if (inWindow && session.currentId === next)',
    replacement: 'if (false)',
    campaign: ['sqlite 2 processes', 'client network: resets'],
  },
  {
    name: 'saas-backend: a reset link is checked before the hashing only',
    file: 'auth/password-reset.js',
    text: '{ id, email, resetHash, suspendedAt: null }',
    replacement: '{ id, email, suspendedAt: null }',
    campaign: ['sqlite 2 processes', 'kill -9 of one process'],
  },
  {
    name: 'saas-backend: a lease on an event is taken from its owner',
    file: 'billing/events/leases.js',
    text: '{ id, outcome: null, leaseUntil }',
    replacement: '{ id }',
    campaign: ['sqlite 2 processes', 'kill -9 of one process'],
  },
  {
    name: 'idp: a code is redeemed whoever was first',
    file: 'oidc/tokens/redeem.js',
    text: 'consumedAt: null,',
    replacement: '',
    campaign: ['sqlite 2 processes', 'kill -9 of one process'],
  },
].filter(({ name }) => name.includes(process.env.MUTANT ?? ''));

const copy = copyBuild();
let survivors = 0;
for (const { name, file, text, replacement, campaign } of mutants) {
  console.log(name);
  const module = join(copy, 'dist/src', file);
  const original = readFileSync(module, 'utf8');
  writeFileSync(module, replaceOnce(original, { file, text, replacement }));
  const problem = problemIn(campaign);
  writeFileSync(module, original);
  console.log(problem === undefined ? '  SURVIVED' : `  caught by: ${problem}`);
  if (problem === undefined) survivors++;
}
if (survivors > 0) {
  console.error(`${survivors} survived`);
  process.exit(1);
}

/** What one of the campaigns found. */
function problemIn([configuration, event]) {
  for (let seed = 1; seed <= CAMPAIGNS; seed++) {
    const which = ['--configuration', configuration, '--event', event, '--seed', String(seed)];
    const args = ['dist/test/torture/run.js', '--unbundled', '--rounds', '1', ...which];
    const { pid, status, stdout, stderr } = spawnSync(process.execPath, args, {
      cwd: copy,
      encoding: 'utf8',
      detached: true,
      timeout: TIMEOUT_MS,
    });
    endGroup(pid);
    const problem = stdout.split('\n').find((line) => line.includes('again: npm run torture'));
    if (status === 1 && problem) return problem.trim();
    if (status !== 0) console.error(stderr);
  }
  return undefined;
}
