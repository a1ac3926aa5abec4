/** Clocks that jump back and forth under running programs. Counters: `test/core/throttle/throttle.test.ts`. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { DAY, HOUR, MINUTE } from '../../src/core/kernel/clock.js';
import { createJobs } from '../../src/core/ops/jobs.js';
import { openStore } from '../../src/core/storage/open.js';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { createEventLeases } from '../../src/saas/billing/events/leases.js';
import { webhookEventCollection } from '../../src/saas/billing/store.js';
import { type Answer, basic, PASSWORD, parseJson, saasApp } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { ADMIN_TOKEN, authorizePath, CALLBACK, codeIn, idpApp, redemption } from '../kit/idp.js';
import { mailSink } from '../kit/mail.js';
import { compiled, startProgram } from '../kit/process.js';
import { countedRandom } from '../kit/random.js';
import { temporaryFolder } from '../kit/tmp.js';
import { outbox } from '../shared/email/kit.js';

const JUMPS = { hour: HOUR, day: DAY, year: 365 * DAY };

for (const [name, jump] of Object.entries(JUMPS)) {
  t.test(`background jobs continue after the clock is set back by a ${name}`, async (t) => {
    const store = await openStore('sqlite::memory:');
    t.teardown(() => store.close());
    const clock = fakeClock();
    const log = { info() {}, warn() {}, error() {} } as never;
    const start = (seed: string) => {
      let runs = 0;
      const jobs = createJobs(store, { clock, random: countedRandom(seed), log });
      t.teardown(() => jobs.stop());
      jobs.add('work', { everySeconds: 60, run: async () => void runs++ });
      return { jobs, runs: () => runs };
    };
    const first = start('first');
    await first.jobs.runNow('work');
    clock.advance(-jump);
    const second = start('second');
    second.jobs.start();
    await second.jobs.stop();
    t.equal(second.runs(), 1, 'what had been done was due in the far future');

    const leases = store.collection<{
      id: string;
      owner: string;
      until: number;
      term: number;
      dueAt: number;
    }>('leases', {
      fields: ['owner', 'until', 'term', 'dueAt'],
    });
    await leases.updateOne({ id: 'work' }, { set: { until: clock.now() + jump + 30_000 } });
    const third = start('third');
    await third.jobs.runNow('work');
    t.equal(third.runs(), 1, 'the lease of one that is gone ended in the far future');
    await leases.updateOne({ id: 'work' }, { set: { until: clock.now() + 30_000 } });
    await third.jobs.runNow('work');
    t.equal(third.runs(), 1, 'one that can be true binds');
  });

  t.test(`an event of a crashed worker is taken over after the clock is set back by a ${name}`, async (t) => {
    const store = await openStore('sqlite::memory:');
    t.teardown(() => store.close());
    const clock = fakeClock();
    const events = webhookEventCollection(store);
    const leases = createEventLeases(events, { clock, random: countedRandom(), wait: async () => {} });
    const event = { id: 'evt_1', type: 'x', objectId: 'o', object: {}, previous: {} };
    const lost = await leases.acquire(event, '{}');
    if (typeof lost === 'string') throw new Error('it is claimed already');
    clock.advance(-jump);
    const lease = await leases.acquire(event, '{}');
    if (typeof lease === 'string') throw new Error('it is finished already');
    t.equal(await leases.complete(lost, 'processed'), false, 'not by the one who lost it');
    t.equal(await leases.complete(lease, 'processed'), true);
  });

  t.test(`an e-mail is sent once after the clock is set back by a ${name}`, async (t) => {
    const sink = await mailSink(t);
    const { put, relay, clock } = await outbox(t, { url: sink.url });
    await put();
    clock.advance(-jump);
    await relay();
    // A jump shorter than the longest delay of an e-mail may delay it like a retry.
    if (jump > 8 * HOUR) t.equal(sink.mails.length, 1);
    clock.advance(jump);
    await relay();
    t.equal(sink.mails.length, 1);
  });

  t.test(`saas-backend works after the clock is set back by a ${name} and corrected`, async (t) => {
    const app = await saasApp(t);
    const person = await app.signUp();
    const refresh = (refreshToken: string) =>
      app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
    const me = (token: string) => app.request('GET', '/api/auth/me', { token });
    app.clock.advance(MINUTE);
    const rotated = (await refresh(person.refreshToken)).body.data;
    app.clock.advance(-jump);
    t.equal((await me(rotated.accessToken)).status, 401, 'a token of the future');
    t.equal((await refresh(rotated.refreshToken)).status, 401);
    t.equal((await refresh(person.refreshToken)).status, 401);
    const again = await app.request('POST', '/api/auth/login', { body: person });
    t.equal(again.status, 200, 'the password is accepted');
    t.equal((await me(again.body.data.accessToken)).status, 200);
    app.clock.advance(jump);
    t.equal((await me(rotated.accessToken)).status, 200, 'no session is lost');
    const next = await refresh(rotated.refreshToken);
    t.equal(next.status, 200);
    app.clock.advance(jump);
    t.equal((await me(next.body.data.accessToken)).status, 401, 'forward: it has expired');
  });

  t.test(`idp works after the clock is set back by a ${name} and corrected`, async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const agent = await idp.mintAgent();
    const codeFor = () => idp.codeFor(client, agent, { scope: 'openid offline_access', prompt: 'consent' });
    const unused = await codeFor();
    const first = (await idp.redeem(client, await codeFor())).body;
    const second = (await idp.refresh(client, first.refresh_token)).body;
    idp.clock.advance(-jump);
    t.equal((await idp.redeem(client, unused)).status, 400, 'a code of the future');
    t.equal((await idp.userinfo(second.access_token)).status, 401, 'a token of the future');
    const now = (await idp.redeem(client, await codeFor())).body;
    t.equal((await idp.userinfo(now.access_token)).status, 200, 'the password is accepted');
    idp.clock.advance(jump);
    t.equal((await idp.userinfo(second.access_token)).status, 200, 'no session is lost');
    t.equal((await idp.refresh(client, second.refresh_token)).status, 200);
  });
}

t.test('a used refresh token stays used when the clock is set back', async (t) => {
  const app = await saasApp(t);
  const refresh = (refreshToken: string) =>
    app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  const { refreshToken } = await app.signUp();
  app.clock.advance(2 * HOUR);
  t.equal((await refresh(refreshToken)).status, 200);
  app.clock.advance(-HOUR);
  t.equal((await refresh(refreshToken)).body.error.code, 'REFRESH_TOKEN_REUSED');

  const idp = await idpApp(t);
  const client = await idp.createClient();
  const code = await idp.codeFor(client, await idp.mintAgent(), {
    scope: 'openid offline_access',
    prompt: 'consent',
  });
  const stolen = (await idp.redeem(client, code)).body.refresh_token;
  idp.clock.advance(2 * HOUR);
  t.equal((await idp.refresh(client, stolen)).status, 200);
  idp.clock.advance(-HOUR);
  t.equal((await idp.refresh(client, stolen)).body.error, 'invalid_grant');
});

/** Loaded before a program: each SIGWINCH sets the system clock to the next of these years. */
const FALSE_CLOCK = `
  const years = [-1, 0, 1];
  const { now } = Date;
  let ahead = 0;
  globalThis.Date = class extends Date {
    static now() { return now() + ahead; }
    constructor(...given) { super(...(given.length === 0 ? [now() + ahead] : given)); }
  };
  process.on('SIGWINCH', () => {
    const year = years.shift();
    ahead = year * ${365 * DAY};
    console.log('year ' + year);
  });
`;

