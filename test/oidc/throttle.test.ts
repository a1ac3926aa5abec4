import t from 'tap';
import { type Answer, basic, PASSWORD } from '../kit/app.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  type Credentials,
  comparable,
  type IdpApp,
  idpApp,
  type RegisteredClient,
  redemption,
} from '../kit/idp.js';

const MINUTE = 60_000;
const WRONG = 'not the password';
const PRODUCTION = { NODE_ENV: 'production' };
/** In the shape of those that we generate. */
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

/** One of each kind that a handle may be. */
async function everybody(idp: IdpApp): Promise<Record<string, Credentials>> {
  const body = { handle: 'self-chosen@example.test', password: PASSWORD };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body })).body;
  return {
    minted: await idp.mintAgent(),
    chosen: { ...body, sub },
    human: await idp.makeHuman(),
    unknown: { sub: '', handle: 'nobody@example.test', password: PASSWORD },
  };
}

t.test(
  '[143] failures are throttled alike whatever the handle is, so that they tell nothing about it',
  async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const people = Object.entries(await everybody(idp));
    const expected = [...Array(10).fill(401), 429, 429];
    for (const [kind, { handle }] of people) {
      // Both shapes count together.
      const mixed = await repeat(12, (index) => signIn(idp, client, handle, index % 2 ? WRONG : FORGED));
      t.same(statuses(mixed), expected, kind);
      const elsewhere = await repeat(12, () => signIn(idp, client, handle, FORGED, '192.0.2.2'));
      t.same(statuses(elsewhere), expected, kind);
    }
    const refused = await repeat(people.length, (index) => {
      const [, { handle, password }] = people[index] as [string, Credentials];
      return signIn(idp, client, handle, password);
    });
    t.match(refused[0], { status: 429, body: { error: 'rate_limited' }, headers: { 'retry-after': '60' } });
    const page = await idp.request('GET', authorizePath(client), {
      headers: { accept: 'text/html', authorization: basic(people[0]?.[1].handle, FORGED) },
      from: '192.0.2.2',
    });
    t.match(page, { status: 429, text: /Seconds to wait: 60/ });
    for (const answer of refused)
      t.strictSame(comparable(answer), comparable(refused[0] as Answer), 'right ones, too');
  },
);

t.test(
  '[143] the form and Basic count together, and what strangers do holds no minted agent up',
  async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const [human, agent] = [await idp.makeHuman(), await idp.mintAgent()];
    const { browser, page } = await idp.visit(client);
    const form = (handle: string, password: string) => browser.send(page, { handle, password });

    // 127.0.0.1 is where the human registered, so it has ten failures of its own.
    t.same(await repeat(5, async () => (await form(human.handle, WRONG)).status), Array(5).fill(401));
    const basics = await repeat(8, () => signIn(idp, client, human.handle, WRONG, '127.0.0.1'));
    t.same(statuses(basics), [...Array(5).fill(401), 429, 429, 429]);
    const [right, wrong] = [await form(human.handle, PASSWORD), await form(human.handle, WRONG)];
    t.equal(right.status, 429);
    t.equal(right.body.replace(/req_\w+/, ''), wrong.body.replace(/req_\w+/, ''));
    t.equal((await signIn(idp, client, human.handle, PASSWORD)).status, 302, 'who is elsewhere is let in');
    idp.clock.advance(MINUTE);
    t.equal((await form(human.handle, PASSWORD)).status, 303);

    t.same(
      await repeat(6, async () => (await form(agent.handle, agent.password)).status),
      Array(6).fill(401),
    );
    for (let index = 0; index < 30; index++)
      await signIn(idp, client, agent.handle, WRONG, `198.51.100.${index}`);
    const fleet = await Promise.all(
      Array.from({ length: 100 }, () => signIn(idp, client, agent.handle, agent.password)),
    );
    t.same(new Set(statuses(fleet)), new Set([302]));
  },
);

t.test('60 failures a minute per address, of people and clients together', async (t) => {
  const idp = await idpApp(t, { limits: true });
  const client = await idp.createClient();
  const agent = await idp.mintAgent();
  const code = await idp.codeFor(client, agent);
  const redeem = (secret: string, id = client.id) =>
    idp.request('POST', '/token', {
      from: '192.0.2.1',
      form: redemption({ ...client, id }, code, { client_secret: secret }),
    });
  const fail = (index: number) => signIn(idp, client, `${index}@example.test`, index % 2 ? WRONG : FORGED);
  t.same(statuses(await repeat(50, fail)), Array(50).fill(401));
  const clients = await repeat(12, (index) => redeem('csec_wrong', `cid_${'0'.repeat(22)}${index}`));
  t.same(statuses(clients), [...Array(10).fill(401), 429, 429]);
  t.match(clients[11], { body: { error: 'rate_limited' }, headers: { 'retry-after': '60' } });
  t.equal(
    (await signIn(idp, client, agent.handle, agent.password)).status,
    429,
    'right and wrong look the same',
  );
  t.equal((await redeem(client.secret as string)).status, 429);
  t.equal((await signIn(idp, client, agent.handle, agent.password, '192.0.2.2')).status, 302);
  idp.clock.advance(MINUTE);
  t.equal((await signIn(idp, client, agent.handle, agent.password)).status, 302);

  const guessed = await repeat(12, () => redeem('csec_wrong'));
  t.same(statuses(guessed), [...Array(10).fill(401), 429, 429], 'ten of them at one client');
});

t.test('[122][123] accounts, agents and failures of the administrator are bounded per address', async (t) => {
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
