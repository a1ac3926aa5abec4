import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingHttpHeaders } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import type { Clock } from '../../../src/core/kernel/clock.js';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createHttpTransport } from '../../../src/shared/email/http-transport.js';
import { createOutbox } from '../../../src/shared/email/outbox.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { smtpSettings } from '../../../src/shared/email/transport.js';
import { mailSink, readMail, smtpAnswer } from '../../kit/mail.js';
import { countedRandom } from '../../kit/random.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { gate, waitUntil } from '../../kit/wait.js';
import { words } from '../../kit/words.js';
import { processesOn } from '../processes.js';
import { emailOn, HOUR, LINK, MINUTE, outbox, transportTo } from './kit.js';

const DAY = 24 * HOUR;

t.test('an e-mail reaches its recipient, and its link is removed from the store', async (t) => {
  const sink = await mailSink(t);
  const { put, relay, stored, wakes } = await outbox(t, { url: sink.url });
  const key = await put();
  t.equal(wakes(), 1);
  const queued = await stored(key);
  t.match(queued, { status: 'queued', attempts: 0, values: undefined });
  t.notMatch(JSON.stringify(queued), /token=|1 hour/, 'what it contains is encrypted');
  await relay();
  t.equal(sink.mails.length, 1);
  const [mail] = sink.mails as [(typeof sink.mails)[number]];
  t.same(mail.to, ['ada@example.test']);
  t.equal(mail.from, 'no-reply@app.example.test');
  const { headers, text, html } = readMail(mail);
  t.equal(headers['from'], 'Northwind <no-reply@app.example.test>');
  t.equal(headers['to'], 'ada@example.test');
  t.match(headers['subject'], sentence('mail.password-reset.subject', { siteName: 'Northwind' }));
  t.match(headers['message-id'], /^<[\w-]{43}@app\.example\.test>$/);
  t.match(headers, { 'auto-submitted': 'auto-generated', 'x-auto-response-suppress': 'OOF, AutoReply' });
  t.notOk(headers['reply-to']);
  t.ok(text.includes(LINK));
  t.match(
    html,
    /href="https:&#x2F;&#x2F;app\.example\.test&#x2F;api&#x2F;auth&#x2F;reset-password\?token&#x3D;Zq7v/,
  );

  const { content, dueAt, ...end } = await stored(key);
  t.match(end, { status: 'sent', attempts: 1 });
  t.notOk(content ?? dueAt);
  await relay();
  await put({ key });
  await relay();
  t.equal(sink.mails.length, 1, 'neither the relay nor another e-mail with its key sends it again');
});

t.test('an e-mail outlives the rotation of the secret, and without it waits with a reason', async (t) => {
  const sink = await mailSink(t);
  const file = join(temporaryFolder(t), 'mail.db');
  const before = await outbox(t, { url: sink.url, file, secrets: ['first'] });
  const key = await before.put();
  const plain = await before.put();
  // As a command stores it.
  const values = { email: 'ada@example.test', link: LINK, validFor: '1 hour' };
  await before.mails.updateOne({ key: plain }, { set: { values }, unset: ['content'] });

  const without = await outbox(t, { url: sink.url, file, secrets: ['second'] });
  await without.relay();
  t.match(await without.stored(plain), { status: 'sent', values: undefined });
  const reason = /encrypted with a secret that is not configured any more: set SECRET_PREVIOUS/;
  const waiting = await without.stored(key);
  t.match(waiting, { status: 'queued', attempts: 1, reason });
  t.match(without.lines, [{ words: 'e-mails cannot be sent and will be retried', entry: { reason } }]);

  const rotated = await outbox(t, { url: sink.url, file, secrets: ['second', 'first'] });
  rotated.clock.set(waiting.dueAt ?? 0);
  await rotated.relay();
  t.match(await rotated.stored(key), { status: 'sent', content: undefined, reason: undefined });
  t.equal(sink.mails.length, 2);
});

t.test('a command enqueues no secret link without encryption', async (t) => {
  const { mails, commit, clock } = await outbox(t);
  const command = createOutbox({
    ...{ mails, clock, random: countedRandom(), messages: createMessages(), wake: () => undefined },
    publicUrl: () => 'https://app.example.test',
  });
  const mail = { to: 'ada@example.test', security: true, expiresAt: clock.now() + HOUR };
  const reset = { email: mail.to, link: LINK, validFor: '1 hour' };
  t.throws(() => command.mail({ ...mail, key: 'a', template: 'password-reset', values: reset }), TypeError);
  await commit([command.mail({ ...mail, key: 'b', template: 'welcome', values: { email: mail.to } })]);
  t.match(await mails.findOne({ key: 'b' }), { values: { email: mail.to } });
});

