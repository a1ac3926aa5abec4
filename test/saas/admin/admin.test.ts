import { createHash } from 'node:crypto';
import t from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { auditOf, basic, SECRETS, saasApp, storeOf } from '../../kit/app.js';

const ADMIN = { authorization: basic() };
const WRITE = { ...ADMIN, 'x-requested-with': 'test' };
const SETTINGS = '/admin/api/settings';

t.test('the overview page forbids caching, framing and scripts', async (t) => {
  const app = await saasApp(t);
  await app.signUp();
  const page = await app.request('GET', '/admin', { headers: ADMIN });
  t.equal(page.status, 200);
  t.match(page.headers, {
    'content-type': 'text/html; charset=utf-8',
    'cache-control': 'no-store',
    'x-frame-options': 'DENY',
    'cross-origin-opener-policy': 'same-origin',
    'x-content-type-options': 'nosniff',
  });
  const style = /<style>([\s\S]*?)<\/style>/.exec(page.text)?.[1] ?? '';
  const hash = createHash('sha256').update(style).digest('base64');
  const policy = page.headers['content-security-policy'];
  for (const rule of [
    "default-src 'none'",
    `style-src 'sha256-${hash}'`,
    "base-uri 'none'",
    "object-src 'none'",
    "frame-ancestors 'none'",
  ]) {
    t.match(policy, rule);
  }
  t.notMatch(policy, /script-src|unsafe/);
  t.notMatch(page.text, /<script|\son\w+=|\sstyle=|src="http/i);
  t.match(page.text, 'person1@example.test');
});

t.test('the overview estimates large numbers and says so', async (t) => {
  const app = await saasApp(t);
  await app.signUp();
  const users = userCollection(await storeOf(t, app));
  const first = await users.findOne({ email: 'person1@example.test' });
  if (!first) throw new Error('There is no user.');
  const { text: small } = await app.request('GET', '/admin', { headers: ADMIN });
  t.match(small, '>Users</a></dt><dd class="number">1</dd>');
  t.match(small, '1 in total, most on ');

  for (let from = 0; from < 12_000; from += 1000) {
    const names = Array.from({ length: 1000 }, (_, index) => `${from + index}`);
    await users.insertMany(
      names.map((name) => ({ ...first, id: `${first.id}_${name}`, email: `${name}@example.test` })),
    );
  }
  app.clock.advance(11 * 60_000);
  const { text: large } = await app.request('GET', '/admin', { headers: ADMIN });
  t.match(large, />Users<\/a><\/dt><dd class="number">about 1[12],\d00</);
  t.match(large, '10,000+ in total, most on ', 'no more than 10,000 index entries are read per day');
});

t.test('text that users entered is escaped', async (t) => {
  const app = await saasApp(t);
  const attacks = [
    '<script>alert(1)</script>',
    '"><img src=x onerror=alert(1)>',
    '{{constructor}}',
    "' onload='x",
  ];
  for (const name of attacks) await app.signUp({ name });
  const body = { siteName: '</title><script>site()</script>', version: 0 };
  t.equal((await app.request('PATCH', SETTINGS, { body, headers: WRITE })).status, 200);
  const { text } = await app.request('GET', '/admin', { headers: ADMIN });
  t.notMatch(text, /<script|<img|' onload='/);
  t.match(text, '&lt;&#x2F;title&gt;&lt;script&gt;site()');
  t.match(text, '&lt;script&gt;alert(1)&lt;&#x2F;script&gt;');
  t.match(text, '{{constructor}}');
});

t.test('a request without operator credentials is answered 401 with a challenge and audited', async (t) => {
  const app = await saasApp(t);
  const encoded = (text: string | Buffer) => `Basic ${Buffer.from(text).toString('base64')}`;
  const { adminUsername: name, adminPassword: password } = SECRETS;
  const { accessToken } = await app.signUp();
  t.equal(
    (await app.request('GET', '/api/auth/me', { headers: ADMIN })).status,
    401,
    'nor the other way round',
  );
  const refused: (string | undefined)[] = [
    undefined,
    '',
    'Basic',
    'Basic ',
    'Basic !!!!',
    'Basic =',
    `Basic ${'A'.repeat(9000)}`,
    'Bearer x',
    `Bearer ${accessToken}`,
    `Bearer ${Buffer.from(`${name}:${password}`).toString('base64')}`,
    `${encoded(`${name}:${password}`)} ${encoded('x:y')}`,
    encoded(name),
    encoded(''),
    encoded(':'),
    encoded(`${name}:`),
    encoded(`:${password}`),
    encoded(`${name}:wrong`),
    encoded(`wrong:${password}`),
    encoded(`${name}:${password.split(':')[0]}`),
    encoded(`${name}:${password}:`),
    encoded(`${name}:${password}\0`),
    encoded(`${name} :${password}`),
    encoded(`${name.toUpperCase()}:${password}`),
    encoded(Buffer.from(`${name}:${password}\xfc`, 'latin1')),
  ];
  for (const authorization of refused) {
    app.clock.advance(60_000);
    const answer = await app.request(
      'GET',
      '/admin',
      authorization === undefined ? {} : { headers: { authorization } },
    );
    t.equal(answer.status, 401, JSON.stringify(authorization)?.slice(0, 60));
    t.equal(answer.headers['www-authenticate'], 'Basic realm="admin", charset="UTF-8"');
    t.equal(answer.headers['cache-control'], 'no-store');
  }
  await app.close();
  const records = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'admin.refused');
  t.equal(records.length, 11, 'ten records and a summary');
  const attempts = records.reduce((sum, { count = 1 }) => sum + count, 0);
  t.equal(attempts, refused.length - 1, 'a visit without credentials is no attempt');
  t.match(records.at(-1), { ip: '127.0.0.1', at: app.clock.now() });
  t.notMatch(JSON.stringify(records), password.split(':')[1] as string);
});

