import t, { type Test } from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { auditOf, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { comparable } from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';
import { CHANGED, mailedApp, RESET, VERIFY } from './kit.js';

const MINUTE = 60_000;
const NEW = 'a different sentence entirely';

/** The templates of the stored mails. */
async function templatesOf(t: Test, app: SaasApp): Promise<string[]> {
  const { items } = await mailCollection(await storeOf(t, app)).page({ sort: 'id', limit: 20 });
  return items.map(({ template }) => template).sort();
}

t.test('forgot-password answers every address alike, before it looks up the account', async (t) => {
  const app = await mailedApp(t);
  const known = await app.signUp();
  const closed = await app.signUp();
  const users = userCollection(await storeOf(t, app));
  await users.updateOne({ id: closed.id }, { set: { suspendedAt: 1 } });
  const answers = [];
  for (const email of [known.email, known.email.toUpperCase(), 'nobody@example.test', closed.email]) {
    answers.push(comparable(await app.post('/auth/forgot-password', { email })));
  }
  t.match(answers[0], { status: 200 });
  for (const answer of answers) t.same(answer, answers[0]);
  const first = await app.mail(RESET);
  t.strictSame(first.to, [known.email]);
  t.strictSame((await app.mail(RESET)).to, [known.email]);
  await app.close();
  t.notOk(app.sink.mails.some(({ to }) => to.includes('nobody@example.test')));
  t.equal(app.sink.mails.filter(({ to }) => to.includes(closed.email)).length, 1, 'only its welcome');
});

t.test('a mail server that is down or slow changes no answer, and a stop waits for the lookup', async (t) => {
  const app = await mailedApp(t, { emailSmtpUrl: 'smtp://127.0.0.1:9' });
  const { email } = await app.signUp();
  t.equal((await app.post('/auth/forgot-password', { email })).status, 200);
  await app.close();
  t.same(await templatesOf(t, app), ['password-reset', 'welcome'], 'it was queued before the store closed');
});

const AGENTS = {
  Firefox: 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0',
  Chrome: 'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/139.0.0.0 Safari/537.36',
  Edge: 'Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/139.0.0.0 Safari/537.36 Edg/139.0.0.0',
  Opera: 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/138.0.0.0 Safari/537.36 OPR/122.0.0.0',
  'Samsung Internet':
    'Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36',
  Safari: 'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/18.6 Safari/605.1.15',
  '': 'curl/8.5.0 {{link}} <b>secret-agent</b>',
};

/** The lines of a mail about the origin of a request, and what begins the next paragraph. */
function block(ipAddress: string, browser: string, next = ''): RegExp {
  const lines = [
    sentence('mail.origin.when'),
    sentence('mail.origin.address', { ipAddress }),
    ...(browser ? [sentence('mail.origin.browser', { browser })] : []),
  ];
  return new RegExp(`\\n\\n${lines.map(({ source }) => `${source}\\n`).join('')}\\n${next}`);
}

t.test('security e-mails say when and from where: an address block and a family of browsers', async (t) => {
  const app = await mailedApp(t);
  const { accessToken } = await app.signUp();
  for (const [family, agent] of Object.entries(AGENTS)) {
    const { email } = await app.signUp();
    const source = { headers: { 'user-agent': agent }, from: '2001:db8:1:2:3:4:5:6' };
    await app.post('/auth/forgot-password', { email }, source);
    const { text } = await app.mail(RESET);
    const title = `${sentence('mail.password-reset.title').source}:`;
    t.match(text, block('2001:db8:1:2::/64', family, title), family);
    t.match(text, / \d+ \w+ \d{4} at \d\d:\d\d UTC\n/);
    t.notMatch(text, /Mozilla|curl|secret-agent|3:4:5:6/);
  }
  const stored = await mailCollection(await storeOf(t, app)).page({ sort: 'id', limit: 100 });
  t.notMatch(JSON.stringify(stored), /Mozilla|curl/);
  const source = { headers: { 'user-agent': AGENTS.Firefox }, from: '203.0.113.7' };
  const change = { currentPassword: PASSWORD, newPassword: NEW };
  await app.post('/user/password', change, { token: accessToken, ...source });
  t.match((await app.mail(CHANGED)).text, block('203.0.113.7', 'Firefox'));
});

t.test('the link begins with PUBLIC_URL and is sent only to the stored address', async (t) => {
  const app = await mailedApp(t, { publicUrl: 'https://app.example.test/shop' });
  const { email } = await app.signUp();
  const evil = { host: 'evil.test', 'x-forwarded-host': 'evil.test', forwarded: 'host=evil.test' };
  await app.post('/auth/forgot-password', { email: email.toUpperCase() }, { headers: evil });
  const mail = await app.mail(RESET);
  t.strictSame(mail.to, [email]);
  t.match(
    mail.text,
    /\nhttps:\/\/app\.example\.test\/shop\/api\/auth\/reset-password\?token=usr_\w+\.[\w-]{43}\n/,
  );
  t.notMatch(mail.text, /evil/);
  for (const wrong of [
    `${email},evil@evil.test`,
    `${email}\r\nBcc: evil@evil.test`,
    'péter@example.test',
    '',
  ]) {
    t.equal((await app.post('/auth/forgot-password', { email: wrong })).status, 400, wrong);
  }
  const elsewhere = await mailedApp(t, { resetUrlRelative: 'new?lang=en', sink: app.sink });
  const other = await elsewhere.signUp();
  await elsewhere.post('/auth/forgot-password', { email: other.email });
  t.match((await app.mail(RESET)).text, /\nhttp:\/\/app\.example\.test\/new\?lang=en&token=usr_/);
});

t.test('a throttled page of a link shows its form again', async (t) => {
  const app = await mailedApp(t, { limits: true });
  const pages = { 'reset-password': { password: NEW }, 'verify-email': { password: NEW }, unlock: {} };
  const submit = (name: string, fields: object, accept = 'text/html') =>
    app.request('POST', `/api/auth/${name}`, {
      body: new URLSearchParams({ token: 'usr_x.y', ...fields }).toString(),
      headers: { 'content-type': 'application/x-www-form-urlencoded', 'accept-language': 'de', accept },
    });
  for (let count = 0; count < 30; count++) t.equal((await submit('unlock', {})).status, 400);
  for (const [name, fields] of Object.entries(pages)) {
    const refused = await submit(name, fields);
    t.match(refused, { status: 429, headers: { 'retry-after': '60', 'content-language': 'de' } }, name);
    t.match(refused.text, /<form method="post"[\s\S]*name="token" value="usr_x.y"/, name);
    t.notMatch(refused.text, NEW, 'passwords are not repeated');
  }
});

t.test(
  'mails are in the language of the browser at the registration, or else in the default one',
  async (t) => {
    const app = await mailedApp(t, { defaultLocale: 'ar' });
    const titles = { 'de-AT,de;q=0.9,en;q=0.1': /^Willkommen bei SaaS\n/, fr: /^مرحبًا بك في SaaS\n/ };
    for (const [language, title] of Object.entries(titles)) {
      const body = { email: `${language.slice(0, 2)}@example.test`, password: PASSWORD };
      await app.post('/auth/register', body, { headers: { 'accept-language': language } });
      t.match((await app.nextMail()).text, title);
    }
    await app.post('/auth/forgot-password', { email: 'de@example.test' });
    t.match((await app.nextMail()).text, /^Neues Passwort wählen\n/, 'later mails, too');
  },
);

t.test(
  'an account receives three e-mails in 15 minutes, and a source may ask ten times an hour',
  async (t) => {
    const app = await mailedApp(t, { limits: true });
    const { email } = await app.signUp();
    for (let count = 0; count < 10; count++) {
      t.equal((await app.post('/auth/forgot-password', { email })).status, 200);
    }
    const refused = await app.post('/auth/forgot-password', { email });
    t.equal(refused.status, 429);
    t.ok(refused.headers['retry-after']);
    t.equal((await app.post('/auth/forgot-password', { email }, { from: '192.0.2.7' })).status, 200);
    await app.close();
    const resets = (await templatesOf(t, app)).filter((template) => template === 'password-reset');
    t.equal(resets.length, 3);
  },
);

t.test('requests for one kind of link do not use up the limit of another kind', async (t) => {
  const app = await mailedApp(t, { limits: true });
  const { email } = await app.signUp();
  for (let count = 0; count < 4; count++) {
    await app.post('/auth/resend-verification', { email }, { from: '192.0.2.66' });
  }
  await app.post('/auth/forgot-password', { email });
  t.ok(await app.tokenIn(RESET));
});

t.test('a link that is not sent does not replace one that was sent', async (t) => {
  const app = await mailedApp(t, { limits: true });
  const { accessToken: token } = await app.signUp();
  const change = { email: 'new@example.test', password: PASSWORD };
  const links: string[] = [];
  for (let count = 0; count < 3; count++) {
    await app.post('/user/email', change, { token });
    links.push(await app.tokenIn(VERIFY));
  }
  t.equal((await app.post('/user/email', change, { token })).status, 202);
  const followed = await app.post('/auth/verify-email', { token: links[2] }, { token });
  t.equal(followed.status, 200);
});

t.test('requests for an address without an account do not use up its limit', async (t) => {
  const app = await mailedApp(t, { limits: true, requireEmailVerification: true });
  const person = { email: 'ada@example.test', password: PASSWORD };
  for (let count = 0; count < 3; count++) {
    await app.post('/auth/resend-verification', person, { from: '192.0.2.66' });
  }
  t.equal((await app.post('/auth/register', person)).status, 202);
  const link = await app.tokenIn(VERIFY);
  t.equal((await app.post('/auth/verify-email', { token: link, password: PASSWORD })).status, 200);
});

t.test('a link works once within an hour, and a newer link or a new password voids it', async (t) => {
  const app = await mailedApp(t);
  const account = await app.signUp();
  const { email } = account;
  const ask = async () => {
    await app.post('/auth/forgot-password', { email });
    return app.tokenIn(RESET);
  };
  const reset = (token: string, password = NEW) => app.post('/auth/reset-password', { token, password });
  const older = await ask();
  const newest = await ask();
  t.match(await reset(older), { status: 400, body: { error: { code: 'INVALID_TOKEN' } } });
  const stored = await userCollection(await storeOf(t, app)).findOne({ email });
  t.notOk(JSON.stringify(stored).includes(newest.split('.')[1] ?? newest), 'the store keeps its hash only');

  const end = stored?.resetExpiresAt ?? 0;
  t.ok(Math.abs(end - app.clock.now() - 60 * MINUTE) < MINUTE);
  app.clock.set(end);
  t.equal((await reset(newest)).status, 400, 'an hour is over');
  app.clock.set(end - 1);
  t.match((await reset(newest, 'short')).body.error.code, 'VALIDATION_ERROR');
  const answer = await reset(newest);
  t.match(answer, { status: 200, body: { success: true, message: /changed/ } });
  t.notOk('data' in answer.body, 'the link does not sign in');
  t.equal((await reset(newest, PASSWORD)).status, 400);
  t.equal((await reset(newest)).status, 200, 'repeated, without another effect');
  t.equal(await app.me(account), 401, 'sessions have ended');
  t.equal((await app.post('/auth/refresh', { refreshToken: account.refreshToken })).status, 401);
  t.equal((await app.post('/auth/login', { email, password: PASSWORD })).status, 401);
  const login = await app.post('/auth/login', { email, password: NEW });
  t.equal(login.status, 200);
  t.equal(login.body.data.user.emailVerified, true, 'who follows a mailed link has the mailbox');
  t.strictSame((await app.mail(CHANGED)).to, [email]);

  const pending = await ask();
  const { accessToken: token } = login.body.data;
  await app.post('/user/password', { currentPassword: NEW, newPassword: PASSWORD }, { token });
  t.equal((await reset(pending)).status, 400, 'a new password voids what was sent before');
  const events = (await auditOf(await storeOf(t, app))).map(({ event }) => event);
  t.ok(events.includes('password.forgotten') && events.includes('password.reset'));
});

t.test('a token of another account or another kind is refused before any hashing', async (t) => {
  const app = await mailedApp(t);
  const [mine, other] = [await app.signUp(), await app.signUp()];
  await app.post('/auth/resend-verification', { email: mine.email });
  const verification = await app.tokenIn(VERIFY);
  await app.post('/auth/forgot-password', { email: mine.email });
  const token = await app.tokenIn(RESET);
  const [, secret = ''] = token.split('.');
  const refused = async (given: unknown) =>
    (await app.request('POST', '/api/auth/reset-password', { body: { token: given, password: NEW } })).status;
  for (const given of [
    verification,
    `${other.id}.${secret}`,
    `${mine.id}.`,
    secret,
    mine.accessToken,
    'x',
    ' ',
  ])
    t.equal(await refused(given), 400, String(given));
  for (const given of ['', null, 7, {}, [token], undefined]) t.equal(await refused(given), 400);
  t.equal((await app.request('POST', '/api/auth/reset-password')).status, 400);
  t.equal((await app.post('/auth/verify-email', { token })).status, 400, 'nor the other way round');
  t.equal(await refused(token), 200);
});

t.test(
  'GET does not consume the link; a form is answered with a page, an application with JSON',
  async (t) => {
    const app = await mailedApp(t);
    const { email } = await app.signUp();
    await app.post('/auth/forgot-password', { email });
    const token = await app.tokenIn(RESET);
    const path = `/api/auth/reset-password?token=${token}`;
    for (const method of ['GET', 'HEAD', 'GET']) await app.request(method, path);
    const page = await app.request('GET', path);
    t.equal(page.status, 200);
    t.match(page.headers['content-type'], /^text\/html/);
    t.match(page.headers['content-security-policy'], /^default-src 'none'; style-src 'sha256-/);
    t.equal(page.headers['cache-control'], 'no-store');
    t.equal(page.headers['referrer-policy'], 'same-origin');
    t.notMatch(page.text, /<script|https?:\/\//);
    t.match(page.text, `value="${token}"`);

    const submit = (fields: Record<string, string>) =>
      app.request('POST', '/api/auth/reset-password', {
        body: new URLSearchParams(fields).toString(),
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      });
    const html = { 'content-type': /^text\/html/ };
    const short = await submit({ token, password: 'short' });
    t.match(short, { status: 400, headers: html, text: sentence('password.short') });
    t.match(short.text, /<form[\s\S]*role="alert"[\s\S]*aria-invalid="true"/);
    const hostile = await submit({ token: `"><script>`, password: NEW });
    t.match(hostile, { status: 400, headers: html });
    t.notMatch(hostile.text, /<script/);
    t.match(await submit({ token, password: NEW }), { status: 200, headers: html });
    t.match(await submit({ token, password: PASSWORD }), { status: 400, headers: html }, 'used');
    const body = { token, password: PASSWORD };
    const json = await app.post('/auth/reset-password', body, { headers: { accept: 'text/html' } });
    t.match(json.headers['content-type'], /^application\/json/, 'JSON is answered with JSON');
    t.equal((await app.post('/auth/login', { email, password: NEW })).status, 200);
    t.equal((await app.request('GET', '/api/auth/reset-password')).status, 400);
  },
);

t.test('without a mail server production gives the same answer and stores no working link', async (t) => {
  const app = await saasApp(t, {
    env: { NODE_ENV: 'production' },
    publicUrl: 'https://app.example.test',
    emailSmtpUrl: undefined as never,
  });
  const { email } = await app.signUp();
  t.equal((await app.post('/auth/forgot-password', { email })).status, 200);
  await app.close();
  const { items } = await mailCollection(await storeOf(t, app)).page({ sort: 'id', limit: 10 });
  t.equal(items.length, 2);
  for (const mail of items.filter(({ status }) => status !== 'queued'))
    t.notOk('values' in mail || 'content' in mail);
});
