/** `npm run check`: every part runs, so that one run names all that is to be mended. */
import { spawnSync } from 'node:child_process';

const PARTS = [
  { command: 'npx biome check --config-path=.ci .', remedy: 'npm run format' },
  // Their registry is that of the machine which wrote them.
  {
    command: '! grep \'"resolved":\' package-lock.json docs/.vitepress/package-lock.json',
    remedy: 'npm i --omit-lockfile-registry-resolved',
  },
  { command: 'node .ci/build.mjs', remedy: 'correct the types', isRequired: true },
  { command: 'node docs/generate.mjs --check', remedy: 'npm run generate' },
  { command: 'node test/regular-expressions.mjs', remedy: 'simplify the expression' },
];

const failed = [];
for (const part of PARTS) {
  const { status } = spawnSync(part.command, { shell: true, stdio: 'inherit' });
  if (status === 0) continue;
  failed.push(part);
  if (part.isRequired) break;
}
for (const { command, remedy } of failed) console.error(`Failed: ${command} (remedy: ${remedy})`);
process.exitCode = failed.length > 0 ? 1 : 0;
