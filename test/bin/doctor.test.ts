import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import t, { type Test } from 'tap';
import { DAY, HOUR } from '../../src/core/kernel/clock.js';
import { examineCertificate } from '../../src/core/server/certificate.js';
import type { Finding } from '../../src/core/server/doctor.js';
import { openStore } from '../../src/core/storage/open.js';
import { loadDriver } from '../../src/core/storage/sqlite/driver.js';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { clientCollection } from '../../src/idp/provisioning/store.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { customerCollection, subscriptionCollection } from '../../src/saas/billing/store.js';
import { type UsageDocument, usageCollection } from '../../src/saas/billing/usage/reports.js';
import { type MailDocument, mailCollection } from '../../src/shared/email/store.js';
import { saasApp } from '../kit/app.js';
import { runProgram } from '../kit/command-line.js';
import { foreignIssuer } from '../kit/identity-assertions.js';
import { idpApp } from '../kit/idp.js';
import { mailSink } from '../kit/mail.js';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';
import { words } from '../kit/words.js';

/** The doctor checks what a start checks, and changes nothing. Invalid options: `test/core/config/option-table.test.ts`. */

const SAAS = 'saas-backend';
const IDP = 'idp';
type Product = typeof SAAS | typeof IDP;

const SAAS_PRODUCTION = {
  NODE_ENV: 'production',
  DATABASE_URI: 'sqlite:store/app.db',
  PUBLIC_URL: 'https://app.example',
  JWT_ACCESS_SECRET: 'b7d1f0c25e8a4396b7d1f0c25e8a4396',
  JWT_REFRESH_SECRET: 'f0c25e8a4396b7d1f0c25e8a4396b7d1',
};

const BCRYPT = `$2b$10$${'a'.repeat(53)}`;

/** What the doctor finds with these variables alone. */
async function doctor(
  t: Test,
  product: Product,
  env: Record<string, string>,
  cwd = temporaryFolder(t),
  more: readonly string[] = [],
) {
  const list = () => readdirSync(cwd, { recursive: true, encoding: 'utf8' });
  const before = list();
  const ports = { PORT: '0', IDP_PORT: '0' };
  const { code, out: text } = await runProgram(
    product,
    ['doctor', '--json', ...more],
    { ...ports, ...env },
    { cwd },
  );
  const { healthy, findings } = JSON.parse(text) as { healthy: boolean; findings: Finding[] };
  const created = list().filter((name) => !before.includes(name));
  t.same(created, [], 'nothing is created');
  t.equal(code, healthy ? 0 : 1);
  const about = (level: Finding['level']) =>
    findings.filter((finding) => finding.level === level).map((finding) => finding.about);
  return { healthy, findings, text, problems: about('problem'), warnings: about('warning') };
}

/** Starts a program with these variables alone. */
function start(t: Test, product: Product, env: Record<string, string>, cwd = temporaryFolder(t)) {
  return startProgram(t, compiled(`bin/${product}.js`), { args: ['serve', '-p', '0'], cwd, env });
}

t.test(
  'the command prints the findings, readable or as JSON, and exits with 1 if there is a problem',
  async (t) => {
    const cwd = temporaryFolder(t);
    const run = (product: Product, ...more: string[]) =>
      runProgram(product, ['doctor', ...more], { PORT: '0', IDP_PORT: '0', CORS_ORIGIN: '*' }, { cwd });
    const { code, json } = await run(IDP, '--json');
    t.match({ code, json }, { code: 0, json: { healthy: true, findings: [{ level: 'ok' }] } });
    t.same(readdirSync(cwd), [], 'and no secrets are generated');
    mkdirSync(join(cwd, 'data'));
    writeFileSync(join(cwd, 'data/saas-backend.secrets.json'), '["geheim"]');
    const { code: failed, out } = await run(SAAS);
    t.equal(failed, 1);
    t.match(out, /^ok +configuration is complete for development$/m);
    t.match(out, /^warning +CORS_ORIGIN allows .*\n +→ List the origins/m);
    t.match(out, /^problem +JWT_ACCESS_SECRET, .* cannot save .*\.json does not contain .*\n +→ Set them/m);
    t.match(out, /^1 problem, 1 warning\.$/m);
    t.notMatch(out, /geheim|\x1b/);
  },
);

