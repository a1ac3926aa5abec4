// Starts both programs of this package: `npm start`.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const programs = [['saas-backend'], ['idp', 'serve']].map(([name, ...verb]) => [
  fileURLToPath(new URL(`../dist/bin/${name}.js`, import.meta.url)),
  ...verb,
]);

if (!programs.every(([file]) => existsSync(file))) {
  console.error('The programs are not built. Run: npm ci');
  process.exit(1);
}

// Both programs read the same .env, and a PORT in it must not apply to both.
const file = existsSync('.env') ? readFileSync('.env', 'utf8') : '';
const isSet = (name) => name in process.env || new RegExp(`^\\s*(export\\s+)?${name}\\s*=`, 'm').test(file);
if (!isSet('IDP_PORT')) process.env.IDP_PORT = '8080';
// http://localhost:3000/account
if (!isSet('ACCOUNT_PAGES')) process.env.ACCOUNT_PAGES = 'true';

// Separate process groups: a terminal sends Ctrl-C to the whole group, and a second signal would not wait. Windows has no groups, and
// would open a window for each program.
const detached = process.platform !== 'win32';
const children = programs.map((program) => spawn(process.execPath, program, { stdio: 'inherit', detached }));

let isEnding = false;
function end(signal) {
  isEnding = true;
  for (const child of children) child.kill(signal);
}
process.on('SIGINT', end);
process.on('SIGTERM', end);

for (const child of children) {
  child.on('exit', (code) => {
    // When one program ends, the other one is stopped.
    process.exitCode ??= code ?? 1;
    if (!isEnding) end('SIGTERM');
  });
}
