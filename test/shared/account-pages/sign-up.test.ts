import t from 'tap';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { Agent, decodeEntities } from '../../kit/agent.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { claimsOf, codeIn, type IdpApp, idpApp, idpStore, type RegisteredClient } from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';
import { browse, HERE } from './kit.js';

/** The form with which people create an account. */

const ADA = { handle: 'ada@example.test', name: 'Ada', password: PASSWORD, password_confirm: PASSWORD };

/** Follows the link of the sign-in form. */
async function visitSignUp(idp: IdpApp, client: RegisteredClient, more: Record<string, string> = {}) {
  const { browser, page } = await idp.visit(client, more);
  const [, link = ''] = /<a href="([^"]*prompt[^"]*create[^"]*)">Create an account/.exec(page.body) ?? [];
  return { browser, page: await browser.open(new URL(decodeEntities(link), page.url).href) };
}

t.test('a person signs up within a request of an application and continues to it', async (t) => {
  const idp = await idpApp(t, HERE);
  const [client, other] = [await idp.createClient({ name: 'Shop' }), await idp.createClient()];
  const more = { state: 'a b', scope: 'openid profile', nonce: 'n1' };
  const { browser, page } = await visitSignUp(idp, client, more);
  t.equal(page.status, 200);
  t.match(
    page.body,
    /<h1>Create an account[\s\S]*Shop[\s\S]*app\.example\.test[\s\S]*your name and user name/,
  );
  t.match(
    page.headers.get('content-security-policy'),
    /default-src 'none'; (?!.*form-action).*frame-ancestors 'none'/,
  );
  const end = await browser.submit(page, ADA);
  t.match(end, { status: 303, location: /^https:\/\/app\.example\.test\/cb\?code=ac_.*state=a%20b&iss=/ });
  const claims = claimsOf((await idp.redeem(client, codeIn(end.location))).body.id_token);
  t.match(claims, { kind: 'human', name: 'Ada', preferred_username: ADA.handle, nonce: 'n1', sid: /^sid_/ });

  const origin = await idp.listen();
  const authorize = (id: RegisteredClient, scope: string) =>
    browser.open(
      `${origin}/authorize?client_id=${id.id}&redirect_uri=${id.redirectUri}&response_type=code&scope=${scope}`,
    );
  t.equal((await authorize(client, 'openid profile')).status, 302, 'what the form named is allowed');
  t.match((await authorize(client, 'openid email')).body, 'value="deny"', 'and nothing else');
  t.match((await authorize(other, 'openid')).body, 'value="deny"', 'at no other application');
  t.match(
    (await auditOf(await idpStore(t, idp)))
      .filter(({ subject }) => subject === claims.sub)
      .map(({ event }) => event),
    ['account.registered', 'login.succeeded'],
  );
  const account = await browse(idp);
  const own = await account.browser.submit(await account.get('/sign-up'), { ...ADA, handle: 'eve' });
  t.equal(new URL(own.url).pathname, '/account', 'without an application');
});

t.test('an application asks for the form by prompt=create, also of a person who is signed in', async (t) => {
  const idp = await idpApp(t, HERE);
  t.match((await idp.request('GET', '/.well-known/openid-configuration')).body, {
    prompt_values_supported: ['none', 'login', 'consent', 'select_account', 'create'],
  });
  const client = await idp.createClient();
  const { browser, page } = await idp.visit(client, { prompt: 'create', login_hint: 'bob@example.test' });
  t.match(page.body, 'value="bob@example.test"');
  const [, back = ''] = /<a href="([^"]*)">Sign in/.exec(page.body) ?? [];
  t.match(await browser.open(new URL(decodeEntities(back), page.url).href), {
    status: 200,
    body: '<h1>Sign in',
  });
  t.ok(codeIn((await browser.submit(page, ADA)).location));
  const origin = await idp.listen();
  const again = `${origin}/authorize?client_id=${client.id}&redirect_uri=${client.redirectUri}&response_type=code&prompt=create`;
  const second = await browser.open(again);
  t.match(second.body, '<h1>Create an account');
  const code = codeIn((await browser.submit(second, { ...ADA, handle: 'eve@example.test' })).location);
  t.match((await idp.redeem(client, code)).body, { id_token: /./ });
});

