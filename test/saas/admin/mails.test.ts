import t, { type Test } from 'tap';
import { newId } from '../../../src/core/kernel/secrets.js';
import { listedAuditCollection } from '../../../src/core/ops/audit.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { MAIL_NAMES } from '../../../src/shared/email/templates.js';
import { decodeEntities } from '../../kit/agent.js';
import { ADMIN, auditOf, PASSWORD, type SaasApp, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { isTested } from '../../kit/engine.js';
import { mailSink, readMail, smtpAnswer } from '../../kit/mail.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';
import { mailedApp, RESET, WELCOME } from '../auth/kit.js';
import { follow, submit } from './kit.js';

/** E-mails, the audit and the help in the admin area. */

const get = (app: SaasApp, path: string) => app.admin('GET', `/admin${path}`);
const data = async (app: SaasApp, path: string) => (await get(app, `/api${path}`)).body.data;
const act = (app: SaasApp, path: string, body: object = {}) =>
  app.request('POST', `/admin/api${path}`, { headers: ADMIN, body, from: '203.0.113.9' });

/** A backend whose mail server rejects recipients while `isClosed` returns true. */
async function appWithRejections(t: Test, isClosed: () => boolean) {
  const sink = await mailSink(t, {
    recipient() {
      if (isClosed()) throw smtpAnswer(550, 'no such mailbox');
    },
  });
  return mailedApp(t, { sink });
}

t.test('the outbox lists e-mails by status and user, without their links', async (t) => {
  let isClosed = true;
  const app = await appWithRejections(t, () => isClosed);
  const ada = await app.signUp({ email: 'ada@example.test' });
  const mails = mailCollection(await storeOf(t, app));
  await waitUntil('the welcome has failed', async () => (await mails.findOne({ status: 'failed' })) !== null);
  isClosed = false;
  // E-mails of one millisecond have no order.
  app.clock.advance(1);
  const bob = await app.signUp({ email: 'bob@example.test' });
  await app.mail(WELCOME);
  app.clock.advance(1);
  await app.post('/auth/forgot-password', { email: bob.email });
  const token = await app.tokenIn(RESET);
  await waitUntil('the results are stored', async () => (await mails.count({ status: 'sent' })) === 2);
  const listed = async (query: string) =>
    (await data(app, `/mails?${query}`)).items.map(
      ({ template, to, status }: Record<string, string>) => `${template} ${to} ${status}`,
    );
  const [welcome, other, reset] = [
    'welcome ada@example.test failed',
    'welcome bob@example.test sent',
    'password-reset bob@example.test sent',
  ];
  t.same(await listed(''), [reset, other, welcome]);
  t.same(await listed('status=failed'), [welcome]);
  t.same(await listed('status=sent'), [reset, other]);
  t.same(await listed(`q=${bob.id}`), [reset, other], 'by the ID, as the page of a user links to it');
  t.same(await listed('q=ADA@example.test'), [welcome]);
  t.same(await listed(`q=${ada.id}&status=sent`), []);
  t.same(await listed('q=nobody@example.test'), []);
  t.equal((await get(app, '/mails?status=lost')).status, 400);

  app.clock.advance(3 * 3_600_000);
  const page = await get(app, '/mails?status=failed');
  t.match(page.text, /EENVELOPE at RCPT TO: 550 no such mailbox/);
  t.match((await get(app, '/mails.csv?status=failed')).text, ',3 h,');
  const { items } = await data(app, '/mails');
  const detail = await get(app, `/mails/${items[0].id}`);
  t.match(detail.text, 'bob@example.test');
  t.match(detail.text, `href="..&#x2F;users&#x2F;${bob.id}"`);
  t.same(await data(app, `/mails/${items[0].id}`), items[0]);
  const everything = [
    page.text,
    detail.text,
    JSON.stringify(items),
    (await get(app, '/mails.csv')).text,
  ].join();
  t.notMatch(everything, new RegExp(token.slice(-43)));
  t.notMatch(everything, /reset-password\?/);
  t.equal((await get(app, '/mails/mail_unknown')).status, 404);
});

t.test('the operator sends a failed e-mail again, but never an old link', async (t) => {
  let isClosed = true;
  const app = await appWithRejections(t, () => isClosed);
  const { email, id: userId } = await app.signUp();
  await app.post('/auth/forgot-password', { email });
  const mails = mailCollection(await storeOf(t, app));
  await waitUntil('both have failed', async () => (await mails.count({ status: 'failed' })) === 2);
  const stored = (await mails.page({ sort: 'id', limit: 10 })).items;
  const [reset, welcome] = ['password-reset', 'welcome'].map((name) =>
    stored.find(({ template }) => template === name),
  );
  t.equal(reset?.content, undefined, 'its link was deleted');
  t.match(await act(app, `/mails/${reset?.id}/retry`), {
    status: 409,
    body: { error: { code: 'MAIL_NOT_RETRYABLE' } },
  });
  t.notMatch((await get(app, `/mails/${reset?.id}`)).text, 'Send again');

  isClosed = false;
  t.match((await get(app, `/mails/${welcome?.id}`)).text, 'Send again');
  app.clock.advance(5 * 86_400_000);
  t.equal((await act(app, `/mails/${welcome?.id}/retry`)).status, 200);
  t.strictSame((await app.mail(WELCOME)).to, [email], 'although it had expired');
  t.equal((await act(app, `/mails/${welcome?.id}/retry`)).status, 409, 'it is sent once');
  t.equal((await act(app, '/mails/mail_unknown/retry')).status, 404);
  const records = await auditOf(await storeOf(t, app));
  const [record, ...others] = records.filter(({ event }) => event === 'mail.retried');
  t.match(record, { subject: userId, by: SECRETS.adminUsername, ip: '203.0.113.9' });
  t.equal(
    record?.detail,
    `${welcome?.id} {"before":{"status":"failed","attempts":1},"after":{"status":"queued","attempts":0}}`,
  );
  t.same(others, []);
});

t.test('every template has a preview as text, as HTML that runs nothing, and as JSON', async (t) => {
  const app = await saasApp(t);
  const branding = decodeEntities((await get(app, '/branding')).text);
  for (const name of MAIL_NAMES) {
    t.match(branding, `href="./mails/templates/${name}"`);
    const { subject, text, html } = await data(app, `/mails/templates/${name}`);
    const page = await get(app, `/mails/templates/${name}`);
    t.equal(page.status, 200);
    t.match(page.text.replaceAll('&#39;', "'"), subject);
    t.match(text, 'SaaS');
    const preview = await get(app, `/mails/templates/${name}/html`);
    t.equal(preview.text, html);
    t.match(preview.headers['content-security-policy'], /^default-src 'none';.* sandbox$/);
    t.match(preview.headers['content-type'], 'text/html');
  }
  for (const path of [
    '/mails/templates/nothing',
    '/mails/templates/nothing/html',
    '/mails/templates/_foot/test',
  ])
    t.equal((await get(app, path)).status, 404, path);
  t.equal((await app.request('GET', '/admin/mails/templates/welcome/html')).status, 401);
});

t.test('the operator sends a test e-mail and reads its result', async (t) => {
  let isClosed = false;
  const app = await appWithRejections(t, () => isClosed);
  const path = '/mails/templates/trial-ending/test';
  const sent = await submit(app, `/admin${path}`, { to: 'operator@example.test' });
  t.match((await follow(app, `/admin${path}`, sent)).text, 'accepted');
  const mail = await app.sink.next();
  t.strictSame(mail.to, ['operator@example.test']);
  const subject = sentence('mail.trial-ending.subject', { siteName: 'SaaS', endsOn: '31 January 2030' });
  t.match(readMail(mail).headers['subject'], subject);
  t.match(await act(app, path, { to: 'operator@example.test' }), {
    status: 200,
    body: { data: { outcome: 'sent' } },
  });

  isClosed = true;
  const rejected = await submit(app, `/admin${path}`, { to: 'gone@example.test' });
  t.equal(rejected.status, 422);
  t.match(rejected.text, '550 no such mailbox');
  t.match(rejected.text, 'value="gone@example.test"', 'the address is kept');
  t.equal((await submit(app, `/admin${path}`, { to: 'a@example.test,b@example.test' })).status, 400);
  t.equal((await act(app, path, { to: 'nobody' })).status, 400);
  const records = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'mail.tested');
  t.equal(records.length, 3);
  t.match(records[0], { subject: undefined, by: SECRETS.adminUsername, ip: '127.0.0.1' });
  t.same(JSON.parse(records[0]?.detail ?? ''), {
    template: 'trial-ending',
    to: 'operator@example.test',
    outcome: 'sent',
  });
});

