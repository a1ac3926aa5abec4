import { execFile } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import type { ActiveSession } from '../../src/client/index.js';
import {
  createClient,
  needsSecondFactor,
  type SaasClient,
  SaasError,
  type SessionChange,
  type SessionEnd,
} from '../../src/client/index.js';
import { codeAt, FACTOR_KEY } from '../kit/factors.js';
import { temporaryFolder } from '../kit/tmp.js';
import { gate, waitUntil } from '../kit/wait.js';
import { blocksOf, runSnippet } from '../package/documents/blocks.js';
import { type Backend, CREDENTIALS, clientScript, EXPIRY_MS, startBackend, testStorage } from './kit.js';

/** The client on Node.js, at a real server. */

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const TSC = join(ROOT, 'node_modules/.bin/tsc');
const run = promisify(execFile);

const REFRESH = 'POST /api/auth/refresh';
const ME = 'GET /api/auth/me';
const SESSION = 'GET /api/auth/session';

type Body = NonNullable<RequestInit['body']>;

/** The error that a call rejects with. */
async function errorOf(call: Promise<unknown>): Promise<SaasError> {
  const error = await call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof SaasError) return error;
  throw new Error(`no SaasError: ${error}`);
}

/** A signed-in client, and why its session has ended. */
async function signedIn(
  backend: Backend,
  more: Partial<Parameters<typeof createClient>[0]> = {},
): Promise<{ client: SaasClient; ends: SessionEnd[] }> {
  const ends: SessionEnd[] = [];
  const { baseUrl, fetch } = backend;
  const client = createClient({ baseUrl, fetch, onSessionEnd: (end) => ends.push(end), ...more });
  const { user } = await client.auth.register(CREDENTIALS);
  if (user?.email !== CREDENTIALS.email) throw new Error('no user');
  return { client, ends };
}

const inParallel = <T>(count: number, call: () => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, call));

t.test('the client has less than 6 kB', async (t) => {
  const bytes = gzipSync(await clientScript(), { level: 9 }).length;
  t.comment(`${bytes} bytes`);
  t.ok(bytes < 6000);
});

t.test('a user registers, signs in, reads and changes the account, and signs out', async (t) => {
  const backend = await startBackend(t);
  const { client, ends } = await signedIn(backend);
  t.match(await client.auth.getCurrentUser(), {
    user: { email: CREDENTIALS.email },
    session: { amr: ['pwd'] },
  });
  t.match(await client.user.updateProfile({ name: 'Ada' }), { name: 'Ada' });
  t.match(await client.user.getProfile(), { name: 'Ada' });
  t.match(await client.user.exportAccount(), { exportedAt: String });
  t.match(await client.billing.getSubscription(), { status: 'none', entitled: false });
  t.match(await client.billing.listPurchases({ after: undefined }), { purchases: [], next: null });
  t.match(await client.settings.getPublicSettings(), { siteName: String });
  t.match(await client.auth.forgotPassword({ email: CREDENTIALS.email }), { message: String });

  const other = createClient({ baseUrl: backend.baseUrl });
  t.strictSame(Object.keys(await other.auth.login(CREDENTIALS)), ['user'], 'the tokens stay in the client');
  const { sessions } = await client.auth.listSessions();
  const id = sessions.find(({ current }) => !current)?.id ?? '';
  await client.auth.endSession({ id });
  t.match(await errorOf(other.user.getProfile()), { status: 401, code: 'UNAUTHENTICATED' });

  await client.auth.logout();
  t.strictSame(ends, [{ reason: 'logout' }]);
  t.match(await errorOf(client.auth.getCurrentUser()), { status: 401, code: 'UNAUTHENTICATED' });
  t.match(await errorOf(client.auth.login({ ...CREDENTIALS, password: 'wrong' })), {
    code: 'INVALID_CREDENTIALS',
  });
  await client.auth.login(CREDENTIALS);
  await client.user.deleteAccount({ password: CREDENTIALS.password });
  t.strictSame(ends[1], { reason: 'deleted' });
  t.equal(ends.length, 2);
});

