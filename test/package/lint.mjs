/**
 * Lints the packed tarball as registries and compilers see it: publint (entry points, files, formats) and attw (types of every entry
 * point). Run by `npm run check:package`, after the build. Both are fetched for it, like the linter of docs/openapi.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A package loads only as an ECMAScript module, also by `require` on every supported Node: hence `esm-only`. */
const LINTERS = [
  ['publint@0.3.25', '--strict'],
  ['@arethetypeswrong/cli@0.18.5', '--profile', 'esm-only', '--no-emoji'],
];

function run(command, args, cwd = ROOT) {
  const { status, error } = spawnSync(command, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error) throw error;
  return status === 0;
}

const folder = mkdtempSync(join(tmpdir(), 'packed-'));
try {
  const isPacked = run('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder]);
  const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'));
  if (!isPacked || tarball === undefined) throw new Error('npm pack has failed.');
  for (const [linter, ...options] of LINTERS) {
    if (!run('npx', ['--yes', linter, join(folder, tarball), ...options], folder)) process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true });
}