t.test('without a mail server, the result says that the test e-mail was only logged', async (t) => {
  const app = await saasApp(t, {
    env: { NODE_ENV: 'production' },
    publicUrl: 'https://app.example.test',
    emailSmtpUrl: undefined as never,
  });
  const answer = await act(app, '/mails/templates/welcome/test', { to: 'operator@example.test' });
  t.match(answer, { status: 200, body: { data: { outcome: 'undeliverable' } } });
});

t.test('the audit is listed by event, subject and day, and exported', async (t) => {
  const app = await saasApp(t);
  app.clock.set(Date.UTC(2040, 0, 1, 12));
  const ada = await app.signUp({ email: 'ada@example.test' });
  const login = (password: string) =>
    app.request('POST', '/api/auth/login', { body: { email: 'ada@example.test', password } });
  await login(PASSWORD);
  app.clock.set(Date.UTC(2040, 0, 2, 12));
  await login('wrong');
  await act(app, `/users/${ada.id}/suspend`);
  const events = async (query: string) =>
    (await data(app, `/audit?${query}`)).items.map(({ event }: { event: string }) => event).sort();
  const all = ['login.failed', 'login.succeeded', 'user.closed', 'user.registered'];
  const suspended = (await events('from=2040-01-02')).find((event: string) => event !== 'login.failed');
  t.same(await events(''), all.with(2, suspended).sort());
  t.same(await events('event=login.'), ['login.failed', 'login.succeeded']);
  t.same(await events('until=2040-01-01'), ['login.succeeded', 'user.registered']);
  t.equal((await events(`q=${ada.id}`)).length, 4);
  t.equal((await events('q=ada@example.test')).length, 4);
  t.same(await events(`q=${ada.id}&event=login.failed&from=2040-01-02`), ['login.failed']);
  t.same(await events(`q=${SECRETS.adminUsername}`), [suspended], 'changes by an operator');
  t.same(await events('q=usr_unknown'), []);
  t.equal((await get(app, '/audit?from=2040-13-01')).status, 400);
  t.equal((await get(app, '/audit?after=x')).status, 400);
  const [record] = (await data(app, '/audit?event=login.failed')).items;
  t.match(record, {
    at: '2040-01-02T12:00:00.000Z',
    subject: ada.id,
    ip: '127.0.0.1',
    by: null,
    count: null,
  });
  const page = await get(app, '/audit?event=login.failed');
  t.match(page.text, `href=".&#x2F;users&#x2F;${ada.id}"`);
  const csv = (await get(app, '/audit.csv?event=login.')).text.split('\r\n');
  t.equal(csv[0], 'Time,Event,Subject,Name,By,From,Detail');
  t.match(csv[1], `,${ada.id},ada@example.test,`);
  t.equal(csv.length, 4);
});

