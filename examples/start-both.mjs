// Both programs of this package, side by side: `npm start`.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const programs = [['saas-backend'], ['idp', 'serve']].map(([name, ...verb]) => [
  fileURLToPath(new URL(`../dist/package/bin/${name}.js`, import.meta.url)),
  ...verb,
]);

if (!programs.every(([file]) => existsSync(file))) {
  console.error('The programs are not built yet. Run: npm ci');
  process.exit(1);
}

// One .env serves both, and a PORT in it must not send both to one place.
if (existsSync('.env')) process.loadEnvFile();
process.env.IDP_PORT ??= '8080';

// Groups of their own: a terminal sends Ctrl-C to the whole group, and a second signal would not wait.
const children = programs.map((program) =>
  spawn(process.execPath, program, { stdio: 'inherit', detached: true }),
);

let isEnding = false;
function end(signal) {
  isEnding = true;
  for (const child of children) child.kill(signal);
}
process.on('SIGINT', end);
process.on('SIGTERM', end);

for (const child of children) {
  child.on('exit', (code) => {
    // The first to go decides; the other one has no reason to stay.
    process.exitCode ??= code ?? 1;
    if (!isEnding) end('SIGTERM');
  });
}
