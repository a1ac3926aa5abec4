import t, { type Test } from 'tap';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { authorizePath, codeIn, idpApp, idpStore } from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';

const NEW = 'another long sentence of mine';
const FILLED = { current_password: PASSWORD, password: NEW, password_confirm: NEW };

async function signedIn(t: Test) {
  const idp = await idpApp(t);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const { browser, page } = await idp.visit(client, { scope: 'openid offline_access' });
  const end = await browser.submit(page, { handle: human.handle, password: human.password });
  const tokens = (await idp.redeem(client, codeIn(end.location))).body;
  const origin = await idp.listen();
  return { idp, client, human, browser, tokens, origin, path: `${origin}/account/password` };
}

t.test('changing the password revokes everything issued under the old one', async (t) => {
  const { idp, client, human, browser, tokens, path, origin } = await signedIn(t);
  const waiting = await idp.codeFor(client, human);
  const other = await idp.visit(client);
  await other.browser.submit(other.page, { handle: human.handle, password: PASSWORD });
  const form = await browser.open(path);
  t.equal(form.status, 200);
  t.match(form.body, human.handle);
  t.match(form.headers.get('content-security-policy'), /default-src 'none'.*frame-ancestors 'none'/);
  const done = await browser.submit(form, FILLED);
  t.match(done, { status: 200, url: `${path}/done` });
  t.match(done.body, /changed/);

  t.same(Object.keys(browser.cookies()), ['__Host-idp'], 'signed out');
  for (const one of [browser, other.browser]) {
    const page = await one.open(origin + authorizePath(client, { prompt: 'none' }));
    t.match(page.location, /error=login_required/);
  }
  t.equal((await idp.userinfo(tokens.access_token)).status, 401);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 400);
  t.equal((await idp.redeem(client, waiting)).status, 400);
  t.equal((await idp.authorize(client, human)).status, 401, 'the old one is wrong');
  t.equal((await idp.authorize(client, { ...human, password: NEW })).status, 302);
  const events = await auditOf(await idpStore(t, idp));
  t.match(
    events.filter(({ event }) => event === 'password.changed'),
    [{ subject: human.sub }],
  );
});

t.test('changing the password requires the current one and validates the new one', async (t) => {
  const { idp, client, human, browser, path } = await signedIn(t);
  const form = await browser.open(path);
  const table: [Record<string, string>, number, RegExp][] = [
    [{ ...FILLED, current_password: 'wrong' }, 401, sentence('account-password.wrong')],
    [{ ...FILLED, current_password: '' }, 401, sentence('account-password.wrong')],
    [{ ...FILLED, password_confirm: 'different' }, 422, sentence('password.differ')],
    [{ ...FILLED, password: 'short', password_confirm: 'short' }, 422, /8/],
    [{ ...FILLED, password: `agp_${NEW}`, password_confirm: `agp_${NEW}` }, 422, /agp_/],
  ];
  for (const [fields, status, sentence] of table) {
    const page = await browser.submit(form, fields);
    t.equal(page.status, status, JSON.stringify(fields));
    t.match(page.body, sentence);
    t.equal(page.headers.get('www-authenticate'), null, 'no challenge');
    for (const value of Object.values(fields)) if (value) t.notOk(page.body.includes(`"${value}"`));
  }
  t.equal((await idp.authorize(client, human)).status, 302, 'nothing has changed');
});

t.test('a throttled form is shown again, with what was typed except passwords', async (t) => {
  const { idp, client, human, browser, path } = await signedIn(t);
  const visit = await idp.visit(client);
  const forms = { signIn: visit.page, change: await browser.open(path) };
  const wrong = { ...FILLED, current_password: 'wrong sentence' };
  const typed = { handle: human.handle, password: 'wrong sentence' };
  for (let count = 0; count < 10; count++) t.equal((await browser.submit(forms.change, wrong)).status, 401);
  const answers = {
    signIn: await visit.browser.submit(forms.signIn, typed),
    change: await browser.submit(forms.change, wrong),
  };
  for (const [name, page] of Object.entries(answers)) {
    t.equal(page.status, 429, name);
    t.equal(page.headers.get('retry-after'), '60');
    t.match(page.body, /<title>Error: /);
    t.match(page.body, /role="alert"[\s\S]*too many attempts[\s\S]*Try again in 1 minute\.[\s\S]*<form/);
    t.match(page.body, human.handle);
    t.notMatch(page.body, 'wrong sentence');
  }
  idp.clock.advance(60_000);
  t.equal((await browser.submit(answers.change, FILLED)).status, 200, 'the form works');
});

t.test('of many concurrent password changes one succeeds', async (t) => {
  const { idp, client, human, browser, path } = await signedIn(t);
  const { fields } = (await browser.open(path)).form();
  const headers = { cookie: `__Host-idp-session=${browser.cookies()['__Host-idp-session']}` };
  const passwords = Array.from({ length: 8 }, (_, index) => `${NEW} ${index}`);
  const answers = await Promise.all(
    passwords.map((password) => {
      const form = { ...fields, current_password: PASSWORD, password, password_confirm: password };
      return idp.request('POST', '/account/password', { form, headers });
    }),
  );
  t.equal(answers.filter(({ status }) => status === 303).length, 1);
  const works = await Promise.all(
    passwords.map(async (password) => (await idp.authorize(client, { ...human, password })).status === 302),
  );
  t.same(
    works,
    answers.map(({ status }) => status === 303),
  );
});

t.test('a change that is submitted twice says that the password has changed', async (t) => {
  const { idp, client, human, browser, path } = await signedIn(t);
  const form = await browser.open(path);
  const answers = await Promise.all([browser.send(form, FILLED), browser.send(form, FILLED)]);
  for (const answer of answers) t.match(answer, { status: 303, location: /\/account\/password\/done$/ });
  t.equal((await idp.authorize(client, { ...human, password: NEW })).status, 302);
  const events = await auditOf(await idpStore(t, idp));
  t.equal(events.filter(({ event }) => event === 'password.changed').length, 1);
});
