import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { start } from '../src/app.js';

/** The application over HTTP, with a database in a temporary folder. */

const folder = mkdtempSync(join(tmpdir(), 'my-app-'));
const secret = () => randomBytes(48).toString('base64');
const app = await start({
  port: 0,
  host: 'localhost',
  logLevel: 'error',
  // Nothing of the environment of a developer: no payments, no mails.
  env: {},
  databaseUri: `sqlite:${join(folder, 'app.db')}`,
  jwtAccessSecret: secret(),
  jwtRefreshSecret: secret(),
  adminPassword: secret(),
});
after(async () => {
  await app.close();
  rmSync(folder, { recursive: true });
});

const request = (path: string, init: RequestInit = {}) =>
  fetch(`http://localhost:${app.port}${path}`, { redirect: 'manual', ...init });

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

const visit = (path: string) => request(path, { headers: { cookie } });

test('a visitor is sent to the sign-in and back', async () => {
  const response = await request('/dashboard');
  assert.equal(response.status, 303);
  assert.equal(response.headers.get('location'), '/account/sign-in?return_to=%2Fdashboard');
});

test('a user sees the dashboard', async () => {
  const response = await visit('/dashboard');
  assert.equal(response.status, 200);
  assert.match(await response.text(), /Signed in as ada@example\.com\. Plan: free\./);
});

test('reports are for subscribers', async () => {
  const before = await visit('/reports');
  assert.equal(before.status, 403);
  assert.match(await before.text(), /Choose a plan/);
  await app.saas.users.grant({ email: account.email }, { plan: 'pro' });
  const after = await visit('/reports');
  assert.equal(after.status, 200);
  assert.match(await after.text(), /For subscribers/);
});

test('an API key reads the summary, if it has the scope', async () => {
  const summary = (token: string) => request('/summary', { headers: { authorization: `Bearer ${token}` } });
  const createKey = async (scope: string) => {
    const headers = { authorization: `Bearer ${accessToken}` };
    const response = await post('/api/user/keys', { name: 'Test', scopes: [scope] }, headers);
    assert.equal(response.status, 201);
    return ((await response.json()) as { data: { secret: string } }).data.secret;
  };
  const response = await summary(await createKey('summary:read'));
  assert.equal(response.status, 200);
  assert.deepEqual(await response.json(), { email: account.email, plan: 'pro' });
  assert.equal((await summary(await createKey('profile:read'))).status, 403);
  assert.equal((await request('/summary')).status, 401);
});
