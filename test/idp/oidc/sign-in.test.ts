import t from 'tap';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { Agent, decodeEntities } from '../../kit/agent.js';
import { type Answer, auditOf, PASSWORD } from '../../kit/app.js';
import { FACTOR_KEY } from '../../kit/factors.js';
import {
  authorizePath,
  CALLBACK,
  type Credentials,
  codeIn,
  comparable,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type RegisteredClient,
} from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';

const MINUTE = 60_000;

/** The form as served, for submissions that no browser would make. */
interface Shown {
  interaction: string;
  cookie: string;
}

async function show(idp: IdpApp, client: RegisteredClient): Promise<Shown> {
  const { text, headers } = await idp.authorize(client);
  const interaction = /name="interaction" value="([\w.-]+)"/.exec(text)?.[1] ?? '';
  return { interaction, cookie: String(headers['set-cookie']).split(';', 1)[0] as string };
}

const SIGN_UP = { handle: 'ada@example.test', name: '', password: PASSWORD, password_confirm: PASSWORD };

async function openPage(url: string) {
  const browser = new Agent({ origin: url });
  return { browser, page: await browser.open(url) };
}

/** The same token with one parameter changed and the original signature. */
function withOtherState(interaction: string): string {
  const [encoded = '', tag] = interaction.split('.');
  const payload = JSON.parse(Buffer.from(encoded, 'base64url').toString());
  payload.parameters.state = 'another';
  return `${Buffer.from(JSON.stringify(payload)).toString('base64url')}.${tag}`;
}

const submit = (
  idp: IdpApp,
  { interaction, cookie }: Partial<Shown>,
  { handle, password }: Omit<Credentials, 'sub'>,
  { fields = {}, headers = {} }: { fields?: Record<string, string>; headers?: Record<string, string> } = {},
): Promise<Answer> =>
  idp.request('POST', '/authorize/login', {
    form: { ...(interaction !== undefined && { interaction }), handle, password, ...fields },
    headers: { ...(cookie !== undefined && { cookie }), ...headers },
  });

t.test('a person signs in without JavaScript and returns to the application with a code', async (t) => {
  for (const publicUrl of [ISSUER, 'http://id.example.test']) {
    const idp = await idpApp(t, { publicUrl });
    const registered = `${CALLBACK}?tenant=1`;
    const client = await idp.createClient({ redirect_uris: registered });
    const human = await idp.makeHuman();
    const { browser, page } = await idp.visit(client, { state: 'a b', scope: 'openid email' });
    t.equal(page.status, 200);
    const failed = await browser.submit(page, { handle: human.handle, password: 'wrong password' });
    t.equal(failed.status, 401);
    t.equal(failed.headers.get('www-authenticate'), null, 'browsers must not remember a password for us');
    t.equal(failed.form().fields['handle'], human.handle);
    t.match(failed.body, /role="alert"/);

    const end = await browser.submit(failed, {
      handle: ` ${human.handle.toUpperCase()} `,
      password: human.password,
    });
    t.equal(end.status, 303);
    t.match(
      end.location,
      /^https:\/\/app\.example\.test\/cb\?tenant=1&code=ac_[\w-]{75}&state=a%20b&iss=https?%3A/,
    );
    t.equal(new URL(end.location ?? '').searchParams.get('iss'), publicUrl);
    const tokens = await idp.redeem(client, codeIn(end.location));
    t.equal((await idp.userinfo(tokens.body.access_token)).body.sub, human.sub);
  }
});

