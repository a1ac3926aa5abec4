/** Compiles into `dist`, unless no source has changed since the last time: most commands of `package.json` build first. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'rolldown';

const STAMP = 'dist/built-from';

// The image has no tests.
const sources = ['bin', 'src', 'test', 'bench'].filter(existsSync).flatMap((folder) =>
  readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name)),
);
const hash = createHash('sha256');
for (const file of [...sources.sort(), 'package.json', 'package-lock.json', 'tsconfig.json', 'build.mjs'])
  hash.update(`${file}\0`).update(readFileSync(file)).update('\0');
const state = hash.digest('hex');

if (existsSync(STAMP) && readFileSync(STAMP, 'utf8') === state) {
  // What the last run of the tests could not run.
  rmSync('dist/skipped', { recursive: true, force: true });
  console.log('dist is up to date');
} else {
  rmSync('dist', { recursive: true, force: true });
  console.log('Compiling bin, src, test and bench');
  const { status } = spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', '.'], {
    stdio: 'inherit',
  });
  // What the compiler printed is the last that is shown.
  if (status !== 0) process.exit(status ?? 1);
  // Pages load the client as one file. It imports no packages.
  await build({
    input: 'dist/src/client/index.js',
    platform: 'neutral',
    output: { file: 'dist/client.js', comments: { legal: true, annotation: true, jsdoc: false } },
  });
  // Last, so that a build that was interrupted is repeated.
  writeFileSync(STAMP, state);
}
