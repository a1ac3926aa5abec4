import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { saasApp } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { runProgram } from '../kit/command-line.js';
import { compiled } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** The exports of other products, with real hashes of one password, are imported as they are. */

const FIXTURES = join(compiled('.'), '../test/bin/fixtures');
const PASSWORD = 'correct horse battery staple';

/** A folder with the files that the guides name. */
function exportsFolder(t: Test): string {
  const cwd = temporaryFolder(t);
  cpSync(FIXTURES, cwd, { recursive: true });
  return cwd;
}

const guide = (name: string) => readFileSync(join(FIXTURES, `../../../docs/saas/migrate-${name}.md`), 'utf8');

/** The imports of a guide, the dry runs left out. */
const importsOf = (name: string): string[][] =>
  [...guide(name).matchAll(/^ *saas-backend user (import .+)$/gm)]
    .map(([, line = '']) => line.split(' '))
    .filter((args) => !args.includes('--dry-run'));

const command = (cwd: string, args: string[], stdin = '') =>
  runProgram('saas-backend', ['user', ...args], { DATABASE_URI: 'sqlite:app.db' }, { cwd, stdin });

interface Case {
  args: string[] | undefined;
  report: Record<string, number>;
  refused: string[];
  notImported: Record<string, number>;
  /** The answers to a login with the old password: the user and, in the export, what only the operator sees; or the status. */
  users: Record<string, object | number>;
}

const MAIL =
  'email must be one e-mail address of at most 254 ASCII characters, like ada@example.com; given: null';

