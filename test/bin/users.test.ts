import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createProgress } from '../../bin/progress.js';
import { listedAuditCollection } from '../../src/core/ops/audit.js';
import { openStore } from '../../src/core/storage/open.js';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { deliveryCollection, endpointCollection } from '../../src/saas/webhooks/store.js';
import { mailCollection } from '../../src/shared/email/store.js';
import { saasApp } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { runProgram } from '../kit/command-line.js';
import { compiled } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** User commands: create one user, import many. */

const SAAS = compiled('bin/saas-backend.js');
const ROOT = join(compiled('.'), '..');
const PASSWORD = 'correct horse battery staple';
const SECRET = 'scheduler-Wq8ZsT1mXe6YbN0cRj4HuPd9';
const BCRYPT = '$2a$04$XTuyIS99hkwY2e8/7K7RlefGboJb28bSlZlN.9r6HA6faaFfv0H06';

/** Runs a command on the store in a folder. */
const command = (cwd: string, args: string[], stdin = '', uri = 'sqlite:app.db') =>
  runProgram('saas-backend', ['user', ...args], { DATABASE_URI: uri }, { cwd, stdin });

async function usersIn(t: Test, cwd: string) {
  const store = await openStore(`sqlite:${join(cwd, 'app.db')}`);
  t.teardown(() => store.close());
  return userCollection(store);
}

/** The answers of a server on the store of a folder. */
async function canSignIn(t: Test, cwd: string, accounts: [email: string, password: string][]) {
  const app = await saasApp(t, {
    databaseUri: `sqlite:${join(cwd, 'app.db')}`,
    clock: fakeClock(Date.now()),
  });
  const statuses = [];
  for (const [email, password] of accounts)
    statuses.push((await app.request('POST', '/api/auth/login', { body: { email, password } })).status);
  await app.close();
  return statuses;
}

t.test('user create: the password comes from standard input, never from an argument', async (t) => {
  const cwd = temporaryFolder(t);
  const args = ['create', 'Ada@example.test', '--name', 'Ada', '--verified', '--password-stdin'];
  const made = await command(cwd, [...args, '--json'], `${PASSWORD}\n`);
  t.equal(made.code, 0, made.err);
  t.match(JSON.parse(made.out), { email: 'ada@example.test', name: 'Ada', emailVerified: true, id: /^usr_/ });
  const others: [args: string[], input: string, code: number, says: RegExp][] = [
    [args, `${PASSWORD}\n`, 1, /already exists/],
    [['create', 'b@example.test', '--password-stdin'], 'short', 1, /password must be at least 8/],
    [['create', 'b@example.test', '--password-stdin'], 'x'.repeat(5000), 1, /too long/],
    [['create', 'b@example.test'], '', 2, /no terminal .* --password-stdin/],
    [['create', 'b@example.test', `--password=${PASSWORD}`], '', 2, /^error: unknown option '--password'\n/],
    [['create', 'b@example.test', PASSWORD], '', 2, /too many arguments for 'create'/],
  ];
  for (const [wrong, input, code, says] of others)
    t.match(await command(cwd, wrong, input), { code, err: says, out: '' }, wrong.join(' '));
  t.same(await canSignIn(t, cwd, [['ada@example.test', PASSWORD]]), [200]);
});

const HAS_SCRIPT = process.platform === 'linux' && existsSync('/usr/bin/script');

t.test('user create asks on a terminal and does not echo the input', { skip: !HAS_SCRIPT }, async (t) => {
  const cwd = temporaryFolder(t);
  const env = { PATH: process.env['PATH'], DATABASE_URI: 'sqlite:app.db', TERM: 'xterm' };
  const type = async (answers: string[]) => {
    const line = `'${process.execPath}' '${SAAS}' user create tty@example.test`;
    const child = spawn('/usr/bin/script', ['-qec', line, '/dev/null'], { cwd, env });
    t.teardown(() => child.kill('SIGKILL'));
    let shown = '';
    let given = 0;
    child.stdout.on('data', (chunk) => {
      shown += chunk;
      // Answers each prompt once it is displayed.
      const asked = shown.match(/(Password|Again): /g)?.length ?? 0;
      if (asked > given) child.stdin.write(answers[given++] ?? '\r');
    });
    const [code] = await once(child, 'close');
    return { code, shown };
  };
  const [different, made, interrupted] = await Promise.all([
    type([`${PASSWORD}\r`, `${PASSWORD}?\r`]),
    type([`${PASSWORD}\r`, `${PASSWORD}\r`]),
    type(['\x03']),
  ]);
  t.match(different, { code: 1, shown: /passwords do not match/ });
  t.match(made, { code: 0, shown: /tty@example\.test is usr_/ });
  t.notMatch(different.shown + made.shown, /horse/);
  t.equal(interrupted.code, 130);
  t.ok((await (await usersIn(t, cwd)).findOne({ email: 'tty@example.test' }))?.passwordHash);
});

