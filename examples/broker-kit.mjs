// Starts and stops what the two broker examples need: programs, the identity provider, a person and an agent.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** A problem that the user can fix; the message says how. */
export class Problem extends Error {}

export const newSecret = () => randomBytes(24).toString('base64url');

/** Runs an example in its own folder and stops everything that it has started. */
export async function run(example) {
  const folder = mkdtempSync(join(tmpdir(), 'broker-'));
  const started = [];
  const start = (command, args, env = {}) => {
    // Separate process groups: a shell does not pass signals on.
    const options = { cwd: folder, detached: true, stdio: ['ignore', 'pipe', 'pipe'] };
    const child = spawn(command, args, { ...options, env: { ...process.env, ...env } });
    const program = { child, closed: once(child, 'close'), lines: [] };
    for (const stream of [child.stdout, child.stderr])
      createInterface(stream).on('line', (line) => program.lines.push(line));
    started.push(program);
    return program;
  };
  const end = async () => {
    await Promise.all(started.map(stop));
    rmSync(folder, { recursive: true, force: true });
  };
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => end().finally(() => process.exit(process.exitCode ?? 1)));
  }
  try {
    await example({ folder, start });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  } finally {
    await end();
  }
}

export async function stop({ child, closed }) {
  if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, 'SIGTERM');
  await closed;
}

/** Runs a step and prints its duration. */
export async function step(text, work) {
  const begun = performance.now();
  const seconds = () => Math.round((performance.now() - begun) / 1000);
  const show = () => process.stderr.write(`\r\x1b[K${text} … ${seconds()} s`);
  const timer = process.stderr.isTTY ? setInterval(show, 250) : undefined;
  try {
    const result = await work();
    if (timer) process.stderr.write('\r\x1b[K');
    console.log(`${text} (${seconds()} s)`);
    return result;
  } finally {
    clearInterval(timer);
  }
}

/** Repeats a request until it succeeds. @throws Problem when the program has ended before */
export async function untilReady({ child, lines }, url) {
  for (;;) {
    const answer = await fetch(url).catch(() => null);
    if (answer?.ok) return;
    if (child.exitCode !== null || child.signalCode !== null)
      throw new Problem(`The program ended before it responded:\n${lines.slice(-20).join('\n')}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

/** A free port. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await once(server.close(), 'close');
  return port;
}

/**
 * The identity provider, with the broker as its client, a person and an agent.
 * @param bye the post-logout redirect URI of the broker, if it has one
 */
export async function startProvider({ start }, callback, bye) {
  const adminToken = newSecret();
  const port = await freePort();
  const issuer = `http://localhost:${port}`;
  const program = fileURLToPath(new URL('../dist/bin/idp.js', import.meta.url));
  const env = { IDP_ADMIN_TOKEN: adminToken, IDP_PUBLIC_URL: issuer };
  await untilReady(start(process.execPath, [program, 'serve', '-port', `${port}`], env), `${issuer}/ready`);

  const post = async (url, body) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${adminToken}` };
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
    if (answer.status !== 201) throw new Error(`${url} answered ${answer.status}: ${await answer.text()}`);
    return answer.json();
  };
  const client = await post(`${issuer}/v1/clients`, {
    name: 'The broker',
    redirect_uris: [callback],
    post_logout_redirect_uris: bye,
  });
  const scout = await post(`${issuer}/v1/agents`, { handle: 'scout@agents.example', name: 'Scout' });
  const ada = { handle: 'ada@example.com', name: 'Ada Lovelace', password: newSecret() };
  const { invite_url: invitation } = await post(`${issuer}/v1/invites`, {
    handle: ada.handle,
    name: ada.name,
  });
  await post(invitation, { password: ada.password });
  return {
    issuer,
    client,
    principals: [
      { ...ada, kind: 'human' },
      { ...scout, kind: 'agent' },
    ],
  };
}