const CASES: Record<string, Case> = {
  auth0: {
    args: importsOf('auth0')[0],
    report: { lines: 7, created: 5, refused: 2 },
    refused: [`line 5: ${MAIL}`, 'line 6: email_verified must be true or false; given: "yes"'],
    notImported: {
      'identity google-oauth2': 2,
      last_login: 1,
      logins_count: 1,
      'missing password': 3,
      nickname: 1,
      'passwords without a user': 1,
      phone_number: 1,
      phone_verified: 1,
      picture: 1,
      updated_at: 1,
      'user_id with other characters': 1,
    },
    users: {
      'ada@example.com': {
        ...{ id: 'auth0_5dea9f9c82dd7c0e76e4ec93', name: 'Ada Lovelace', emailVerified: true },
        ...{ createdAt: '2019-12-06T18:36:12.412Z', publicMetadata: { theme: 'dark' } },
        privateMetadata: { plan: 'gold' },
      },
      'euclid@example.com': { id: 'auth0_euclid', name: 'Euclid of Alexandria', emailVerified: false },
      'grace@example.com': 401,
      'mallory@example.com': 403,
      'kim@acme.example': 401,
    },
  },
  'clerk, the CSV of the dashboard': {
    args: importsOf('clerk')[0],
    report: { lines: 6, created: 5, refused: 1 },
    refused: [`line 7: ${MAIL}`],
    notImported: {
      'missing password': 3,
      'other e-mail addresses': 1,
      'password of md5': 1,
      primary_phone_number: 2,
      totp_secret: 1,
      username: 2,
      verified_phone_numbers: 2,
    },
    users: {
      'ada@example.com': {
        id: 'user_2fT3OpCuU3elx0CXE3cNyStBC9u',
        name: 'Ada Lovelace, Countess',
        emailVerified: true,
      },
      'grace@example.com': { name: 'Grace Hopper', emailVerified: false },
      'kim@example.com': { name: 'Kim "K" Kay', emailVerified: true },
      'sam@example.com': 401,
      'old@example.com': 401,
    },
  },
  'clerk, the list of the API with the passwords of the CSV': {
    args: importsOf('clerk')[1],
    report: { lines: 2, created: 2, refused: 0 },
    refused: [],
    notImported: {
      'identity oauth_google': 1,
      image_url: 1,
      object: 2,
      'other e-mail addresses': 1,
      password_enabled: 1,
      'passwords without a user': 2,
      totp_secret: 1,
      unsafe_metadata: 1,
      updated_at: 1,
      username: 1,
    },
    users: {
      'ada@example.com': {
        ...{ id: 'user_2fT3OpCuU3elx0CXE3cNyStBC9u', name: 'Ada Lovelace', emailVerified: true },
        ...{ createdAt: '2024-06-10T06:13:20.000Z', publicMetadata: { team: 7 } },
        privateMetadata: { stripe: 'x' },
      },
      'grace@example.com': 403,
    },
  },
  'clerk, the file of its command': {
    args: ['import', 'clerk-command.json', '--from', 'clerk'],
    report: { lines: 2, created: 2, refused: 0 },
    refused: [],
    notImported: { create_organization_enabled: 1, 'missing password': 2 },
    users: { 'kim@example.com': 401, 'sam@example.com': 401 },
  },
  firebase: {
    args: importsOf('firebase')[0],
    report: { lines: 4, created: 3, refused: 1 },
    refused: [`user 4: ${MAIL}`],
    notImported: {
      'identity google.com': 1,
      lastSignedInAt: 1,
      'missing password': 3,
      phoneNumber: 1,
      photoUrl: 1,
    },
    users: {
      'ada@example.com': {
        ...{ id: 'Zk3QH8T6mXhT9s2vB1pYwE4rL0c2', name: 'Ada Lovelace', emailVerified: true },
        ...{ createdAt: '2020-01-01T00:00:00.000Z', publicMetadata: { admin: true } },
      },
      'grace@example.com': 401,
      'mallory@example.com': 401,
    },
  },
  keycloak: {
    args: importsOf('keycloak')[0],
    report: { lines: 6, created: 5, refused: 1 },
    refused: [`user 6: ${MAIL}`],
    notImported: {
      'credential otp': 1,
      'identity google': 1,
      'missing password': 2,
      'password of custom-md5': 1,
      realmRoles: 6,
      requiredActions: 1,
      serviceAccountClientId: 1,
      username: 6,
    },
    users: {
      'ada@example.com': {
        ...{ id: '5b7c3b2c-6b9e-4f5e-9c44-6d1f7a1c0001', name: 'Ada Lovelace', emailVerified: true },
        ...{ createdAt: '2024-06-10T06:13:20.000Z' },
        privateMetadata: { locale: ['en'], company: ['Analytical Engines'] },
      },
      'grace@example.com': { name: 'Grace', emailVerified: false },
      'kim@example.com': { emailVerified: true },
      'sam@example.com': 403,
      'old@example.com': 401,
    },
  },
};

/** What a server on the store of a folder answers to a login with the old password. */
async function signIn(t: Test, cwd: string, emails: string[]) {
  const databaseUri = `sqlite:${join(cwd, 'app.db')}`;
  const app = await saasApp(t, { databaseUri, clock: fakeClock(Date.now()) });
  const answers: Record<string, unknown> = {};
  for (const email of emails) {
    const { status, body } = await app.request('POST', '/api/auth/login', {
      body: { email, password: PASSWORD },
    });
    const user = status === 200 && (await app.server.fastify.saas.users.find({ id: body.data.user.id }));
    answers[email] = user ? { ...body.data.user, privateMetadata: user.privateMetadata } : status;
  }
  await app.close();
  return answers;
}

for (const [name, { args = [], report, refused, notImported, users }] of Object.entries(CASES)) {
  t.test(`${name}: users keep IDs, passwords and metadata, and the rest is named`, async (t) => {
    const cwd = exportsFolder(t);
    const given = [...args, '--json'];
    const dry = await command(cwd, [...given, '--dry-run']);
    const first = await command(cwd, given);
    t.same(dry.json, first.json, 'a dry run reports the same');
    t.match(first.json, { ...report, existing: 0 });
    t.strictSame(first.json.notImported, notImported);
    t.same(first.err.trim().split('\n').filter(Boolean), refused);
    t.equal(first.code, refused.length > 0 ? 1 : 0);

    t.match((await command(cwd, given)).json, { created: 0, existing: report['created'] });
    t.match(await signIn(t, cwd, Object.keys(users)), users);
  });
}

