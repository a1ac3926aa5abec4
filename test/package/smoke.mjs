/**
 * Installs a packed tarball in an empty folder and uses both programs: users sign up and in, an agent is minted, a store is backed up.
 * The same on each platform and runtime, so with plain Node.js only: `node test/package/smoke.mjs <tarball, or its folder> [node|bun|deno]`.
 */
import { deepEqual, equal, match } from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const RUNTIMES = {
  node: { install: 'npm install --no-audit --no-fund', command: [process.execPath] },
  bun: { install: 'bun add', command: ['bun'] },
  deno: {
    // Deno runs what npm has installed.
    install: 'npm install --no-audit --no-fund',
    command: ['deno', 'run', '--allow-all', '--no-lock', '--node-modules-dir=manual'],
  },
};
const [given = '', name = 'node'] = process.argv.slice(2);
const runtime = RUNTIMES[name];
const tarball = isTarball(given) ? given : join(given, readdirSync(given || '.').find(isTarball) ?? '');
if (!isTarball(tarball) || !runtime) {
  console.error('Usage: node test/package/smoke.mjs <tarball, or its folder> [node|bun|deno]');
  process.exit(2);
}

function isTarball(path) {
  return path.endsWith('.tgz');
}

const ADMIN_TOKEN = 'the-token-of-the-administrator-of-this-test';
const ACCOUNT = { email: 'ada@example.com', password: 'a sentence is fine' };
const IMPORTED = { ...ACCOUNT, email: 'grace@example.com' };
/** Of the same password. */
const BCRYPT = '$2b$10$.a/nKWCUwnc1mTD6VUSXIOBQx4M6VtQ72Pr./kHVpYJdlouFRFG9.';
const folder = mkdtempSync(join(tmpdir(), 'saas-backend-smoke-'));
const env = { ...process.env, IDP_ADMIN_TOKEN: ADMIN_TOKEN };
const isWindows = process.platform === 'win32';
const children = new Set();

/** The program and arguments that run a program of the package. */
function commandOf(program, ...args) {
  const file = join(folder, 'node_modules/saas-backend/dist/bin', `${program}.js`);
  const [command, ...options] = runtime.command;
  return [command, [...options, file, ...args]];
}

/** Runs a command line in the folder. Package managers are scripts on Windows, which need a shell. */
function shell(line) {
  const { status, stdout, stderr } = spawnSync(line, { cwd: folder, env, shell: true, encoding: 'utf8' });
  equal(status, 0, `${line}\n${stdout}${stderr}`);
  return stdout;
}

function run(program, ...args) {
  const [command, all] = commandOf(program, ...args);
  const { status, error, stdout, stderr } = spawnSync(command, all, { cwd: folder, env, encoding: 'utf8' });
  equal(status, 0, `${program} ${args.join(' ')}\n${error ?? ''}${stdout}${stderr}`);
  return stdout;
}

/** Starts a server; resolves with its address, and a function that stops it. */
async function start(program) {
  const [command, args] = commandOf(program, 'serve', '--port', '0');
  const child = spawn(command, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const closed = once(child, 'close');
  children.add(child);
  const lines = [];
  const url = await new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr])
      createInterface(stream).on('line', (line) => {
        lines.push(line);
        const [, url] = /\bat (https?:\/\/[^\s"]+)/.exec(line) ?? [];
        if (url) resolve(url);
      });
    const fail = (cause) => reject(new Error(`${program} has ended:\n${lines.join('\n')}`, { cause }));
    closed.then(() => fail(), fail);
  });
  const stop = async () => {
    child.kill('SIGTERM');
    const [code] = await closed;
    children.delete(child);
    // Windows has no signals: the process ends at once.
    if (!isWindows) equal(code, 0, `${program} stops in order:\n${lines.join('\n')}`);
  };
  return { url, stop };
}

async function request(method, url, { body, token } = {}) {
  const response = await fetch(url, {
    method,
    headers: {
      ...(body && { 'content-type': 'application/json' }),
      ...(token && { authorization: `Bearer ${token}` }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: await response.json() };
}

const steps = {
  'the tarball is installed in an empty folder': () => {
    writeFileSync(join(folder, 'package.json'), '{ "private": true }');
    shell(`${runtime.install} "${resolve(tarball)}"`);
  },
  'the commands of the package run': () => {
    for (const program of ['saas-backend', 'idp'])
      match(shell(`npx --no-install ${program} version`), /^\d+\.\d+\.\d+/);
  },
  'a user with a hash of bcrypt is imported': () => {
    const file = join(folder, 'users.ndjson');
    writeFileSync(file, `${JSON.stringify({ email: IMPORTED.email, passwordHash: BCRYPT })}\n`);
    run('saas-backend', 'user', 'import', file);
  },
  'a new and an imported user sign in at saas-backend': async () => {
    const { url, stop } = await start('saas-backend');
    equal((await request('POST', `${url}/api/auth/register`, { body: ACCOUNT })).status, 201);
    for (const account of [ACCOUNT, IMPORTED]) {
      const { body } = await request('POST', `${url}/api/auth/login`, { body: account });
      const me = await request('GET', `${url}/api/auth/me`, { token: body.data.accessToken });
      equal(me.body.data.user.email, account.email);
    }
    await stop();
  },
  'an agent is minted at idp': async () => {
    const { url, stop } = await start('idp');
    const body = { handle: 'scout@agents.example' };
    const { status, body: agent } = await request('POST', `${url}/v1/agents`, { body, token: ADMIN_TOKEN });
    deepEqual([status, agent.handle], [201, body.handle]);
    equal((await request('GET', `${url}/.well-known/jwks.json`)).status, 200);
    await stop();
  },
  'a store is backed up': () => {
    const copy = join(folder, 'copy of the store.db');
    run('saas-backend', 'backup', copy);
    equal(statSync(copy).size > 0, true);
  },
};

try {
  for (const [title, step] of Object.entries(steps)) {
    await step();
    console.log(`ok - ${title}`);
  }
} finally {
  for (const child of children) child.kill('SIGKILL');
  // Windows closes the files of an ended process a moment later.
  rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
}
console.log(`${name} on ${process.platform}-${process.arch}: passed`);