t.test(
  'an e-mail is posted to an HTTP API, once by its key, and a refusal is reported without secrets',
  async (t) => {
    const requests: { headers: IncomingHttpHeaders; body: Record<string, unknown> }[] = [];
    const answers: [status: number, body: string][] = [
      [403, `{"message":"the domain of no-reply@app.example.test is not verified ${LINK}"}`],
      [429, 'slow down'],
      [200, '{"id":"1"}'],
    ];
    const api = createHttpServer(async (request, response) => {
      const chunks = await request.toArray();
      requests.push({ headers: request.headers, body: JSON.parse(Buffer.concat(chunks).toString()) });
      const [status, body] = answers.shift() ?? [500, ''];
      response.writeHead(status).end(body);
    }).listen(0, '127.0.0.1');
    t.teardown(() => api.close());
    await once(api, 'listening');
    const url = `http://127.0.0.1:${(api.address() as AddressInfo).port}/emails`;
    const transport = createHttpTransport({ url, apiKey: 're_9fJq2' });
    const from = { email: undefined, name: 'The "Post"' };
    const { put, relay, stored, clock } = await outbox(t, {
      transport,
      from,
      replyTo: 'support@example.test',
    });
    const key = await put();
    for (const reason of [
      /^the mail API answered 403: .*the domain of … is not verified …$/,
      /429: slow down$/,
    ]) {
      await relay();
      const waiting = await stored(key);
      t.match(waiting, { status: 'queued', reason });
      t.notMatch(waiting.reason, /token|app\.example/);
      clock.set(waiting.dueAt ?? 0);
    }
    await relay();
    t.match(await stored(key), { status: 'sent', attempts: 3, content: undefined });
    t.equal(new Set(requests.map(({ headers }) => headers['idempotency-key'])).size, 1);
    t.match(requests[2]?.headers, { authorization: 'Bearer re_9fJq2', 'content-type': 'application/json' });
    t.match(requests[2]?.body, {
      from: '"The \\"Post\\"" <no-reply@app.example.test>',
      to: ['ada@example.test'],
      reply_to: 'support@example.test',
      subject: sentence('mail.password-reset.subject', { siteName: 'Northwind' }),
      headers: { 'Auto-Submitted': 'auto-generated' },
    });
    t.ok(String(requests[2]?.body['text']).includes(LINK));

    api.close();
    api.closeAllConnections();
    const other = await put();
    await relay();
    t.match(await stored(other), { status: 'queued', reason: 'the mail API did not respond: ECONNREFUSED' });
  },
);

t.test('a temporarily refused e-mail is sent later with the same message ID', async (t) => {
  let refusals = 2;
  const sink = await mailSink(t, {
    message: () => {
      if (refusals-- > 0) throw smtpAnswer(451, `try later, ${LINK} of ada@example.test`);
    },
  });
  const { put, relay, stored, clock, lines } = await outbox(t, { url: sink.url });
  const key = await put();
  await relay();
  const waiting = await stored(key);
  t.match(waiting, { status: 'queued', attempts: 1, reason: /^EMESSAGE at DATA: 451 try later, … of …$/ });
  const wait = (waiting.dueAt ?? 0) - clock.now();
  t.ok(wait >= 22_500 && wait <= 37_500, 'half a minute, a quarter more or less');
  await relay();
  t.equal(sink.offered.length, 1, 'not before its time');
  clock.advance(37_500);
  await relay();
  t.match(await stored(key), { status: 'queued', attempts: 2 });
  clock.advance(2 * MINUTE);
  await relay();
  const sent = await stored(key);
  t.match(sent, { status: 'sent', attempts: 3 });
  t.notOk(sent.reason);
  const ids = sink.offered.map((mail) => readMail(mail).headers['message-id']);
  t.equal(ids.length, 3);
  t.equal(new Set(ids).size, 1);
  t.same(
    lines.map(({ entry, words }) => words ?? entry),
    ['e-mails cannot be sent and will be retried', 'e-mails are sent again'],
  );
  t.notMatch(JSON.stringify(lines), /token|ada@/);
});

