import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';

/** The built application over HTTP as in production, behind a proxy, with a database in a temporary folder. */

const folder = mkdtempSync(join(tmpdir(), 'my-app-'));
const secret = () => randomBytes(48).toString('base64');
const env = {
  ...process.env,
  NODE_ENV: 'production',
  PUBLIC_URL: 'https://app.example.com',
  TRUST_PROXY: '127.0.0.1',
  DATABASE_URI: `sqlite:${join(folder, 'app.db')}`,
  JWT_ACCESS_SECRET: secret(),
  JWT_REFRESH_SECRET: secret(),
  ADMIN_PASSWORD: secret(),
} as const;
const next = spawn(process.execPath, ['node_modules/next/dist/bin/next', 'start', '--port', '0'], { env });
after(async () => {
  next.kill();
  await once(next, 'exit');
  rmSync(folder, { recursive: true });
});
let origin = '';
for await (const line of createInterface(next.stdout)) {
  origin = /http:\/\/localhost:\d+/.exec(line)?.[0] ?? '';
  if (origin !== '') break;
}

const request = (path: string, init: RequestInit & { headers?: Record<string, string> } = {}) =>
  fetch(origin + path, {
    redirect: 'manual',
    ...init,
    headers: { ...init.headers, 'x-forwarded-for': '203.0.113.7' },
  });

const post = (path: string, body: object, headers: Record<string, string> = {}) =>
  request(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

// A user, with the session of a browser and an access token.
const account = { email: 'ada@example.com', password: 'a sentence is fine' };
assert.equal((await post('/api/auth/register', account)).status, 201);
const login = await post('/api/auth/login', account, { 'session-mode': 'cookie' });
assert.equal(login.status, 200);
const cookie = login.headers.getSetCookie()[0]?.split(';')[0] ?? '';
const { accessToken } = ((await login.json()) as { data: { accessToken: string } }).data;
const visit = async (path: string) => (await request(path, { headers: { cookie } })).text();

test('a visitor is sent to the sign-in and back', async () => {
  const response = await request('/dashboard');
  assert.equal(response.status, 307);
  assert.equal(response.headers.get('location'), '/account/sign-in?return_to=%2Fdashboard');
});

test('a user sees the dashboard', async () => {
  assert.match(await visit('/dashboard'), /Signed in as ada@example\.com\. Plan: free\./);
});

test('reports are for subscribers', async () => {
  assert.match(await visit('/reports'), /Choose a plan/);
  const program = 'node_modules/saas-backend/dist/bin/saas-backend.js';
  execFileSync(process.execPath, [program, 'user', 'grant', account.email, 'pro'], { env });
  assert.match(await visit('/reports'), /For subscribers such as/);
});

test('an API key reads the summary, if it has the scope', async () => {
  const summary = (token: string) => request('/summary', { headers: { authorization: `Bearer ${token}` } });
  const createKey = async (scope: string) => {
    const headers = { authorization: `Bearer ${accessToken}` };
    const response = await post('/api/user/keys', { name: 'Test', scopes: [scope] }, headers);
    assert.equal(response.status, 201);
    return ((await response.json()) as { data: { secret: string } }).data.secret;
  };
  const response = await summary(await createKey('profile:read'));
  assert.equal(response.status, 200);
  assert.deepEqual(await response.json(), { email: account.email, plan: 'pro' });
  assert.equal((await summary(await createKey('billing:read'))).status, 403);
  assert.equal((await request('/summary')).status, 401);
});