t.test(
  'the form has the rules of POST /v1/accounts, and keeps what was typed except passwords',
  async (t) => {
    const idp = await idpApp(t, HERE);
    await idp.makeHuman({ handle: 'taken@example.test' });
    const { browser, page } = await idp.visit(await idp.createClient(), { prompt: 'create' });
    const table: [Record<string, string>, number, RegExp, string][] = [
      [
        { handle: 'taken@example.test', password: 'another one', password_confirm: 'another one' },
        409,
        sentence('invite.handle-taken'),
        'handle',
      ],
      [{ handle: 'u_123' }, 400, sentence('invite.handle-invalid'), 'handle'],
      [{ name: '\u202eada' }, 422, sentence('account.name-invalid'), 'name'],
      [{ password_confirm: 'different' }, 422, sentence('password.differ'), 'password'],
      [{ password: `agp_${PASSWORD}`, password_confirm: `agp_${PASSWORD}` }, 400, /agp_/, 'password'],
    ];
    for (const [fields, status, problem, field] of table) {
      const rejected = await browser.submit(page, { ...ADA, ...fields });
      t.equal(rejected.status, status, JSON.stringify(fields));
      t.match(rejected.body, problem);
      t.match(rejected.body, new RegExp(`id="${field}"[^>]*aria-invalid="true"`), field);
      t.notMatch(rejected.body, /value="(a sentence|another one|different|short|agp_)/);
    }
    t.equal(
      (await browser.submit(page, { ...ADA, handle: ' ada@example.test ' })).status,
      303,
      'spaces are removed',
    );
  },
);

t.test('production refuses common and personal passwords at sign-up', async (t) => {
  const idp = await idpApp(t, { env: { NODE_ENV: 'production' } });
  const { browser, page } = await idp.visit(await idp.createClient(), { prompt: 'create' });
  for (const [password, problem] of [
    ['password1', sentence('password.common')],
    [ADA.handle, sentence('password.personal')],
  ] as const) {
    const rejected = await browser.submit(page, { ...ADA, password, password_confirm: password });
    t.equal(rejected.status, 422);
    t.match(rejected.body, problem);
  }
});

t.test('where sign-up is not open, no page offers it, and its address says whom to ask', async (t) => {
  const idp = await idpApp(t, { ...HERE, disableSignup: true });
  t.notMatch((await idp.request('GET', '/.well-known/openid-configuration')).text, 'create');
  const client = await idp.createClient();
  const { page, browser } = await idp.visit(client);
  t.notMatch(page.body, sentence('sign-in.sign-up'));
  const { get } = await browse(idp);
  for (const closed of [
    await get('/sign-up'),
    (await idp.visit(client, { prompt: 'create', state: 's' })).page,
  ]) {
    t.equal(closed.status, 403);
    t.match(closed.body, /<h1>Sign-up is closed[\s\S]*Ask the operator of[\s\S]*class="button"[^>]*>Sign in/);
    t.notMatch(closed.body, '<form');
  }
  const { interaction = '' } = page.form().fields;
  const cookie = `idp=${browser.cookies()['idp']}`;
  for (const form of [{ ...ADA, interaction }, {}]) {
    const answer = await idp.request('POST', '/authorize/sign-up', {
      form: form as Record<string, string>,
      headers: { cookie },
    });
    t.match(answer, { status: 403, body: { error: 'signup_disabled' } });
  }
  const principals = principalCollection(await idpStore(t, idp));
  t.equal(await principals.count(), 0);
});

t.test('only the browser that was shown the form signs up with it', async (t) => {
  const idp = await idpApp(t, HERE);
  const client = await idp.createClient();
  const { browser, page } = await idp.visit(client, { prompt: 'create' });
  const { interaction = '' } = page.form().fields;
  const cookie = `idp=${browser.cookies()['idp']}`;
  const post = (fields: Record<string, string>, headers: Record<string, string>) =>
    idp.request('POST', '/authorize/sign-up', { form: { ...ADA, interaction, ...fields }, headers });
  t.match(await post({}, {}), { status: 403, body: { error: 'login_rejected' } });
  t.match(await post({}, { cookie: 'idp=x' }), { status: 403 });
  t.match(await post({ interaction: 'x' }, { cookie }), { status: 403 });
  t.match(await post({}, { cookie, 'sec-fetch-site': 'cross-site' }), { status: 403 });
  idp.clock.advance(15 * 60_000 + 1);
  t.match(await post({}, { cookie }), { status: 403 }, 'it expires');
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 0);
});