/** A program as its users start it, except for the system clock. */
async function falselyTimed(t: Test, script: string, args: string[]) {
  const cwd = temporaryFolder(t);
  const preload = join(cwd, 'clock.mjs');
  writeFileSync(preload, FALSE_CLOCK);
  const env = {
    NODE_OPTIONS: `--import=${preload}`,
    DATABASE_URI: 'sqlite:app.db',
    IDP_DATABASE_URI: 'sqlite:app.db',
    IDP_ADMIN_TOKEN: ADMIN_TOKEN,
  };
  const program = startProgram(t, compiled(script), { args, cwd, env });
  const url = await program.url();
  return {
    async jump(year: number) {
      program.signal('SIGWINCH');
      await program.printed(new RegExp(`^year ${year}$`));
    },
    async send(method: string, path: string, authorization?: string, payload?: object | string) {
      const type = typeof payload === 'string' ? 'application/x-www-form-urlencoded' : 'application/json';
      const answer = await fetch(url + path, {
        method,
        redirect: 'manual',
        headers: { ...(payload && { 'content-type': type }), ...(authorization && { authorization }) },
        ...(payload && { body: typeof payload === 'string' ? payload : JSON.stringify(payload) }),
      });
      const location = answer.headers.get('location') ?? undefined;
      const body: Answer['body'] = parseJson(await answer.text());
      return { status: answer.status, location, body };
    },
    async end() {
      t.equal(await program.terminate(), 0);
      const database = await openDatabase(join(cwd, 'app.db'));
      t.match(database.prepare('PRAGMA integrity_check').get(), { integrity_check: 'ok' });
      database.close();
    },
  };
}

