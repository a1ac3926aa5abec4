import t, { type Test } from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import type { Store } from '../../../src/core/storage/collection.js';
import {
  attentionCollection,
  createAttentionJob,
  type Problem,
} from '../../../src/shared/console-kit/attention.js';
import { createAttentionMails } from '../../../src/shared/email/attention.js';
import { createOutbox } from '../../../src/shared/email/outbox.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { openAt, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { storeIn } from '../../kit/engine.js';
import { ISSUER, idpApp, idpStore } from '../../kit/idp.js';
import { type MailSink, mailSink, readMail } from '../../kit/mail.js';
import { countedRandom } from '../../kit/random.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

/** What needs attention: operators learn it once when it begins and once when it ends. */

const HOUR = 3_600_000;
const SECRET = 'cron-7KQm3XwTZq7vLd0mXw4RkT9cYb2NfHs6Eg';
const OPERATORS = ['ops@example.test', 'ada@example.test'];

const runJobs = (app: Pick<SaasApp, 'request'>, path = '/api/cron') =>
  app.request('POST', path, { headers: { authorization: `Bearer ${SECRET}` } });

/** The mails that the jobs of an hour send. */
const hourlyOn = (app: Pick<SaasApp, 'request' | 'clock'>, sink: MailSink, store: Store, path?: string) => {
  const mails = mailCollection(store);
  return async () => {
    const before = sink.mails.length;
    app.clock.advance(HOUR);
    t.equal((await runJobs(app, path)).status, 204);
    const unsent = { status: { in: ['queued', 'sending'] as const } };
    await waitUntil('the mails are sent', async () => (await mails.count(unsent)) === 0);
    return sink.mails.slice(before).map((mail) => ({ to: mail.to.join(), ...readMail(mail) }));
  };
};

const failedMail = (now: number) =>
  ({
    id: 'mail_failed',
    key: 'failed',
    to: 'bob@example.test',
    template: 'welcome',
    security: false,
    status: 'failed',
    expiresAt: 0,
    attempts: 3,
    createdAt: now,
    endedAt: now,
  }) as const;

