import t from 'tap';
import { decodeEntities } from '../../kit/agent.js';
import { type SaasApp, saasApp } from '../../kit/app.js';

/** Lists of the admin area: as pages, as CSV and as JSON. */

const get = (app: SaasApp, path: string) => app.admin('GET', path);

const linksOf = (page: string) =>
  [...decodeEntities(page).matchAll(/<a [^>]*href="([^"]*)"[^>]*>(.*?)<\/a>/g)].map(
    ([, href = '', text = '']) => ({
      href,
      text: text.replaceAll(/<[^>]*>/g, '').trim(),
    }),
  );

t.test('the operator searches users by any part of their address or name, or by their ID', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp({ email: 'ada@example.test', name: 'Ada Lovelace' });
  await app.signUp({ email: 'adam@example.test' });
  await app.signUp({ email: 'bob@example.test' });
  const emails = async (query: string) =>
    (await get(app, `/admin/api/users?${query}`)).body.data.items.map(
      ({ email }: { email: string }) => email,
    );
  t.same(await emails('q=ADA'), ['ada@example.test', 'adam@example.test']);
  t.same(await emails('q=ada@'), ['ada@example.test']);
  t.same(await emails(`q=${ada.id}`), ['ada@example.test']);
  t.same(await emails(`q=+${ada.id}+`), ['ada@example.test']);
  t.same(await emails('q=+ada@+'), ['ada@example.test']);
  t.same(await emails('q=dam@ex'), ['adam@example.test'], 'any part of three characters');
  t.same(await emails('q=LOVE'), ['ada@example.test'], 'of a name');
  t.same(
    await emails('q=ad'),
    ['ada@example.test', 'adam@example.test'],
    'fewer are the beginning of an address',
  );
  t.same(await emails('q=da'), []);
  t.same(await emails('q=example&show=unverified'), [
    'ada@example.test',
    'adam@example.test',
    'bob@example.test',
  ]);
  t.same(await emails('q=example&show=suspended'), [], 'with a filter');
  t.equal((await emails('')).length, 3);
  const page = await get(app, '/admin/users?q=ada@');
  t.equal(page.status, 200);
  t.match(page.text, 'ada@example.test');
  t.notMatch(page.text, 'bob@example.test');
  t.match(page.text, /name="q"[^>]* value="ada@"/, 'the search is kept in the field');
  t.equal((await get(app, '/admin/users?after=x')).status, 400);
});

t.test('a list has pages, and a search says that there are more', async (t) => {
  const app = await saasApp(t);
  for (let index = 0; index < 60; index++) await app.signUp({ email: `user${index}@example.test` });
  const first = await get(app, '/admin/users?q=us');
  const next = linksOf(first.text).find(({ text }) => text === 'Next page');
  const { pathname, search } = new URL(next?.href ?? '', 'http://x/admin/users');
  t.equal(pathname, '/admin/users');
  t.match(search, 'q=us');
  const second = await get(app, pathname + search);
  t.equal(second.text.match(/@example\.test/g)?.length, 10);
  const links = linksOf(second.text).map(({ text }) => text);
  t.ok(links.includes('First page'));
  t.notOk(links.includes('Next page'));
  const found = await get(app, '/admin/users?q=ser');
  t.equal(found.text.match(/<b>user\d+@example\.test/g)?.length, 50);
  t.match(found.text, 'These are the first 50');
  t.notOk(linksOf(found.text).some(({ text }) => text === 'Next page'));
});

t.test('the CSV of a list has every row, and no value is a formula for spreadsheets', async (t) => {
  const app = await saasApp(t);
  await app.signUp({ email: 'ada@example.test', name: '=HYPERLINK("http://x","y")' });
  await app.signUp({ email: '+bob@example.test', name: 'Bob, "the" builder' });
  await app.signUp({ email: 'eve@example.test', name: 'Eve;=1+1; "+2;ok-1' });
  const csv = await get(app, '/admin/users.csv');
  t.equal(csv.status, 200);
  t.match(csv.headers, {
    'content-type': 'text/csv; charset=utf-8',
    'content-disposition': 'attachment; filename="users.csv"',
  });
  const rows = csv.text.split('\r\n');
  t.equal(rows[0], 'E-mail address,Name,Verified,State,Subscription,Plan,Registered,ID');
  t.match(csv.text, `"'=HYPERLINK(""http://x"",""y"")"`);
  t.match(csv.text, `'+bob@example.test,"Bob, ""the"" builder"`);
  t.match(
    csv.text,
    `"Eve;'=1+1; ""'+2;ok-1"`,
    'nor after a semicolon, at which some spreadsheets separate cells',
  );
  t.equal(rows.length, 5);
  t.equal((await app.request('GET', '/admin/users.csv')).status, 401);
  t.equal((await get(app, '/admin/users.csv?after=x')).status, 400, 'errors are responses, not broken files');
});

t.test('the navigation leads from every page to the others, also below another path', async (t) => {
  const app = await saasApp(t, { adminPath: '/operations/room' });
  for (const path of ['/operations/room', '/operations/room/', '/operations/room/users']) {
    const { text } = await get(app, path);
    for (const label of ['Overview', 'Users', 'Settings']) {
      const { href } = linksOf(text).find((link) => link.text === label) ?? { href: 'missing' };
      const target = new URL(href, `http://x${path}`).pathname;
      t.equal((await get(app, target)).status, 200, `${label} from ${path}`);
    }
  }
});
