import t from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { auditOf, errorOf, PASSWORD, storeOf } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { CHANGED, type MailedApp, mailedApp, RESET, VERIFY } from './kit.js';

/** A link proves access to a mailbox. The password or a session proves that its reader created the account. */

const NEW = 'a different sentence entirely';
const VICTIM = 'victim@example.test';

const verify = (app: MailedApp, token: string, password?: string, bearer?: string) =>
  app.post('/auth/verify-email', { token, password }, bearer === undefined ? {} : { token: bearer });

const login = async (app: MailedApp, email: string, password: string) =>
  (await app.post('/auth/login', { email, password })).status;

/** A link that confirms the address of an account. */
async function linkFor(app: MailedApp, email: string): Promise<string> {
  await app.post('/auth/resend-verification', { email });
  return app.tokenIn(VERIFY);
}

t.test(
  'a required confirmation from another browser replaces the password set at registration',
  async (t) => {
    const app = await mailedApp(t, { requireEmailVerification: true });
    const attacker = { email: VICTIM, password: PASSWORD };
    t.equal((await app.post('/auth/register', attacker)).status, 202);
    const link = await app.tokenIn(VERIFY);
    const needed = { status: 400, body: { error: { details: [{ path: 'password' }] } } };
    t.match(await verify(app, link), needed);
    t.equal(errorOf(await verify(app, link, 'short')), 'VALIDATION_ERROR');
    t.equal(await login(app, VICTIM, PASSWORD), 403, 'a refusal confirms nothing');
    t.equal((await verify(app, link, NEW)).status, 200);
    t.equal(await login(app, VICTIM, PASSWORD), 401);
    t.equal(await login(app, VICTIM, NEW), 200);
    t.strictSame((await app.mail(CHANGED)).to, [VICTIM]);
    t.equal(errorOf(await verify(app, link, PASSWORD)), 'INVALID_TOKEN', 'the link works once');
    const records = await auditOf(await storeOf(t, app));
    t.same(
      records.map(({ event }) => event).filter((event) => /^(email|password)/.test(event)),
      ['password.reset', 'email.verified'],
    );
  },
);

t.test('a required confirmation with the password set at registration keeps it', async (t) => {
  const app = await mailedApp(t, { requireEmailVerification: true });
  await app.post('/auth/register', { email: VICTIM, password: PASSWORD });
  const link = await app.tokenIn(VERIFY);
  t.equal((await verify(app, link, PASSWORD)).status, 200);
  t.equal(await login(app, VICTIM, PASSWORD), 200);
  const user = await userCollection(await storeOf(t, app)).findOne({ email: VICTIM });
  t.equal(user?.passwordVersion, 1);
});

t.test(
  'a later confirmation from another browser ends the sessions and links of the registration',
  async (t) => {
    const app = await mailedApp(t);
    const revoked: unknown[] = [];
    app.server.fastify.saas.events.on('session.revoked', (event) => revoked.push(event));
    const attacker = await app.signUp({ email: VICTIM });
    const change = { email: 'attacker@example.test', password: PASSWORD };
    await app.post('/user/email', change, { token: attacker.accessToken });
    const back = await app.tokenIn(VERIFY);
    const link = await linkFor(app, VICTIM);
    t.equal((await verify(app, link, NEW)).status, 200);
    t.equal(await app.me(attacker), 401);
    t.equal((await app.post('/auth/refresh', { refreshToken: attacker.refreshToken })).status, 401);
    t.equal(await login(app, VICTIM, PASSWORD), 401);
    t.equal((await verify(app, back, PASSWORD)).status, 400, 'nor does a pending change survive');
    t.equal(await login(app, VICTIM, NEW), 200);
    t.match(revoked, [{ userId: attacker.id, scope: 'global' }]);
  },
);

t.test('a confirmation with a session or the current password keeps sessions and password', async (t) => {
  const app = await mailedApp(t);
  for (const proof of ['session', 'password']) {
    const account = await app.signUp();
    const link = await linkFor(app, account.email);
    const answer =
      proof === 'session'
        ? await verify(app, link, undefined, account.accessToken)
        : await verify(app, link, PASSWORD);
    t.equal(answer.status, 200, proof);
    const profile = await app.request('GET', '/api/user/profile', { token: account.accessToken });
    t.equal(profile.body.data.emailVerified, true, proof);
    t.equal(await login(app, account.email, PASSWORD), 200, proof);
  }
});

t.test('a session proves only its own account, and only until it ends', async (t) => {
  const app = await mailedApp(t);
  const account = await app.signUp();
  const stranger = await app.signUp();
  const link = await linkFor(app, account.email);
  const by = async ({ accessToken }: { accessToken: string }) =>
    errorOf(await verify(app, link, undefined, accessToken));
  t.equal(await by(stranger), 'VALIDATION_ERROR');
  await app.post('/auth/logout', { scope: 'global' }, { token: account.accessToken });
  t.equal(await by(account), 'UNAUTHENTICATED');
  app.clock.advance(901_000);
  t.equal(await by(account), 'TOKEN_EXPIRED');
  t.equal(await login(app, account.email, PASSWORD), 200, 'and the password stays');
});

