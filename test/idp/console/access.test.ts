import { stringifyCookie } from 'cookie';
import t from 'tap';
import { basic, PASSWORD } from '../../kit/app.js';
import { ISSUER, idpApp } from '../../kit/idp.js';
import { browse, COMMAND_SOURCE, enterConsole, makeOperator, rolesOf } from '../../kit/operator.js';
import { sentence } from '../../kit/sentences.js';

/** Who enters the console, and until when. */

const MINUTE = 60_000;

/** Without a public URL, the issuer is the address of the test. */
const HERE = { publicUrl: undefined };

t.test('an operator signs in with the form of the provider and returns to the page', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const { get, browser } = await browse(idp);
  const form = await get('/audit?event=login.');
  t.equal(form.status, 401);
  t.equal(form.headers.get('www-authenticate'), null, 'no browser may cache a password for this origin');
  t.match(form.body, 'to continue to the console');
  const inGerman = { accept: 'text/html', 'accept-language': 'de' };
  t.match((await idp.request('GET', '/admin', { headers: inGerman })).text, 'weiter zur Konsole');
  const wrong = await browser.submit(form, { handle: operator.handle, password: 'wrong' });
  t.equal(wrong.status, 401);
  t.match(wrong.body, sentence('sign-in.wrong'));
  const page = await browser.submit(wrong, { handle: `${operator.handle} `, password: PASSWORD });
  t.equal(page.status, 200);
  t.match(new URL(page.url), { pathname: '/admin/audit', search: '?event=login.' });
  t.match(page.body, operator.handle);
  t.match((await get('')).body, '<h1>Overview</h1>');
});

t.test('neither Basic, nor agents, nor other people open the console', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const [human, agent] = [await idp.makeHuman(), await idp.mintAgent()];
  for (const who of [operator, agent]) {
    const headers = { authorization: basic(who.handle, who.password), accept: 'text/html' };
    const answer = await idp.request('GET', '/admin/principals', { headers });
    t.match(answer, { status: 401, text: 'to continue to the console' });
    const form = { token: 'x', handle: 'mine' };
    t.equal((await idp.request('POST', '/admin/agents/create', { headers, form })).status, 401);
  }
  const { page } = await enterConsole(idp, human);
  t.equal(page.status, 403);
  t.match(page.body, sentence('errors.operators_only.title'));
  t.equal((await enterConsole(idp, agent)).page.status, 401, 'an agent is rejected like a wrong password');
  t.equal((await idp.admin('GET', '/v1/principals?prefix=mine')).body.principals.length, 0);
});

t.test('after 15 minutes the console asks for the password again', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const { get, browser, act } = await enterConsole(idp, operator);
  idp.clock.advance(15 * MINUTE);
  t.equal((await get('/principals')).status, 200);
  const form = await get('/agents/create');
  idp.clock.advance(1);
  const asked = await browser.submit(form, { handle: 'scout' });
  t.equal(asked.status, 401, 'a form that was open is not executed');
  t.match(asked.body, `value="${operator.handle}"`, 'the user name is filled in');
  const again = await browser.submit(asked, { handle: operator.handle, password: PASSWORD });
  t.match(new URL(again.url).pathname, '/admin/agents/create');
  t.equal((await act('/agents/create', { handle: 'scout' })).status, 200);
});

