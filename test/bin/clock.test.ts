/**
 * Clocks that are set back and corrected. Counters: `test/core/throttle/throttle.test.ts`; whole programs: `npm run torture`.
 */
import t from 'tap';
import { DAY, HOUR, MINUTE } from '../../src/core/kernel/clock.js';
import { createJobs } from '../../src/core/ops/jobs.js';
import { openStore } from '../../src/core/storage/open.js';
import { createEventLeases, type ReceivedEvent } from '../../src/saas/billing/events/leases.js';
import { paymentEventCollection } from '../../src/saas/billing/store.js';
import { saasApp } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { idpApp } from '../kit/idp.js';
import { mailSink } from '../kit/mail.js';
import { countedRandom } from '../kit/random.js';
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
      fields: ['owner'],
      numbers: ['until', 'term', 'dueAt'],
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
    const events = paymentEventCollection(store);
    const leases = createEventLeases(events, { clock, wait: async () => {} });
    const event = { id: 'evt_1', type: 'x', objectId: 'o', object: {}, previous: {} };
    const lost = { event, payload: '{}', stored: null };
    await leases.acquire(lost);
    clock.advance(-jump);
    const stored = await leases.settled(event.id);
    const complete = (received: ReceivedEvent) => store.commit([leases.completing(received, 'processed')]);
    t.match(await complete({ event, payload: '{}', stored }), { committed: true });
    t.match(await complete(lost), { committed: false }, 'not by the one who lost it');
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