for (const [name, storage] of [
  ['in memory', undefined],
  ['in a storage', testStorage()],
] as const) {
  t.test(
    `a visitor causes no request, and the session of a user is read once for all, ${name}`,
    async (t) => {
      const backend = await startBackend(t);
      const visitor = createClient({ ...backend, ...(storage && { storage: testStorage() }) });
      t.strictSame([await visitor.getSession(), await visitor.getAccessToken()], [null, null]);
      t.strictSame(backend.requests, []);

      const { client, ends } = await signedIn(backend, { storage });
      const found = await inParallel(5, () => client.getSession());
      t.match(found[0], {
        user: { email: CREDENTIALS.email },
        session: { amr: ['pwd'] },
        organization: null,
      });
      t.strictSame(found, Array(5).fill(found[0]));
      t.equal(backend.count(SESSION), 1);
      backend.clock.advance(EXPIRY_MS);
      t.match(await client.getSession(), { user: { email: CREDENTIALS.email } }, 'with a new token');
      t.equal(backend.count(REFRESH), 1);

      const other = createClient(backend);
      await other.auth.login(CREDENTIALS);
      await other.auth.logout({ scope: 'others' });
      t.equal(await client.getSession(), null, 'ended elsewhere');
      t.strictSame(ends, [{ reason: 'revoked', code: 'INVALID_REFRESH_TOKEN' }]);
      const before = backend.requests.length;
      t.strictSame([await client.getSession(), await client.getAccessToken()], [null, null]);
      t.equal(backend.requests.length, before);
      backend.outage = { path: '/auth/session', status: 503 };
      await client.auth.login(CREDENTIALS);
      t.match(await errorOf(client.getSession()), { status: 503 }, 'no answer is not "signed out"');
    },
  );
}

t.test('a session that ends or begins while another one is read is not mixed up with it', async (t) => {
  const backend = await startBackend(t);
  const answers: (() => void)[] = [];
  const { client, ends } = await signedIn(backend, {
    storage: testStorage(),
    async fetch(url, init) {
      const response = await fetch(url, init);
      if (url.endsWith('/auth/session')) await new Promise<void>((resolve) => answers.push(resolve));
      return response;
    },
  });
  const first = client.getSession();
  await waitUntil('the answer waits', () => answers.length === 1);
  await client.auth.register({ ...CREDENTIALS, email: 'eve@example.test' });
  const second = client.getSession();
  await waitUntil('asked again', () => answers.length === 2);
  for (const answer of answers) answer();
  t.match(await first, { user: { email: CREDENTIALS.email } });
  t.match(await second, { user: { email: 'eve@example.test' } });
  t.strictSame(ends, []);
});

t.test('an access token is replaced before it expires', async (t) => {
  const backend = await startBackend(t);
  const { client } = await signedIn(backend, { storage: testStorage() });
  const token = await client.getAccessToken();
  t.type(token, 'string');
  t.equal(await client.getAccessToken(), token);
  const real = Date.now;
  t.teardown(() => {
    Date.now = real;
  });
  // Less than half a minute before the end of the first one.
  const later = real() + EXPIRY_MS - 80_000;
  Date.now = () => later;
  backend.clock.advance(EXPIRY_MS - 80_000);
  const [next, again] = await inParallel(2, () => client.getAccessToken());
  t.not(next, token);
  t.equal(again, next);
  t.match(await client.user.getProfile(), { email: CREDENTIALS.email });
  t.equal(backend.count(REFRESH), 1);
  t.equal(backend.count('GET /api/user/profile 401'), 0);
  backend.clock.advance(EXPIRY_MS);
  Date.now = () => later + EXPIRY_MS;
  backend.outage = { path: '/auth/refresh', status: 503 };
  t.match(await errorOf(client.getAccessToken()), { status: 503 }, 'never one that has expired');
});

t.test('listeners learn of each sign-in and each end, until they end it', async (t) => {
  const backend = await startBackend(t);
  const changes: SessionChange[] = [];
  const client = createClient(backend);
  const stop = client.onChange((change) => changes.push(change));
  await client.auth.register(CREDENTIALS);
  await client.user.getProfile();
  backend.clock.advance(EXPIRY_MS);
  await client.user.getProfile();
  await client.auth.logout();
  await client.auth.login(CREDENTIALS);
  t.strictSame(changes, [{ reason: 'login' }, { reason: 'logout' }, { reason: 'login' }]);
  stop();
  await client.auth.logout();
  t.equal(changes.length, 3);
});

