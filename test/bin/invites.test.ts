import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { parseCsv } from '../../bin/people-csv.js';
import { csvOf } from '../../src/shared/console-kit/csv.js';
import { mailCollection } from '../../src/shared/email/store.js';
import { openAt, PASSWORD } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { commandLine } from '../kit/command-line.js';
import { idpApp, SEED } from '../kit/idp.js';

/** Invitations by command. */

async function both(t: Test) {
  const probe = commandLine(t);
  const databaseUri = `sqlite:${join(probe.cwd, 'idp.db')}`;
  const publicUrl = 'http://localhost:8080';
  const idp = await idpApp(t, { databaseUri, publicUrl, clock: fakeClock(Date.now()) });
  const env = { IDP_DATABASE_URI: databaseUri, IDP_PUBLIC_URL: publicUrl };
  const type = (args: string[], more = {}) => probe.type(args, { more: { ...env, ...more } });
  const file = (text: string) => {
    writeFileSync(join(probe.cwd, 'people.csv'), text);
    return join(probe.cwd, 'people.csv');
  };
  return { idp, type, file, databaseUri };
}

t.test(
  'a person is invited with a user name and an address, and the link is mailed or printed',
  async (t) => {
    const { idp, type, databaseUri } = await both(t);
    const mailed = { IDP_EMAIL_SMTP_URL: 'smtp://127.0.0.1:1', IDP_ED25519_SEED: SEED };
    const names = ['ada', '--email', 'ada@example.test', '--json'];
    const sent = (await type(['invite', ...names], mailed)).json;
    t.match(sent, { handle: 'ada', sent_to: 'ada@example.test' });
    t.notOk('invite_url' in sent, 'a link that is mailed is not printed');
    const [mail] = (await mailCollection(await openAt(t, databaseUri)).page({ sort: 'id', limit: 9 })).items;
    t.match(mail, { to: 'ada@example.test', template: 'invitation', values: undefined, content: /^/ });
    const printed = (await type(['invite', 'ada', '--print', '--json'], mailed)).json;
    const { IDP_ED25519_SEED: _, ...noSeed } = mailed;
    const noted = await type(['invite', 'mary@example.test'], noSeed);
    t.match(noted, { code: 0, out: /invite_url/, err: /set IDP_ED25519_SEED/ });
    t.match((await type(['invite', 'list'])).out, /^ada +open .*ada@example\.test/m);
    const path = new URL(printed.invite_url).pathname;
    t.equal((await idp.request('POST', path, { body: { password: PASSWORD } })).status, 201);
    t.match(await type(['invite', 'withdraw', 'ada']), { code: 1, err: /has accepted/ });
    t.match((await type(['invite', 'withdraw', 'mary@example.test', '--json'])).json, { withdrawn: true });
    t.match(await type(['invite', 'list']), { out: '', err: 'There are no invites.' });
    t.match(await type(['invite', 'nobody', '--resend']), { code: 1, err: /no open invitation of nobody/ });
    t.match(await type(['invite', 'eve', '--email', 'ada@example.test']), { code: 1, err: /already taken/ });
    t.match(await type(['invite', 'eve', '--csv', 'x']), { code: 2, err: /name one handle/ });
    t.match((await type(['principal', 'update', 'ada', '--email', 'new@example.test', '--json'])).json, {
      email: 'new@example.test',
    });
    t.match((await type(['principal', 'list', 'ada', '--json'])).json.principals, [
      { email: 'new@example.test' },
    ]);
  },
);

t.test('everyone in a CSV file is invited, or nobody if a line is wrong', async (t) => {
  const { type, file } = await both(t);
  await type(['group', 'add', 'staff']);
  const header = 'handle,email,name,groups,application';
  const wrong = [
    header,
    'ada,ada@example.test,"Lovelace, Ada",staff,',
    'a b,,,,',
    'mary,no address,,,',
    'kim,,,unknown,',
    'eve,,,,Unknown',
    'ADA,,,,',
    'joe,,',
  ];
  const refused = await type(['invite', '--csv', file(wrong.join('\r\n'))]);
  t.equal(refused.code, 1);
  for (const line of [3, 4, 5, 6, 7, 8]) t.match(refused.err, new RegExp(`^line ${line}: `, 'm'));
  t.match(refused.err, 'Nobody was invited');
  t.match((await type(['invite', 'list', '--json'])).json.invites, []);
  const some = (await type(['invite', '--csv', file(wrong.join('\n')), '--skip-invalid', '--json'])).json;
  t.match(some.invited, [{ handle: 'ada', invite_url: /invite\// }]);
  t.equal(some.wrong.length, 6);
  const again = (await type(['invite', '--csv', file(`${header}\nada,,,,\nmary,,,,\n`), '--json'])).json;
  t.match(again, {
    invited: [{ handle: 'mary' }],
    skipped: [{ handle: 'ada', reason: /open invitation/ }],
    wrong: [],
  });
  const resent = (await type(['invite', '--csv', file('handle\nada\nnew'), '--resend', '--json'])).json;
  t.match(resent, {
    invited: [{ handle: 'ada' }],
    skipped: [{ handle: 'new', reason: 'has no invitation' }],
  });
  t.match(await type(['invite', '--csv', file('name\nada')]), { code: 2, err: /must name the columns/ });
  t.match(await type(['invite', '--csv', file('handle\n"ada')]), {
    code: 2,
    err: /line 2: a quotation mark/,
  });
});

t.test('what a spreadsheet writes is read as it was, with the lines', async (t) => {
  const rows = [
    ['a', 'b,c', 'd"e'],
    ['two\r\nlines', '', 'f'],
    ['', 'g', 'h;i'],
  ];
  async function* pages() {
    yield rows;
  }
  let text = '';
  for await (const part of csvOf(['x', 'y', 'z'], pages())) text += part;
  t.same(parseCsv(text), [
    { line: 1, cells: ['x', 'y', 'z'] },
    { line: 2, cells: rows[0] },
    { line: 3, cells: rows[1] },
    { line: 5, cells: rows[2] },
  ]);
  t.same(parseCsv('a\r\n\r\n\nb'), [
    { line: 1, cells: ['a'] },
    { line: 4, cells: ['b'] },
  ]);
  t.same(parseCsv(''), []);
  for (const broken of ['"a', 'a"b', '"a"b', '"a" ,b']) t.throws(() => parseCsv(broken), SyntaxError, broken);
});
