import { once } from 'node:events';
import { statSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import t from 'tap';
import { paymentEventCollection } from '../../../src/saas/billing/store.js';
import { type Answer, auditOf, type SaasApp, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { ON_FILE } from '../../kit/engine.js';
import { signWebhook, webhookDigest } from '../../kit/sign-webhook.js';
import { outcomeOf } from './kit.js';

const SECRET = SECRETS.paymentWebhookSecret;
const PATH = '/api/billing/webhook';

/** The minimal event, as the provider's documentation shows it. */
const minimal = (more: object = {}) =>
  JSON.stringify({
    type: 'customer.subscription.updated',
    data: { object: { id: 'sub_1', status: 'active' } },
    ...more,
  });

/** Delivers a body, by default signed as the provider would sign it now. */
function deliver(
  app: SaasApp,
  body: string | Buffer = minimal(),
  signature: string = signWebhook(body, SECRET, app.clock.now()),
): Promise<Answer> {
  return app.request('POST', PATH, { body, headers: { 'payment-signature': signature } });
}

t.test('an event of an unknown customer is stored, and its repetition is a duplicate', async (t) => {
  const app = await saasApp(t);
  const body = minimal({ id: 'evt_1' });
  const first = await deliver(app, body);
  t.equal(first.status, 200);
  t.strictSame(first.body, { success: true, data: { received: true, outcome: 'unmatched' } });
  t.equal(first.headers['cache-control'], 'no-store');
  app.clock.advance(60_000);
  t.equal(outcomeOf(await deliver(app, body)), 'duplicate', 'signed anew, the same event');
  t.equal(outcomeOf(await deliver(app, minimal({ id: 'evt_2' }))), 'unmatched');

  const events = paymentEventCollection(await storeOf(t, app));
  t.match(await events.findOne({ id: 'evt_1' }), { payload: body, objectId: 'sub_1', outcome: 'unmatched' });
  t.equal(await events.count(), 2);
});

t.test('the body of an event is not stored with its effect', ON_FILE, async (t) => {
  const app = await saasApp(t);
  const { id } = await app.signUp();
  const filling = 'x'.repeat(400_000);
  const body = JSON.stringify({
    id: 'evt_1',
    type: 'customer.subscription.created',
    created: Math.floor(app.clock.now() / 1000),
    data: { object: { id: 'sub_1', customer: 'cus_1', status: 'active', metadata: { userId: id }, filling } },
  });
  const log = `${app.file}-wal`;
  const before = statSync(log).size;
  t.equal(outcomeOf(await deliver(app, body)), 'processed');
  const written = statSync(log).size - before;
  t.ok(written < filling.length / 2, `${written} bytes`);
  const stored = await paymentEventCollection(await storeOf(t, app)).findOne({ id: 'evt_1' });
  t.match(stored, { outcome: 'processed', objectId: 'sub_1' });
  t.equal(stored?.payload, undefined);
});

t.test('events without an effect are ignored whatever they contain, and are not stored', async (t) => {
  const app = await saasApp(t);
  const type = 'customer.subscription.updated';
  const ignored: Record<string, object> = {
    'an unknown type': { type: 'price.created', data: { object: { id: 'price_1' } } },
    'an unknown type without an object': { type: 'x' },
    'an object without an ID': {
      id: 'evt_1',
      object: 'event',
      type: 'balance.available',
      data: { object: { object: 'balance', available: [] } },
    },
    'a thin event': {
      id: 'evt_4',
      object: 'v2.core.event',
      type: 'v1.billing.meter.error_report_triggered',
      related_object: { id: 'mtr_1', type: 'billing.meter' },
    },
    'a thin event of a known type': { id: 'evt_5', object: 'v2.core.event', type },
    'a connected account': JSON.parse(minimal({ id: 'evt_6', account: 'acct_1' })),
    'a malformed event of a connected account': { account: 'acct_1', type, data: { object: null } },
    'a connected account without a type': { account: 'acct_1' },
  };
  for (const [name, event] of Object.entries(ignored)) {
    for (const _ of [1, 2]) {
      const answer = await deliver(app, JSON.stringify(event));
      t.strictSame([answer.status, outcomeOf(answer)], [200, 'ignored'], name);
    }
  }
  t.equal(outcomeOf(await deliver(app, minimal({ account: null }))), 'unmatched', 'of this account');
  t.equal(await paymentEventCollection(await storeOf(t, app)).count(), 1);
});

t.test('a body without an ID is identified by its signature', async (t) => {
  const app = await saasApp(t);
  const signature = signWebhook(minimal(), SECRET, app.clock.now());
  t.equal(outcomeOf(await deliver(app, minimal(), signature)), 'unmatched');
  t.equal(outcomeOf(await deliver(app, minimal(), signature)), 'duplicate');
  app.clock.advance(1000);
  t.equal(outcomeOf(await deliver(app)), 'unmatched', 'another delivery, another signature');
});

t.test('50 concurrent deliveries of one event are processed once', async (t) => {
  const app = await saasApp(t);
  const answers = await Promise.all(Array.from({ length: 50 }, () => deliver(app, minimal({ id: 'evt_1' }))));
  const outcomes = answers.map(outcomeOf);
  t.equal(outcomes.filter((outcome) => outcome === 'unmatched').length, 1);
  t.ok(outcomes.every((outcome) => ['unmatched', 'duplicate', 'EVENT_IN_PROGRESS'].includes(outcome)));
  t.equal(await paymentEventCollection(await storeOf(t, app)).count(), 1);
});

t.test('an event in progress stays with its worker until the lease ends', async (t) => {
  const app = await saasApp(t);
  const events = paymentEventCollection(await storeOf(t, app));
  const now = app.clock.now();
  await events.insert({
    id: 'evt_1',
    type: 'customer.subscription.updated',
    objectId: 'sub_1',
    payload: minimal(),
    receivedAt: now,
    attempts: 1,
    leaseUntil: now + 30_000,
  });
  const busy = await deliver(app, minimal({ id: 'evt_1' }));
  t.equal(busy.status, 409);
  t.equal(outcomeOf(busy), 'EVENT_IN_PROGRESS');
  app.clock.advance(30_000);
  t.equal(outcomeOf(await deliver(app, minimal({ id: 'evt_1' }))), 'unmatched');
  t.match(await events.findOne({ id: 'evt_1' }), { attempts: 2, outcome: 'unmatched' });
});

t.test('a signature is valid for five minutes before and after its time', async (t) => {
  const app = await saasApp(t);
  const now = app.clock.now();
  const outcomes: [number, number][] = [
    [-300, 200],
    [300, 200],
    [-301, 400],
    [301, 400],
    [-86_400 * 3650, 400],
    [86_400 * 3650, 400],
  ];
  for (const [seconds, status] of outcomes) {
    const answer = await deliver(app, minimal(), signWebhook(minimal(), SECRET, now + seconds * 1000));
    t.equal(answer.status, status, `${seconds} s`);
  }
});

t.test('invalid signature headers are answered 400', async (t) => {
  const app = await saasApp(t);
  const seconds = Math.floor(app.clock.now() / 1000);
  const v1 = webhookDigest(minimal(), SECRET, seconds);
  const headers: Record<string, string> = {
    empty: '',
    garbage: 'garbage',
    'no time': `v1=${v1}`,
    'no signature': `t=${seconds}`,
    'v0 only': `t=${seconds},v0=${v1}`,
    'upper case': `t=${seconds},v1=${v1.toUpperCase()}`,
    'too short': `t=${seconds},v1=${v1.slice(0, 62)}`,
    'too long': `t=${seconds},v1=${v1}00`,
    'another secret': signWebhook(minimal(), 'another secret', app.clock.now()),
    'an empty secret': signWebhook(minimal(), ' ', app.clock.now()),
    'another body': signWebhook(`${minimal()} `, SECRET, app.clock.now()),
    'two times': `t=${seconds},t=${seconds},v1=${v1}`,
    'a later time': `t=${seconds + 1},v1=${v1}`,
    'the refresh secret': signWebhook(minimal(), SECRETS.jwtRefreshSecret, app.clock.now()),
  };
  // Signed over the time as spelt, so that only the spelling of the time is wrong.
  for (const time of ['abc', 'NaN', '', '-1', '0x10', '1e3', `${seconds}.0`, ` ${seconds}`, `+${seconds}`]) {
    headers[`time ${JSON.stringify(time)}`] = `t=${time},v1=${webhookDigest(minimal(), SECRET, time)}`;
  }
  for (const [name, signature] of Object.entries(headers)) {
    const answer = await deliver(app, minimal(), signature);
    t.equal(answer.status, 400, name);
    t.equal(outcomeOf(answer), 'INVALID_SIGNATURE');
  }
  t.equal((await app.request('POST', PATH, { body: minimal() })).status, 400, 'no header');
  t.equal((await app.request('POST', PATH, { headers: { 'content-type': 'application/json' } })).status, 400);

  const store = await storeOf(t, app);
  t.equal(await paymentEventCollection(store).count(), 0, 'nothing was stored');
  t.match((await auditOf(store)).pop(), { event: 'webhook.rejected', ip: '127.0.0.1' });
});

t.test('a flood of forged events leads to few audit records', async (t) => {
  const app = await saasApp(t);
  const flood = (from: string) =>
    Promise.all(
      Array.from({ length: 30 }, () => {
        const headers = { 'payment-signature': 'garbage' };
        return app.request('POST', PATH, { body: minimal(), headers, from });
      }),
    );
  const answers = [...(await flood('192.0.2.1')), ...(await flood('192.0.2.2'))];
  t.same(new Set(answers.map(({ status }) => status)), new Set([400]));
  app.clock.advance(3_600_000);
  await flood('192.0.2.1');
  const records = await auditOf(await storeOf(t, app));
  const ips = records.flatMap(({ event, ip }) => (event === 'webhook.rejected' ? [ip] : []));
  t.same(
    ['192.0.2.1', '192.0.2.2'].map((one) => ips.filter((ip) => ip === one).length),
    // Ten in each hour, and a summary of the first hour.
    [21, 11],
  );
});

t.test('one valid signature of several suffices, by the current or the previous secret', async (t) => {
  const previous = 'webhook-previous-Vx3nTg8qKd5w';
  const app = await saasApp(t, { paymentWebhookSecretPrevious: previous });
  const seconds = Math.floor(app.clock.now() / 1000);
  const digest = (body: string, secret: string) => webhookDigest(body, secret, seconds);
  const wrong = '0'.repeat(64);
  for (const [index, secret] of [SECRET, previous].entries()) {
    const body = minimal({ id: `evt_${index}` });
    const header = `t=${seconds},v0=${wrong},v1=${wrong},v1=${digest(body, secret)},v1=${wrong}`;
    t.equal((await deliver(app, body, header)).status, 200);
  }
  const both = minimal({ id: 'evt_both' });
  const header = `t=${seconds}, v1=${digest(both, previous)}, v1=${digest(both, SECRET)}`;
  t.equal((await deliver(app, both, header)).status, 200, 'blanks after commas');
  const body = minimal({ id: 'evt_stripe' });
  const headers = { 'stripe-signature': signWebhook(body, SECRET, app.clock.now()) };
  t.equal((await app.request('POST', PATH, { body, headers })).status, 200, 'the provider’s own header name');
});

t.test('the signature covers the bytes as received', async (t) => {
  const app = await saasApp(t);
  for (const body of [
    '{ "data" : { "object": {"id":"sub_\\u0031"} },\r\n\t"type":"x",  "type":"invoice.payment_failed" }',
    JSON.stringify({ type: 'x', data: { object: { id: 'o' } }, note: 'ünïcödé 💶', amount: 1.0e2 }),
    Buffer.concat([
      Buffer.from('{"type":"x","data":{"object":{"id":"o"}},"raw":"'),
      Buffer.from([0xff]),
      Buffer.from('"}'),
    ]),
    '{"__proto__":{"a":1},"type":"x","data":{"object":{"id":"o"}}}',
  ]) {
    t.equal((await deliver(app, body)).status, 200, String(body));
  }
});

t.test('invalid bodies with valid signatures are answered 400 and store nothing', async (t) => {
  const app = await saasApp(t);
  const bodies: Record<string, string> = {
    '': 'INVALID_JSON',
    '{': 'INVALID_JSON',
    null: 'VALIDATION_ERROR',
    '[]': 'VALIDATION_ERROR',
    '"text"': 'VALIDATION_ERROR',
    '5': 'VALIDATION_ERROR',
    '{}': 'VALIDATION_ERROR',
    '{"type":"invoice.payment_failed"}': 'VALIDATION_ERROR',
    '{"type":"invoice.payment_failed","data":null}': 'VALIDATION_ERROR',
    '{"type":"invoice.payment_failed","data":{"object":null}}': 'VALIDATION_ERROR',
    '{"type":"invoice.payment_failed","data":{"object":{"id":5}}}': 'VALIDATION_ERROR',
    '{"type":"invoice.payment_failed","data":{"object":{"id":""}}}': 'VALIDATION_ERROR',
    '{"type":["x"],"data":{"object":{"id":"o"}}}': 'VALIDATION_ERROR',
    '{"type":"a b","data":{"object":{"id":"o"}}}': 'VALIDATION_ERROR',
  };
  for (const [body, code] of Object.entries(bodies)) {
    const answer = await deliver(app, body);
    t.equal(answer.status, 400, body);
    t.equal(outcomeOf(answer), code);
  }
  t.equal(await paymentEventCollection(await storeOf(t, app)).count(), 0);
});

t.test('a webhook body is unencoded JSON of at most 512 KiB', async (t) => {
  const app = await saasApp(t);
  const ofSize = (bytes: number) => {
    const body = minimal({ padding: '' });
    return body.replace('"padding":""', `"padding":"${'x'.repeat(bytes - body.length)}"`);
  };
  t.equal((await deliver(app, ofSize(512 * 1024))).status, 200);
  const large = await deliver(app, ofSize(512 * 1024 + 1));
  t.equal(large.status, 413);
  t.equal(outcomeOf(large), 'PAYLOAD_TOO_LARGE');
  const signature = signWebhook(minimal(), SECRET, app.clock.now());
  for (const header of [
    { 'content-type': 'text/plain' },
    { 'content-type': 'application/x-www-form-urlencoded' },
    { 'content-encoding': 'gzip' },
  ]) {
    const headers = { 'payment-signature': signature, ...header };
    const answer = await app.request('POST', PATH, { body: minimal(), headers });
    t.equal(answer.status, 415, JSON.stringify(header));
  }
});

t.test('a chunked body is cut off at the same limit', async (t) => {
  const app = await saasApp(t);
  const url = await app.listen();
  const request = httpRequest(`${url}${PATH}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
  });
  // The server closes the connection during the rest.
  request.on('error', () => {});
  const chunk = Buffer.alloc(64 * 1024, 0x20);
  let sending = true;
  const send = () => {
    while (sending && request.write(chunk));
  };
  request.on('drain', send);
  send();
  const [response] = await once(request, 'response');
  t.equal(response.statusCode, 413);
  sending = false;
  request.destroy();
});

t.test('without a secret every webhook is answered 503', async (t) => {
  const app = await saasApp(t, { paymentWebhookSecret: undefined as never });
  for (const secret of [SECRET, '', 'undefined']) {
    const body = minimal();
    const signature = secret ? signWebhook(body, secret, app.clock.now()) : 't=1,v1=';
    const answer = await deliver(app, body, signature);
    t.equal(answer.status, 503);
    t.equal(outcomeOf(answer), 'BILLING_NOT_CONFIGURED');
    t.match(answer.headers['retry-after'], /^\d+$/);
  }
});
