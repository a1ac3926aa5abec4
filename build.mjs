/**
 * Compiles and bundles the package into `dist`, unless no source has changed since the last time: most commands of `package.json`
 * build first.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const STAMP = 'dist/built-from';
const FOLDERS = ['bin', 'src', 'test', 'bench'];
const FILES = ['package.json', 'package-lock.json', 'tsconfig.json', 'build.mjs', 'bundle.mjs'];

// The image has no tests.
const sources = FOLDERS.filter(existsSync).flatMap((folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name)),
);
const hash = createHash('sha256');
for (const file of [...sources.sort(), ...FILES])
  hash.update(`${file}\0`).update(readFileSync(file)).update('\0');
const state = hash.digest('hex');

const isBuilt = existsSync(STAMP) && readFileSync(STAMP, 'utf8') === state;
if (isBuilt) {
  // What the last run of the tests could not run.
  rmSync('dist/skipped', { recursive: true, force: true });
  console.log('dist is up to date');
} else {
  rmSync('dist', { recursive: true, force: true });
  /** What a command printed about its failure is the last that is shown. */
  const run = (...args) => {
    const { status, signal, error } = spawnSync(process.execPath, args, { stdio: 'inherit' });
    if (error || signal) throw error ?? new Error(`${args[0]} was ended by ${signal}`);
    if (status !== 0) process.exit(status);
  };
  console.log('Compiling bin, src, test and bench');
  run('node_modules/typescript/bin/tsc', '-p', '.');
  console.log('Bundling dist/package');
  run('bundle.mjs');
  // Last, so that a build that was interrupted is repeated.
  writeFileSync(STAMP, state);
}