t.test('user import reports bad lines, imports the others, and a second run changes nothing', async (t) => {
  const cwd = temporaryFolder(t);
  const lines = [
    `{"email":"Ada@Example.test","name":"Ada","passwordHash":"${BCRYPT}","createdAt":"2024-01-02T03:04:05.123456+02:00"}`,
    'nonsense',
    '[]',
    '{"email":"none@example.test","name":null,"passwordHash":null,"emailVerified":true,"createdAt":1700000000000}',
    '{"email":"a@example.test","password_hash":"x"}',
    '',
    '{"email":"b@example.test","passwordHash":"md5"}',
    '{"email":"none@example.test","name":"Grace Hopper"}',
    `{"email":"long@example.test","name":"${'x'.repeat(40_000)}"}`,
    '{"email":"c@example.test","createdAt":"yesterday"}',
    '{"email":"d@example.test","createdAt":"2024-01-02T03:04:05"}',
    '{"email":"last@example.test"}',
  ];
  writeFileSync(join(cwd, 'users.ndjson'), lines.join('\r\n'));
  const dry = await command(cwd, ['import', 'users.ndjson', '--dry-run', '--json']);
  t.same(JSON.parse(dry.out), { lines: 11, created: 3, existing: 1, refused: 7, interrupted: false });
  const users = await usersIn(t, cwd);
  t.equal(await users.count(), 0, 'a dry run changes nothing');

  const first = await command(cwd, ['import', 'users.ndjson', '--json']);
  t.equal(first.code, 1);
  t.same(JSON.parse(first.out), { lines: 11, created: 3, existing: 1, refused: 7, interrupted: false });
  t.same(first.err.trimEnd().split('\n'), [
    'line 2: is not valid JSON',
    'line 3: is not an object',
    "line 5: has an unknown field 'password_hash'",
    'line 7: passwordHash must be an argon2, bcrypt, scrypt or PBKDF2 hash of usual cost',
    'line 9: is longer than 32 KiB',
    'line 10: createdAt must be a time in the past, like 1706702400000 or, in a file, 2024-01-31T12:00:00Z; given: "yesterday"',
    'line 11: createdAt must be a time in the past, like 1706702400000 or, in a file, 2024-01-31T12:00:00Z; given: "2024-01-02T03:04:05"',
  ]);
  const ada = await users.findOne({ email: 'ada@example.test' });
  t.match(ada, { name: 'Ada', emailVerified: false, createdAt: Date.UTC(2024, 0, 2, 1, 4, 5, 123) });
  const none = await users.findOne({ email: 'none@example.test' });
  t.match(none, { emailVerified: true, createdAt: 1_700_000_000_000 });
  t.notOk(none && ('passwordHash' in none || 'name' in none));

  const second = await command(cwd, ['import', '-'], readFileSync(join(cwd, 'users.ndjson'), 'utf8'));
  t.match(second.out, '11 lines: 0 new, 4 already there, 7 refused.');
  t.same(await users.findOne({ email: 'ada@example.test' }), ada);
  t.equal(await users.count(), 3);
  t.match(await command(cwd, ['import', 'no-such-file']), {
    code: 1,
    err: /there is no file no-such-file/,
  });

  const accounts: [string, string][] = [
    ['ada@example.test', `${PASSWORD}!`],
    ['ada@example.test', PASSWORD],
    ['ada@example.test', PASSWORD],
    ['none@example.test', PASSWORD],
  ];
  t.same(await canSignIn(t, cwd, accounts), [401, 200, 200, 401]);
  t.match((await users.findOne({ email: 'ada@example.test' }))?.passwordHash, /^\$argon2id\$/);
});