t.test('the audit of one user has pages', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp();
  const audit = listedAuditCollection(await storeOf(t, app));
  for (let index = 0; index < 60; index++) {
    const at = app.clock.now() + index;
    const id = newId('aud_', { now: () => at }, app.random);
    await audit.insert({ id, at, event: 'logout', subject: ada.id, ip: '127.0.0.1' });
  }
  const query = `q=${ada.id}&event=logout`;
  const first = await data(app, `/audit?${query}`);
  const second = await data(app, `/audit?${query}&after=${first.next}`);
  t.match([first.items.length, second.items.length, second.next], [50, 10, null]);
  t.equal(new Set([...first.items, ...second.items].map(({ id }) => id)).size, 60);
});

t.test('the help says what runs and what is not configured, without a secret', async (t) => {
  const app = await saasApp(t, { paymentSecretKey: 'sk_test_51Qm7vLd0mXw4RkT9cYb2NfHs6', metrics: true });
  const page = await get(app, '/help');
  t.equal(page.status, 200);
  const help = await data(app, '/help');
  t.match(help, {
    environment: 'development',
    store: isTested('sqlite') ? 'SQLite' : 'PostgreSQL',
    node: process.versions.node,
  });
  t.match(help.version, /^\d+\.\d+\.\d+/);
  const states = Object.fromEntries(
    help.parts.map(({ name, isConfigured }: { name: string; isConfigured: boolean }) => [name, isConfigured]),
  );
  t.match(states, { 'Payment provider': true, Plans: false, Metrics: true });
  for (const { command } of help.commands)
    t.ok(page.text.includes(command.replace('<file>', '&lt;file&gt;')));
  const { adminUsername: _, ...secrets } = SECRETS;
  for (const secret of [...Object.values(secrets), 'sk_test_51Qm7', '127.0.0.1:9', app.file])
    t.notOk((page.text + JSON.stringify(help)).includes(secret), secret);
});
