import t, { type Test } from 'tap';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createPasswordPolicy } from '../../../src/core/passwords/common.js';
import { createPasswords } from '../../../src/core/passwords/hasher.js';
import { createAccountData, createSignInMethods } from '../../../src/core/server/contributions.js';
import { createLinks } from '../../../src/idp/provisioning/links.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { type Answer, basic, CHEAP, PASSWORD } from '../../kit/app.js';
import { NO_EFFECT, SILENT_AUDIT } from '../../kit/effects.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  type Credentials,
  comparable,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type RegisteredClient,
  redemption,
} from '../../kit/idp.js';
import { addressesIn } from '../provisioning/kit.js';

const MINUTE = 60_000;
const WRONG = 'not the password';
const PRODUCTION = { NODE_ENV: 'production' };
/** A password in the format of generated ones. */
const FORGED = `agp_${'x'.repeat(43)}`;

/** HTTP Basic at /authorize. */
const signIn = (
  idp: IdpApp,
  client: RegisteredClient,
  handle: string,
  password: string,
  from = '192.0.2.1',
) => idp.request('GET', authorizePath(client), { from, headers: { authorization: basic(handle, password) } });

async function repeat<T>(count: number, call: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let index = 0; index < count; index++) results.push(await call(index));
  return results;
}

const statuses = (answers: Answer[]) => answers.map(({ status }) => status);

/** The link that `idp principal reset` prints. */
async function resetLink(t: Test, idp: IdpApp, sub: string): Promise<string> {
  const store = await idpStore(t, idp);
  const people = principalCollection(store);
  const nothing = async () => undefined;
  const links = createLinks(people, {
    signInMethods: createSignInMethods(),
    endSessions: async () => NO_EFFECT,
    groups: { joining: async () => [], leaving: async () => [], refuseUnknown: nothing },
    ...{ addresses: addressesIn(store), accountData: createAccountData() },
    clients: { find: async () => null, findNamed: async () => null },
    firstOperator: { look: async () => null },
    commit: createCommit(store),
    audit: SILENT_AUDIT,
    clock: idp.clock,
    random: idp.random,
    passwords: createPasswords(idp.random, CHEAP),
    passwordPolicy: createPasswordPolicy(false, () => undefined),
    throttle: { count: nothing, tryCountKey: async () => true, trustOnly: nothing },
    issuer: () => ISSUER,
  });
  const person = await people.findOne({ id: sub });
  const link = person && (await links.reset(person, { ip: 'cli', isDisconnected: () => false }));
  if (!link) throw new Error('there is no such person');
  return link.url;
}

/** A handle of each kind of principal, and an unknown one. */
async function principalsOfEachKind(idp: IdpApp): Promise<Record<string, Credentials>> {
  const body = { handle: 'self-chosen@example.test', password: PASSWORD };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body })).body;
  return {
    minted: await idp.mintAgent(),
    chosen: { ...body, sub },
    human: await idp.makeHuman(),
    unknown: { sub: '', handle: 'nobody@example.test', password: PASSWORD },
  };
}

t.test('failures are throttled alike for known and unknown handles', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const people = Object.entries(await principalsOfEachKind(idp));
  const expected = [...Array(10).fill(401), 429, 429];
  for (const [kind, { handle }] of people) {
    for (const password of [WRONG, FORGED]) {
      const answers = await repeat(12, () => signIn(idp, client, handle, password));
      t.same(statuses(answers), expected, `${kind}: each kind of secret has a counter of its own`);
    }
  }
  const { minted, ...chosen } = Object.fromEntries(people);
  const refused = await repeat(Object.keys(chosen).length, (index) => {
    const { handle, password } = Object.values(chosen)[index] as Credentials;
    return signIn(idp, client, handle, password);
  });
  t.match(refused[0], { status: 429, body: { error: 'rate_limited' }, headers: { 'retry-after': '60' } });
  for (const answer of refused)
    t.strictSame(comparable(answer), comparable(refused[0] as Answer), 'right ones, too');
  const page = await idp.request('GET', authorizePath(client), {
    headers: { accept: 'text/html', authorization: basic(people[0]?.[1].handle, WRONG) },
    from: '192.0.2.1',
  });
  t.match(page, { status: 429, text: /Try again in 1 minute\./ });
  const { handle, password } = minted as Credentials;
  t.equal((await signIn(idp, client, handle, password)).status, 302, 'a right generated secret is accepted');
});