t.test('accounts that commands create are announced to webhooks, each once', async (t) => {
  const cwd = temporaryFolder(t);
  const store = await openStore(`sqlite:${join(cwd, 'app.db')}`);
  t.teardown(() => store.close());
  const endpoint = {
    id: 'whe_1',
    url: 'https://hooks.example.test',
    description: '',
    secret: 'x',
    version: 1,
  };
  await endpointCollection(store).insert({ ...endpoint, events: ['user.registered'], createdAt: 1 });
  await command(cwd, ['create', 'ada@example.test', '--password-stdin'], `${PASSWORD}\n`);
  const lines = ['bob', 'ada', 'eve'].map((name) => JSON.stringify({ email: `${name}@example.test` }));
  await command(cwd, ['import', '-', '--dry-run'], lines.join('\n'));
  await command(cwd, ['import', '-'], lines.join('\n'));
  const { items } = await deliveryCollection(store).page({ sort: 'id', limit: 9 });
  const stored = items.map(({ event, body }) => `${event} ${JSON.parse(body).data.user.email}`);
  t.same(
    stored.sort(),
    ['ada', 'bob', 'eve'].map((name) => `user.registered ${name}@example.test`),
  );
});

t.test('user import keeps IDs and metadata, and ignores a byte order mark and spaces', async (t) => {
  const cwd = temporaryFolder(t);
  const id = '9f1c2f3a-7b65-4c11-9d2e-0a1b2c3d4e5f';
  const ada = {
    id,
    email: ' Ada@example.test ',
    name: ' Ada ',
    publicMetadata: { team: 7 },
    privateMetadata: { old: 1 },
  };
  const lines = [ada, { ...ada, email: 'other@example.test' }, { id: 'a b', email: 'bad@example.test' }];
  const text = `\ufeff${lines.map((line) => JSON.stringify(line)).join('\n')}`;
  writeFileSync(join(cwd, 'users.ndjson'), text);
  const first = await command(cwd, ['import', 'users.ndjson']);
  t.match(first.out, '3 lines: 1 new, 0 already there, 2 refused.');
  t.match(
    first.err,
    /line 2: id belongs to another account\nline 3: id must have 1 to 64 letters, digits, _ and -/,
  );
  t.match(await (await usersIn(t, cwd)).findOne({ id }), {
    ...{ email: 'ada@example.test', name: 'Ada', publicMetadata: '{"team":7}', privateMetadata: '{"old":1}' },
  });
  const again = await command(cwd, ['import', 'users.ndjson']);
  t.match(again.out, '3 lines: 0 new, 1 already there, 2 refused.', 'and can be repeated');
  t.match((await command(cwd, ['show', id])).out, id);
});

t.test(
  'a dry run reports the same result per line as the import, including distant duplicates',
  async (t) => {
    const cwd = temporaryFolder(t);
    const line = (email: string, more = {}) => JSON.stringify({ email, ...more });
    const known = ['known@example.test', 'u5@example.test'];
    t.equal((await command(cwd, ['import', '-'], known.map((email) => line(email)).join('\n'))).code, 0);

    const distinct = Array.from({ length: 3000 }, (_, index) => `u${index}@example.test`);
    const lines = [
      line('Late@example.test', { createdAt: 'yesterday' }),
      ...distinct.flatMap((email, index) => (index % 10 === 0 ? [line(email), line(email)] : [line(email)])),
      line('KNOWN@example.test'),
      line('late@example.test'),
      'nonsense',
      line('LATE@example.test', { name: 'Grace Hopper' }),
      ...distinct.filter((_, index) => index % 3 === 0).map((email) => line(email.toUpperCase())),
    ];
    const input = lines.join('\n');
    const dry = await command(cwd, ['import', '-', '--dry-run', '--json'], input);
    const real = await command(cwd, ['import', '-', '--json'], input);
    t.same(dry, real);
    t.same(JSON.parse(real.out), {
      lines: lines.length,
      created: 3000,
      existing: lines.length - 3002,
      refused: 2,
      interrupted: false,
    });
    t.match(real.err, /^line 1: createdAt .*\nline 3304: is not valid JSON\n$/);
    const again = await command(cwd, ['import', '-', '--dry-run', '--json'], input);
    t.match(JSON.parse(again.out), { created: 0, existing: lines.length - 2 });
  },
);

