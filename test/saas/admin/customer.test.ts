import t from 'tap';
import { auditOf, errorOf, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { follow, submit, textOf } from './kit.js';

/** The page of a user: the note of operators, failed sign-ins, and the users before and after. */

t.test(
  'operators leave one note about a user, which the account exports and the audit does not repeat',
  async (t) => {
    const app = await saasApp(t);
    const ada = await app.signUp();
    const path = `/admin/users/${ada.id}`;
    t.notMatch(await textOf(app, path), 'id="note"');
    const text = 'Pays by invoice from January.\nAsked for <SSO>.';
    const done = await submit(app, `${path}/note`, { note: text.replace('\n', '\r\n') });
    const shown = await follow(app, `${path}/note`, done);
    t.match(shown.text, /The note was saved[\s\S]*id="note"[\s\S]*Asked for &lt;SSO&gt;[\s\S]*operator/);
    const api = `/admin/api/users/${ada.id}`;
    const { note } = (await app.admin('GET', api)).body.data;
    t.match(note, { text, by: 'operator' });
    t.match(await textOf(app, `${path}/note`), /Asked for <SSO>\.<\/textarea>/);

    const exported = (await app.request('GET', '/api/user/export', { token: ada.accessToken })).body.data;
    t.same(exported.user.note, { text, at: note.at }, 'without the operator');
    const { user } = (await app.request('GET', '/api/auth/me', { token: ada.accessToken })).body.data;
    t.notOk('note' in user);
    const [record] = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'user.noted');
    t.match(record, { subject: ada.id, by: 'operator' });
    t.equal(record?.detail, undefined);

    const change = (body: object) => app.admin('POST', `${api}/note`, body);
    t.equal((await change({ note: 'x'.repeat(2001), replaces: note.at })).status, 400);
    t.equal((await change({ note: 'bell\u0007', replaces: note.at })).status, 400);
    t.equal((await change({ note: text, replaces: note.at })).status, 200);
    t.equal((await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'user.noted').length, 1);
    t.equal((await change({ replaces: note.at })).status, 200);
    t.equal((await app.admin('GET', api)).body.data.note, null, 'an empty one removes it');
  },
);

t.test('of two operators who edit the note at once, one is told so and loses nothing', async (t) => {
  const app = await saasApp(t);
  const { id } = await app.signUp();
  const path = `/admin/api/users/${id}`;
  const write = (note: string, replaces?: string) =>
    app.admin('POST', `${path}/note`, { note, ...(replaces && { replaces }) });
  const answers = await Promise.all([write('one'), write('two')]);
  t.same(answers.map(({ status }) => status).sort(), [200, 409]);
  t.equal(answers.map(errorOf).find(Boolean), 'VERSION_CONFLICT');
  const { note } = (await app.admin('GET', path)).body.data;
  t.equal((await write('three', note.at)).status, 200);
  t.equal((await write('four', note.at)).status, 409);
  t.equal((await app.admin('GET', path)).body.data.note.text, 'three');
});

t.test('the page shows failed sign-ins, in the timeline and in a list of their own', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp();
  const other = await app.signUp();
  const wrong = (email: string) => app.post('/auth/login', { email, password: `${PASSWORD}?` });
  await wrong(ada.email);
  await wrong(other.email);
  await wrong('nobody@example.test');
  t.match(await textOf(app, `/admin/users/${ada.id}`), 'Sign-in failed');
  const tab = await textOf(app, `/admin/users/${ada.id}?tab=failed-sign-ins`);
  t.match(tab, 'Failed sign-ins 1');
  t.match(tab, 'login.failed');
});

t.test(
  'the page leads to the users before and after in the order of the list, also of one moment',
  async (t) => {
    const app = await saasApp(t);
    const people = [];
    for (let number = 0; number < 4; number++) {
      if (number % 2 === 0) app.clock.advance(60_000);
      people.push((await app.signUp()).id);
    }
    const { items } = (await app.admin('GET', '/admin/api/users')).body.data;
    const listed: string[] = items.map(({ id }: { id: string }) => id);
    t.equal(listed.length, people.length);
    for (const [index, id] of listed.entries()) {
      const text = await textOf(app, `/admin/users/${id}`);
      const linked = (rel: string) => new RegExp(`href="([^"]+)" rel="${rel}"`).exec(text)?.[1];
      t.same([linked('prev'), linked('next')], [listed[index - 1], listed[index + 1]]);
    }
  },
);