t.test('a refused request does not tell whether its credentials are right', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const people = Object.values(await principalsOfEachKind(idp));
  const refused = [
    { client_id: 'unknown' },
    { redirect_uri: 'https://other.example/' },
    { response_type: 'token' },
  ];
  for (const parameters of refused) {
    for (const { handle, password } of people) {
      const [first, ...others] = await repeat(15, (index) =>
        idp.request('GET', authorizePath(client, parameters), {
          from: '192.0.2.1',
          headers: { authorization: basic(handle, index === 14 ? password : WRONG) },
        }),
      );
      for (const other of others) t.strictSame(comparable(other), comparable(first as Answer));
    }
  }
  const expected = [...Array(10).fill(401), 429];
  for (const { handle } of people) {
    const answers = await repeat(11, () => signIn(idp, client, handle, WRONG));
    t.same(statuses(answers), expected, `${handle}: none was counted`);
  }
});

t.test(
  'the form and Basic share one counter, and failures of others do not block minted agents',
  async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const [human, agent] = [await idp.makeHuman(), await idp.mintAgent()];
    const { browser, page } = await idp.visit(client);
    const form = (handle: string, password: string) => browser.send(page, { handle, password });

    t.same(await repeat(5, async () => (await form(human.handle, WRONG)).status), Array(5).fill(401));
    const basics = await repeat(8, () => signIn(idp, client, human.handle, WRONG, '127.0.0.1'));
    t.same(statuses(basics), [...Array(5).fill(401), 429, 429, 429]);
    const [right, wrong] = [await form(human.handle, PASSWORD), await form(human.handle, WRONG)];
    t.equal(right.status, 429);
    t.equal(right.body.replace(/req_\w+/, ''), wrong.body.replace(/req_\w+/, ''));
    t.equal((await signIn(idp, client, human.handle, PASSWORD)).status, 302, 'elsewhere the owner is let in');
    idp.clock.advance(MINUTE);
    t.equal((await form(human.handle, PASSWORD)).status, 303);

    t.same(
      await repeat(6, async () => (await form(agent.handle, agent.password)).status),
      Array(6).fill(401),
    );
    for (let index = 0; index < 70; index++)
      await signIn(idp, client, agent.handle, WRONG, `198.51.100.${index}`);
    const fleet = await Promise.all(
      Array.from({ length: 100 }, () => signIn(idp, client, agent.handle, agent.password)),
    );
    t.same(new Set(statuses(fleet)), new Set([302]));
  },
);

t.test("the owner of an account attacked from many addresses signs in by the operator's link", async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const human = await idp.makeHuman();
  const attack = await repeat(70, (index) => signIn(idp, client, human.handle, WRONG, `198.51.100.${index}`));
  t.same(statuses(attack), [...Array(60).fill(401), ...Array(10).fill(429)]);
  const refused = await signIn(idp, client, human.handle, PASSWORD, '203.0.113.7');
  t.match(refused, { status: 429, body: { error_description: /ask the operator for a link/ } });
  t.equal((await signIn(idp, client, human.handle, PASSWORD, '127.0.0.1')).status, 302, 'a known place');

  const path = new URL(await resetLink(t, idp, human.sub)).pathname;
  const password = 'a different sentence entirely';
  const form = { password, password_confirm: password };
  t.equal((await idp.request('POST', path, { form, from: '203.0.113.7' })).status, 303);
  t.equal((await signIn(idp, client, human.handle, password, '203.0.113.7')).status, 302);
  t.equal((await signIn(idp, client, human.handle, password, '203.0.113.8')).status, 429);
});

t.test('a new password forgets the addresses known under the old one', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const human = await idp.makeHuman();
  const everywhere = (password: string) =>
    repeat(70, (index) => signIn(idp, client, human.handle, password, `198.51.100.${index}`));
  t.same(new Set(statuses(await everywhere(PASSWORD))), new Set([302]));
  const path = new URL(await resetLink(t, idp, human.sub)).pathname;
  const password = 'a different sentence entirely';
  const form = { password, password_confirm: password };
  t.equal((await idp.request('POST', path, { form, from: '203.0.113.7' })).status, 303);
  t.same(statuses(await everywhere(WRONG)), [...Array(60).fill(401), ...Array(10).fill(429)]);
  t.equal((await signIn(idp, client, human.handle, password, '203.0.113.7')).status, 302);
});