t.test('after eight attempts an e-mail has failed, and the reason is recorded', async (t) => {
  const { put, relay, stored, clock, lines } = await outbox(t);
  const key = await put();
  const waits: number[] = [];
  for (let attempt = 1; attempt <= 8; attempt++) {
    await relay();
    const { attempts, dueAt } = await stored(key);
    t.equal(attempts, attempt);
    if (dueAt !== undefined) {
      waits.push(dueAt - clock.now());
      clock.set(dueAt);
    }
  }
  t.equal(waits.length, 7);
  for (const [index, wait] of waits.entries()) {
    const share = wait / (30_000 * 3 ** index);
    t.ok(share >= 0.75 && share <= 1.25);
  }
  const failed = await stored(key);
  t.match(failed, { status: 'failed', attempts: 8, reason: /^ESOCKET at CONN|^ECONNECTION at CONN/ });
  t.notOk(failed.content ?? failed.dueAt);
  const said = lines.map(({ words }) => words);
  t.match(lines[0], {
    words: 'e-mails cannot be sent and will be retried',
    entry: { mail: { template: 'password-reset', attempts: 1 }, reason: failed.reason },
  });
  t.match(lines.at(-1), {
    words: 'an e-mail could not be sent',
    entry: { mail: { template: 'password-reset' } },
  });
  // The attempts are within nine hours, the first five within one.
  t.equal(said.filter((words) => words === lines[0]?.words).length, 3, 'at once, and once an hour');
  clock.advance(DAY);
  await relay();
  t.equal((await stored(key)).attempts, 8);
});

t.test('an unknown recipient is not retried, and a refused sender is', async (t) => {
  const sink = await mailSink(t, {
    recipient(address) {
      if (address.startsWith('gone')) throw smtpAnswer(550, 'no such user');
    },
    message() {
      throw smtpAnswer(554, 'your domain is not verified');
    },
  });
  const { put, relay, stored, lines } = await outbox(t, { url: sink.url });
  const [gone, ours] = [await put({ to: 'gone@example.test' }), await put()];
  await relay();
  t.match(await stored(gone), {
    status: 'failed',
    attempts: 1,
    reason: 'EENVELOPE at RCPT TO: 550 no such user',
  });
  t.match(await stored(ours), {
    status: 'queued',
    reason: 'EMESSAGE at DATA: 554 your domain is not verified',
  });
  t.same(
    lines.map(({ words }) => words),
    ['an e-mail could not be sent', 'e-mails cannot be sent and will be retried'],
  );
  t.notMatch(JSON.stringify(lines), /token|gone@/);
});

t.test('an e-mail is retried when the mail server is silent or stops midway', async (t) => {
  const silent = createServer().listen(0, '127.0.0.1');
  await once(silent, 'listening');
  t.teardown(() => silent.close());
  const { port } = silent.address() as { port: number };
  const mute = await outbox(t, { transport: transportTo(`smtp://127.0.0.1:${port}`, 50) });
  const key = await mute.put();
  await mute.relay();
  t.match(await mute.stored(key), { status: 'queued', attempts: 1, reason: /in time|ETIMEDOUT/ });

  const stalled = await mailSink(t, { message: () => new Promise(() => {}) });
  const half = await outbox(t, { transport: transportTo(stalled.url, 1000) });
  const second = await half.put();
  await half.relay();
  t.equal(stalled.offered.length, 1);
  t.match(await half.stored(second), {
    status: 'queued',
    attempts: 1,
    reason: 'the mail server did not respond in time',
  });
});

t.test('a stop waits for e-mails being sent, up to a limit', async (t) => {
  const arrival = gate();
  const stalled = await mailSink(t, {
    message() {
      arrival.open();
      return new Promise(() => {});
    },
  });
  const { put, relay, stored, jobs, clock } = await outbox(t, { url: stalled.url });
  const keys = [await put(), ...(await Promise.all(Array.from({ length: 9 }, () => put())))];
  const run = relay();
  await arrival.opened;
  await jobs.stop();
  await run;
  const all = await Promise.all(keys.map(stored));
  t.ok(all.every(({ status, dueAt }) => status === 'queued' && dueAt === clock.now()));
  t.equal(all.filter(({ attempts }) => attempts === 0).length, 5, 'no more than were on their way');
});

t.test('an e-mail is stored with its change, or not at all', async (t) => {
  const { email, commit, mails, clock, wakes } = await outbox(t);
  const mail = { key: 'a', to: 'ada@example.test', security: true, expiresAt: clock.now() + HOUR };
  const stored = email.mail({ ...mail, template: 'welcome', values: { email: mail.to } });
  t.match(await commit([stored, mails.deleting({ id: 'none' })]), { committed: false });
  t.same([await mails.count(), wakes()], [0, 0]);
  for (let times = 0; times < 2; times++) t.same(await commit([stored]), { committed: true });
  t.equal(await mails.count(), 1);
});

