import t, { type Test } from 'tap';
import { basic, PASSWORD, type SaasApp, saasApp } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { HERE, isAt, MINUTE, titleOf, type Visit, visit } from './kit.js';

/** The page on which an operator begins to act as a user, and the banner of all pages. */

const OPTIONS = { ...HERE, userRoles: ['editor', 'support'], impersonationRoles: ['support'] };
const REASON = 'Request <4711>';
const TITLE = sentence('user-impersonation.title');

interface Place {
  app: SaasApp;
  /** Below `/account`. */
  link: string;
  signedIn(email: string): Promise<Visit>;
}

async function place(t: Test, options: object = {}): Promise<Place> {
  const app = await saasApp(t, { ...OPTIONS, ...options } as object);
  const ada = await app.signUp({ email: 'ada@example.test', name: 'Ada' });
  const grace = await app.signUp({ email: 'grace@example.test', name: 'Grace' });
  await app.server.fastify.saas.users.setRoles({ id: grace.id }, ['support']);
  return {
    app,
    link: `/impersonate?user=${ada.id}`,
    async signedIn(email) {
      const visitor = await visit(app);
      await visitor.fill('/sign-in', { email, password: PASSWORD });
      return visitor;
    },
  };
}

t.test('an operator acts as a user: every page says so, and nothing can be changed', async (t) => {
  const { app, link } = await place(t, { organizations: true });
  const { id: userId = '' } = (await app.server.fastify.saas.users.find({ email: 'ada@example.test' })) ?? {};
  await app.server.fastify.saas.organizations?.create(userId, { name: 'Engines' });
  const visitor = await visit(app);
  const closed = await visitor.get(link);
  t.match([closed.status, titleOf(closed)], [401, sentence('user-sign-in.title')]);
  const form = await visitor.browser.submit(closed, { email: 'grace@example.test', password: PASSWORD });
  t.match([form.status, titleOf(form)], [200, TITLE], 'the sign-in returns to the page of this user');
  t.match(form.body, /<strong>ada@example\.test<\/strong>/);

  const blank = await visitor.browser.submit(form, { reason: '  ' });
  t.match([blank.status, blank.body], [422, sentence('user-impersonation.reason-missing')]);
  const account = await visitor.browser.submit(blank, { reason: REASON });
  t.ok(isAt(account, '/account'));
  const banner = /Grace acts as ada@example\.test until .* UTC\./;
  t.match(account.body, banner);
  t.match(account.body, /Grace acting for you: Request &lt;4711&gt;/, 'the list of sessions');
  for (const path of ['', '/sign-out']) t.match((await visitor.get(path)).body, banner, path);

  for (const path of ['/address', '/export', '/delete', link]) {
    const refused = await visitor.get(path);
    t.match([refused.status, titleOf(refused)], [403, sentence('errors.IMPERSONATED.title')], path);
    t.match(refused.body, banner, path);
  }
  const renamed = await visitor.fill('', { name: 'Eve' }, '/account/name');
  t.match([renamed.status, titleOf(renamed)], [403, sentence('errors.IMPERSONATED.title')]);

  const chosen = await visitor.fill('/organization', {}, '/active');
  t.match(
    [chosen.status, chosen.body],
    [200, sentence('user-organizations.done.switched')],
    'as at the route',
  );
  const created = await visitor.fill('/organization', { name: 'Other' }, '/create');
  t.match([created.status, titleOf(created)], [403, sentence('errors.IMPERSONATED.title')]);

  const ended = await visitor.browser.submit(account, {}, '/account/sign-out');
  t.ok(isAt(ended, '/account/sign-in'));
  t.equal((await visitor.get()).status, 401);
});

t.test('for everybody else there is no such page', async (t) => {
  const { app, link, signedIn } = await place(t);
  const other = await app.signUp({ email: 'other@example.test' });
  await app.server.fastify.saas.users.setRoles({ id: other.id }, ['editor']);
  const visitor = await signedIn('other@example.test');
  t.equal((await visitor.get(link)).status, 404);
  const operator = await signedIn('grace@example.test');
  t.equal((await operator.get('/impersonate')).status, 404, 'without a user');
  t.equal((await operator.get('/impersonate?user=usr_0')).status, 404);
  const own = await operator.get(link.replace(/usr_.*/, (await idOf(app, 'grace@example.test')) ?? ''));
  t.match([own.status, own.body], [403, /You cannot act as yourself\./]);
  const foreign = await operator.fill(link, { reason: REASON, form: 'of another session' });
  t.equal(foreign.status, 403);
  app.clock.advance(11 * MINUTE);
  t.match(titleOf(await operator.get(link)), sentence('user-sign-in.title'), 'the sign-in is too old');

  const { app: without, link: closed, signedIn: enter } = await place(t, { impersonationRoles: undefined });
  t.equal((await (await enter('grace@example.test')).get(closed)).status, 404);
  t.notMatch((await pageOf(without)).text, /Sign in as this user/);
});

t.test('the admin area leads to the page', async (t) => {
  const { app, link } = await place(t);
  const { text } = await pageOf(app);
  t.match(text.replaceAll('&#x2F;', '/').replaceAll('&#x3D;', '='), `href="/account${link}"`);
});

const idOf = async (app: SaasApp, email: string) => (await app.server.fastify.saas.users.find({ email }))?.id;

const pageOf = async (app: SaasApp) =>
  app.request('GET', `/admin/users/${await idOf(app, 'ada@example.test')}`, {
    headers: { authorization: basic(), accept: 'text/html' },
  });
