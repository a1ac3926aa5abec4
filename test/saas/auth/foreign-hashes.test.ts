import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import argon2 from 'argon2';
import t from 'tap';
import { createPasswords } from '../../../src/core/passwords/hasher.js';
import { foreignHashCollection } from '../../../src/saas/auth/import/foreign-hashes.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { CHEAP, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { countedRandom } from '../../kit/random.js';

/** While accounts have foreign hashes, a failed login costs the same work for every address. */

const BCRYPT_4 = '$2a$04$XTuyIS99hkwY2e8/7K7RlefGboJb28bSlZlN.9r6HA6faaFfv0H06';
const PBKDF2 = '$pbkdf2-sha256$1000$KAVg7J0TIqRU6n1PaW2N8Q$drDOQVcRz5FZOe1vG3w0Og75jzE1Cdv5.jcVq1rpDV4';
const HASHES: Record<string, string> = {
  bcrypt4: BCRYPT_4,
  bcrypt6: BCRYPT_4.replace('$04$', '$06$'),
  pbkdf2: PBKDF2,
  pbkdf2more: PBKDF2.replace('$1000$', '$2500$'),
  scrypt: '$scrypt$ln=10,r=8,p=1$611LqXVuLYVQKiXk3HvPWQ$xz8i2euLt9W1cSzVoTItNZB0T9F1GSjaxMu4zAD8sYs',
  betterAuth: `${'ab'.repeat(16)}:${'cd'.repeat(64)}`,
  argon2i: await argon2.hash(PASSWORD, { type: argon2.argon2i, memoryCost: 64, timeCost: 2, parallelism: 1 }),
  argon2id: await argon2.hash(PASSWORD, { memoryCost: 128, timeCost: 3, parallelism: 4 }),
};

/** The hashing work of wrong passwords during `act`: cost by family. */
async function workOf(act: () => Promise<unknown>): Promise<Record<string, number>> {
  const work: Record<string, number> = {};
  const add = (message: unknown) => {
    const { family, cost } = message as { family: string; cost: number };
    work[family] = (work[family] ?? 0) + cost;
  };
  subscribe('saas-backend.password-work', add);
  await act();
  unsubscribe('saas-backend.password-work', add);
  return work;
}

const login = async (app: SaasApp, email: string, password: string) =>
  (await app.request('POST', '/api/auth/login', { body: { email, password } })).status;

const emailOf = (name: string) => `${name.toLowerCase()}@example.test`;

t.test('a wrong password costs the same hashing work for every account', async (t) => {
  const app = await saasApp(t);
  const { create } = app.server.fastify.saas.users;
  await app.signUp({ email: 'own@example.test' });
  await create({ email: 'none@example.test' });
  const fail = (email: string) =>
    workOf(async () => t.equal(await login(app, email, 'a wrong password'), 401, email));
  t.same(await fail('unknown@example.test'), { own: 1 }, 'without foreign hashes nothing is added');

  for (const [name, passwordHash] of Object.entries(HASHES))
    await create({ email: emailOf(name), passwordHash });
  app.clock.advance(1000);
  const unknown = await fail('unknown@example.test');
  t.match(
    unknown,
    { own: 1, bcrypt: 64, 'PBKDF2 sha256, 32 bytes': 2500 },
    'the most costly of a family counts',
  );
  t.equal(Object.keys(unknown).length, 7);
  for (const name of ['own', 'none', ...Object.keys(HASHES)])
    t.same(await fail(emailOf(name)), unknown, name);

  t.same(
    await workOf(() => login(app, 'own@example.test', PASSWORD)),
    {},
    'a right password costs nothing more',
  );
  for (const name of ['bcrypt4', 'pbkdf2', 'scrypt', 'argon2i', 'argon2id'])
    t.equal(await login(app, emailOf(name), PASSWORD), 200, name);
  app.clock.advance(1000);
  const rest = await fail('unknown@example.test');
  t.same(
    Object.keys(rest).sort(),
    Object.keys(unknown)
      .filter((family) => /own|bcrypt|PBKDF2|64 bytes/.test(family))
      .sort(),
  );
  t.same(await fail(emailOf('bcrypt4')), rest, 'of accounts that were rehashed, too');
});

t.test('a new password or the deletion of the account ends the extra hashing work', async (t) => {
  const app = await saasApp(t);
  const users = userCollection(await storeOf(t, app));
  const { create } = app.server.fastify.saas.users;
  const hashes = foreignHashCollection(await storeOf(t, app));
  const passwordHash = HASHES['bcrypt4'] as string;
  const bearer = async (email: string) =>
    (await app.request('POST', '/api/auth/login', { body: { email, password: PASSWORD } })).body.data
      .accessToken;

  const changed = await create({ email: 'changed@example.test', passwordHash });
  const deleted = await create({ email: 'deleted@example.test', passwordHash });
  t.equal(await hashes.count(), 2);
  for (const { id, email } of [changed, deleted]) {
    const token = await bearer(email);
    t.equal(await hashes.findOne({ id }), null, 'the login has rehashed it');
    // The state after another import.
    await users.updateOne({ id }, { set: { passwordHash } });
    await hashes.insert({ id, family: 'bcrypt', cost: 16, decoy: passwordHash });
    const [path, body] =
      email === changed.email
        ? ['/api/user/password', { currentPassword: PASSWORD, newPassword: 'another password' }]
        : ['/api/user/delete', { password: PASSWORD }];
    t.equal((await app.request('POST', path, { body, token })).status, 200);
    t.equal(await hashes.findOne({ id }), null, path);
  }
  await t.rejects(create({ email: changed.email, passwordHash }), { code: 'EMAIL_TAKEN' });
  t.equal(await hashes.count(), 0, 'nor does a refused import leave any');
});

t.test('signed-in owners do not wait for the imported hashes of other accounts', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  await app.server.fastify.saas.users.create({
    email: 'old@example.test',
    passwordHash: HASHES['bcrypt6'] as string,
  });
  const body = { currentPassword: 'a wrong password', newPassword: 'another password' };
  const work = await workOf(() => app.request('POST', '/api/user/password', { body, token }));
  t.same(work, { own: 1 });
});

t.test('a disconnected client costs no further hashing work', async (t) => {
  const passwords = createPasswords(countedRandom(), CHEAP);
  let asked = 0;
  // The first call is by the queue of hashes, before any work.
  const isDisconnected = () => ++asked > 1;
  const decoys = [BCRYPT_4, HASHES['pbkdf2'] as string];
  const work = await workOf(() => passwords.verify(null, 'a wrong password', isDisconnected, decoys));
  t.same(work, { own: 1 });
});