t.test('the console closes with the role, the account, the password and the session', async (t) => {
  const idp = await idpApp(t, HERE);
  const roles = await rolesOf(t, idp);
  const ends: Record<string, [status: number, end: (sub: string) => Promise<unknown>]> = {
    'the role is revoked': [403, (sub) => roles.revoke(sub, COMMAND_SOURCE)],
    'the account is disabled': [401, (sub) => idp.admin('POST', `/v1/principals/${sub}/disable`)],
  };
  for (const [name, [status, end]] of Object.entries(ends)) {
    const operator = await makeOperator(t, idp);
    const { get, browser } = await enterConsole(idp, operator);
    const form = await get('/agents/create');
    await end(operator.sub);
    t.equal((await get('/')).status, status, name);
    t.equal((await browser.submit(form, { handle: 'scout' })).status, status, `${name}, with an open form`);
  }
  t.equal((await idp.admin('GET', '/v1/principals?prefix=scout')).body.principals.length, 0);

  const operator = await makeOperator(t, idp);
  const { browser, get, origin } = await enterConsole(idp, operator);
  await browser.submit(await browser.open(`${origin}/account/password`), {
    current_password: PASSWORD,
    password: 'another sentence',
    password_confirm: 'another sentence',
  });
  t.equal((await get('/')).status, 401, 'the password is changed');
  const renewed = await enterConsole(idp, { ...operator, password: 'another sentence' });
  t.equal(renewed.page.status, 200, 'but the role stays');
  await renewed.browser.submit(await renewed.browser.open(`${origin}/logout`));
  t.equal((await renewed.get('/')).status, 401, 'the session has ended');
});

t.test('forms are accepted from the same session and the same origin only', async (t) => {
  const idp = await idpApp(t, HERE);
  const first = await enterConsole(idp, await makeOperator(t, idp));
  const second = await enterConsole(idp, await makeOperator(t, idp));
  const form = await first.get('/agents/create');
  const foreign = (await second.get('/agents/create')).form().fields['token'] ?? '';
  t.equal((await first.browser.send(form, { handle: 'scout', token: foreign })).status, 403);
  t.equal((await first.browser.send(form, { handle: 'scout', token: '' })).status, 403);
  const cookie = stringifyCookie(first.browser.cookies());
  const { token = '' } = form.form().fields;
  const send = (headers: Record<string, string>) =>
    idp.request('POST', '/admin/agents/create', {
      headers: { cookie, accept: 'text/html', ...headers },
      form: { token, handle: 'scout' },
    });
  for (const headers of [
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { origin: 'https://evil.test' },
    { origin: 'null' },
  ]) {
    t.match(await send(headers), { status: 403, text: 'submitted from another site' });
  }
  t.equal((await send({ 'sec-fetch-site': 'same-origin' })).status, 200);
  for (const other of [{ toString: 1 }, [token], 1, null]) {
    const body = { token: other, handle: 'scout' };
    const answer = await idp.request('POST', '/admin/agents/create', { headers: { cookie }, body });
    t.equal(answer.status, 403, 'a token is text');
  }
});

t.test('a sign-in form of the console signs in to no application, and the reverse', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const client = await idp.createClient();
  const { get, browser } = await browse(idp);
  const { interaction = '' } = (await get('/')).form().fields;
  const { page } = await idp.visit(client);
  const cookie = stringifyCookie(browser.cookies());
  const consent = await idp.request('POST', '/authorize/consent', {
    headers: { cookie },
    form: { interaction, decision: 'allow' },
  });
  t.match(consent, { status: 403, body: { error: 'login_rejected' } });
  const other = await idp.request('POST', '/authorize/login', {
    headers: { cookie },
    form: {
      interaction: page.form().fields['interaction'] ?? '',
      handle: operator.handle,
      password: PASSWORD,
    },
  });
  t.equal(other.status, 403, 'a form of another browser');
});

t.test('the console works below a path, and a host can leave it out', async (t) => {
  const below = await idpApp(t, { prefix: '/idp', publicUrl: 'http://127.0.0.1/idp' });
  const operator = await makeOperator(t, below);
  const { browser, get } = await browse(below, '/idp');
  const form = await get('/clients');
  const entered = await browser.send(form, { handle: operator.handle, password: PASSWORD });
  t.match(new URL(entered.location ?? '').pathname, '/idp/admin/clients');
  t.match((await get('')).body, 'href="admin/clients"');
  t.equal((await below.request('GET', '/admin/nothing')).status, 404);

  const without = await idpApp(t, { console: false, publicUrl: ISSUER });
  t.equal((await without.request('GET', '/admin')).status, 404);
});
