import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { HOUR, MINUTE } from '../../../src/core/kernel/clock.js';
import { createListedAudit } from '../../../src/core/ops/audit.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { customerCollection, paymentCollection } from '../../../src/saas/billing/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { type Account, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { waitUntil } from '../../kit/wait.js';
import { mailedApp, VERIFY, WELCOME } from './kit.js';

const EXPORT = '/api/user/export';

/** Several pages of the audit log. */
const RECORDS = 2500;

t.test('an export holds everything about the caller and no secret', async (t) => {
  const app = await mailedApp(t);
  const { email, id, accessToken: token } = await app.signUp({ name: 'Ada' });
  const other = await app.signUp();
  const store = await storeOf(t, app);
  await customerCollection(store).insert({ id: 'cus_1', ownerId: id, createdAt: app.clock.now() });
  const times = ['profileChangedAt', 'registrationRepeatedAt'];
  const set = Object.fromEntries(times.map((name) => [name, app.clock.now()]));
  await userCollection(store).updateOne({ id }, { set });
  app.clock.advance(1000);
  await app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
  await app.mail(VERIFY);
  const answer = await app.request('GET', '/api/user/export', { token });
  t.equal(answer.status, 200);
  const { data } = answer.body;
  t.match(data, {
    exportedAt: /^2040-/,
    user: { id, email, name: 'Ada', newEmail: 'new@example.test' },
    sessions: [{ id: /^ses_/, createdAt: /^2040-/, authenticatedAt: /^2040-/, amr: ['pwd'] }],
    billing: { customers: [{ customerId: 'cus_1' }] },
    audit: [{ event: 'email.change-asked', ip: '127.0.0.1' }, { event: 'user.registered' }],
    mails: [
      { template: 'confirm-address-change', to: 'new@example.test' },
      { template: 'welcome', to: email },
    ],
  });
  for (const name of times) t.match(data.user[name], /^2040-/, name);
  t.notMatch(answer.text, /argon2|passwordHash|Hash|currentId|token=|link/);
  t.notMatch(answer.text, other.id);
});

t.test('an export holds every payment, however many there are', async (t) => {
  const app = await mailedApp(t);
  const [{ id, accessToken: token }, other] = [await app.signUp(), await app.signUp()];
  const payments = paymentCollection(await storeOf(t, app));
  const payment = (ownerId: string, index: number) => ({
    ...{ id: `in_${index}`, ownerId, status: 'paid' as const, amount: index + 1, reportedBy: {}, rev: 1 },
    // Several of the same second; the newest is not stored last.
    at: app.clock.now() - (index % 400) * 1000,
  });
  const inserted = Array.from({ length: 1201 }, (_, index) => payment(id, index));
  await Promise.all([...inserted, payment(other.id, 9999)].map((one) => payments.insert(one)));
  const { status, body } = await app.request('GET', '/api/user/export', { token });
  t.equal(status, 200);
  const exported: { id: string; at: string }[] = body.data.billing.payments;
  t.equal(exported.length, inserted.length);
  t.same(new Set(exported.map((one) => one.id)), new Set(inserted.map((one) => one.id)), 'each once');
  const times = exported.map(({ at }) => at);
  t.same(times, times.toSorted().reverse(), 'the newest first');
});

t.test('an address that moves to another account does not expose e-mails of its former owner', async (t) => {
  const app = await mailedApp(t);
  const { email, id, accessToken: token } = await app.signUp();
  await app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
  const link = await app.tokenIn(VERIFY);
  t.equal((await app.post('/auth/verify-email', { token: link }, { token })).status, 200);
  const next = await app.signUp({ email });
  await app.mail(WELCOME);
  const mailsOf = async (owner: { accessToken: string }) => {
    const { body } = await app.request('GET', '/api/user/export', { token: owner.accessToken });
    const mails: { template: string; to: string }[] = body.data.mails;
    return mails.map(({ template, to }) => `${template} ${to}`).sort();
  };
  t.same(await mailsOf(next), [`welcome ${email}`]);
  const mine = ['confirm-address-change new@example.test', `email-changed ${email}`, `welcome ${email}`];
  t.same(await mailsOf({ accessToken: token }), mine);

  await app.post('/user/delete', { password: PASSWORD }, { token: next.accessToken });
  t.same(await mailsOf({ accessToken: token }), mine, 'the notice survives who has the address now');
  await app.post('/user/delete', { password: PASSWORD }, { token });
  t.equal(await mailCollection(await storeOf(t, app)).count({ userId: id }), 0);
});

t.test('an export needs the recent sign-in that its page needs', async (t) => {
  const app = await saasApp(t, { accessTokenTtl: 86_400 });
  const { accessToken: token } = await app.signUp();
  t.equal((await app.request('GET', EXPORT, { token })).status, 200);
  app.clock.advance(10 * MINUTE + 1);
  const stale = await app.request('GET', EXPORT, { token });
  t.match(stale, { status: 401, body: { error: { code: 'REAUTHENTICATION_REQUIRED' } } });
  const renewed = await app.post('/auth/reauthenticate', { password: PASSWORD }, { token });
  t.equal((await app.request('GET', EXPORT, { token: renewed.body.data.accessToken })).status, 200);
});

t.test('an account may be exported ten times an hour, from all addresses together', async (t) => {
  const app = await saasApp(t, { limits: true, accessTokenTtl: 86_400 });
  const [ada, bob] = [await app.signUp(), await app.signUp()];
  const ask = (token: string, from: string) => app.request('GET', EXPORT, { token, from });
  for (let count = 0; count < 10; count++) {
    t.equal((await ask(ada.accessToken, `203.0.113.${count}`)).status, 200);
  }
  const refused = await ask(ada.accessToken, '203.0.113.99');
  t.match(refused, { status: 429, body: { error: { code: 'RATE_LIMITED' } } });
  t.equal((await ask(bob.accessToken, '203.0.113.99')).status, 200, 'others have a limit of their own');
  app.clock.advance(HOUR + 1000);
  const renewed = await app.post('/auth/reauthenticate', { password: PASSWORD }, { token: ada.accessToken });
  t.equal((await ask(renewed.body.data.accessToken, '203.0.113.99')).status, 200, 'an hour later');
});

t.test(
  'an unread export blocks further exports of the same account until its connection closes',
  async (t) => {
    const app = await saasApp(t);
    const [ada, bob] = [await app.signUp(), await app.signUp()];
    const { clock, random } = app;
    const audit = createListedAudit(await storeOf(t, app), { clock, random, log: console });
    // Exceeds the buffers at both ends of a connection.
    const detail = 'x'.repeat(8000);
    const fill = async (subject: string, records: number) => {
      const record = { event: 'test', ip: '192.0.2.1', subject, detail };
      for (let count = 0; count < records; count += 250) {
        await Promise.all(Array.from({ length: 250 }, () => audit.record(record)));
      }
    };
    await fill(ada.id, RECORDS);
    await fill(bob.id, 250);
    const { hostname, port } = new URL(await app.listen());
    const request = ({ accessToken }: Account) =>
      `GET ${EXPORT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${accessToken}\r\n\r\n`;
    const greedy = connect(Number(port), hostname).on('error', () => {});
    t.teardown(() => greedy.destroy());
    greedy.write(request(ada).repeat(60) + request(bob));
    await once(greedy, 'data');
    greedy.pause();
    const ask = ({ accessToken: token }: Account) => app.request('GET', EXPORT, { token });
    const refused = await ask(ada);
    t.equal(refused.status, 429, 'a second one beside it is refused');
    t.equal(refused.headers['retry-after'], '10');
    t.equal((await ask(bob)).status, 200, 'a request that waits behind it blocks nothing');
    const health = await fetch(`http://${hostname}:${port}/health`);
    t.equal(health.status, 200, 'other clients are served');

    greedy.destroy();
    for (const [person, records] of [
      [ada, RECORDS],
      [bob, 250],
    ] as const) {
      let answer = await ask(person);
      await waitUntil('the end of the export', async () => {
        answer = await ask(person);
        return answer.status !== 429;
      });
      t.equal(answer.status, 200, 'the end of the connection ends its exports');
      t.equal(answer.body.data?.audit.length, records + 1, 'a list of many pages is whole');
    }
  },
);
