import t from 'tap';
import { saasApp } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { HERE, isAt, MINUTE, signUp, titleOf, visit, visitNew } from './kit.js';

const CREATE = '/account/keys/create';

t.test('a user creates a key, which is shown once, rotates it and ends it', async (t) => {
  const visitor = await visitNew(t, { apiKeys: true });
  const { app, browser } = visitor;
  await signUp(visitor);
  t.match((await visitor.get()).body, sentence('user-keys.open'));
  const empty = await visitor.get('/keys');
  t.equal(titleOf(empty), sentence('user-keys.title').source);
  const fill = (fields: Record<string, string>) => visitor.fill('/keys', fields, CREATE);
  const call = async (key: string) => (await app.request('GET', '/api/auth/me', { token: key })).status;
  const secretOf = (body: string) => /<code>(sk_[\w-]{43})<\/code>/.exec(body)?.[1] ?? 'none';

  for (const [fields, problem] of [
    [{ name: ' ', days: '365', scopes: 'profile:read' }, 'account-passkey.name-invalid'],
    [{ name: 'Build', days: '365' }, 'user-keys.scopes-missing'],
  ] as const) {
    const refused = await fill(fields);
    t.equal(refused.status, 422, problem);
    t.match(refused.body, sentence(problem));
    t.ok(refused.body.includes(`value="${fields.name}"`), 'what was typed stays');
    t.match(refused.body, /value="365" selected/);
  }

  const created = await fill({ name: 'Nightly <b>', days: '30', scopes: 'profile:read' });
  const first = secretOf(created.body);
  t.match([created.status, created.body], [200, /Nightly &lt;b&gt;/]);
  t.equal(await call(first), 200);
  const list = await visitor.get('/keys');
  t.notMatch(list.body, /sk_/, 'once');
  t.match(list.body, /profile:read/);
  t.match(list.body, sentence('user-keys.until'), 'it expires as chosen');

  const rotated = await browser.submit(list, {}, '/account/keys/rotate');
  const second = secretOf(rotated.body);
  t.not(second, first);
  t.equal(await call(second), 200);
  const count = ({ body }: { body: string }) =>
    body.replaceAll('&#x2F;', '/').split('/keys/rotate').length - 1;
  t.equal(count(await visitor.get('/keys')), 1, 'the key before is replaced');

  const ended = await browser.submit(await visitor.get('/keys'), {}, '/account/keys/end');
  t.ok(isAt(ended, '/account/keys'));
  t.match(ended.body, sentence('user-keys.ended'));
  await browser.submit(ended, {}, '/account/keys/end');
  t.same([await call(first), await call(second)], [401, 401]);
});

t.test('the page of keys needs a recent sign-in, and the option', async (t) => {
  const visitor = await visitNew(t, { apiKeys: true });
  await signUp(visitor);
  visitor.app.clock.advance(11 * MINUTE);
  t.equal((await visitor.get('/keys')).status, 401);
  const without = await visit(await saasApp(t, HERE));
  await signUp(without);
  t.equal((await without.get('/keys')).status, 404);
  t.notMatch((await without.get()).body, sentence('user-keys.open'));
});
