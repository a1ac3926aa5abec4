import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createServer } from '../../../src/saas/server.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import {
  loadTemplates,
  MAIL_NAMES,
  sampleValues,
  templateProblems,
} from '../../../src/shared/email/templates.js';
import { SECRETS, saasApp, testOptions } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { storeIn } from '../../kit/engine.js';
import { mailSink, readMail } from '../../kit/mail.js';
import { compiled, startProgram } from '../../kit/process.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { LINK, outbox } from './kit.js';

/** A folder with these files. */
function folderOf(t: Test, files: Record<string, string>): string {
  const folder = temporaryFolder(t);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

const english = createMessages().catalogue();

const SITE = { siteName: 'Northwind', siteUrl: 'https://app.example.test' };

/** What a sentence leaves behind if it does not expect that a value is missing. */
const GAPS = / {2}|\bfor \.| to {2}| of at|\n\n\n/;

t.test(
  'every e-mail has its required content as text and HTML, and links only to the application and its invoices',
  async (t) => {
    const templates = loadTemplates();
    t.equal(MAIL_NAMES.length, 29);
    for (const name of MAIL_NAMES) {
      const values = sampleValues(name, SITE.siteUrl, english);
      const { subject, text, html } = templates.render(name, { ...values, ...SITE }, english);
      t.match(subject, /^[^\r\n]*Northwind[^\r\n]*$/, name);
      for (const body of [text, html]) t.notMatch(body, /\{\{|\}\}|undefined|\[object/, name);
      const links = [...html.matchAll(/(?:href|src)="([^"]*)"/g)].map(([, link = '']) => link);
      t.ok(links.length >= 3, `${name} has a button, the bare link and the site`);
      const isOurs = (link: string) => link.startsWith('https:&#x2F;&#x2F;app.example.test');
      const invoice = values['invoiceLink']?.replaceAll('/', '&#x2F;');
      t.ok(links.every((link) => isOurs(link) || link === invoice));
      t.notMatch(html, /<script|<img|@import|url\(/, name);
      for (const link of [values['link'], SITE.siteUrl]) if (link) t.ok(text.includes(link), name);

      const { name: _, plan, amount, when, ipAddress, browser, paidOn, invoiceLink, ...least } = values;
      const bare = templates.render(name, { ...least, ...SITE }, english);
      for (const gap of [GAPS, sentence('mail.greeting'), sentence('mail.origin.when')])
        t.notMatch(bare.text, gap, `${name} without what may be missing`);
    }
  },
);

t.test('a folder of the operator replaces templates file by file', async (t) => {
  const folder = folderOf(t, {
    'welcome.subject': 'Ahoy from\r\n{{siteName}}\n',
    'welcome.html': '<p>{{#name}}{{name}}{{/name}} at {{siteName}}</p>{{> _foot}}',
    '_foot.html': '<hr>',
    'README.md': 'not ours',
  });
  t.equal(templateProblems(folder), undefined);
  const [own, ours] = [loadTemplates({ folder }), loadTemplates()];
  const values = { email: 'ada@example.test', name: 'A & B', ...SITE };
  const welcome = own.render('welcome', values, english);
  t.equal(welcome.subject, 'Ahoy from Northwind');
  t.equal(welcome.html, '<p>A &amp; B at Northwind</p><hr>');
  t.equal(welcome.text, ours.render('welcome', values, english).text);
  const changed = own.render('password-changed', values, english);
  t.match(changed.html, /<hr>$/);
  t.equal(changed.subject, ours.render('password-changed', values, english).subject);
});

t.test(
  'a shared template of the operator replaces that of all its e-mails but those with one of their own',
  async (t) => {
    const files = {
      'notice.text': '{{> t:mail.this.title}}!',
      'key-created.text': 'Key',
      'mail.subject': 'Hi',
    };
    const folder = folderOf(t, files);
    t.equal(templateProblems(folder), undefined);
    const { render } = loadTemplates({ folder });
    t.match(render('passkey-added', SITE, english), {
      text: `${english.text('mail.passkey-added.title')}!`,
      subject: 'Hi',
    });
    t.match(render('key-created', SITE, english), { text: 'Key', subject: 'Hi' });
    const broken = folderOf(t, { 'notice.text': '{{nmae}}', 'address.html': '{{> t:mail.this.missing}}' });
    const problems = templateProblems(broken) ?? '';
    t.equal(problems.match(/notice\.text uses 'nmae'/g)?.length, 1, 'named once');
    t.match(problems, /address\.html cannot be used \(There is no message 'mail\.verify-email\.missing'/);
  },
);

t.test('an invalid templates folder prevents the start, and the problem is named', async (t) => {
  const target = join(folderOf(t, { real: 'Hello {{email}}' }), 'real');
  const linked = temporaryFolder(t);
  // Like a mounted volume.
  symlinkSync(target, join(linked, 'welcome.text'));
  t.equal(templateProblems(linked), undefined);
  const unreadable = temporaryFolder(t);
  mkdirSync(join(unreadable, 'welcome.html'));

  const wrong: [folder: string, problem: RegExp][] = [
    [join(temporaryFolder(t), 'missing'), /is not a folder/],
    [target, /is not a folder/],
    [unreadable, /welcome\.html cannot be used \(EISDIR/],
    [folderOf(t, { 'welcome.html': '{{#name}}' }), /welcome\.html cannot be used \(Unclosed section "name"/],
    [folderOf(t, { 'welcome.text': '{{nmae}}' }), /welcome\.text uses 'nmae'/],
    [folderOf(t, { 'welcome.text': '{{constructor}}' }), /welcome\.text uses 'constructor'/],
    [folderOf(t, { 'welcome.html': '{{#name}}{{{name}}}{{/name}}' }), /writes \{\{name\}\} unescaped/],
    [folderOf(t, { 'welcome.html': '{{&name}}' }), /writes \{\{name\}\} unescaped/],
    [folderOf(t, { 'welcome.html': '{{=<% %>=}}<% name %>' }), /changes the delimiters/],
    [folderOf(t, { 'welcome.html': '{{> ../../secret}}' }), /includes '\.\.\/\.\.\/secret'/],
    [folderOf(t, { 'welcome.text': '{{> _head}}' }), /includes '_head'/],
    [folderOf(t, { 'wellcome.html': 'Hi' }), /wellcome\.html does not match any template/],
  ];
  for (const [folder, problem] of wrong) t.match(templateProblems(folder), problem);

  const broken = folderOf(t, { 'welcome.text': '{{nmae}}', 'verify-email.html': '{{/x}}' });
  const options = testOptions(temporaryFolder(t));
  t.throws(() => createServer({ ...options, emailTemplateDir: broken }), {
    name: 'ConfigurationError',
    message: /EMAIL_TEMPLATE_DIR contains broken templates: .*welcome\.text.*|verify-email/,
  });
});

t.test('the operator can preview templates and send a test e-mail, whose failure is reported', async (t) => {
  const sink = await mailSink(t);
  const { email } = await outbox(t, {
    url: sink.url,
    from: { email: 'post@example.test', name: 'The Post' },
  });
  const { subject, html } = await email.preview('trial-ending');
  t.match(
    subject,
    sentence('mail.trial-ending.subject', { siteName: 'Northwind', endsOn: '31 January 2030' }),
  );
  t.match(html, /^<!doctype html>/);
  t.equal(await email.sendTest('ada@example.test', 'payment-failed'), 'sent');
  const [mail] = sink.mails as [(typeof sink.mails)[number]];
  t.equal(readMail(mail).headers['from'], 'The Post <post@example.test>');
  t.match(
    readMail(mail).headers['subject'],
    sentence('mail.payment-failed.subject', { siteName: 'Northwind' }),
  );
  await t.rejects(email.sendTest('a@example.test, b@example.test'), { message: /not one address/ });
  const nowhere = await outbox(t);
  await t.rejects(nowhere.email.sendTest('ada@example.test'), { name: 'DeliveryError' });
});

/** Puts a reset e-mail into the outbox of a backend, as its own domains do. */
async function putReset(mails: ReturnType<typeof mailCollection>, now: number) {
  await mails.insert({
    id: 'mail_1',
    key: 'reset-1',
    to: 'ada@example.test',
    template: 'password-reset',
    values: { email: 'ada@example.test', link: LINK, validFor: '1 hour' },
    security: true,
    expiresAt: now + 3_600_000,
    status: 'queued',
    dueAt: now,
    attempts: 0,
    createdAt: now,
  });
}

t.test('a backend starts sending when it is ready, and a stop waits for the outcome', async (t) => {
  const folder = temporaryFolder(t);
  const clock = fakeClock();
  const store = await openStore(storeIn(folder, 'saas'));
  t.teardown(() => store.close());
  const mails = mailCollection(store);
  await putReset(mails, clock.now());
  const sink = await mailSink(t);
  const app = await saasApp(t, { folder, clock, emailSmtpUrl: sink.url, fromName: 'The Post' });
  const { headers } = readMail(await sink.next());
  t.equal(headers['from'], 'The Post <no-reply@app.example.test>');
  await app.close();
  t.match(await mails.findOne({ key: 'reset-1' }), { status: 'sent' });
  t.equal(sink.mails.length, 1);
});

t.test(
  'without a mail server e-mails become files in development and log lines without links in production',
  async (t) => {
    const folder = temporaryFolder(t);
    const databaseUri = storeIn(folder, 'saas');
    const start = (env: Record<string, string>) =>
      startProgram(t, compiled('bin/saas-backend.js'), {
        cwd: folder,
        args: ['--port', '0'],
        env: { DATABASE_URI: databaseUri, HOST: '127.0.0.1', ...env },
      });
    const store = await openStore(databaseUri);
    t.teardown(() => store.close());
    const mails = mailCollection(store);
    await putReset(mails, Date.now());

    const development = start({});
    const [, path = ''] = await development.printed(
      /written to (data\/mail\/[\w.-]+password-reset[\w.-]+\.html)/,
    );
    t.equal(await development.terminate(), 0);
    t.notMatch(development.lines.join('\n'), /Zq7vLd0/);
    t.match(development.lines.join('\n'), /reset-password\?\[redacted\]/);
    const files = readdirSync(join(folder, 'data/mail')).filter((file) => file.startsWith('2'));
    t.equal(files.length, 2);
    for (const file of files) t.equal(statSync(join(folder, 'data/mail', file)).mode & 0o777, 0o600);
    t.match(readFileSync(join(folder, path), 'utf8'), /token&#x3D;Zq7vLd0/);
    t.ok(readFileSync(join(folder, path.replace('.html', '.txt')), 'utf8').includes(LINK));
    t.ok(existsSync(join(folder, 'data/mail/.gitignore')));
    const written = await mails.findOne({ key: 'reset-1' });
    t.equal(written?.status, 'written');
    t.notOk(written?.values);

    await mails.deleteOne({ key: 'reset-1' });
    // Otherwise the next program waits for the job's lease.
    await store.collection('leases').deleteOne({ id: 'mail' });
    await putReset(mails, Date.now());
    const production = start({
      NODE_ENV: 'production',
      PUBLIC_URL: 'https://app.example.test',
      JWT_ACCESS_SECRET: SECRETS.jwtAccessSecret + SECRETS.jwtRefreshSecret,
      JWT_REFRESH_SECRET: SECRETS.jwtRefreshSecret + SECRETS.jwtAccessSecret,
      ADMIN_PASSWORD: SECRETS.adminPassword,
    });
    await production.printed(/Neither EMAIL_API_KEY nor EMAIL_SMTP_URL is set/);
    await production.printed(/an e-mail was not sent: no transport is configured/);
    t.equal(await production.terminate(), 0);
    t.notMatch(production.lines.join('\n'), /Zq7vLd0/);
    t.match(await mails.findOne({ key: 'reset-1' }), { status: 'undeliverable' });
  },
);