t.test('what belongs into the path and into the body is one argument', async (t) => {
  const backend = await startBackend(t, { organizations: true });
  const { client } = await signedIn(backend);
  await backend.users.update({ email: CREDENTIALS.email }, { emailVerified: true });
  const { organization } = await client.organizations.createOrganization({ name: 'Engines' });
  const { id } = organization;
  const invited = { organization: id, email: 'bob@example.test', role: 'admin' };
  const { invitation } = await client.organizations.inviteMember(invited);
  t.match(invitation, { email: 'bob@example.test', role: 'admin' });
  const listed = await client.organizations.listInvitations({ organization: id, after: undefined });
  t.equal(listed.invitations.length, 1);
  await client.organizations.withdrawInvitation({ organization: id, id: invitation.id });
  const elsewhere = client.organizations.getOrganization({ organization: '../user/profile' });
  t.match(await errorOf(elsewhere), { status: 400 }, 'a part of the path stays one');
});

t.test(
  'a sign-in continues with the second factor, as the snippets of docs/both/factors.md do',
  async (t) => {
    const backend = await startBackend(t, { factorEncryptionKey: FACTOR_KEY });
    await backend.users.create({ ...CREDENTIALS, emailVerified: true });
    const client = createClient(backend);
    await client.auth.login(CREDENTIALS);
    const [setUp, signIn] = blocksOf('docs/both/factors.md').filter(({ language }) => language === 'ts');
    if (!setUp || !signIn) throw new Error('docs/both/factors.md has other snippets');
    const [picture, shown] = [{ src: '' }, [] as string[]];
    const reader = {
      client,
      needsSecondFactor,
      SaasError,
      ...CREDENTIALS,
      picture,
      show: (text: string) => shown.push(text),
    };

    await runSnippet(setUp, { ...reader, ask: async () => codeAt(shown[0] ?? '', backend.clock.now()) });
    t.match(decodeURIComponent(picture.src), /^data:image\/svg\+xml,<svg /);
    const recoveryCodes = shown[1]?.split(' ') ?? [];
    t.equal(recoveryCodes.length, 10);

    await client.auth.logout();
    shown.length = 0;
    const typed = ['000000', recoveryCodes[0]];
    await runSnippet(signIn, { ...reader, ask: async () => typed.shift() });
    t.match(shown, [/code is incorrect/, /^Welcome/]);
    t.match(await client.user.getProfile(), { email: CREDENTIALS.email });
    t.match(await client.user.getSecondFactor(), { recoveryCodesLeft: 9 });

    await client.auth.logout();
    const error = await errorOf(client.auth.login(CREDENTIALS));
    t.equal(needsSecondFactor(error) && error.code, 'SECOND_FACTOR_REQUIRED');
    const wrong = await errorOf(client.auth.login({ ...CREDENTIALS, password: 'wrong' }));
    t.notOk(needsSecondFactor(wrong) || needsSecondFactor(undefined));
  },
);

for (const [name, storage] of [
  ['in memory', undefined],
  ['in a storage', testStorage()],
  ['in an asynchronous storage', testStorage({ isAsync: true })],
] as const) {
  t.test(`a hundred requests with an expired token need one refresh, ${name}`, async (t) => {
    const backend = await startBackend(t);
    const { client, ends } = await signedIn(backend, { storage });
    for (const round of [1, 2]) {
      backend.clock.advance(EXPIRY_MS);
      const users = await inParallel(100, () => client.user.getProfile());
      t.ok(users.every(({ email }) => email === CREDENTIALS.email));
      t.equal(backend.count(REFRESH), round);
    }
    t.equal(backend.count('GET /api/user/profile 200'), 200);
    t.strictSame(ends, []);
  });
}

t.test('a client with the storage of another one has its session', async (t) => {
  const backend = await startBackend(t);
  const storage = testStorage();
  const { client } = await signedIn(backend, { storage });
  const ends: SessionEnd[] = [];
  const later = createClient({ ...backend, storage, onSessionEnd: (end) => ends.push(end) });
  t.match(await later.user.getProfile(), { email: CREDENTIALS.email });
  backend.clock.advance(EXPIRY_MS);
  await client.user.getProfile();
  await later.user.getProfile();
  t.equal(backend.count(REFRESH), 1, 'it reads the storage again');
  t.equal(storage.items.size, 1);
  await client.auth.logout();
  t.equal(storage.items.size, 0);
  t.match(await errorOf(later.user.getProfile()), { code: 'UNAUTHENTICATED' });
  t.strictSame(ends, [{ reason: 'logout' }]);
  for (const value of ['', '{', 'null', '1', '{"accessToken":1}']) {
    storage.items.set(`saas-session ${backend.baseUrl}`, value);
    t.match(await errorOf(later.user.getProfile()), { code: 'UNAUTHENTICATED' }, value);
  }
});