t.test('a dry run without a store creates none and reports what the import would report', async (t) => {
  const cwd = temporaryFolder(t);
  const line = '{"email":"ada@example.test"}\n';
  const dry = await command(cwd, ['import', '-', '--dry-run'], line);
  t.match(dry, { code: 0, out: '1 lines: 1 would be new, 0 already there, 0 refused.\n' });
  t.match(dry.err, /^The file \/.*app\.db does not exist yet; the import creates it\.\n$/);
  t.same(readdirSync(cwd), []);
  writeFileSync(join(cwd, 'app.db'), '');
  const empty = await command(cwd, ['import', '-', '--dry-run'], line);
  t.match(empty, { code: 0, out: /1 would be new/, err: /^The database has no users yet/ });
  t.equal(readFileSync(join(cwd, 'app.db'), 'utf8'), '', 'an empty file stays empty');
  writeFileSync(join(cwd, 'file'), '');
  const nowhere = await command(cwd, ['import', '-', '--dry-run'], line, 'sqlite:file/app.db');
  t.match(nowhere, { code: 1, out: '' }, 'where no file can be made');
});

t.test(
  'an interrupted import finishes the lines in progress, and the same command imports the rest',
  async (t) => {
    const cwd = temporaryFolder(t);
    const env = { PATH: process.env['PATH'], DATABASE_URI: 'sqlite:app.db' };
    const child = spawn(process.execPath, [SAAS, 'user', 'import', '-', '--json'], { cwd, env });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk) => {
      out += chunk;
    });
    // The first 128 lines are done once the bad one among them is reported; the others are never sent.
    child.stderr.on('data', (chunk) => {
      err += chunk;
      if (err.includes('line 1:') && !child.killed) child.kill('SIGINT');
    });
    const lines = Array.from({ length: 300 }, (_, index) =>
      JSON.stringify({ email: `u${index}@example.test` }),
    );
    child.stdin.write(`bad\n${lines.slice(0, 150).join('\n')}\n`);
    const code = await new Promise((resolve) => child.on('close', resolve));
    t.equal(code, 130, err);
    const report = JSON.parse(out);
    t.match(report, { refused: 1, interrupted: true });
    t.ok(report.created >= 127 && report.created <= 150, `${report.created}`);
    const rest = await command(cwd, ['import', '-', '--json'], lines.join('\n'));
    t.match(JSON.parse(rest.out), { created: 300 - report.created, existing: report.created, refused: 0 });
  },
);

t.test('user list prints all users page by page, or those with a prefix or in a state', async (t) => {
  const cwd = temporaryFolder(t);
  const lines = Array.from({ length: 2500 }, (_, index) =>
    JSON.stringify({ email: `u${index}@example.test`, createdAt: 1_700_000_000_000 + index }),
  );
  t.equal((await command(cwd, ['import', '-'], lines.join('\n'))).code, 0);
  await command(cwd, ['suspend', 'u7@example.test']);
  const listed = async (...args: string[]) => {
    const { code, out, err } = await command(cwd, ['list', ...args, '--json']);
    t.equal(code, 0, err);
    return out
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  };
  const all = await listed();
  t.equal(new Set(all.map(({ id }) => id)).size, 2500);
  t.match(all[0], { email: 'u2499@example.test', state: 'active' });
  const emails = async (...args: string[]) => (await listed(...args)).map(({ email }) => email);
  t.same(
    await emails('--limit', '201'),
    all.slice(0, 201).map(({ email }) => email),
  );
  t.same(await emails('u249', '--limit', '2'), ['u2490@example.test', 'u2491@example.test']);
  t.same(await emails('U7@'), ['u7@example.test']);
  t.same(await emails('--state', 'suspended'), ['u7@example.test']);
  t.match(await command(cwd, ['list', 'u7@']), {
    code: 0,
    out: /^usr_\w+ +2023-\S+ {2}suspended {2}u7@example\.test\n$/,
  });
  t.match(await command(cwd, ['list', 'none@']), { code: 0, out: '', err: '' });
  t.match(await command(cwd, ['list', 'u7', '--state', 'suspended']), { code: 1, err: /cannot be combined/ });
});

