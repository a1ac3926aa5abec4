// Both programs of this package, side by side: `npm start`.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const programs = [['saas-backend'], ['idp', 'serve']].map(([name, ...verb]) => [
  fileURLToPath(new URL(`../dist/bin/${name}.js`, import.meta.url)),
  ...verb,
]);

if (!programs.every(([file]) => existsSync(file))) {
  console.error('The programs are not built yet. Run: npm ci');
  process.exit(1);
}

const children = programs.map((program) => spawn(process.execPath, program, { stdio: 'inherit' }));
const forward = (signal) => {
  for (const child of children) child.kill(signal);
};

// A terminal sends Ctrl-C to the whole group; to forward it would be the second signal, which does not wait.
process.on('SIGINT', () => process.stdin.isTTY || forward('SIGINT'));
process.on('SIGTERM', () => forward('SIGTERM'));

for (const child of children) {
  child.on('exit', (code) => {
    // The first to end decides; the other one has no reason to stay.
    process.exitCode ??= code ?? 1;
    forward('SIGTERM');
  });
}