t.test('both programs survive jumps of the system clock', async (t) => {
  const saas = async () => {
    const { jump, send, end } = await falselyTimed(t, 'bin/saas-backend.js', ['-p', '0']);
    const me = async (token: string) => (await send('GET', '/api/auth/me', `Bearer ${token}`)).status;
    const post = (path: string, body: object) => send('POST', `/api/auth/${path}`, undefined, body);
    const person = { email: 'ada@example.test', password: PASSWORD };
    const { accessToken, refreshToken } = (await post('register', person)).body.data;
    await jump(-1);
    t.equal(await me(accessToken), 401, 'a token of the future');
    t.equal((await post('refresh', { refreshToken })).status, 401);
    const login = await post('login', person);
    t.equal(login.status, 200, 'the password is accepted');
    t.equal(await me(login.body.data.accessToken), 200);
    await jump(0);
    t.equal(await me(accessToken), 200, 'no session is lost');
    t.equal(await me(login.body.data.accessToken), 401, 'a token of the past');
    const next = await post('refresh', { refreshToken });
    t.equal(next.status, 200);
    await jump(1);
    t.equal(await me(next.body.data.accessToken), 401);
    t.equal((await post('refresh', next.body.data)).status, 401);
    await end();
  };
  const idp = async () => {
    const { jump, send, end } = await falselyTimed(t, 'bin/idp.js', ['serve', '-port', '0']);
    const admin = (path: string, body: object) => send('POST', `/v1/${path}`, `Bearer ${ADMIN_TOKEN}`, body);
    const { client_id: id, client_secret: secret } = (await admin('clients', { redirect_uris: [CALLBACK] }))
      .body;
    const client = { id, secret, redirectUri: CALLBACK };
    const agent = (await admin('agents', { handle: 'agent@example.test' })).body;
    const codeFor = async () =>
      codeIn((await send('GET', authorizePath(client), basic(agent.handle, agent.password))).location);
    const redeem = (code: string) => send('POST', '/token', undefined, redemption(client, code));
    const userinfo = async (token: string) => (await send('GET', '/userinfo', `Bearer ${token}`)).status;
    const unused = await codeFor();
    const { access_token: token } = (await redeem(await codeFor())).body;
    t.equal(await userinfo(token), 200);
    await jump(-1);
    t.equal((await redeem(unused)).body.error, 'invalid_grant', 'a code of the future');
    t.equal(await userinfo(token), 401, 'a token of the future');
    const past = await redeem(await codeFor());
    t.equal(past.status, 200, 'the password is accepted');
    t.equal(await userinfo(past.body.access_token), 200);
    await jump(0);
    t.equal(await userinfo(token), 200, 'no session is lost');
    t.equal(await userinfo(past.body.access_token), 401, 'a token of the past');
    await jump(1);
    t.equal(await userinfo(token), 401);
    await end();
  };
  await Promise.all([saas(), idp()]);
});