t.test('user delete closes the account, and a server deletes it', async (t) => {
  const cwd = temporaryFolder(t);
  await command(cwd, ['create', 'ada@example.test', '--password-stdin'], PASSWORD);
  t.match(await command(cwd, ['delete', 'ada@example.test']), { code: 2, err: /no terminal .* --yes/ });
  t.match(await command(cwd, ['delete', 'eve@example.test', '--yes']), { code: 1, err: /no user eve@/ });
  t.same(await canSignIn(t, cwd, [['ada@example.test', PASSWORD]]), [200], 'nothing has changed');
  for (const _ of ['first', 'repeated'])
    t.match(await command(cwd, ['delete', 'ada@example.test', '--yes', '--json']), {
      code: 0,
      out: /^{"id":"usr_\w+","email":"ada@example.test","state":"deleting"}\n$/,
    });
  const store = await openStore(`sqlite:${join(cwd, 'app.db')}`);
  t.teardown(() => store.close());
  const { items } = await listedAuditCollection(store).page({ sort: 'id', limit: 50 });
  t.same(
    items.filter(({ event }) => event === 'user.closed').map(({ ip }) => ip),
    ['local'],
  );
  const app = await saasApp(t, {
    databaseUri: `sqlite:${join(cwd, 'app.db')}`,
    clock: fakeClock(Date.now() + 120_000),
    cronSecret: SECRET,
  });
  const body = { email: 'ada@example.test', password: PASSWORD };
  t.equal((await app.request('POST', '/api/auth/login', { body })).status, 403, 'closed');
  t.match(await app.request('POST', '/api/cron', { token: SECRET }), { status: 204 });
  await app.close();
  t.equal(await (await usersIn(t, cwd)).count(), 0);
});

t.test(
  'user reset mails a link, and user export prints what is stored, each with an audit record',
  async (t) => {
    const cwd = temporaryFolder(t);
    await command(cwd, ['create', 'ada@example.test', '--password-stdin'], PASSWORD);
    t.match(await command(cwd, ['reset', 'eve@example.test']), { code: 1, err: /no user eve@/ });
    t.match(await command(cwd, ['reset', 'ada@example.test', '--json']), {
      code: 0,
      out: /"sent":true/,
      err: '',
    });
    t.match((await (await usersIn(t, cwd)).findOne({ email: 'ada@example.test' }))?.resetHash, /./);
    const store = await openStore(`sqlite:${join(cwd, 'app.db')}`);
    t.teardown(() => store.close());
    t.equal(await mailCollection(store).count(), 1);
    const exported = await command(cwd, ['export', 'ada@example.test', '--json']);
    t.match(JSON.parse(exported.out), {
      user: { email: 'ada@example.test' },
      audit: [
        { event: 'user.exported', ip: 'local' },
        { event: 'password.reset-sent' },
        { event: 'user.created' },
      ],
    });
    t.notMatch(exported.out, /argon2|resetHash/);
    await command(cwd, ['suspend', 'ada@example.test']);
    t.match(await command(cwd, ['reset', 'ada@example.test']), {
      code: 1,
      err: /suspended or being deleted/,
    });
  },
);

/** The block of a guide that begins with this text. */
function blockOf(guide: string, beginning: string): string {
  const page = readFileSync(join(ROOT, 'docs', guide), 'utf8');
  const blocks = [...page.matchAll(/<<'SQL'\n([\s\S]*?)\n *SQL\n/g)].map(([, sql = '']) => sql.trim());
  const found = blocks.find((sql) => sql.startsWith(beginning));
  if (found === undefined) throw new Error(`${guide} has no ${beginning}`);
  return found;
}