t.test('operators get one mail when a problem begins and one when it ends, and so do webhooks', async (t) => {
  const sink = await mailSink(t);
  const app = await saasApp(t, {
    ...{ cronSecret: SECRET, emailSmtpUrl: sink.url, defaultLocale: 'de', operatorEmails: OPERATORS },
  });
  const events: object[] = [];
  for (const name of ['attention.began', 'attention.ended'] as const)
    app.server.fastify.saas.events.on(name, (event) => events.push({ name, ...event }));
  const store = await storeOf(t, app);
  const hourly = hourlyOn(app, sink, store);
  t.same(await hourly(), [], 'there is no problem');
  const mails = mailCollection(store);
  await mails.insert(failedMail(app.clock.now()));
  const began = await hourly();
  const noticed = new Date(app.clock.now()).toISOString();
  t.same(began.map(({ to }) => to).sort(), [...OPERATORS].sort());
  const german = createMessages().catalogue('de');
  const problem = german.text('attention.failed-mails');
  for (const { headers, text } of began) {
    t.equal(headers['subject'], german.text('mail.attention-began.subject', { siteName: 'SaaS', problem }));
    t.match(text, `${problem}: 1`, 'what, and how many');
    t.match(text, '2040', 'since when');
    t.match(text, 'http://app.example.test/admin/#plot-mail-failures', 'the page that mends it');
  }
  t.same(await hourly(), [], 'once');
  await mails.insert({ ...failedMail(app.clock.now()), id: 'mail_second', key: 'second' });
  t.same(await hourly(), [], 'also if there are more of it');
  await mails.deleteMany({ status: 'failed' });
  const ended = await hourly();
  t.same(ended.map(({ to }) => to).sort(), [...OPERATORS].sort());
  t.match(ended[0]?.text, german.text('mail.attention-ended.title'));
  t.same(await hourly(), []);
  const about = { problem: 'failed-mails', since: noticed };
  t.match(events, [
    { name: 'attention.began', ...about, count: 1, url: /\/admin\/#plot-mail-failures$/ },
    { name: 'attention.ended', ...about, count: 0 },
  ]);
  t.equal(events.length, 2);
});

t.test('a problem that comes and goes sends at most one mail in an hour', async (t) => {
  const sink = await mailSink(t);
  const app = await saasApp(t, {
    cronSecret: SECRET,
    emailSmtpUrl: sink.url,
    operatorEmails: ['ops@example.test'],
  });
  const store = await storeOf(t, app);
  await hourlyOn(app, sink, store)();
  const mails = mailCollection(store);
  for (let minute = 0; minute < 50; minute += 10) {
    await mails.insert(failedMail(app.clock.now()));
    app.clock.advance(300_000);
    await runJobs(app);
    await mails.deleteMany({ status: 'failed' });
    app.clock.advance(300_000);
    await runJobs(app);
  }
  t.same(sink.mails, []);
});

t.test('idp sends them, too', async (t) => {
  const sink = await mailSink(t);
  const idp = await idpApp(t, {
    ...{ cronSecret: SECRET, emailSmtpUrl: sink.url, operatorEmails: ['ops@example.test'] },
  });
  await idp.mintAgent();
  const hourly = hourlyOn(idp, sink, await idpStore(t, idp), '/cron');
  t.same(await hourly(), []);
  idp.clock.advance(91 * 24 * HOUR);
  const [mail, ...more] = await hourly();
  t.match(mail, { to: 'ops@example.test', text: sentence('attention.unused-agents') });
  t.match(mail?.text, `${ISSUER}/admin/principals?use=unused`);
  t.same(more, []);
});

t.test(
  'without addresses and webhooks, without an admin area or a mail server there is no job',
  async (t) => {
    const runs = async (
      app: Pick<SaasApp, 'request'>,
      store: Awaited<ReturnType<typeof storeOf>>,
      path?: string,
    ) => {
      t.equal((await runJobs(app, path)).status, 204);
      return store.collection('leases').count({ id: 'attention' });
    };
    const onSaas = async (options: object) => {
      const app = await saasApp(t, { cronSecret: SECRET, ...options });
      return runs(app, await storeOf(t, app));
    };
    const to = { operatorEmails: OPERATORS };
    t.equal(await onSaas(to), 1);
    t.equal(await onSaas({ webhooks: true, settingsEncryptionKey: 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9' }), 1);
    t.equal(await onSaas({}), 0);
    t.equal(await onSaas({ ...to, adminPath: false }), 0);
    const idp = await idpApp(t, { cronSecret: SECRET, ...to });
    t.equal(await runs(idp, await idpStore(t, idp), '/cron'), 0);
  },
);

/** Processes with a job each, which see the same problems. */
async function processes(t: Test, count: number) {
  const uri = storeIn(temporaryFolder(t), 'saas');
  const clock = fakeClock();
  const random = countedRandom();
  const problems: Problem[] = [];
  const stores = await Promise.all(Array.from({ length: count }, () => openAt(t, uri)));
  const jobs = stores.map((store) => {
    const outbox = createOutbox({
      ...{ mails: mailCollection(store), messages: createMessages(), clock, random, wake: () => undefined },
      publicUrl: () => 'https://app.example.test',
    });
    const urlOf = (path: string) => `https://app.example.test/admin/${path}`;
    const mailsOf = createAttentionMails({ outbox, to: OPERATORS, urlOf, clock });
    const deps = { store, commit: createCommit(store), clock };
    return createAttentionJob(deps, {
      read: async () => [...problems],
      // Each process has its own time, so that only the commit prevents a second mail.
      effects: async (change) => {
        clock.advance(1);
        return mailsOf(change);
      },
    });
  });
  const [store] = stores;
  if (!store) throw new Error('no process');
  const run = () =>
    Promise.all(jobs.map((job) => job.run({ term: 1, signal: new AbortController().signal })));
  const sent = (template: 'attention-began' | 'attention-ended') =>
    mailCollection(store)
      .page({ sort: 'id', limit: 100 })
      .then(({ items }) => items.filter((mail) => mail.template === template).length);
  return { run, sent, problems, states: attentionCollection(store) };
}

t.test('of several processes that notice a problem or its end at once, one tells it', async (t) => {
  const { run, sent, problems, states } = await processes(t, 4);
  for (let round = 1; round <= 5; round++) {
    problems.push({ name: 'failed-mails', count: 1, path: 'mails' });
    await run();
    t.equal(await sent('attention-began'), round * OPERATORS.length);
    problems.pop();
    await run();
    t.equal(await sent('attention-ended'), round * OPERATORS.length);
    t.equal(await states.count(), 0);
  }
});