t.test('a sign-in or logout during other requests ends the session at most once', async (t) => {
  const backend = await startBackend(t);
  const { items, ...plain } = testStorage();
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  let reads = 0;
  /** Values become visible at one time, and promises resolve at another: every second read is slow. */
  const storage = {
    async getItem(key: string) {
      const value = await plain.getItem(key);
      if (reads++ % 2 === 0) for (let count = 0; count < 3; count++) await turn();
      return value;
    },
    async setItem(key: string, value: string) {
      await turn();
      plain.setItem(key, value);
      await turn();
    },
    async removeItem(key: string) {
      await turn();
      plain.removeItem(key);
      await turn();
    },
  };
  const { client, ends } = await signedIn(backend, {
    storage,
    fetch: async (url, init) => (url.endsWith('/public') ? new Response() : backend.fetch(url, init)),
  });
  let isBusy = true;
  const busy = inParallel(5, async () => {
    while (isBusy) await client.fetch('/public');
  });
  await client.auth.register({ ...CREDENTIALS, email: 'eve@example.test' });
  await client.auth.login(CREDENTIALS);
  t.strictSame(ends, []);
  await client.auth.logout();
  isBusy = false;
  await busy;
  t.strictSame(ends, [{ reason: 'logout' }]);
  t.equal(items.size, 0);
});

t.test('a session ends once, and only when the server says so', async (t) => {
  const backend = await startBackend(t);
  const { client, ends } = await signedIn(backend);
  backend.clock.advance(EXPIRY_MS);
  for (const status of [503, 500, 502, 401, 403, 429, 400]) {
    backend.outage = { path: '/api/auth/refresh', status };
    const errors = await inParallel(3, () => errorOf(client.user.getProfile()));
    t.match(
      errors,
      errors.map(() => ({ status, code: 'UNEXPECTED_RESPONSE' })),
    );
    t.equal(errors[0]?.isTemporary, [503, 502, 429].includes(status));
  }
  backend.outage = undefined;
  t.match(await client.user.getProfile(), { email: CREDENTIALS.email }, 'the session remains');
  t.strictSame(ends, []);

  backend.clock.advance(8 * 24 * 60 * 60 * 1000);
  const errors = await inParallel(10, () => errorOf(client.user.getProfile()));
  t.ok(errors.every(({ status }) => status === 401));
  t.strictSame(ends, [{ reason: 'revoked', code: 'INVALID_REFRESH_TOKEN' }]);
  const before = backend.count(REFRESH);
  t.match(await errorOf(client.user.getProfile()), { code: 'UNAUTHENTICATED' });
  t.equal(backend.count(REFRESH), before, 'nothing is left to refresh');
});