t.test('the page forbids framing and caching, and its cookie is HttpOnly', async (t) => {
  const secure = await idpApp(t);
  const { headers } = await secure.authorize(await secure.createClient());
  t.match(headers['set-cookie'], /^__Host-idp=[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
  t.match(headers, {
    'cache-control': 'no-store',
    'content-type': 'text/html; charset=utf-8',
    'cross-origin-opener-policy': undefined,
    'referrer-policy': 'same-origin',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  });
  const plain = await idpApp(t, { publicUrl: 'http://localhost:8080' });
  const cookie = (await plain.authorize(await plain.createClient())).headers['set-cookie'];
  t.match(cookie, /^idp=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/, 'a browser drops Secure on http');
});

t.test('the content security policy lets the form lead to every application', async (t) => {
  const idp = await idpApp(t);
  for (const uri of ['https://app.example.test:8443/cb?x=1', 'http://[::1]:7000/cb', 'com.example.app:/cb']) {
    const { headers } = await idp.authorize(await idp.createClient({ redirect_uris: uri }));
    const policy = headers['content-security-policy']?.replace(/'sha256-[^']+'/, "'hash'");
    t.equal(
      policy,
      "default-src 'none'; style-src 'hash'; img-src data:; base-uri 'none'; object-src 'none'; frame-ancestors 'none'",
    );
  }
});

t.test('the page shows the logo of the application, and only its origin may serve images', async (t) => {
  const idp = await idpApp(t);
  const policyOf = (answer: Answer) =>
    /img-src [^;]*/.exec(answer.headers['content-security-policy'] ?? '')?.[0];
  const open = async (client: RegisteredClient) =>
    idp.request('GET', authorizePath(client), { headers: { accept: 'text/html' } });
  const plain = await open(await idp.createClient());
  t.equal(policyOf(plain), 'img-src data:');
  t.notMatch(plain.text, '<img');
  const logo = await open(await idp.createClient({ logo_uri: 'https://cdn.example:8443/a.png?b=1&c=%22' }));
  t.equal(policyOf(logo), 'img-src data: https://cdn.example:8443');
  t.match(
    logo.text.replaceAll('&#x2F;', '/').replaceAll('&#x3D;', '='),
    '<img class="client-logo" src="https://cdn.example:8443/a.png?b=1&amp;c=%22" alt="" width="48" height="48" referrerpolicy="no-referrer">',
  );
  for (const logo_uri of [
    ...['http://cdn.example/a.png', 'javascript:alert(1)', '//cdn.example/a.png', 'https://a:b@cdn.example/'],
    ...['https://cdn.example; script-src *', 'https://cdn.example/#a', 'https://x"onerror=1/', 'logo.png'],
  ]) {
    const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: CALLBACK, logo_uri });
    t.match(answer, { status: 400, text: 'logo_uri' }, logo_uri);
  }
});

t.test('the page shows the application and the requested claims, all escaped', async (t) => {
  const idp = await idpApp(t);
  const name = `<img src=x onerror=alert(1)>"'&{{title}}{{{style}}}`;
  const client = await idp.createClient({ name });
  const hint = '"><script>alert(1)</script>';
  const { text } = await idp.authorize(client, undefined, {
    login_hint: hint,
    scope: 'openid email',
    state: hint,
  });
  t.notMatch(text, /<img|<script|onerror=alert\(1\)>|cb\?/);
  t.match(text, '&lt;img src&#x3D;x onerror&#x3D;alert(1)&gt;&quot;&#39;&amp;{{title}}{{{style}}}');
  t.match(text, '<code>app.example.test</code>');
  t.match(text, 'your e-mail address');
  t.notMatch(text, 'your name and user name');
  const { page } = await idp.visit(client, { login_hint: hint });
  t.equal(page.form().fields['handle'], hint, 'the hint is filled in as it came');

  const nameless = await idp.createClient({ name: undefined });
  t.match((await idp.authorize(nameless)).text, '<strong>app.example.test</strong>');
});

t.test('a request without a known scope receives the account ID, and the page says so', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  for (const scope of [undefined, '', ' ', 'unknown', 'api:read  OpenID', 'openid\temail']) {
    const { body } = await idp.redeem(client, await idp.codeFor(client, agent, { scope }));
    t.match(body, { scope: 'openid', id_token: String }, `${scope}`);
    t.same((await idp.userinfo(body.access_token)).body, {
      sub: agent.sub,
      kind: 'agent',
      sub_profile: 'ai_agent',
    });
  }
  const plain = await idp.redeem(client, await idp.codeFor(client, agent, { scope: 'unknown email' }));
  t.match(plain.body, { scope: 'email', id_token: undefined }, 'nothing is added to what is known');
  const { text } = await idp.authorize(client, undefined, { scope: 'unknown' });
  t.match(text, 'your account ID');
  t.notMatch(text, /your (name|e-mail)/);
});