t.test('with notifications off only security e-mails are sent, and late e-mails expire', async (t) => {
  const sink = await mailSink(t);
  const { put, relay, stored, clock, settings } = await outbox(t, {
    url: sink.url,
    emailNotifications: false,
    replyTo: 'support@example.test',
  });
  const welcome = { template: 'welcome', values: { email: 'ada@example.test' }, security: false } as const;
  const [reset, first] = [await put(), await put(welcome)];
  await relay();
  t.equal((await stored(reset)).status, 'sent');
  t.equal(readMail(await sink.next()).headers['reply-to'], 'support@example.test');
  t.match(await stored(first), {
    status: 'dropped',
    reason: 'notification e-mails are disabled',
  });
  settings.emailNotifications = true;
  const [second, late] = [await put(welcome), await put({ expiresAt: clock.now() })];
  await relay();
  t.equal((await stored(second)).status, 'sent');
  const expired = await stored(late);
  t.equal(expired.status, 'expired');
  t.notOk(expired.content);
  t.equal(sink.mails.length, 2);
});

t.test('e-mails that ended long ago are removed', async (t) => {
  const sink = await mailSink(t);
  const { put, relay, jobs, mails, clock } = await outbox(t, { url: sink.url });
  await put();
  await relay();
  clock.advance(30 * DAY);
  await put({ expiresAt: clock.now() + DAY });
  await jobs.runNow('purge');
  t.equal(await mails.count(), 2);
  clock.advance(1);
  await jobs.runNow('purge');
  t.equal(await mails.count(), 1);
});

t.test('template values cannot run code, break out of HTML or add a header', async (t) => {
  const sink = await mailSink(t);
  const nasty = `{{constructor}} {{{link}}} <%= 7*7 %> \${7*7} <img src=x onerror=alert(1)>\r\nBcc: evil@example.test\u2028\u202e"'`;
  const plain = nasty.replace(/\r\n|\u2028\u202e/g, ' ');
  const { put, relay } = await outbox(t, { url: sink.url, siteName: nasty });
  await put({ template: 'welcome', values: { email: 'ada@example.test', name: nasty } });
  await relay();
  const [mail] = sink.mails as [(typeof sink.mails)[number]];
  t.same(mail.to, ['ada@example.test']);
  const { headers, text, html } = readMail(mail);
  t.notOk(headers['bcc']);
  t.same(
    Object.keys(headers).sort(),
    words(
      'auto-submitted content-type date from message-id mime-version subject to x-auto-response-suppress',
    ),
  );
  t.match(text, sentence('mail.greeting', { name: plain }));
  t.ok(html.includes('&lt;img src&#x3D;x onerror&#x3D;alert(1)&gt;'));
  t.notMatch(html, /<img/);
});

t.test('the outbox refuses several recipients, invalid text and links to other sites', async (t) => {
  const { put, mails, wakes } = await outbox(t);
  const base = { email: 'ada@example.test', link: LINK, validFor: '1 hour' };
  const wrong: [Parameters<typeof put>[0], RegExp][] = [
    [{ to: 'a@example.test, evil@example.test' }, /exactly one address/],
    [{ to: 'a@example.test\r\nBcc: evil@example.test' }, /exactly one address/],
    [{ to: 'a@exam\u200bple.test' }, /exactly one address/],
    [{ to: 'a＠example.test' }, /exactly one address/],
    [{ to: '<a@example.test>' }, /exactly one address/],
    [{ to: '' }, /exactly one address/],
    [{ values: { ...base, validFor: { path: '/etc/passwd' } as never } }, /'validFor' .* not a string/],
    [{ values: { ...base, extra: 'x' } }, /no value 'extra'/],
    [{ values: { ...base, constructor: 'x' } }, /no value 'constructor'/],
    [{ values: { email: base.email, validFor: base.validFor } }, /lacks its value 'link'/],
    [{ template: '../password-reset' as never }, /no mail/],
    [{ template: 'constructor' as never }, /no mail/],
  ];
  for (const link of [
    'https://evil.test/?token=x',
    'https://app.example.test.evil.test/?token=x',
    'https://app.example.test@evil.test/',
    'https://me@app.example.test/',
    'http://app.example.test/',
    'javascript:alert(1)',
    '/reset?token=x',
  ]) {
    wrong.push([{ values: { ...base, link } }, /must begin with PUBLIC_URL/]);
  }
  for (const [mail, message] of wrong) await t.rejects(put(mail), message);
  t.equal(await mails.count(), 0);
  t.equal(wakes(), 0);
});

