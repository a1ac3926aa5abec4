import { Readable } from 'node:stream';
import t from 'tap';
import { createPasswords } from '../../../src/core/passwords/hasher.js';
import { importUsers } from '../../../src/saas/auth/import/import.js';
import { type UserDocument, userCollection } from '../../../src/saas/auth/store.js';
import { auditOf, CHEAP, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { countedRandom } from '../../kit/random.js';
import { NO_CUSTOMERS } from '../../kit/users.js';

/** Accounts created by code. */

const BCRYPT = '$2a$04$XTuyIS99hkwY2e8/7K7RlefGboJb28bSlZlN.9r6HA6faaFfv0H06';

t.test('an account created by code can sign in, whether or not registration is open', async (t) => {
  const app = await saasApp(t);
  const { users } = app.server.fastify.saas;
  const body = { allowRegistration: false, version: 0 };
  t.equal((await app.admin('PATCH', '/admin/api/settings', body)).status, 200);
  const user = await users.create({
    email: 'Ada@Example.test',
    password: PASSWORD,
    name: 'Ada',
    emailVerified: true,
  });
  t.match(user, { email: 'ada@example.test', name: 'Ada', emailVerified: true });
  t.same(await users.find({ email: 'ADA@example.test' }), user);
  const login = await app.post('/auth/login', { email: 'ada@example.test', password: PASSWORD });
  t.equal(login.status, 200);
  t.same({ ...login.body.data.user, suspendedAt: null, granted: null }, user);
  const made = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'user.created');
  t.match(made, [{ subject: user.id, ip: 'local' }]);
  t.equal(made.length, 1);
});

t.test('creation by code refuses what registration refuses', async (t) => {
  const app = await saasApp(t);
  const { users } = app.server.fastify.saas;
  const email = 'new@example.test';
  const wrong: [object, string][] = [
    [{ email: 'no address', password: PASSWORD }, 'email'],
    [{ email: 'a@b.test\nbcc: c@d.test', password: PASSWORD }, 'email'],
    [{ email: 7 }, 'email'],
    [{}, 'email'],
    [{ email, password: 'short' }, 'password'],
    [{ email, password: 12345678 }, 'password'],
    [{ email, name: 'a\u202eb' }, 'name'],
    [{ email, name: 'x'.repeat(201) }, 'name'],
    [{ email, passwordHash: 'plain' }, 'passwordHash'],
    [{ email, passwordHash: BCRYPT, password: PASSWORD }, 'passwordHash'],
    [{ email, emailVerified: 'yes' }, 'emailVerified'],
    [{ email, customerId: 'ada' }, 'customerId'],
    [{ email, createdAt: app.clock.now() + 1 }, 'createdAt'],
  ];
  for (const [input, path] of wrong) {
    await t.rejects(users.create(input as never), { code: 'VALIDATION_ERROR', details: [{ path }] }, path);
  }
  t.equal(await users.find({ email }), null, 'nothing was made');
  await users.create({ email, name: '' });
  await t.rejects(users.create({ email: email.toUpperCase() }), { code: 'EMAIL_TAKEN', statusCode: 409 });

  const strict = await saasApp(t, { env: { NODE_ENV: 'production' }, publicUrl: 'https://app.example.test' });
  await t.rejects(strict.server.fastify.saas.users.create({ email, password: 'password123' }), {
    code: 'WEAK_PASSWORD',
  });
});

t.test('an account is found by its address in any ASCII letter case and by no other spelling', async (t) => {
  const app = await saasApp(t);
  const { email } = await app.signUp({ email: 'kim@example.test' });
  const { find } = app.server.fastify.saas.users;
  t.match(await find({ email: 'KIM@Example.test' }), { email });
  for (const other of ['\u212aim@example.test', 'k im@example.test', 'kim', 'kim@example.test\0', '']) {
    t.equal(await find({ email: other }), null, JSON.stringify(other));
  }
});

t.test('an imported hash is replaced by argon2id at the first login', async (t) => {
  const app = await saasApp(t);
  const users = userCollection(await storeOf(t, app));
  const { create } = app.server.fastify.saas.users;
  const { id } = await create({ email: 'old@example.test', passwordHash: BCRYPT });
  const login = async (password: string) =>
    (await app.request('POST', '/api/auth/login', { body: { email: 'old@example.test', password } })).status;
  const stored = async () => (await users.findOne({ id })) as UserDocument;
  t.equal(await login('wrong'), 401);
  t.equal((await stored()).passwordHash, BCRYPT, 'a wrong password changes nothing');
  t.same(await Promise.all([login(PASSWORD), login(PASSWORD)]), [200, 200]);
  const { memoryCost, timeCost, parallelism } = CHEAP;
  t.match(
    (await stored()).passwordHash,
    new RegExp(`^\\$argon2id\\$v=19\\$m=${memoryCost},t=${timeCost},p=${parallelism}\\$`),
  );
  t.equal((await stored()).passwordVersion, 1, 'it is the same password');
  t.equal(await login(PASSWORD), 200);
  t.equal(await login(`${PASSWORD}!`), 401);
});

t.test('an import accepts a byte order mark and refuses other encodings', async (t) => {
  const users = userCollection(await storeOf(t, await saasApp(t)));
  const refused: string[] = [];
  const input = Readable.from([
    Buffer.from('\ufeff{"email":"first@example.test","name":"Zoë"}\n'),
    Buffer.from('{"email":"second@example.test","name":"Zoë"}\n', 'latin1'),
  ]);
  const report = await importUsers(
    input,
    { onRefused: (line, reason) => refused.push(`line ${line}: ${reason}`) },
    {
      users,
      storeUser: users.insert,
      customers: NO_CUSTOMERS,
      passwords: createPasswords(countedRandom(), CHEAP),
      passwordPolicy: { validate: async () => {} },
      siteName: async () => 'SaaS',
      audit: SILENT_AUDIT,
      clock: fakeClock(),
      random: countedRandom(),
    },
  );
  t.match(report, { lines: 2, created: 1, refused: 1 });
  t.same(refused, ['line 2: is not valid UTF-8']);
  t.match(await users.findOne({ email: 'first@example.test' }), { name: 'Zoë' });
});