t.test('an agent fails at the form exactly as a wrong password does', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const [minted, human] = [await idp.mintAgent(), await idp.makeHuman()];
  const body = { handle: 'self@example.test', password: PASSWORD, kind: 'agent' };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body })).body;
  const shown = await show(idp, client);
  const wrong = 'wrong password';
  const tries: Omit<Credentials, 'sub'>[] = [
    minted,
    { ...minted, password: wrong },
    body,
    { ...body, password: wrong },
  ];
  tries.push({ ...human, password: wrong }, { handle: 'nobody@example.test', password: wrong });
  const answers: Answer[] = [];
  for (const who of tries) {
    idp.clock.advance(1);
    answers.push(await submit(idp, shown, who));
  }
  t.match(answers[0], { status: 401, text: 'The user name or password is incorrect.' });
  t.strictSame(comparable(answers[0] as Answer), comparable(answers[1] as Answer), 'byte for byte');
  // The form shows the submitted handle; the rest of the page is identical.
  const [first, ...others] = answers.map((answer, index) => {
    const headers = { ...answer.headers, 'content-length': undefined };
    const text = answer.text.replace(`value="${tries[index]?.handle}"`, 'value=""');
    return comparable({ ...answer, headers, text });
  });
  for (const other of others) t.strictSame(other, first);
  idp.clock.advance(1);
  t.equal((await submit(idp, shown, human)).status, 303, 'and the form goes on working');

  const events = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event.startsWith('login.'));
  t.same(
    events.map(({ event, subject }) => [event, subject]),
    [
      ...Array(2).fill(['login.failed', minted.sub]),
      ...Array(2).fill(['login.failed', sub]),
      ['login.failed', human.sub],
      ['login.failed', undefined],
      ['login.succeeded', human.sub],
    ],
    'only the audit knows the difference',
  );
  t.ok(
    events.every(({ detail }) => detail === client.id),
    'with the application',
  );
});

t.test('a form is accepted only from the browser that it was shown in', async (t) => {
  const idp = await idpApp(t);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const [mine, foreign] = [await show(idp, client), await show(idp, client)];
  t.not(mine.cookie, foreign.cookie);
  const refused = [
    await submit(idp, { interaction: mine.interaction }, human),
    await submit(idp, { interaction: mine.interaction, cookie: foreign.cookie }, human),
    await submit(idp, { interaction: foreign.interaction, cookie: mine.cookie }, human),
    await submit(idp, { interaction: mine.interaction, cookie: '__Host-idp=' }, human),
    await submit(idp, { interaction: mine.interaction, cookie: mine.cookie.replace('__Host-', '') }, human),
    await submit(idp, { interaction: 'x'.repeat(43), cookie: mine.cookie }, human),
    await submit(idp, { interaction: '', cookie: mine.cookie }, human),
    await submit(idp, { interaction: mine.interaction.slice(0, -1), cookie: mine.cookie }, human),
    await submit(idp, { interaction: `${mine.interaction}.x`, cookie: mine.cookie }, human),
    await submit(idp, { interaction: mine.interaction.replace(/\..*/, ''), cookie: mine.cookie }, human),
    await submit(idp, { interaction: withOtherState(mine.interaction), cookie: mine.cookie }, human),
    await submit(idp, mine, human, { headers: { 'sec-fetch-site': 'cross-site' } }),
  ];
  for (const answer of refused) {
    t.match(answer, { status: 403, body: { error: 'login_rejected' } });
    t.equal(answer.headers['location'], undefined);
  }
  t.match(await submit(idp, { cookie: mine.cookie }, human), { status: 400 });
  t.equal((await submit(idp, mine, human, { headers: { 'sec-fetch-site': 'same-origin' } })).status, 303);

  idp.clock.advance(15 * MINUTE);
  t.equal((await submit(idp, foreign, human)).status, 403, 'a form is good for 15 minutes');
});

t.test('a form that was open for too long stays a form, which still leads to its destination', async (t) => {
  const idp = await idpApp(t, { publicUrl: undefined });
  const [client, { handle, password }] = [await idp.createClient(), await idp.makeHuman()];
  const origin = await idp.listen();
  const expired = [
    [await idp.visit(client, { state: 'x' }), { handle, password }, /\/cb\?code=ac_.*state=x/],
    [await idp.visit(client, { prompt: 'create', state: 'x' }), SIGN_UP, /\/cb\?code=ac_.*state=x/],
    [await openPage(`${origin}/account`), { handle, password }, /\/account$/],
    [await openPage(`${origin}/account/sign-up`), { ...SIGN_UP, handle: 'bob@example.test' }, /\/account$/],
  ] as const;
  idp.clock.advance(16 * MINUTE);
  for (const [{ browser, page }, fields, destination] of expired) {
    const again = await browser.send(page, fields);
    t.equal(again.status, 403);
    t.match(again.body, sentence('sign-in.expired'));
    t.equal(again.form().fields['handle'], fields.handle, 'what was typed stays, except the password');
    t.notMatch(again.body, password);
    const done = await browser.send(again, fields);
    t.equal(done.status, 303);
    t.match(done.location, destination);
  }

  const { browser } = expired[0][0];
  const consent = await browser.open(`${origin}${authorizePath(client, { prompt: 'consent' })}`);
  idp.clock.advance(16 * MINUTE);
  t.match((await browser.send(consent)).body, 'value="deny"', 'a consent is asked for again');
});