t.test('the password may contain colons and any Unicode, and the scheme is case-insensitive', async (t) => {
  for (const adminPassword of ['a:b::c:dEf4:', 'pässwörd 💶 long enough']) {
    const app = await saasApp(t, { adminPassword });
    const authorization = basic(SECRETS.adminUsername, adminPassword);
    t.equal((await app.request('GET', '/admin', { headers: { authorization } })).status, 200);
    const lower = authorization.replace('Basic', 'basic');
    t.equal((await app.request('GET', '/admin', { headers: { authorization: lower } })).status, 200);
  }
});

t.test('a refusal is a page for browsers and JSON for programs', async (t) => {
  const app = await saasApp(t);
  const page = await app.request('GET', '/admin', { headers: { accept: 'text/html,*/*;q=0.8' } });
  t.equal(page.status, 401);
  t.match(page.headers['content-type'], 'text/html');
  t.match(page.headers['content-security-policy'], "default-src 'none'");
  const json = await app.request('GET', '/admin', { headers: { accept: '*/*' } });
  t.equal(json.body.error.code, 'UNAUTHENTICATED');
});

t.test('credentials that a browser sends by itself are not enough for a change', async (t) => {
  const app = await saasApp(t);
  const { 'x-requested-with': _, ...withoutHeader } = WRITE;
  const body = { siteName: 'Taken over', version: 0 };
  const patch = (headers: Record<string, string>, method = 'PATCH') =>
    app.request(method, SETTINGS, { body, headers });
  for (const headers of [
    withoutHeader,
    { ...WRITE, 'sec-fetch-site': 'cross-site' },
    { ...WRITE, 'sec-fetch-site': 'same-site' },
    { ...withoutHeader, 'sec-fetch-site': 'same-origin' },
  ]) {
    const answer = await patch(headers);
    t.equal(answer.status, 403, JSON.stringify(headers));
    t.equal(answer.body.error.code, 'CSRF_REJECTED');
  }
  t.equal((await patch({ ...WRITE, 'content-type': 'text/plain' })).status, 415);
  t.equal((await patch({ ...WRITE, 'content-type': 'application/x-www-form-urlencoded' })).status, 415);
  t.equal((await patch({ 'x-requested-with': 'test' })).status, 401);
  for (const method of ['POST', 'PUT', 'DELETE']) t.equal((await patch(WRITE, method)).status, 405);
  t.equal((await app.request('GET', SETTINGS, { headers: ADMIN })).body.data.version, 0, 'nothing changed');
  t.equal((await patch({ ...WRITE, 'sec-fetch-site': 'same-origin' })).status, 200);
});

t.test('the admin area can be moved or disabled', async (t) => {
  const moved = await saasApp(t, { adminPath: '/operations/room' });
  t.equal((await moved.request('GET', '/operations/room', { headers: ADMIN })).status, 200);
  t.equal((await moved.request('GET', '/admin', { headers: ADMIN })).status, 404);
  const none = await saasApp(t, { adminPath: false });
  t.equal((await none.request('GET', '/admin', { headers: ADMIN })).status, 404);
});

t.test('in production the admin area stays closed without a password', async (t) => {
  const app = await saasApp(t, {
    env: { NODE_ENV: 'production' },
    publicUrl: 'https://app.example.test',
    adminPassword: undefined as never,
  });
  for (const headers of [{}, ADMIN, { authorization: basic(SECRETS.adminUsername, '') }]) {
    const answer = await app.request('GET', '/admin', { headers });
    t.equal(answer.status, 503);
    t.equal(answer.body.error.code, 'ADMIN_NOT_CONFIGURED');
    t.match(answer.headers['retry-after'], /^\d+$/);
    t.equal(answer.headers['strict-transport-security'], 'max-age=31536000');
  }
});