t.test('the transport refuses two recipients and file attachments', async (t) => {
  const sink = await mailSink(t);
  const transport = transportTo(sink.url);
  t.teardown(() => transport.close());
  const message = {
    template: 'welcome',
    from: { name: 'Northwind', address: 'no-reply@app.example.test' },
    to: 'a@example.test',
    subject: 'Hello',
    text: 'Hello',
    html: '<p>Hello</p>',
    messageId: '<one@app.example.test>',
  } as const;
  const { signal } = new AbortController();
  // Nodemailer would send the third to a@example.test.
  for (const to of [
    'a@example.test, b@example.test',
    'a@example.test\r\nBcc: b@example.test',
    'a@exam\u200bple.test',
    '',
  ]) {
    await t.rejects(transport.send({ ...message, to }, signal), { name: 'DeliveryError' });
  }
  for (const source of [{ path: '/etc/passwd' }, { href: sink.url }]) {
    await t.rejects(transport.send({ ...message, text: source as never }, signal), { name: 'DeliveryError' });
    await t.rejects(transport.send({ ...message, html: source as never }, signal), { name: 'DeliveryError' });
  }
  t.equal(sink.offered.length, 0);
  t.equal(await transport.send(message, signal), 'sent');
});

t.test('the settings select the mail server and its credentials', async (t) => {
  const base = {
    smtpUrl: undefined,
    service: 'Resend',
    user: undefined,
    apiKey: 'key',
    fromEmail: 'no-reply@app.example.test',
  };
  const userOf = (more: object) => smtpSettings({ ...base, ...more })?.auth?.user;
  t.equal(smtpSettings({ ...base, apiKey: undefined }), undefined);
  t.same(smtpSettings(base), {
    server: { service: 'Resend' },
    auth: { user: 'resend', pass: 'key' },
    requireTLS: true,
  });
  t.equal(userOf({ service: 'SendGrid' }), 'apikey');
  t.equal(userOf({ service: 'Postmark' }), 'no-reply@app.example.test');
  t.equal(userOf({ service: 'Postmark', user: 'me' }), 'me');
  const own = (smtpUrl: string) => smtpSettings({ ...base, smtpUrl });
  t.same(own('smtps://me%40here:p%2Fw@mail.example'), {
    server: { host: 'mail.example', port: 465, secure: true },
    auth: { user: 'me@here', pass: 'p/w' },
    requireTLS: false,
  });
  t.match(own('smtp://me:pw@mail.example:25'), { server: { port: 25, secure: false }, requireTLS: true });
  t.match(own('smtp://me:pw@127.0.0.1:25'), { requireTLS: false });
  t.match(own('smtp://[::1]'), { server: { host: '::1', port: 587 }, auth: undefined });
});

/** The relay of one process, which runs without asking for the lease of the job. */
const relayOn = (t: Test, url: string, clock: Clock) => (store: Store) => {
  const transport = transportTo(url);
  t.teardown(() => transport.close());
  const log = { info() {}, warn() {}, error() {} } as never;
  const { jobs } = emailOn(mailCollection(store), { transport, clock, random: systemRandom, log });
  return () => jobs.relay.run({ term: 1, signal: new AbortController().signal });
};

t.test('four processes send each e-mail of one outbox once', async (t) => {
  const sink = await mailSink(t);
  const { put, mails, databaseUri, clock } = await outbox(t);
  for (let index = 0; index < 60; index++) await put({ to: `person${index}@example.test` });
  const { services } = await processesOn(t, databaseUri, relayOn(t, sink.url, clock));
  await Promise.all(services.map((relay) => relay()));
  t.equal(sink.mails.length, 60);
  t.equal(new Set(sink.mails.map(({ to }) => to[0])).size, 60);
  t.equal(await mails.count({ status: 'sent', attempts: 1 }), 60);
});

t.test('the e-mails of a process that ends while it sends them are sent by another', async (t) => {
  let isStalled = true;
  const sink = await mailSink(t, {
    message: () => (isStalled ? new Promise(() => {}) : undefined),
  });
  const { put, stored, databaseUri, clock } = await outbox(t);
  const keys = [await put(), await put(), await put()];
  const { service: relay } = await processesOn(t, databaseUri, relayOn(t, sink.url, clock));
  // It never receives the responses.
  void relay().catch(() => undefined);
  await waitUntil('all are on their way', () => sink.offered.length === 3);
  isStalled = false;
  t.equal(sink.mails.length, 0);

  const later = { now: () => clock.now() + 3 * MINUTE };
  await (await processesOn(t, databaseUri, relayOn(t, sink.url, later))).service();
  const ids = sink.mails.map((mail) => readMail(mail).headers['message-id']);
  t.equal(ids.length, 3);
  t.equal(new Set(ids).size, 3);
  for (const key of keys) t.equal((await stored(key)).status, 'sent');
});