t.test('two tabs of one browser share its cookie, and a planted cookie is not adopted', async (t) => {
  const idp = await idpApp(t);
  const [client, { handle, password }] = [await idp.createClient(), await idp.makeHuman()];
  const { browser, page } = await idp.visit(client);
  const cookies = browser.cookies();
  const second = await browser.open(page.url);
  t.same(browser.cookies(), cookies);
  for (const tab of [page, second]) t.equal((await browser.submit(tab, { handle, password })).status, 303);

  const planted = await idp.request('GET', authorizePath(client), {
    headers: { cookie: '__Host-idp=short' },
  });
  t.notMatch(planted.headers['set-cookie'], /=short/);
});

t.test('the authorization request stays on the server and is validated again', async (t) => {
  const idp = await idpApp(t);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const shown = await show(idp, client);
  const fields = { redirect_uri: 'https://evil.test/cb', client_id: 'cid_0', state: 'evil', scope: 'email' };
  const { headers } = await submit(idp, shown, human, { fields });
  t.match(headers['location'], /^https:\/\/app\.example\.test\/cb\?code=ac_[\w-]{75}&iss=[^&]*$/);

  const late = await show(idp, client);
  const clients = clientCollection(await idpStore(t, idp));
  await clients.updateOne({ id: client.id }, { set: { redirectUris: ['https://app.example.test/new'] } });
  t.match(await submit(idp, late, human), { status: 400, headers: { location: undefined } });
  await clients.deleteOne({ id: client.id });
  t.match(await submit(idp, late, human), { status: 400, headers: { location: undefined } });
});

t.test('a form submitted twice leads to the application', async (t) => {
  const idp = await idpApp(t);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const shown = await show(idp, client);
  const answers = await Promise.all([submit(idp, shown, human), submit(idp, shown, human)]);
  answers.push(await submit(idp, shown, human));
  for (const { status, headers } of answers) {
    t.equal(status, 303);
    t.equal((await idp.redeem(client, codeIn(headers['location']))).status, 200);
  }
});

t.test('a page says that an application is for agents only before a person types a password', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient({ name: 'Robots', principal_kinds: ['agent'] });
  for (const more of [{}, { prompt: 'create' }, { prompt: 'login' }]) {
    const { browser, page } = await idp.visit(client, { state: 's', ...more });
    t.equal(page.status, 403);
    t.match(page.body, /<h1>For agents only<\/h1>[\s\S]*Robots[\s\S]*app\.example\.test/);
    t.notMatch(page.body, /<form|type="password"/);
    const [, back = ''] = /class="button" href="([^"]*)"/.exec(page.body) ?? [];
    t.match(decodeEntities(back), /^https:\/\/app\.example\.test\/cb\?error=access_denied&.*state=s&iss=/);
    t.same(browser.cookies(), {});
  }
  t.equal((await idp.authorize(client, await idp.mintAgent())).status, 302, 'agents sign in as before');
});

t.test('principals that a client no longer admits are refused at the application', async (t) => {
  const idp = await idpApp(t);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const { browser, page } = await idp.visit(client, { state: 's' });
  const clients = clientCollection(await idpStore(t, idp));
  await clients.updateOne({ id: client.id }, { set: { principalKinds: ['agent'] } });
  const end = await browser.submit(page, { handle: human.handle, password: human.password });
  t.equal(end.status, 303);
  t.match(end.location, /^https:\/\/app\.example\.test\/cb\?error=access_denied&.*state=s&iss=/);
  t.notOk('__Host-idp-session' in browser.cookies(), 'and no session starts');
});

t.test('a person cancels at every form of the sign-in', async (t) => {
  const idp = await idpApp(t, {
    ...{ factorEncryptionKey: FACTOR_KEY, secondFactor: 'required', secondFactorGraceDays: 0 },
  });
  const client = await idp.createClient();
  const { handle, password } = await idp.makeHuman();
  const { browser, page } = await idp.visit(client, { state: 's' });
  const signUp = await browser.open((await idp.listen()) + authorizePath(client, { prompt: 'create' }));
  for (const form of [page, signUp, await browser.submit(page, { handle, password })]) {
    t.match(form.body, />Cancel</);
    const { status, location } = await browser.submit(form, {}, '/authorize/consent');
    t.match([status, location], [303, /^https:\/\/app\.example\.test\/cb\?error=access_denied&/]);
  }
  const account = await browser.open(`${await idp.listen()}/account`);
  t.notMatch(account.body, />Cancel</, 'at a page of the provider there is nobody to tell');
});