t.test('a form submitted twice leads to the application with one account', async (t) => {
  const idp = await idpApp(t, HERE);
  const client = await idp.createClient();
  const { browser, page } = await idp.visit(client, { prompt: 'create' });
  const answers = await Promise.all([browser.send(page, ADA), browser.send(page, ADA)]);
  const subs = await Promise.all(
    answers.map(
      async ({ location }) => claimsOf((await idp.redeem(client, codeIn(location))).body.id_token).sub,
    ),
  );
  t.equal(new Set(subs).size, 1);
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 1);
});

t.test('a wrong password for an existing account is recorded as a failed sign-in', async (t) => {
  const idp = await idpApp(t, HERE);
  await idp.makeHuman({ handle: ADA.handle });
  const { browser, page } = await idp.visit(await idp.createClient(), { prompt: 'create' });
  const guess = { ...ADA, password: 'a wrong sentence', password_confirm: 'a wrong sentence' };
  t.equal((await browser.submit(page, guess)).status, 409);
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.equal(events.filter((event) => event === 'login.failed').length, 1);
});

t.test('a request about a known person offers no sign-up', async (t) => {
  const idp = await idpApp(t, HERE);
  await idp.listen();
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const { id_token: hint } = (await idp.redeem(client, await idp.codeFor(client, human))).body;
  for (const prompt of [undefined, 'create']) {
    const { page } = await idp.visit(client, { id_token_hint: hint, prompt });
    t.match(page.body, '<h1>Sign in');
    t.notMatch(page.body, sentence('sign-in.sign-up'));
  }
});

t.test('sign-ups of an address are limited together with those of the API, and the form stays', async (t) => {
  const idp = await idpApp(t, { ...HERE, limits: true });
  const { browser, page } = await idp.visit(await idp.createClient(), { prompt: 'create' });
  for (let count = 0; count < 15; count++) await idp.makeHuman();
  for (let count = 0; count < 15; count++) {
    t.equal((await browser.send(page, { ...ADA, handle: `ada${count}@example.test` })).status, 303);
  }
  const throttled = await browser.send(page, ADA);
  t.equal(throttled.status, 429);
  t.match(throttled.body, /role="alert"[\s\S]*too many attempts[\s\S]*<form[\s\S]*value="ada@example\.test"/);
  t.notMatch(throttled.body, PASSWORD);
});

t.test('of many concurrent sign-ups with one user name one succeeds', async (t) => {
  const idp = await idpApp(t, { ...HERE, limits: false });
  const client = await idp.createClient();
  const origin = await idp.listen();
  const answers = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => {
      const browser = new Agent({ origin });
      const page = await browser.open(
        `${origin}/authorize?client_id=${client.id}&redirect_uri=${client.redirectUri}&response_type=code&prompt=create`,
      );
      const password = `${PASSWORD} ${index}`;
      return browser.send(page, { ...ADA, password, password_confirm: password });
    }),
  );
  t.equal(answers.filter(({ status }) => status === 303).length, 1);
  t.same(
    [...new Set(answers.map(({ status }) => status))].filter((status) => ![303, 409, 429].includes(status)),
    [],
  );
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 1);
});