t.test(
  'an account that moves to an address is confirmed or taken over by the owner of that address',
  async (t) => {
    const app = await mailedApp(t);
    const attacker = await app.signUp();
    const move = async () => {
      const { accessToken: token } = attacker;
      await app.post('/user/email', { email: VICTIM, password: PASSWORD }, { token });
      return app.tokenIn(VERIFY);
    };
    const link = await move();
    t.equal(errorOf(await verify(app, link)), 'VALIDATION_ERROR');
    t.equal((await verify(app, link, NEW)).status, 200);
    t.equal(await app.me(attacker), 401);
    t.equal(await login(app, VICTIM, PASSWORD), 401);
    t.equal(await login(app, VICTIM, NEW), 200);
  },
);

t.test('an account without a password gets the one of the person who confirms', async (t) => {
  const app = await mailedApp(t, { requireEmailVerification: true });
  await app.server.fastify.saas.users.create({ email: VICTIM });
  const link = await linkFor(app, VICTIM);
  t.equal((await verify(app, link, NEW)).status, 200);
  t.equal(await login(app, VICTIM, NEW), 200);
});

t.test('a suspended account is not confirmed', async (t) => {
  const app = await mailedApp(t);
  const { email, id } = await app.signUp();
  const link = await linkFor(app, email);
  const users = userCollection(await storeOf(t, app));
  await users.updateOne({ id }, { set: { suspendedAt: 1 } });
  for (const password of [PASSWORD, NEW])
    t.equal(errorOf(await verify(app, link, password)), 'INVALID_TOKEN');
  t.match(await users.findOne({ id }), { emailVerified: false, passwordVersion: 1 });
});

t.test(
  'the page asks for a password, works without JavaScript and shows why a password is refused',
  async (t) => {
    const app = await mailedApp(t, { requireEmailVerification: true });
    await app.post('/auth/register', { email: VICTIM, password: PASSWORD });
    const link = await app.tokenIn(VERIFY);
    const page = await app.request('GET', `/api/auth/verify-email?token=${link}`);
    t.equal(page.status, 200);
    t.notMatch(page.text, /<script/);
    t.match(page.text, `name="token" value="${link}"`);
    const submit = (password: string) =>
      app.request('POST', '/api/auth/verify-email', {
        body: new URLSearchParams({ token: link, password }).toString(),
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      });
    const short = await submit('short');
    t.match(short, { status: 400, text: sentence('password.short') });
    t.match(short.text, `value="${link}"`);
    t.equal((await submit(NEW)).status, 200);
    t.equal((await submit(PASSWORD)).status, 400, 'used');
    t.equal(await login(app, VICTIM, NEW), 200);
  },
);

t.test('production refuses a common password before revealing whether it is the current one', async (t) => {
  const app = await mailedApp(t, { publicUrl: 'https://app.example.test', env: { NODE_ENV: 'production' } });
  const common = 'password123';
  const passwordHash = '$2b$04$......................5zTzvmG0eLEXfzOB8JSfZbFLDnXbSpe';
  await app.server.fastify.saas.users.create({ email: VICTIM, passwordHash });
  const link = await linkFor(app, VICTIM);
  t.equal(errorOf(await verify(app, link, common)), 'WEAK_PASSWORD');
  t.equal((await verify(app, link, NEW)).status, 200);
});

t.test('a password reset by e-mail cancels a pending change of address', async (t) => {
  const app = await mailedApp(t);
  const attacker = await app.signUp({ email: VICTIM });
  const change = { email: 'attacker@example.test', password: PASSWORD };
  await app.post('/user/email', change, { token: attacker.accessToken });
  const pending = await app.tokenIn(VERIFY);
  await app.post('/auth/forgot-password', { email: VICTIM });
  const reset = await app.tokenIn(RESET);
  t.equal((await app.post('/auth/reset-password', { token: reset, password: NEW })).status, 200);
  t.equal(errorOf(await verify(app, pending, PASSWORD)), 'INVALID_TOKEN');
  t.equal(await login(app, VICTIM, NEW), 200, 'the address is still the one that was recovered');
});

t.test('the link that changes an address expires after a day', async (t) => {
  const app = await mailedApp(t);
  const { email, id, accessToken: token } = await app.signUp();
  await app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
  const link = await app.tokenIn(VERIFY);
  const stored = await userCollection(await storeOf(t, app)).findOne({ id });
  const now = app.clock.now();
  const end = stored?.changeExpiresAt ?? 0;
  t.ok(Math.abs(end - now - 24 * 60 * 60_000) < 60_000);
  app.clock.set(end);
  t.equal(errorOf(await verify(app, link, PASSWORD)), 'INVALID_TOKEN');
  app.clock.set(end - 1);
  t.equal((await verify(app, link, PASSWORD)).status, 200);
  t.equal(await login(app, email, PASSWORD), 401, 'the account has the new address');
});