t.test('the guide for Better Auth matches its tables, SQL and users', async (t) => {
  const cwd = temporaryFolder(t);
  // Created by Better Auth's own migration, with hashes from its own library.
  const db = await openDatabase(join(cwd, 'better-auth.db'));
  db.exec(`
    create table "user" ("id" text not null primary key, "name" text not null, "email" text not null unique,
      "emailVerified" integer not null, "image" text, "createdAt" date not null, "updatedAt" date not null);
    create table "account" ("id" text not null primary key, "accountId" text not null, "providerId" text not null,
      "userId" text not null references "user" ("id"), "accessToken" text, "password" text,
      "createdAt" date not null, "updatedAt" date not null);
    insert into "user" values ('a', 'Ada "the first"', 'ada@example.test', 1, null, '2024-05-06T07:08:09.123Z', '2024-05-06T07:08:09.123Z');
    insert into "user" values ('b', 'Bob', 'bob@example.test', 0, null, '2024-05-07T07:08:09.123Z', '2024-05-06T07:08:09.123Z');
    insert into "account" values ('1', 'a', 'credential', 'a', null,
      'e49cca85615942848bb3776c70c59355:43a6e0549e55d81d8b58057e8f59f8f19b84f77271b51e952986a09dc05cf25a4d66a1281de38329bf0015f9c809bcf939ce6db01fcbca8982de97c65a0c7b9a',
      '2024-05-06T07:08:09.123Z', '2024-05-06T07:08:09.123Z');
    insert into "account" values ('2', '4711', 'github', 'b', 'gho_x', null, '2024-05-06', '2024-05-06');
  `);
  const rows = db.prepare(blockOf('saas/migrate-better-auth.md', 'select json_object')).all();
  db.close();
  const lines = rows.map((row) => Object.values(row as object)[0]);
  const imported = await command(cwd, ['import', '-'], lines.join('\n'));
  t.match(imported, { code: 0, out: '2 lines: 2 new, 0 already there, 0 refused.', err: '' });
  const users = await usersIn(t, cwd);
  t.match(await users.findOne({ id: 'a' }), {
    ...{ email: 'ada@example.test', name: 'Ada "the first"' },
    emailVerified: true,
    createdAt: Date.UTC(2024, 4, 6, 7, 8, 9, 123),
  });
  t.notOk((await users.findOne({ email: 'bob@example.test' }))?.passwordHash);
  t.same(await canSignIn(t, cwd, [['ada@example.test', 'pässwörd ﬁne horse']]), [200]);
});

t.test('the guide for Supabase writes the fields that the import reads', async (t) => {
  const cwd = temporaryFolder(t);
  const sql = blockOf('saas/migrate-supabase.md', 'select json_build_object');
  const fields = [...sql.matchAll(/^ *'(\w+)',/gm)].map(([, field]) => field);
  // The output format of psql -At for json_build_object.
  const line = `{"id" : "9f1c2f3a-7b65-4c11-9d2e-0a1b2c3d4e5f", "email" : "ada@example.test", "name" : "Ada", "passwordHash" : "${BCRYPT}", "emailVerified" : true, "suspended" : null, "createdAt" : "2024-01-02T03:04:05.123456+00:00", "publicMetadata" : {"full_name": "Ada"}}`;
  t.same(fields, Object.keys(JSON.parse(line)));
  const invited =
    '{"email" : "eva@example.test", "name" : null, "passwordHash" : null, "emailVerified" : false, "createdAt" : "2024-01-02T03:04:05+00:00"}';
  const imported = await command(cwd, ['import', '-', '--json'], `${line}\n${invited}\n`);
  t.match(JSON.parse(imported.out), { created: 2, refused: 0 });
  t.same(await canSignIn(t, cwd, [['ada@example.test', PASSWORD]]), [200]);
});

t.test('progress shows a rate and an estimate, and only on a terminal', async (t) => {
  const written: string[] = [];
  const stream = (isTTY: boolean) => ({ isTTY, write: (text: string) => written.push(text) > 0 }) as never;
  const unit = { name: 'users', write: (count: number) => count.toFixed(0) };
  let time = 0;
  for (const isTTY of [false, true]) {
    time = 0;
    const progress = createProgress(unit, stream(isTTY), () => time);
    time = 2000;
    progress.show(50, 200);
    progress.end();
    if (!isTTY) t.same(written, []);
  }
  t.match(written[0], /25 % 50 users, 25\/s, 0:06 left$/);
});