for (const name of ['auth0', 'clerk', 'firebase', 'keycloak']) {
  t.test(`the guide for ${name} shows what a dry run prints`, async (t) => {
    const [args = []] = importsOf(name);
    const { out, err } = await command(exportsFolder(t), [...args, '--dry-run']);
    const blocks = [...guide(name).matchAll(/^ *```text\n([\s\S]*?)^ *```/gm)];
    const [shown] = blocks
      .map(([, text = '']) => text.replaceAll(/^ {3}/gm, ''))
      .filter((text) => text.includes('refused'));
    t.equal(shown, err.replace(/^The file .* does not exist yet.*\n/, '') + out);
  });
}

t.test('an account that is blocked in the export is suspended, and can be unsuspended', async (t) => {
  const cwd = exportsFolder(t);
  await command(cwd, importsOf('firebase')[0] ?? []);
  const listed = await command(cwd, ['list', '--state', 'suspended', '--json']);
  t.match(listed.json, { email: 'mallory@example.com', state: 'suspended' });
  t.match(await command(cwd, ['unsuspend', 'mallory@example.com']), { code: 0, out: /state +open/ });
  const lines = [
    { email: 'a@example.com', suspended: true },
    { email: 'b@example.com', suspended: 'yes' },
  ];
  const own = await command(cwd, ['import', '-'], lines.map((line) => JSON.stringify(line)).join('\n'));
  t.match(own, { code: 1, err: 'line 2: suspended must be true or false; given: "yes"' });
  t.match((await command(cwd, ['show', 'a@example.com'])).out, /state +suspended/);
});

t.test('what is wrong with a file or the options is named', async (t) => {
  const cwd = exportsFolder(t);
  const hashes = readFileSync(join(cwd, 'auth0-hashes.ndjson'), 'utf8');
  const wrong: [line: string, stdin: string, code: number, says: RegExp | string][] = [
    ['- --passwords hash-config.txt', '', 2, 'error: --passwords needs --from.'],
    ['- --from okta', '', 2, /Allowed choices are auth0, clerk, firebase, keycloak/],
    ['- --from keycloak --passwords hash-config.txt', '', 2, 'an export of keycloak contains the hashes'],
    ['missing.json --from clerk', '', 1, 'there is no file missing.json'],
    ['- --from keycloak', '{"realm":"demo"}', 1, '- cannot be read: has no list of users'],
    ['- --from keycloak', 'null', 1, '- cannot be read: has no list of users'],
    ['- --from firebase', '{"users":[', 1, '- cannot be read: has text that is not valid JSON'],
    ['- --from clerk', 'id,first_name\nuser_1,"Ada', 1, '- cannot be read: line 2: a quotation mark'],
    [
      'auth0-users.ndjson --from auth0 --passwords -',
      `${hashes}{"email":"ada@example.com"}\n`,
      1,
      '- cannot be read: line 5: _id is required: a JSON object',
    ],
    [
      'firebase-users.json --from firebase --passwords -',
      'hash_config {\n  algorithm: SCRYPT,\n}',
      1,
      '- cannot be read: base64_signer_key is required',
    ],
    [
      'firebase-users.json --from firebase',
      '',
      1,
      'user 1: passwordHash needs the file with the hash_config: --passwords',
    ],
    ['auth0-hashes.ndjson --from auth0', '', 1, 'line 1: user_id is required: text'],
    ['- --from keycloak', '[7]', 1, 'user 1: is not an object'],
    [
      '- --from firebase',
      '{"users":[{"localId":"a","customAttributes":"{"}]}',
      1,
      'user 1: has text that is not valid JSON',
    ],
  ];
  for (const [line, stdin, code, says] of wrong)
    t.match(await command(cwd, ['import', ...line.split(' ')], stdin), { code, err: says }, line);
});