t.test('requests that are refused together share one refresh, also one that fails', async (t) => {
  const token = (id: string) => ({ user: { email: '' }, accessToken: id, refreshToken: id, expiresIn: 1 });
  const answer = (status: number, body: object, headers = {}) => Response.json(body, { status, headers });
  let refreshes = 0;
  const client = createClient({
    baseUrl: 'https://app.example/api',
    async fetch(url) {
      if (url.endsWith('/auth/login')) return answer(200, { success: true, data: token('1') });
      if (url.endsWith('/user/profile')) return answer(401, { error: { code: 'TOKEN_EXPIRED' } });
      refreshes++;
      // The other requests are refused meanwhile.
      for (let turn = 0; turn < 50; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
      return answer(503, { error: { code: 'NOT_READY' } }, { 'retry-after': '5' });
    },
  });
  await client.auth.login(CREDENTIALS);
  const errors = await inParallel(10, () => errorOf(client.user.getProfile()));
  t.ok(errors.every(({ code, retryAfter }) => code === 'NOT_READY' && retryAfter === 5));
  t.equal(refreshes, 1);
});

t.test('a session that was ended elsewhere ends at the next request', async (t) => {
  const backend = await startBackend(t);
  const { client, ends } = await signedIn(backend);
  const other = createClient(backend);
  await other.auth.login(CREDENTIALS);
  await other.auth.logout({ scope: 'others' });
  t.match(await errorOf(client.user.getProfile()), { status: 401 });
  t.strictSame(ends, [{ reason: 'revoked', code: 'INVALID_REFRESH_TOKEN' }]);
  t.match(await other.user.getProfile(), { email: CREDENTIALS.email });
});

t.test('a lost response to a refresh does not end the session', async (t) => {
  const backend = await startBackend(t);
  let isLossy = false;
  const { client, ends } = await signedIn(backend, {
    async fetch(url, init) {
      const response = await fetch(url, init);
      if (!isLossy || !url.endsWith('/auth/refresh')) return response;
      isLossy = false;
      await response.text();
      throw new TypeError('connection reset');
    },
  });
  for (let round = 0; round < 3; round++) {
    backend.clock.advance(EXPIRY_MS);
    isLossy = true;
    t.match(await client.user.getProfile(), { email: CREDENTIALS.email });
  }
  t.strictSame(ends, []);
});

t.test('a logout that does not reach the server leaves the session', async (t) => {
  const backend = await startBackend(t);
  const { client, ends } = await signedIn(backend);
  backend.outage = { path: '/api/auth/logout', status: 503 };
  t.match(await errorOf(client.auth.logout()), { status: 503, isTemporary: true });
  backend.outage = undefined;
  t.match(await client.user.getProfile(), { email: CREDENTIALS.email });
  backend.clock.advance(EXPIRY_MS);
  await client.auth.logout();
  t.strictSame(ends, [{ reason: 'logout' }], 'an expired access token is no obstacle');
  await client.auth.logout();
  t.equal(ends.length, 1, 'a second logout is not an error');
});

t.test('a request of one user is not repeated for another', async (t) => {
  const backend = await startBackend(t);
  const storage = testStorage();
  const { client, ends } = await signedIn(backend, { storage });
  const eve = createClient({ baseUrl: backend.baseUrl, storage });
  backend.clock.advance(EXPIRY_MS);
  let isSwapped = false;
  const slow = createClient({
    ...{ baseUrl: backend.baseUrl, storage },
    async fetch(url, init) {
      const response = await fetch(url, init);
      if (!isSwapped) {
        isSwapped = true;
        await eve.auth.register({ ...CREDENTIALS, email: 'eve@example.test' });
      }
      return response;
    },
  });
  t.match(await errorOf(slow.user.updateProfile({ name: 'Ada' })), { code: 'TOKEN_EXPIRED' });
  t.match(await slow.user.getProfile(), { email: 'eve@example.test', name: '' });
  t.match(await client.user.getProfile(), { email: 'eve@example.test' });
  t.strictSame(ends, [{ reason: 'replaced' }]);
  t.equal(backend.count(REFRESH), 0);
});

t.test('errors have a code, the invalid fields, the time to wait and the request', async (t) => {
  const backend = await startBackend(t);
  const client = createClient({ baseUrl: `${backend.baseUrl}/` });
  const invalid = await errorOf(client.auth.register({ email: 'ada', password: 'x' }));
  t.match(invalid, { name: 'SaasError', status: 400, code: 'VALIDATION_ERROR', requestId: /^req_/ });
  t.match(invalid.fields, [{ path: 'email', message: String }]);
  t.equal(invalid.isTemporary, false);
  t.match(invalid.message, /\w/);
  const answer = (body: string, init: ResponseInit) =>
    errorOf(createClient({ ...backend, fetch: async () => new Response(body, init) }).billing.listPlans());
  const limited = '{"success":false,"message":"Wait.","error":{"code":"RATE_LIMITED","requestId":"req_1"}}';
  t.match(await answer(limited, { status: 429, headers: { 'retry-after': '7' } }), {
    ...{ code: 'RATE_LIMITED', message: 'Wait.', retryAfter: 7, requestId: 'req_1', isTemporary: true },
  });
  for (const [body, status] of [
    ['<h1>Bad gateway</h1>', 502],
    ['', 200],
    ['[]', 200],
    ['{"data":{}}', 200],
  ] as const) {
    t.match(await answer(body, { status }), { code: 'UNEXPECTED_RESPONSE', status, retryAfter: undefined });
  }
  const cause = new TypeError('fetch failed');
  const offline = createClient({ ...backend, fetch: () => Promise.reject(cause) });
  t.match(await errorOf(offline.billing.listPlans()), {
    code: 'NETWORK_ERROR',
    status: 0,
    cause,
    isTemporary: true,
  });
});

t.test('a request is aborted by its timeout or its signal, and a refresh continues', async (t) => {
  const backend = await startBackend(t);
  const waiting: (() => void)[] = [];
  let isSlow = false;
  const refresh = gate();
  const { client } = await signedIn(backend, {
    async fetch(url, init) {
      if (String(url).endsWith('/auth/refresh')) await refresh.opened;
      if (isSlow) {
        await new Promise<void>((resolve, reject) => {
          waiting.push(resolve);
          init.signal?.addEventListener('abort', () => reject(init.signal?.reason));
        });
      }
      return fetch(url, init);
    },
  });
  isSlow = true;
  t.match(await errorOf(client.user.getProfile({ timeout: 1 })), {
    code: 'TIMEOUT',
    status: 0,
    isTemporary: true,
  });
  const reason = new Error('left the page');
  await t.rejects(client.user.getProfile({ signal: AbortSignal.abort(reason) }), reason);
  const controller = new AbortController();
  const aborted = client.user.getProfile({ signal: controller.signal });
  await waitUntil('it is sent', () => waiting.length === 2);
  controller.abort(reason);
  await t.rejects(aborted, reason);

  isSlow = false;
  backend.clock.advance(EXPIRY_MS);
  const leaving = new AbortController();
  const [left, stays] = [client.user.getProfile({ signal: leaving.signal }), client.user.getProfile()];
  await waitUntil('both are refused', () => backend.count('GET /api/user/profile 401') === 2);
  leaving.abort(reason);
  await t.rejects(left, reason);
  refresh.open();
  t.match(await stays, { email: CREDENTIALS.email });
});

t.test('the routes of a host get the token and the same refresh', async (t) => {
  const backend = await startBackend(t);
  const { client, ends } = await signedIn(backend);
  const notes = async () => (await (await client.fetch('/notes')).json()) as { owner: string };
  t.match(await notes(), { owner: CREDENTIALS.email });
  backend.clock.advance(EXPIRY_MS);
  const all = await inParallel(20, notes);
  t.ok(all.every(({ owner }) => owner === CREDENTIALS.email));
  t.equal(backend.count(REFRESH), 1);

  const post = (body: Body) =>
    client.fetch(`${backend.origin}/notes`, {
      ...{ method: 'POST', body, headers: { 'content-type': 'text/plain' } },
      // For streams.
      duplex: 'half',
    });
  backend.clock.advance(EXPIRY_MS);
  t.match(await (await post('text')).json(), { text: 'text' });
  backend.clock.advance(EXPIRY_MS);
  const stream = () => new Blob(['streamed']).stream() as unknown as Body;
  t.equal((await post(stream())).status, 401, 'a stream cannot be sent again');
  t.match(await (await post(stream())).json(), { text: 'streamed' }, 'the token is new');
  t.equal(backend.count('POST /notes'), 4);

  t.equal((await client.fetch('/missing')).status, 404, 'responses are returned as they are');
  await t.rejects(client.fetch('https://elsewhere.example/notes'), /not for https:\/\/elsewhere\.example/);
  await t.rejects(client.fetch('//elsewhere.example/notes'), TypeError);
  await client.auth.logout();
  t.match(await (await client.fetch('/public')).json(), { hasToken: false });
  t.equal((await client.fetch('/notes')).status, 401);
  t.strictSame(ends, [{ reason: 'logout' }]);
});

t.test('the token goes to other origins only if they are named', async (t) => {
  const backend = await startBackend(t);
  const sent: [string, string | null][] = [];
  const { client } = await signedIn(backend, {
    origins: ['https://files.example'],
    async fetch(url, init) {
      if (url.startsWith(backend.baseUrl)) return fetch(url, init);
      sent.push([url, new Headers(init.headers).get('authorization')]);
      return new Response('{"code":"TOKEN_EXPIRED"}', { status: sent.length === 1 ? 401 : 200 });
    },
  });
  await t.rejects(client.fetch('https://files.example:8443/'), TypeError);
  await t.rejects(client.fetch('http://files.example/'), TypeError);
  t.equal((await client.fetch('https://files.example/a')).status, 200, 'an error of Fastify is understood');
  t.match(sent, [
    ['https://files.example/a', /^Bearer /],
    ['https://files.example/a', /^Bearer /],
  ]);
  t.not(sent[0]?.[1], sent[1]?.[1]);
});

t.test('public calls send no token, and a refused request is repeated once only', async (t) => {
  const backend = await startBackend(t);
  const seen: string[] = [];
  const { client } = await signedIn(backend, {
    async fetch(url, init) {
      const has = new Headers(init.headers).has('authorization');
      seen.push(`${init.method} ${new URL(url).pathname} ${has}`);
      if (!url.endsWith('/me')) return fetch(url, init);
      const headers = { 'www-authenticate': 'Bearer realm="api", error="invalid_token"' };
      return new Response('{"error":{"code":"UNAUTHENTICATED"}}', { status: 401, headers });
    },
  });
  await client.settings.getPublicSettings();
  t.match(await errorOf(client.auth.getCurrentUser()), { code: 'UNAUTHENTICATED' });
  t.strictSame(seen, [
    'POST /api/auth/register false',
    'GET /api/settings/public false',
    'GET /api/auth/me true',
    'POST /api/auth/refresh false',
    'GET /api/auth/me true',
  ]);
  t.equal(backend.count(ME), 0);
});

t.test('outside of browsers, each request that changes something says that it is JSON', async (t) => {
  const backend = await startBackend(t);
  const seen: string[] = [];
  const { client } = await signedIn(backend, {
    fetch(url, init) {
      seen.push(`${init.method} ${new Headers(init.headers).get('content-type')}`);
      return fetch(url, init);
    },
  });
  seen.length = 0;
  const [session] = (await client.auth.listSessions()).sessions;
  await client.auth.endSession({ id: session?.id ?? '' });
  t.strictSame(seen, ['GET null', 'DELETE application/json']);
});

t.test('the exchange of a refresh token in a cookie outlives the page', async (t) => {
  const seen: unknown[] = [];
  const client = createClient({
    baseUrl: 'https://app.example.test/api',
    storage: 'cookie',
    async fetch(url, { keepalive }) {
      seen.push([new URL(url).pathname, keepalive]);
      return Response.json({ success: true, data: { accessToken: 'a.e30.c', expiresIn: 60 } });
    },
  });
  await client.user.getProfile();
  t.strictSame(seen, [
    ['/api/auth/refresh', true],
    ['/api/user/profile', undefined],
  ]);
});

t.test('the types of the client alone compile in a page, without those of Node.js', async (t) => {
  const folder = temporaryFolder(t);
  const { version, exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const installed = join(folder, 'node_modules/saas-backend');
  mkdirSync(installed, { recursive: true });
  const manifest = {
    name: 'saas-backend',
    version,
    type: 'module',
    exports: { './client': exports['./client'] },
  };
  writeFileSync(join(installed, 'package.json'), JSON.stringify(manifest));
  for (const part of ['dist/src/client', 'dist/generated/client', 'dist/src/core/http/user-metadata.d.ts'])
    cpSync(join(ROOT, part), join(installed, part), { recursive: true });
  copyFileSync(join(ROOT, 'test/client/fixtures/types.mts'), join(folder, 'types.mts'));
  const strictest = ['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess', '--noEmit'];
  const page = ['--target', 'es2022', '--lib', 'es2022,dom,dom.iterable', '--types', ''];
  const bundled = ['--module', 'esnext', '--moduleResolution', 'bundler', '--skipLibCheck', 'false'];
  const check = run(TSC, [...strictest, ...page, ...bundled, 'types.mts'], { cwd: folder });
  t.equal((await check.catch((error: { stdout: string }) => error)).stdout, '');
});

t.test('a page that a server has rendered for a session notices its end', async (t) => {
  const refused = { success: false, error: { code: 'UNAUTHENTICATED', message: 'Sign in first.' } };
  const open = () => {
    const client = createClient({
      ...{ baseUrl: 'https://app.example.test/api', storage: 'cookie' },
      fetch: async () => Response.json(refused, { status: 401 }),
    });
    const changes: string[] = [];
    client.onChange(({ reason }) => changes.push(reason));
    return { client, changes };
  };
  const visitor = open();
  await t.rejects(visitor.client.user.getProfile());
  t.same(visitor.changes, [], 'a visitor has no session that could end');
  visitor.client.assumeSession({ session: { id: 'ses_1' } as ActiveSession['session'] });
  await t.rejects(visitor.client.user.getProfile());
  t.same(visitor.changes, ['revoked'], 'who was signed in by the server meanwhile');
  const { client, changes } = open();
  client.assumeSession({ session: { id: 'ses_1' } as ActiveSession['session'] });
  await t.rejects(client.user.getProfile());
  t.same(changes, ['revoked']);
});