t.test('the doctor and the start name a mail server that does not accept e-mails', async (t) => {
  const sink = await mailSink(t);
  const closed = 'smtp://127.0.0.1:9';
  for (const [product, name] of [
    [SAAS, 'EMAIL_SMTP_URL'],
    [IDP, 'IDP_EMAIL_SMTP_URL'],
  ] as const) {
    const { warnings, text, healthy } = await doctor(t, product, { [name]: closed });
    t.ok(warnings.includes(name));
    t.ok(healthy, 'the server starts');
    t.match(text, /names a mail server that does not accept e-mails: E[A-Z]+ at CONN/);
    t.notOk((await doctor(t, product, { [name]: sink.url })).warnings.includes(name));
  }
  const program = start(t, SAAS, { EMAIL_SMTP_URL: closed });
  await program.printed(/"reason":"E[A-Z]+ at CONN.*the mail server does not accept e-mails/);
});

t.test('a test mail is sent on request only', async (t) => {
  const sink = await mailSink(t);
  for (const [product, prefix] of [
    [SAAS, ''],
    [IDP, 'IDP_'],
  ] as const) {
    const env = { [`${prefix}EMAIL_SMTP_URL`]: sink.url, [`${prefix}FROM_EMAIL`]: 'no-reply@app.example' };
    const before = sink.mails.length;
    await doctor(t, product, env);
    t.equal(sink.mails.length, before);
    const { text } = await doctor(t, product, env, undefined, ['--send-mail-to', 'ada@example.com']);
    t.match(text, /accepted the test mail to ada@example\.com/);
    t.match(sink.mails.at(-1), { to: ['ada@example.com'], raw: /^Subject: Test mail of /m });
    const refused = await doctor(
      t,
      product,
      { [`${prefix}EMAIL_SMTP_URL`]: 'smtp://127.0.0.1:9' },
      undefined,
      ['--send-mail-to', 'ada@example.com'],
    );
    t.ok(refused.warnings.includes(`${prefix}EMAIL_SMTP_URL`));
  }
  const wrong = await runProgram(SAAS, ['doctor', '--send-mail-to', 'ada'], {}, { cwd: temporaryFolder(t) });
  t.match(wrong, { code: 2, err: /Use an e-mail address/ });
});

t.test('e-mails that no server sends are a warning', async (t) => {
  const cwd = temporaryFolder(t);
  const DATABASE_URI = `sqlite:${join(cwd, 'app.db')}`;
  const store = await openStore(DATABASE_URI);
  const mails = mailCollection(store);
  const mail = { template: 'verify-email', status: 'pending', createdAt: 1, values: {} };
  const add = (id: string, dueAt?: number) =>
    mails.insert({ ...mail, id, key: id, ...(dueAt && { dueAt }) } as unknown as MailDocument);
  await add('later', Date.now() + HOUR);
  await add('done');
  await store.ready();
  t.notMatch((await doctor(t, SAAS, { DATABASE_URI }, cwd)).warnings, ['e-mails']);
  await add('late', Date.now() - HOUR);
  await store.close();
  t.match(
    (await doctor(t, SAAS, { DATABASE_URI }, cwd)).text,
    /"about":"e-mails","message":"due .*not sent: 1"/,
  );
});

t.test('the certificate of the public address is looked at as browsers do', async (t) => {
  const folder = temporaryFolder(t);
  const issue = async (name: string, days: number) => {
    const [cert, key] = [join(folder, `${name}-${days}.pem`), join(folder, `${name}-${days}.key`)];
    const kind = [
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-days',
      String(days),
    ];
    const names = ['-subj', `/CN=${name}`, '-addext', `subjectAltName=DNS:${name}`];
    execFileSync('openssl', ['req', '-x509', ...kind, ...names, '-keyout', key, '-out', cert], {
      stdio: 'pipe',
    });
    const server = createTlsServer({ cert: readFileSync(cert), key: readFileSync(key) });
    t.teardown(() => server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return { cert, url: `https://localhost:${(server.address() as AddressInfo).port}` };
  };
  const [valid, short, other] = [
    await issue('localhost', 60),
    await issue('localhost', 7),
    await issue('x.example', 60),
  ];
  const found = async (product: Product, { url, cert }: { url: string; cert?: string }) => {
    const about = product === IDP ? 'IDP_PUBLIC_URL' : 'PUBLIC_URL';
    // Node reads the variable at the start of a process.
    const program = startProgram(t, compiled(`bin/${product}.js`), {
      args: ['doctor', '--json'],
      cwd: folder,
      env: { PORT: '0', IDP_PORT: '0', [about]: url, ...(cert && { NODE_EXTRA_CA_CERTS: cert }) },
    });
    t.equal(await program.ended(), 0);
    const { findings } = JSON.parse(program.lines.at(-1) ?? '') as { findings: Finding[] };
    return findings.find((finding) => finding.about === about && /certificate|reached/.test(finding.message));
  };
  for (const product of [SAAS, IDP] as const)
    t.match(await found(product, valid), { level: 'ok', message: /has a valid certificate until 20/ });
  const remedy = /\.$/;
  t.match(await found(SAAS, short), {
    level: 'warning',
    message: /has a certificate that ends on 20/,
    remedy,
  });
  t.match(await found(SAAS, other), {
    level: 'warning',
    message: /browsers refuse: ERR_TLS_CERT_ALTNAME/,
    remedy,
  });
  const untrusted = await found(SAAS, { url: valid.url });
  t.match(untrusted, { level: 'warning', message: /browsers refuse: DEPTH_ZERO_SELF_SIGNED/, remedy });
  const closed = await found(IDP, { url: 'https://127.0.0.1:9' });
  t.match(closed, { level: 'warning', message: /cannot be reached with TLS.*: ECONNREFUSED/, remedy });
  t.equal(
    await found(SAAS, { url: 'http://localhost:9' }),
    undefined,
    'nothing is asked of an address without TLS',
  );
  const later = { about: 'PUBLIC_URL', now: Date.now() + 90 * DAY };
  t.match(await examineCertificate(valid.url, later), [{ level: 'warning', message: /that ended on 20/ }]);
});

t.test('a clock that differs from that of the payment provider is a warning', async (t) => {
  let skew = 0;
  const provider = createServer((_request, response) => {
    const date = new Date(Date.now() + skew).toUTCString();
    response.writeHead(200, { 'content-type': 'application/json', date });
    response.end(JSON.stringify({ object: 'list', data: [], has_more: false, url: '/' }));
  });
  t.teardown(() => provider.close());
  await once(provider.listen(0, '127.0.0.1'), 'listening');
  const PAYMENT_API_URL = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  const env = { PAYMENT_API_URL, PAYMENT_SECRET_KEY: 'sk_test_Qm3xT7' };
  t.notOk((await doctor(t, SAAS, env)).warnings.includes('clock'));
  skew = -HOUR;
  const { text } = await doctor(t, SAAS, env);
  t.match(text, /"about":"clock","message":"is \d{4} seconds ahead of that of the payment provider"/);
});

t.test('neither program uses the store of the other', async (t) => {
  const cwd = temporaryFolder(t);
  const env = { DATABASE_URI: 'sqlite:one.db', IDP_DATABASE_URI: 'sqlite:one.db' };
  const app = await saasApp(t, { databaseUri: `sqlite:${cwd}/one.db` });
  const refused = /the store belongs to saas-backend/;
  const second = start(t, IDP, env, cwd);
  t.equal(await second.ended(), 1);
  t.match(second.lines.join('\n'), refused);
  t.match((await doctor(t, IDP, env, cwd)).text, refused);
  await app.close();
  t.same((await doctor(t, SAAS, env, cwd)).problems, []);
});

t.test('risky settings are warnings', async (t) => {
  const { healthy, warnings, text } = await doctor(t, SAAS, {
    ...SAAS_PRODUCTION,
    CORS_ORIGIN: '*',
    PAYMENT_SECRET_KEY: 'sk_test_Qm3xT7',
    PAYMENT_API_URL: 'http://127.0.0.1:9',
    DATABASE_URI: 'sqlite::memory:',
  });
  t.ok(healthy);
  t.same(
    warnings.toSorted(),
    words(`
    ADMIN_PASSWORD BILLING_PRICES CORS_ORIGIN DATABASE_URI EMAIL_API_KEY PAYMENT_SECRET_KEY
    PAYMENT_SECRET_KEY PAYMENT_WEBHOOK_SECRET PUBLIC_URL TRUST_PROXY`),
  );
  t.match(text, /could not be tried, because the payment provider does not respond/);
  t.notMatch(text, /Qm3xT7|b7d1f0c2/);
  const idp = await doctor(t, IDP, {
    NODE_ENV: 'production',
    IDP_DATABASE_URI: 'sqlite:idp.db',
    IDP_PUBLIC_URL: 'https://id.example',
    IDP_ED25519_SEED: '5d9c1e8a70f3b264c6e1d8f05a9b3742e7160fca8d35b94c2e6f01a7d8c3b549',
    IDP_TRUSTED_EMAIL_DOMAINS: 'example.com',
  });
  t.same(idp.warnings.toSorted(), [
    'IDP_ADMIN_TOKEN',
    'IDP_DISABLE_SIGNUP',
    'IDP_EMAIL_SMTP_URL',
    'IDP_PUBLIC_URL',
    'IDP_TRUSTED_EMAIL_DOMAINS',
    'IDP_TRUST_PROXY',
  ]);
  t.notMatch(idp.text, /5d9c1e8a/);
  const unused = await doctor(t, IDP, { IDP_FROM_EMAIL: 'id@example.com' });
  t.match(unused.text, /IDP_EMAIL_SMTP_URL","message":"is not set, so the other options/);
  const numbered = await doctor(t, IDP, { IDP_PASSKEYS: 'true', IDP_PUBLIC_URL: 'http://192.0.2.1:8080' });
  t.match(numbered.text, /IDP_PUBLIC_URL","message":"names an IP address, 192\.0\.2\.1, at which browsers/);
});

t.test('the doctor says how the rotation of a key goes on', async (t) => {
  const [one, two, three] = ['5d9c1e8a70f3b264', 'c6e1d8f05a9b3742', 'e7160fca8d35b94c'].map((part) =>
    part.repeat(4),
  ) as [string, string, string];
  for (const key of ['IDP_ED25519_SEED', 'IDP_ES256_KEY']) {
    const [NEXT, PREVIOUS] = [`${key}_NEXT`, `${key}_PREVIOUS`];
    const ahead = await doctor(t, IDP, { [key]: one, [NEXT]: two });
    t.same([ahead.problems, ahead.warnings], [[], [NEXT]]);
    t.match(ahead.text, `Publish it from every process for ten minutes before it becomes ${key}:`);
    const changed = await doctor(t, IDP, { [key]: two, [NEXT]: three, [PREVIOUS]: one });
    t.same([changed.problems, changed.warnings], [[], [NEXT, PREVIOUS]]);
    t.match(changed.text, /Unset it one day after the rotation/);
    t.notMatch(changed.text, one);
  }
});

t.test('the doctor says how a key of access tokens is introduced and exchanged', async (t) => {
  const [one, two] = ['5d9c1e8a70f3b264', 'c6e1d8f05a9b3742'].map((part) => part.repeat(4)) as [
    string,
    string,
  ];
  const { text, warnings } = await doctor(t, SAAS, {
    JWT_ACCESS_KEY: one,
    JWT_ACCESS_KEY_PREVIOUS: two,
    JWT_ACCESS_SECRET: 'b7d1f0c25e8a4396b7d1f0c25e8a4396',
  });
  for (const name of ['JWT_ACCESS_KEY_PREVIOUS', 'JWT_ACCESS_SECRET']) t.ok(warnings.includes(name), name);
  for (const key of [one, two]) t.notMatch(text, key);
  const short = await doctor(t, SAAS, { JWT_ACCESS_KEY: one.slice(1) });
  t.match(short.text, /"JWT_ACCESS_KEY","message":"must be an Ed25519 seed of 64 hexadecimal characters/);
});

t.test('the doctor names applications with ES256 if there is no key for it', async (t) => {
  const cwd = temporaryFolder(t);
  const store = await openStore(`sqlite:${join(cwd, 'idp.db')}`);
  t.teardown(() => store.close());
  const clients = clientCollection(store);
  const key = '5d9c1e8a70f3b264'.repeat(4);
  const examine = (more: Record<string, string>) =>
    doctor(t, IDP, { IDP_DATABASE_URI: `sqlite:${cwd}/idp.db`, ...more });
  const client = { redirectUris: [], postLogoutRedirectUris: [], principalKinds: [], createdAt: 0 };
  await clients.insert({ ...client, id: 'cid_plain', name: 'Plain' });
  t.notOk((await examine({})).warnings.includes('IDP_ES256_KEY'));
  await clients.insert({ ...client, id: 'cid_shop', name: 'Shop', idTokenAlg: 'ES256' });
  await clients.insert({ ...client, id: 'cid_nameless', name: '', idTokenAlg: 'ES256' });
  const without = await examine({});
  t.same([without.healthy, without.warnings], [true, ['IDP_ES256_KEY']]);
  for (const name of ['Shop (cid_shop)', 'cid_nameless']) t.match(without.text, name);
  t.notMatch(without.text, /Plain|cid_plain/);
  t.same((await examine({ IDP_ES256_KEY: key })).warnings, []);
  const env = { IDP_DATABASE_URI: `sqlite:${cwd}/idp.db`, IDP_ES256_KEY: key };
  const added = ['resource', 'add', 'https://api.example.test', '--alg', 'ES256'];
  t.match(await runProgram('idp', added, { IDP_DATABASE_URI: env.IDP_DATABASE_URI }, { cwd }), {
    code: 1,
    err: /alg .*IDP_ES256_KEY/,
  });
  t.equal((await runProgram('idp', added, env, { cwd })).code, 0);
  t.match((await examine({})).text, /access tokens with ES256 for https:\/\/api\.example\.test/);
  t.equal(
    (await runProgram('idp', ['resource', 'update', added[2] ?? '', '--alg', 'EdDSA'], env, { cwd })).code,
    0,
  );
  t.notMatch((await examine({})).text, /access tokens with ES256/);
  const alone = await examine({ IDP_ES256_KEY_NEXT: key });
  t.same(alone.warnings, ['IDP_ES256_KEY_NEXT', 'IDP_ES256_KEY', 'IDP_ES256_KEY']);
  t.match(alone.text, /no key signs ES256/);
});

t.test('the doctor names issuers of workloads that do not answer', async (t) => {
  const cwd = temporaryFolder(t);
  const env = { IDP_DATABASE_URI: `sqlite:${join(cwd, 'idp.db')}`, IDP_LOOPBACK_DOCUMENTS: '1' };
  const platform = await foreignIssuer(t);
  const run = (...args: string[]) => runProgram('idp', ['agent', ...args], env, { cwd });
  await run('mint', 'scout@agents.example');
  const rule = ['--issuer', platform.issuer, '--subject', 'repo:acme/app'];
  t.equal((await run('trust', 'add', 'scout@agents.example', ...rule)).code, 0);
  t.same((await doctor(t, IDP, env, cwd)).warnings, ['IDP_LOOPBACK_DOCUMENTS']);
  platform.host.answer = (_, response) => void response.writeHead(503).end();
  const { warnings, text } = await doctor(t, IDP, env, cwd);
  t.same(warnings, ['IDP_LOOPBACK_DOCUMENTS', 'idp agent trust']);
  t.match(text, `the keys of ${platform.issuer} cannot be read`);
});

t.test('the doctor and the start say which APIs admit those who sign up', async (t) => {
  const cwd = temporaryFolder(t);
  const env = { IDP_DATABASE_URI: `sqlite:${join(cwd, 'idp.db')}` };
  const add = (uri: string, ...more: string[]) =>
    runProgram('idp', ['resource', 'add', uri, ...more], env, { cwd });
  t.same((await doctor(t, IDP, env, cwd)).warnings, [], 'without any');
  await add('https://closed.example.test');
  const closed = await doctor(t, IDP, env, cwd);
  t.same(closed.warnings, []);
  t.match(closed.text, /who registered themselves get no access token for https:\/\/closed\.example\.test/);
  await add('https://open.example.test', '--self-registered', 'yes');
  const open = await doctor(t, IDP, env, cwd);
  t.same(open.warnings, ['idp resource']);
  const SAYS = /anyone who signs up gets access tokens with every scope for https:\/\/open\.example\.test/;
  t.match(open.text, SAYS);
  t.notMatch((await doctor(t, IDP, { ...env, IDP_DISABLE_SIGNUP: '1' }, cwd)).text, /signs up gets/);
  await start(t, IDP, env, cwd).printed(SAYS);
});

t.test('the doctor reports usage and profiles that do not reach the payment provider', async (t) => {
  const folder = temporaryFolder(t);
  const now = Date.now();
  const days = (count: number) => now - count * DAY;
  const store = await openStore(`sqlite:${join(folder, 'app.db')}`);
  const usage = usageCollection(store);
  const report = (key: string, more: Partial<UsageDocument>) =>
    usage.insert({
      id: `use_${key}`,
      ownerId: 'usr_1',
      meter: 'requests',
      quantity: 1,
      key,
      reportedAt: now,
      status: 'queued',
      attempts: 0,
      ...more,
    });
  await report('sent', { status: 'sent', attempts: 1, reportedAt: days(3), endedAt: days(3) });
  await report('new', { dueAt: now });
  await report('refused an hour ago', { attempts: 5, reportedAt: now - HOUR, dueAt: now + HOUR });
  await report('without a customer', { reportedAt: days(3), dueAt: now + HOUR });
  const customers = customerCollection(store);
  await customers.insert({ id: 'cus_1', ownerId: 'usr_1', createdAt: 1 });
  const env = { DATABASE_URI: 'sqlite:app.db' };
  t.same((await doctor(t, SAAS, env, folder)).warnings, []);

  await report('failed', { status: 'failed', attempts: 9, reportedAt: days(40), endedAt: days(5) });
  for (const key of ['a', 'b']) await report(key, { attempts: 5, reportedAt: days(2), dueAt: now + HOUR });
  for (const key of ['c', 'd', 'e']) await report(key, { reportedAt: days(2), dueAt: now - 2 * HOUR });
  await customers.insert({
    id: 'cus_2',
    ownerId: 'usr_2',
    createdAt: 1,
    profileRejectedAt: now,
    profileRejection: 'StripeInvalidRequestError email_invalid 400',
  });
  const { findings, warnings } = await doctor(t, SAAS, env, folder);
  t.same(warnings, ['usage reports', 'usage reports', 'usage reports', 'customer profiles']);
  const messages = findings.filter(({ level }) => level === 'warning').map(({ message }) => message);
  t.match(messages, [/failed .*: 1$/, /more than a day ago .*: 2$/, /overdue .*: 3$/, /rejects: 1$/]);

  const terms = { plan: 'pro', status: 'active', cancelAtPeriodEnd: false, items: [], startedAt: now };
  const times = { at: now, statusAt: now, heardAt: now, rev: 1, createdAt: now, updatedAt: now };
  await subscriptionCollection(store).insert({
    id: 'sub_test',
    ownerId: 'usr_1',
    livemode: false,
    ...terms,
    ...times,
  });
  const key = { PAYMENT_API_URL: 'http://127.0.0.1:9' };
  const text = async (PAYMENT_SECRET_KEY: string) =>
    (await doctor(t, SAAS, { ...env, ...key, PAYMENT_SECRET_KEY }, folder)).text;
  t.match(await text('sk_live_Qm3xT7'), /are from test mode and give no access with a live key: sub_test"/);
  t.notMatch(await text('sk_test_Qm3xT7'), /sub_test/);
  await store.close();
});

/** Files in a folder: some cannot be a store, others can. */
async function fillWithStores(folder: string): Promise<void> {
  writeFileSync(join(folder, 'text.db'), 'no database at all');
  writeFileSync(join(folder, 'empty.db'), '');
  const make = async (name: string, sql: string) => {
    const db = await openDatabase(join(folder, name));
    db.exec(`PRAGMA journal_mode = DELETE; ${sql}`);
    db.close();
  };
  await make('foreign.db', 'CREATE TABLE users (name); PRAGMA user_version = 0');
  await make('newer.db', 'PRAGMA user_version = 999');
  await make('good.db', '');
  await make('damaged.db', 'CREATE TABLE things (id TEXT PRIMARY KEY NOT NULL, doc TEXT NOT NULL)');
  // Behind the header: the page that lists the tables.
  const descriptor = openSync(join(folder, 'damaged.db'), 'r+');
  writeSync(descriptor, Buffer.alloc(3996, 0xff), 0, 3996, 100);
  closeSync(descriptor);
  mkdirSync(join(folder, 'folder'));
  symlinkSync('/no/such/place', join(folder, 'link'));
}

t.test('the doctor and the start report the same for every store', async (t) => {
  const isLinux = process.platform === 'linux';
  const bad: [path: string, says: RegExp, remedy?: RegExp][] = [
    ['text.db', /file is not a database/, /Choose another file, or restore the last backup\./],
    ['foreign.db', /belongs to another program/, /Choose another file/],
    ['newer.db', /newer version \(layout 999/, /Install that version again, or restore the backup/],
    ['damaged.db', /malformed/, /The file is damaged: restore the last backup\./],
    ['folder', /folder is a folder/, /Choose a file in it, like sqlite:.*\/app\.db\./],
    ['.', /is a folder/],
    ['text.db/deep/below/app.db', /cannot create .*app\.db: ENOTDIR/, /Choose a file/],
    ['link/app.db', /cannot create .*app\.db: ENOENT/],
    [`${'x'.repeat(300)}/app.db`, /cannot create .*app\.db: ENAMETOOLONG/],
    [`${'x'.repeat(300)}.db`, /cannot create .*\.db: ENAMETOOLONG/],
  ];
  // Where even root cannot create a file, and where others cannot.
  if (isLinux) {
    bad.push(['/proc/app.db', /cannot create \/proc\/app\.db: E[A-Z]+/]);
    bad.push(['/sys/deep/app.db', /cannot create \/sys\/deep\/app\.db: E[A-Z]+/]);
  }
  if (process.getuid?.() !== 0) bad.push(['/saas-backend.db', /cannot create .* E(ACCES|ROFS)/]);
  const cwd = temporaryFolder(t);
  await fillWithStores(cwd);
  const report = async (DATABASE_URI: string, says: RegExp) => {
    const found = await doctor(t, SAAS, { DATABASE_URI }, cwd);
    t.same(found.problems, ['DATABASE_URI'], DATABASE_URI);
    const { message = '', remedy = '' } = found.findings.find(({ level }) => level === 'problem') ?? {};
    t.match(message, says);
    t.notMatch(found.text, /geheim/);
    return { message, remedy };
  };
  for (const [path, says, does = /./] of bad) {
    const { message, remedy } = await report(`sqlite:${path}`, says);
    t.match(remedy, does);
    const opened = openStore(`sqlite:${resolve(cwd, path)}`).then((store) => store.ready());
    await t.rejects(opened, { name: 'StoreUnavailable', message, remedy }, path);
  }
  await report('mongodb://user:geheim@127.0.0.1:1/app', /MongoDB: /);
  if (!isLinux) return;
  await t.rejects(openStore('sqlite:/dev/full'), { message: /disk is full/, remedy: /Free up disk space/ });
});

t.test('the doctor finds stores that a start can open, and does not change them', async (t) => {
  const cwd = temporaryFolder(t);
  await fillWithStores(cwd);
  const { DatabaseSync } = await loadDriver();
  const unlike = new DatabaseSync(join(cwd, 'unlike.db'));
  // Without the fields and indexes that this version declares.
  unlike.exec(`
    PRAGMA user_version = 1;
    CREATE TABLE users (id TEXT PRIMARY KEY NOT NULL, doc TEXT NOT NULL);
    CREATE TABLE customers (id TEXT PRIMARY KEY NOT NULL, doc TEXT NOT NULL);
    INSERT INTO users VALUES ('usr_1', '${JSON.stringify({ id: 'usr_1', passwordHash: BCRYPT })}');
  `);
  unlike.close();
  for (const [path, says, warnings = []] of [
    ['good.db', /names a store that is there/],
    ['empty.db', /names a store that is there/],
    ['unlike.db', /names a store that is there/, ['imported passwords']],
    ['new.db', /the first start creates it \(SQLite 3\.\d+\.\d+ of \S+\)/],
    ['folder/deep/new.db', /the first start creates it/],
  ] as const) {
    const contents = () => ['good.db', 'empty.db', 'unlike.db'].map((name) => readFileSync(join(cwd, name)));
    const before = contents();
    const found = await doctor(t, SAAS, { DATABASE_URI: `sqlite:${path}` }, cwd);
    t.same([found.problems, found.warnings], [[], warnings], path);
    t.match(found.text, says);
    t.same(contents(), before, `${path}: as it was`);
  }
});

t.test('development secrets that cannot be saved are a problem', async (t) => {
  const cwd = temporaryFolder(t);
  writeFileSync(join(cwd, 'data'), 'no folder');
  const env = { DATABASE_URI: 'sqlite::memory:' };
  const { findings, problems } = await doctor(t, SAAS, env, cwd);
  t.same(problems, ['JWT_ACCESS_SECRET, JWT_REFRESH_SECRET, ADMIN_PASSWORD']);
  t.match(findings.find(({ level }) => level === 'problem')?.message, /cannot save the values .*: ENOTDIR/);
  t.equal(await start(t, SAAS, env, cwd).ended(), 1);
});

/** A server that answers `/health` with this text. */
async function answering(t: Test, text: string): Promise<string> {
  const other = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(text);
  }).listen(0, '127.0.0.1');
  t.teardown(() => other.close());
  await once(other, 'listening');
  return String((other.address() as AddressInfo).port);
}

t.test('a port in use is a problem, unless the same program responds on it', async (t) => {
  const others = [
    'hello',
    '{"status":"ok"}',
    'null',
    '{"success":true}',
    '{"success":true,"data":{"status":"ok"}}',
    '{"status":"ok","product":"saas-backend"}',
    '{"success":true,"data":{"status":"ok","product":"idp"}}',
  ];
  for (const text of others) {
    const port = await answering(t, text);
    const saas = await doctor(t, SAAS, { PORT: port });
    t.same(saas.problems, ['PORT'], text);
    t.match(saas.text, `${port} is in use`);
    t.same((await doctor(t, IDP, { IDP_PORT: port })).problems, ['IDP_PORT'], text);
  }

  const [saas, idp] = [await saasApp(t), await idpApp(t)];
  const [{ port: saasPort }, { port: idpPort }] = [new URL(await saas.listen()), new URL(await idp.listen())];
  for (const found of [
    await doctor(t, SAAS, { PORT: saasPort }),
    await doctor(t, IDP, { IDP_PORT: idpPort }),
  ]) {
    t.ok(found.healthy, found.text);
    t.match(found.text, /is already running/);
  }
  t.same((await doctor(t, SAAS, { PORT: idpPort })).problems, ['PORT'], 'the other program');
  t.same((await doctor(t, IDP, { IDP_PORT: saasPort })).problems, ['IDP_PORT'], 'the other program');
});

t.test('an address that this machine does not have is a problem of the host option', async (t) => {
  const { problems, text } = await doctor(t, SAAS, { HOST: '192.0.2.1' });
  t.same(problems, ['HOST']);
  t.match(text, /192\.0\.2\.1 is not an address of this machine/);
});

t.test('foreign password hashes are counted by kind', async (t) => {
  const cwd = temporaryFolder(t);
  const store = await openStore(`sqlite:${join(cwd, 'app.db')}`);
  t.teardown(() => store.close());
  const users = userCollection(store);
  const examine = () => doctor(t, SAAS, { DATABASE_URI: 'sqlite:app.db' }, cwd);
  const insert = (id: string, passwordHash?: string) =>
    users.insert({
      id,
      email: `${id}@example.test`,
      createdAt: 1,
      ...(passwordHash && { passwordHash }),
    } as never);
  await insert('without');
  t.same((await examine()).warnings, []);
  for (const [index, hash] of [
    BCRYPT,
    BCRYPT.replace('2b$10', '2a$12'),
    `$pbkdf2-sha256$1000$${'a'.repeat(22)}$${'a'.repeat(43)}`,
  ].entries())
    await insert(`usr_${index}`, hash);
  const { healthy, findings } = await examine();
  t.ok(healthy);
  t.match(
    findings.find(({ about }) => about === 'imported passwords'),
    { level: 'warning', message: /\(bcrypt: 2; PBKDF2 sha256, 32 bytes: 1\)/, remedy: /login/ },
  );
});

/** The findings of saas-backend that are not in order. */
const examineWith = async (t: Test, env: Record<string, string>) =>
  (await doctor(t, SAAS, env)).findings.filter(({ level }) => level !== 'ok');

const levels = (findings: Finding[]) => findings.map(({ level, about }) => `${level} ${about}`);

t.test('options that need others are a problem of the doctor', async (t) => {
  const partial = await examineWith(t, { AGENT_ISSUER: 'https://id.example.test' });
  t.match(partial, [{ level: 'problem', remedy: /AGENT_ISSUER, AGENT_RESOURCE and AGENT_CLIENT_ID/ }]);
  t.match(partial[0]?.message + String(partial[0]?.about), /AGENT_RESOURCE and AGENT_CLIENT_ID/);

  const webhooks = await examineWith(t, { WEBHOOKS: 'true' });
  t.match(webhooks, [{ level: 'problem', about: 'WEBHOOKS', message: /requires SETTINGS_ENCRYPTION_KEY/ }]);
  const key = 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9';
  t.same(await examineWith(t, { WEBHOOKS: 'true', SETTINGS_ENCRYPTION_KEY: key }), []);
});

t.test('the doctor compares the options of agents with the metadata of their provider', async (t) => {
  let metadata: object | undefined;
  const provider = createServer((request, response) => {
    const isKnown = request.url === '/.well-known/openid-configuration' && metadata !== undefined;
    response.writeHead(isKnown ? 200 : 302, { location: '/' }).end(JSON.stringify(metadata ?? {}));
  }).listen(0, '127.0.0.1');
  t.teardown(() => provider.close());
  await once(provider, 'listening');
  const issuer = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  const resource = 'https://app.example.test/api';
  const env = { AGENT_ISSUER: issuer, AGENT_RESOURCE: resource, AGENT_CLIENT_ID: 'cid_app' };
  const right = {
    issuer,
    id_token_signing_alg_values_supported: ['ES256', 'EdDSA'],
    protected_resources: [resource],
    revocation_list_uri: `${issuer}/revoked`,
  };
  const examine = (changed: object | undefined) => {
    metadata = changed && { ...right, ...changed };
    return examineWith(t, env);
  };

  t.same(await examine({}), []);
  t.same(await examine({ id_token_signing_alg_values_supported: ['Ed25519'] }), []);
  t.same(await examine({ protected_resources: undefined }), [], 'a provider that does not list its APIs');
  for (const [changed, about, message] of [
    [{ issuer: `${issuer}/` }, 'problem AGENT_ISSUER', /another issuer/],
    [{ id_token_signing_alg_values_supported: ['RS256'] }, 'problem AGENT_ISSUER', /EdDSA/],
    [{ id_token_signing_alg_values_supported: undefined }, 'problem AGENT_ISSUER', /EdDSA/],
    [{ protected_resources: ['https://other.example'] }, 'problem AGENT_RESOURCE', /not among the APIs/],
    [{ revocation_list_uri: undefined }, 'warning AGENT_ISSUER', /no list of revoked/],
    [undefined, 'warning AGENT_ISSUER', /does not answer/],
  ] as const) {
    const findings = await examine(changed);
    t.same(levels(findings), [about], JSON.stringify(changed));
    t.match(findings[0]?.message, message);
    t.match(findings[0]?.remedy, /./);
  }
});