t.test('an address may fail 60 times a minute for people, agents and clients each', async (t) => {
  const idp = await idpApp(t, { limits: true });
  const client = await idp.createClient();
  const [agent, human] = [await idp.mintAgent(), await idp.makeHuman()];
  const redeem = async (secret: string, id = client.id) =>
    idp.request('POST', '/token', {
      from: '192.0.2.1',
      form: redemption({ ...client, id }, await idp.codeFor(client, agent), { client_secret: secret }),
    });
  const others = (kind: string, index: number) =>
    kind === 'client'
      ? redeem('csec_wrong', `cid_${'0'.repeat(20)}${1000 + index}`)
      : signIn(idp, client, `${index}@example.test`, kind === 'agent' ? FORGED : WRONG);
  const wrong = await repeat(12, () => redeem('csec_wrong'));
  t.same(statuses(wrong), [...Array(10).fill(401), 429, 429], 'ten at one client');
  t.match(wrong[11], { body: { error: 'rate_limited' }, headers: { 'retry-after': '60' } });
  idp.clock.advance(MINUTE);
  for (const kind of ['client', 'agent', 'password']) {
    const answers = await repeat(62, (index) => others(kind, index));
    t.same(statuses(answers), [...Array(60).fill(401), 429, 429], kind);
    if (kind !== 'password')
      t.equal((await signIn(idp, client, human.handle, PASSWORD)).status, 302, 'people are not refused');
  }
  t.equal((await redeem(client.secret as string)).status, 200, 'nor is a right secret of a client');
  t.equal((await signIn(idp, client, agent.handle, agent.password)).status, 302, 'nor that of an agent');
  t.equal((await signIn(idp, client, human.handle, PASSWORD)).status, 429, 'a right password is');
  t.equal((await signIn(idp, client, human.handle, PASSWORD, '192.0.2.2')).status, 302);
  idp.clock.advance(MINUTE);
  t.equal((await signIn(idp, client, human.handle, PASSWORD)).status, 302);
});

t.test('a wrong secret for a public client is not counted against it', async (t) => {
  const idp = await idpApp(t, { limits: true });
  const [client, agent] = [await idp.createClient({ public: true }), await idp.mintAgent()];
  const redeem = async (more = {}) =>
    idp.request('POST', '/token', {
      from: '192.0.2.1',
      form: redemption(client, await idp.codeFor(client, agent), more),
    });
  t.same(new Set(statuses(await repeat(80, () => redeem({ client_secret: 'csec_wrong' })))), new Set([401]));
  t.equal((await redeem()).status, 200);
});

t.test('cross-site posts without a preflight are refused and not counted', async (t) => {
  const idp = await idpApp(t, { limits: true });
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const code = await idp.codeFor(client, agent);
  const post = (path: string, headers: Record<string, string>, secret: string | undefined) =>
    idp.request('POST', path, {
      from: '192.0.2.1',
      headers,
      form: `${redemption(client, code, { client_secret: secret })}&token=at_x`,
    });
  const simple = ['cross-site', 'same-site'].flatMap((site) =>
    ['no-cors', 'navigate'].map((mode) => ({ 'sec-fetch-site': site, 'sec-fetch-mode': mode })),
  );
  const before = idp.random.calls;
  for (const path of ['/token', '/introspect', '/revoke']) {
    for (const headers of simple) {
      const answers = await repeat(30, () => post(path, headers, 'csec_wrong'));
      t.same(new Set(statuses(answers)), new Set([400]), path);
      t.match(answers[0], { body: { error: 'invalid_request', error_description: /Cross-site/ } });
      t.equal((await post(path, headers, client.secret)).status, 400, 'nor evaluated');
    }
  }
  t.equal(idp.random.calls, before, 'nothing was recorded');
  t.equal((await post('/token', {}, 'csec_wrong')).status, 401, 'nothing was counted');
  const asked = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'cors' };
  t.equal((await post('/token', asked, client.secret)).status, 200, 'a page that asks may redeem its code');
});

t.test('sign-ups, minted agents and administrator failures are limited per address', async (t) => {
  const idp = await idpApp(t, { env: PRODUCTION });
  const accounts = await repeat(31, (index) =>
    idp.request('POST', '/v1/accounts', { body: { handle: `${index}@example.test`, password: PASSWORD } }),
  );
  t.same(statuses(accounts), [...Array(30).fill(201), 429]);
  t.match(accounts[30], { body: { error: 'rate_limited' }, headers: { 'retry-after': '3600' } });
  const agents = await repeat(61, (index) =>
    idp.admin('POST', '/v1/agents', { handle: `agent${index}@example.test` }),
  );
  t.same(statuses(agents), [...Array(60).fill(201), 429]);

  const asAdmin = (token: string) => idp.request('GET', '/v1/clients', { token });
  const guesses = await Promise.all(Array.from({ length: 50 }, () => asAdmin(`${ADMIN_TOKEN}x`)));
  t.equal(guesses.filter(({ status }) => status === 401).length, 10);
  const [right, wrong] = [await asAdmin(ADMIN_TOKEN), await asAdmin('wrong')];
  t.match(right, { status: 429, headers: { 'retry-after': '60', 'www-authenticate': undefined } });
  t.strictSame(comparable(right), comparable(wrong));
  idp.clock.advance(60 * MINUTE);
  t.equal((await asAdmin(ADMIN_TOKEN)).status, 200);
  for (const password of ['password', 'ADA@example.test', 'QwertyUiop']) {
    const answer = await idp.request('POST', '/v1/accounts', {
      body: { handle: 'ada@example.test', password },
    });
    t.match(
      answer,
      { status: 422, body: { error: 'weak_password', details: [{ path: 'password' }] } },
      password,
    );
  }
});
