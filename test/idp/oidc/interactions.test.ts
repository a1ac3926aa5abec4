import { stringifyCookie } from 'cookie';
import t, { type Test } from 'tap';
import { basic, PASSWORD } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { authorizePath, type IdpAppOptions, idpApp, idpStore, SEED } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** Forms carry their own state: processes keep none in memory, and requests without credentials store nothing. */

const OTHER_SEED = '8a1f00c2d94b7e635f1a2b8c7d9e0f4132a5b6c7d8e9f0a1b2c3d4e5f6a7b8c9';

/** Two providers on one store and one clock, like two processes of one installation. */
async function twoProcesses(t: Test, first: IdpAppOptions = {}, second: IdpAppOptions = {}) {
  const [folder, clock] = [temporaryFolder(t), fakeClock()];
  return [
    await idpApp(t, { folder, clock, ...first }),
    await idpApp(t, { folder, clock, ...second }),
  ] as const;
}

t.test('a form shown by one process is accepted by another, even during a key rotation', async (t) => {
  for (const [first, second] of [
    [{}, {}],
    [{ ed25519Seed: SEED }, { ed25519Seed: OTHER_SEED, ed25519SeedPrevious: SEED }],
    [
      { ed25519Seed: OTHER_SEED, ed25519SeedPrevious: SEED },
      { ed25519Seed: SEED, ed25519SeedNext: OTHER_SEED },
    ],
  ]) {
    const [shows, accepts] = await twoProcesses(t, first, second);
    const [client, human] = [await shows.createClient(), await shows.makeHuman()];
    const { browser, page } = await shows.visit(client, { state: 'kept' });
    const { interaction = '' } = page.form().fields;
    const cookie = stringifyCookie(browser.cookies());
    const form = { interaction, handle: human.handle, password: human.password };
    const answer = await accepts.request('POST', '/authorize/login', { form, headers: { cookie } });
    t.equal(answer.status, 303);
    t.match(answer.headers['location'], /state=kept/);
  }
});

t.test('a form signed with a removed key is refused', async (t) => {
  const [shows, refuses] = await twoProcesses(t, { ed25519Seed: SEED }, { ed25519Seed: OTHER_SEED });
  const [client, human] = [await shows.createClient(), await shows.makeHuman()];
  const { browser, page } = await shows.visit(client);
  const form = { ...page.form().fields, handle: human.handle, password: human.password };
  const headers = { cookie: stringifyCookie(browser.cookies()) };
  const answer = await refuses.request('POST', '/authorize/login', { form, headers });
  t.match(answer, { status: 403, body: { error: 'login_rejected' } });
});

t.test('the longest accepted request leads to a form that can be submitted', async (t) => {
  const idp = await idpApp(t);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const room = 8 * 1024 - authorizePath(client, { login_hint: '' }).length;
  const { browser, page } = await idp.visit(client, { login_hint: '"'.repeat(Math.floor(room / 3)) });
  t.equal(page.status, 200);
  const answer = await browser.submit(page, { handle: human.handle, password: human.password });
  t.equal(answer.status, 303);

  const unescaped = `${authorizePath(client)}&login_hint=${'"'.repeat(7000)}`;
  t.equal((await idp.request('GET', unescaped)).status, 414, 'a request whose form could not be submitted');
  const padded = (length: number) => `${authorizePath(client)}&x=`.padEnd(length, 'x');
  t.equal((await idp.request('GET', padded(8192))).status, 200);
  t.match(await idp.request('GET', padded(8193)), { status: 414, body: { error: 'uri_too_long' } });
});

const COLLECTIONS = ['grants', 'sessions', 'consents', 'principals', 'clients', 'throttles', 'audit'];

t.test('requests without credentials store nothing', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const store = await idpStore(t, idp);
  const count = () => Promise.all(COLLECTIONS.map((name) => store.collection(name).count()));
  const before = await count();
  for (let round = 0; round < 20; round++) {
    const state = `${'s'.repeat(1000)}${round}`;
    t.equal((await idp.authorize(client, undefined, { state })).status, 200);
    t.equal((await idp.request('GET', `/invite/${'x'.repeat(32)}${round}`)).status, 404);
    t.equal((await idp.request('GET', '/logout')).status, 200);
    t.equal((await idp.request('GET', '/userinfo', { token: `at_${'x'.repeat(43)}` })).status, 401);
  }
  t.same(await count(), before);
});

t.test(
  'requests beyond 300 per minute and address are refused, apart from those of applications',
  async (t) => {
    const idp = await idpApp(t, { limits: true });
    const client = await idp.createClient();
    const agent = await idp.mintAgent();
    for (let round = 0; round < 310; round++) await idp.authorize(client);
    const refused = await idp.authorize(client);
    t.equal(refused.status, 429);
    t.ok(Number(refused.headers['retry-after']) > 0);
    for (const path of ['/jwks', '/.well-known/openid-configuration', '/health']) {
      t.equal((await idp.request('GET', path)).status, 200, path);
    }
    const tokens = await idp.redeem(client, await idp.codeFor(client, agent));
    t.equal(tokens.status, 200, 'an agent signs in');
    t.equal((await idp.userinfo(tokens.body.access_token)).status, 200);
    const failed = await idp.request('GET', authorizePath(client), { headers: { authorization: 'Basic' } });
    t.equal(failed.status, 429, 'malformed credentials count like any other request');
  },
);

t.test('refused credentials are summarised in the audit log instead of adding a record each', async (t) => {
  const idp = await idpApp(t, { limits: false });
  const client = await idp.createClient();
  const store = await idpStore(t, idp);
  const size = async () =>
    (await store.collection('audit').count()) + (await store.collection('throttles').count());
  const before = await size();
  const attempts = ['Basic', 'Basic ', 'Basic !!', basic('', ''), basic('nobody@example.test', PASSWORD)];
  for (let round = 0; round < 40; round++) {
    for (const authorization of attempts) {
      const answer = await idp.request('GET', authorizePath(client), { headers: { authorization } });
      t.equal(answer.status, 401);
    }
    t.equal((await idp.request('POST', '/v1/agents', { token: `wrong ${round}`, body: {} })).status, 401);
  }
  t.ok((await size()) - before <= 10, 'two hundred and forty refusals add a bounded number of documents');
});
