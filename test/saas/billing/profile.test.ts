import { dirname } from 'node:path';
import t from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { customerCollection } from '../../../src/saas/billing/store.js';
import { type Account, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { waitUntil } from '../../kit/wait.js';
import { type MailedApp, mailedApp, VERIFY } from '../auth/kit.js';
import { KEY, provider, type Shop, secondProcess, shop } from './kit.js';

const rename = (app: SaasApp, { accessToken: token }: Account, name: string) =>
  app.request('PATCH', '/api/user/profile', { token, body: { name } });

const customerOf = ({ customers }: Shop['api'], id: string) =>
  [...customers.values()].find((customer) => customer['id'] === id) ?? {};

const updatesOf = ({ calls }: Shop['api']) =>
  calls.filter(({ method, path }) => method === 'POST' && /^\/v1\/customers\/cus_/.test(path));

/** Asks for another address; returns what confirms it. */
async function moveAddress(app: MailedApp, token: string): Promise<() => Promise<number>> {
  await app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
  let link = await app.mail(VERIFY);
  while (link.to[0] !== 'new@example.test') link = await app.mail(VERIFY);
  return async () => (await app.post('/auth/verify-email', { token: link.token, password: PASSWORD })).status;
}

const RUN = { term: 1, signal: new AbortController().signal };

t.test('a new name reaches the customer, and users without a customer cause no call', async (t) => {
  const { app, api, buyer } = await shop(t);
  const [ada, eve] = [await buyer(), await app.signUp()];
  await rename(app, eve, 'Eve');
  await rename(app, ada, 'Ada');
  await waitUntil('the name is sent', () => customerOf(api, ada.customer)['name'] === 'Ada');
  await rename(app, ada, '');
  await waitUntil('the name is removed', () => customerOf(api, ada.customer)['name'] === null);
  t.ok(updatesOf(api).every(({ path }) => path === `/v1/customers/${ada.customer}`));
  const users = userCollection(await storeOf(t, app));
  await waitUntil(
    'no change is left',
    async () => (await users.count({ profileChangedAt: { gte: 0 } })) === 0,
  );
});

t.test('a confirmed change of the address reaches the customer', async (t) => {
  const api = await provider(t);
  const app = await mailedApp(t, { paymentSecretKey: KEY, paymentApiUrl: api.url });
  const { accessToken: token, email } = await app.signUp({ name: 'Ada' });
  await app.post('/billing/create-checkout-session', { mode: 'setup' }, { token });
  const [customer] = api.customers.values();
  t.match(customer, { email, name: 'Ada' });
  const confirm = await moveAddress(app, token);
  t.equal(customer?.['email'], email, 'not before it is confirmed');
  t.equal(await confirm(), 200);
  await waitUntil('the address is sent', () => customer?.['email'] === 'new@example.test');
});

t.test(
  'while the provider is down, changes are kept and retried with growing delays; the last one wins',
  async (t) => {
    const { app, api, buyer } = await shop(t);
    const ada = await buyer();
    const { jobs } = await secondProcess(t, { app, api });
    const customers = customerCollection(await storeOf(t, app));
    const stored = async () => (await customers.findOne({ ownerId: ada.id })) ?? ({} as never);
    api.fault = ({ path }) =>
      path.startsWith('/v1/customers/') ? { status: 500, body: '{"error":{}}' } : undefined;
    await rename(app, ada, 'First');
    await waitUntil('the first attempt', async () => (await stored()).profileAttempts === 1);
    t.equal((await stored()).profileDueAt, app.clock.now() + 30_000);
    const before = updatesOf(api).length;
    await jobs.profiles?.run(RUN);
    t.equal(updatesOf(api).length, before, 'no attempt before the delay ends');
    app.clock.advance(30_000);
    await jobs.profiles?.run(RUN);
    t.match(await stored(), { profileAttempts: 2, profileDueAt: app.clock.now() + 60_000 });

    await rename(app, ada, 'Last');
    await waitUntil('a new change is sent at once', async () => (await stored()).profileAttempts === 1);
    api.fault = () => undefined;
    app.clock.advance(30_000);
    await jobs.profiles?.run(RUN);
    t.equal(customerOf(api, ada.customer)['name'], 'Last');
    t.notMatch(Object.keys(await stored()).join(), /profile/);
  },
);

t.test('a change is sent although the process that made it ended before', async (t) => {
  const { app, api, buyer } = await shop(t);
  const ada = await buyer();
  const folder = dirname(app.file);
  await app.close();
  api.fault = ({ path }) => (path.startsWith('/v1/customers/') ? 'cut' : undefined);
  const ended = await saasApp(t, { folder, paymentSecretKey: KEY, paymentApiUrl: api.url });
  t.equal((await rename(ended, ada, 'Ada')).status, 200);
  await ended.close();
  t.equal(customerOf(api, ada.customer)['name'], null);
  api.fault = () => undefined;
  app.clock.advance(60_000);
  const { jobs } = await secondProcess(t, { app, api });
  await jobs.profiles?.run(RUN);
  t.equal(customerOf(api, ada.customer)['name'], 'Ada');
});

t.test('without an API key, a change leaves no mark', async (t) => {
  const app = await mailedApp(t, {});
  const ada = await app.signUp({ name: 'Ada' });
  const { accessToken: token } = ada;
  t.equal((await rename(app, ada, 'Ada L.')).status, 200);
  t.equal(await (await moveAddress(app, token))(), 200);
  const users = userCollection(await storeOf(t, app));
  t.match(await users.findOne({ id: ada.id }), { email: 'new@example.test', name: 'Ada L.' });
  t.equal(await users.count({ profileChangedAt: { gte: 0 } }), 0);
});

t.test('a profile that the provider rejects is not sent again until the next change', async (t) => {
  const { app, api, buyer } = await shop(t);
  const warnings: string[] = [];
  Object.assign(app.server.fastify.log, { warn: (_: unknown, message: string) => warnings.push(message) });
  const [ada, bob] = [await buyer(), await buyer()];
  const customers = customerCollection(await storeOf(t, app));
  const stored = async () => (await customers.findOne({ ownerId: ada.id })) ?? ({} as never);
  const { jobs } = await secondProcess(t, { app, api });
  let error = { type: 'invalid_request_error', code: 'email_invalid', param: 'email' };
  let status = 400;
  api.fault = ({ path }) =>
    path === `/v1/customers/${ada.customer}` ? { status, body: JSON.stringify({ error }) } : undefined;
  await rename(app, ada, 'Rejected');
  await waitUntil('the rejection', async () => (await stored()).profileRejectedAt === app.clock.now());
  t.match(await stored(), { profileRejection: /StripeInvalidRequestError email_invalid 400/ });
  t.equal((await stored()).profileDueAt, undefined);
  const before = updatesOf(api).length;
  app.clock.advance(60_000);
  for (let run = 0; run < 3; run++) await jobs.profiles?.run(RUN);
  t.equal(updatesOf(api).length, before, 'it is not retried');
  const rejections = warnings.filter((warning) => /rejects the address or the name/.test(String(warning)));
  t.equal(rejections.length, 1, 'it is logged once');
  await rename(app, bob, 'Bob');
  await waitUntil('others are not affected', () => customerOf(api, bob.customer)['name'] === 'Bob');

  // The operator's key is at fault and not the profile.
  [status, error] = [401, { type: 'invalid_request_error', code: 'api_key_expired', param: '' }];
  await rename(app, ada, 'Waiting');
  await waitUntil('the next attempt', async () => (await stored()).profileAttempts === 1);
  t.equal((await stored()).profileRejectedAt, undefined);
  api.fault = () => undefined;
  app.clock.advance(30_000);
  await jobs.profiles?.run(RUN);
  t.equal(customerOf(api, ada.customer)['name'], 'Waiting');
  t.notMatch(Object.keys(await stored()).join(), /profile/);
});

t.test('a change during the first purchase is not lost', async (t) => {
  const { app, api } = await shop(t);
  const ada = await app.signUp();
  api.fault = async ({ path }) => {
    if (path === '/v1/customers') await rename(app, ada, 'Ada');
    return undefined;
  };
  const buy = { token: ada.accessToken, body: { mode: 'setup' } };
  t.equal((await app.request('POST', '/api/billing/create-checkout-session', buy)).status, 200);
  const { jobs } = await secondProcess(t, { app, api });
  await jobs.profiles?.run(RUN);
  t.match([...api.customers.values()], [{ name: 'Ada' }]);
});
