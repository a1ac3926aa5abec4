import t from 'tap';
import { type UserDocument, userCollection } from '../../../src/saas/auth/store.js';
import { type SaasApp, storeOf } from '../../kit/app.js';
import { items, shop, subscriptionEvent } from '../billing/kit.js';
import { textOf } from './kit.js';

/** The search field of the admin area. */

const path = (q: string) => `/admin/search?q=${encodeURIComponent(q)}`;
const headings = (page: string) =>
  [...page.matchAll(/<h2 id="found-\d">([^<]*)</g)].map(([, heading]) => heading);

/** Where a search leads without a page of its own. */
async function targetOf(app: SaasApp, q: string) {
  const { status, headers } = await app.admin('GET', path(q));
  return status === 303 ? new URL(headers['location'] ?? '', 'http://x/admin/search').pathname : status;
}

t.test('one field finds users and what belongs to them, and leads to what an identifier names', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const bob = await buyer();
  for (const [id, { customer }] of [
    ['sub_1', ada],
    ['sub_2', bob],
  ] as const)
    await deliver(subscriptionEvent('created', 1, { id, customer, status: 'active', items: items() }));
  const part = ada.email.slice(1).toUpperCase();
  const found = await textOf(app, path(part));
  t.same(headings(found), ['Users']);
  t.match(found, ada.email);
  t.notMatch(found, bob.email);
  t.match(found, /<input name="q"[^>]* aria-label="Search everything"/);
  t.same(headings(await textOf(app, path('sub_'))), [], 'an identifier is complete');
  for (const text of [ada.id, ada.email, ada.email.toUpperCase(), ada.customer, 'sub_1', ` ${ada.id} `])
    t.equal(await targetOf(app, text), `/admin/users/${ada.id}`, text);
  t.equal(await targetOf(app, part), 200, 'a part leads nowhere');
  await app.signUp({ email: `x${ada.email}` });
  const both = await textOf(app, path('@example'));
  t.match(both, `x${ada.email}`);
  for (const none of ['%%%', '___', '"""', '***', "' OR 1=1 --", '\\\\\\', 'nobody', 'ab', '\u{10ffff}'])
    t.match(await textOf(app, path(none)), 'Nothing was found', none);
  t.match(await textOf(app, '/admin/search'), 'Enter any part');
  t.equal((await app.admin('GET', '/admin/search?q=%00')).status, 400);
  t.equal((await app.admin('GET', path('x'.repeat(255)))).status, 400);
});

t.test('many are shown as a part, with a link to the list that has this search', async (t) => {
  const { app } = await shop(t);
  for (let index = 0; index < 10; index++) await app.signUp({ email: `many${index}@example.test` });
  const page = await textOf(app, path('many'));
  t.equal(page.match(/<b>many\d@example\.test/g)?.length, 8);
  t.match(page, '<a href="./users?q=many">All Users</a>');
});

t.test('the search is for operators, and finds nothing of a deleted account', async (t) => {
  const { app } = await shop(t);
  const eve = await app.signUp({ email: 'eve@example.test', name: 'Evelyn' });
  const refused = await app.request('GET', path('evelyn'));
  t.equal(refused.status, 401);
  t.notMatch(refused.text, 'eve@example');
  t.match(await textOf(app, path('velyn')), 'eve@example.test');
  const confirm = { confirm: eve.email };
  t.equal((await app.admin('POST', `/admin/api/users/${eve.id}/delete`, confirm)).status, 200);
  t.match(await textOf(app, path('velyn')), 'Nothing was found');
  t.match(await textOf(app, path('ve@example')), 'Nothing was found');
});

t.test('programs get all that a search finds, or a refusal', async (t) => {
  const { app } = await shop(t);
  const { id } = await app.signUp({ email: 'cus_tomer@example.test' });
  const users = userCollection(await storeOf(t, app));
  const known = (await users.findOne({ id })) as UserDocument;
  for (let count = 0; count < 501; count++)
    await users.insert({
      ...known,
      id: `usr_${String(count).padStart(32, '0')}`,
      email: `many${count}@example.test`,
    });
  for (const path of ['/admin/users.csv?q=many', '/admin/api/users?q=many']) {
    const { status, text } = await app.admin('GET', path);
    t.match([status, text], [400, /finds too many/], path);
  }
  t.match(await textOf(app, '/admin/users?q=many'), 'These are the first 50.');
  const some = await app.admin('GET', '/admin/api/users?q=many1');
  t.equal(some.body.data.items.length, 111);
  t.equal((await app.admin('GET', '/admin/users.csv?q=many1')).text.trim().split('\n').length, 112);
  t.equal(await targetOf(app, 'cus_tomer'), 200, 'a part of an address is no customer');
});
