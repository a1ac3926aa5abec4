import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import t from 'tap';
import { DAY, HOUR, MINUTE, SECOND } from '../../../src/core/kernel/clock.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { connected, KEY, laboratory, OPERATOR, receiver, verify, webhooksOn } from './kit.js';

/** Deliveries: signatures, retries, and what endpoints can do to the sender. */

const USER = { userId: 'usr_1', name: 'Ada' };

t.test('an event is sent once to each endpoint that receives it, and signed', async (t) => {
  const [all, some, other] = [await receiver(t), await receiver(t), await receiver(t)];
  const lab = await laboratory(t);
  const { secret } = await lab.add(all.url);
  await lab.add(some.url, ['user.registered']);
  await lab.add(other.url, ['invoice.paid']);
  const heard: unknown[] = [];
  lab.events.on('user.registered', (event) => void heard.push(event));
  await lab.emit('user.registered', USER);
  await lab.send();
  await lab.send();
  t.equal(all.received.length, 1);
  t.equal(some.received.length, 1);
  t.equal(other.received.length, 0);
  const [request] = all.received;
  if (!request) throw new Error('no request');
  const { id, at } = heard[0] as { id: string; at: string };
  t.same(verify(request, secret), { type: 'user.registered', timestamp: at, data: { id, ...USER } });
  t.equal(request.headers['content-type'], 'application/json');
  t.equal(request.headers['webhook-id'], `${id}:user-registered`);
  t.equal(Number(request.headers['webhook-timestamp']), lab.clock.now() / SECOND);
  t.match(request.headers['webhook-signature'], /^v1,[A-Za-z0-9+/]{43}=$/);
  t.throws(() => verify({ ...request, body: `${request.body} ` }, secret));
  const [foreign] = some.received;
  t.throws(() => foreign && verify(foreign, secret), 'each endpoint has a secret of its own');
  t.same(await lab.statuses(), ['delivered', 'delivered']);
});

t.test('a failing delivery is attempted ten times within three days, with the same ID', async (t) => {
  const { app, lab, secret, endpoint } = await connected(t);
  const attempts: number[] = [];
  app.state.answer = (_, response) => {
    attempts.push(lab.clock.now());
    response.writeHead(attempts.length % 2 === 0 ? 500 : 302, { location: 'http://127.0.0.1:1/' }).end('no');
  };
  const begun = lab.clock.now();
  await lab.emit('user.registered', USER);
  // The first delay is five seconds, and the others are multiples of five minutes.
  for (let steps = 0; steps < 80 * 12; steps++) {
    await lab.send();
    lab.clock.advance(steps === 0 ? 5 * SECOND : 5 * MINUTE);
  }
  const delays = attempts.map((at, index) => Math.round((at - (attempts[index - 1] ?? begun)) / MINUTE));
  t.same(delays, [0, 0, 5, 30, 120, 300, 600, 840, 1200, 1440]);
  t.equal((attempts[1] ?? 0) - begun, 5 * SECOND);
  t.equal(new Set(app.received.map(({ headers, body }) => `${headers['webhook-id']} ${body}`)).size, 1);
  for (const request of app.received) verify(request, secret);
  t.equal(new Set(app.received.map(({ headers }) => headers['webhook-timestamp'])).size, 10);
  t.same(await lab.statuses(), ['failed']);
  const stored = await lab.endpoints.findOne({ id: endpoint.id });
  t.match(stored, { disabledAt: Number, disabledReason: /three days.*status 500/ });
  t.match(lab.audit.at(-1), { event: 'webhook.disabled', detail: /^whe_/ });
  await lab.emit('user.registered', USER);
  t.equal((await lab.statuses()).length, 1, 'a disabled endpoint gets no events');
});

t.test('four processes make one attempt at a time for each delivery', async (t) => {
  const app = await receiver(t);
  const uri = `sqlite:${temporaryFolder(t)}/saas.db`;
  const lab = await laboratory(t, { uri });
  await lab.add(app.url);
  const others = await Promise.all([1, 2, 3].map(() => laboratory(t, { uri, clock: lab.clock })));
  const running = new Map<string, number>();
  let most = 0;
  app.state.answer = async ({ headers }, response) => {
    const id = String(headers['webhook-id']);
    running.set(id, (running.get(id) ?? 0) + 1);
    most = Math.max(most, running.get(id) ?? 0);
    await new Promise((resolve) => setImmediate(resolve));
    running.set(id, (running.get(id) ?? 0) - 1);
    response.writeHead(200).end();
  };
  for (let index = 0; index < 40; index++) await lab.emit('invoice.paid', { id: `evt_${index}` });
  await Promise.all([lab, ...others].map(({ send }) => send()));
  t.equal(most, 1);
  t.equal(app.received.length, 40);
  t.equal(new Set(app.received.map(({ headers }) => headers['webhook-id'])).size, 40);
  t.same(new Set(await lab.statuses()), new Set(['delivered']));
});

t.test('an attempt of a process that was killed is repeated by another after a minute', async (t) => {
  const { app, lab } = await connected(t);
  await lab.emit('user.registered', USER);
  // As the attempt of a process that has ended leaves it.
  const { id = '', dueAt = 0 } = (await lab.latest()) ?? {};
  await lab.deliveries.updateOne({ id }, { set: { dueAt: dueAt + MINUTE }, inc: { attempts: 1 } });
  await lab.send();
  t.equal(app.received.length, 0);
  lab.clock.advance(MINUTE);
  await lab.send();
  t.equal(app.received.length, 1);
  t.same(await lab.statuses(), ['delivered']);
});

t.test('an event that two commits contain is delivered once', async (t) => {
  const { app, lab } = await connected(t);
  for (const name of ['invoice.paid', 'payment.failed']) {
    for (let times = 0; times < 2; times++) await lab.emit(name, { id: 'evt_1', userId: 'usr_1' });
  }
  await lab.send();
  t.same(
    app.received.map(({ headers }) => headers['webhook-id']).sort(),
    ['evt_1:invoice-paid', 'evt_1:payment-failed'],
    'two events of one ID differ by their type',
  );
});

t.test('the old secret signs beside a new one for a day', async (t) => {
  const { app, lab, secret: first, endpoint } = await connected(t);
  const { id } = endpoint;
  // Rotated while an attempt is under way: the next one is signed with both.
  let second = '';
  app.state.answer = async (_, response) => {
    second ||= await lab.module.service.rotate(id, { atOnce: false }, OPERATOR);
    response.writeHead(app.received.length > 1 ? 200 : 500).end();
  };
  await lab.emit('user.registered', USER);
  await lab.send();
  lab.clock.advance(5 * SECOND);
  await lab.send();
  const [before, during] = app.received;
  if (!before || !during) throw new Error('no request');
  verify(before, first);
  t.throws(() => verify(before, second));
  t.equal(String(during.headers['webhook-signature']).split(' ').length, 2);
  verify(during, first);
  verify(during, second);
  lab.clock.advance(DAY);
  await lab.emit('user.registered', USER);
  await lab.send();
  const after = app.received.at(-1);
  if (!after) throw new Error('no request');
  verify(after, second);
  t.throws(() => verify(after, first));
  const third = await lab.module.service.rotate(id, { atOnce: true }, OPERATOR);
  await lab.emit('user.registered', USER);
  await lab.send();
  const last = app.received.at(-1);
  if (!last) throw new Error('no request');
  verify(last, third);
  t.throws(() => verify(last, second));
});

t.test('secrets are stored encrypted, and encrypted again with a new key', async (t) => {
  const { app, lab, secret, endpoint } = await connected(t);
  const stored = async () => JSON.stringify(await lab.endpoints.findOne({ id: endpoint.id }));
  t.match(secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  t.notMatch(await stored(), secret.slice(6));
  const renewed = await webhooksOn(lab.store, {
    ...{ clock: lab.clock, reach: 'loopback' },
    keys: ['settings-another-Zq7vLd0mXw4RkT9', KEY],
  });
  const before = await stored();
  await renewed.run('webhooks-encryption');
  t.not(await stored(), before);
  await renewed.emit('user.registered', USER);
  await renewed.send();
  const [request] = app.received;
  t.ok(request && verify(request, secret));
  await lab.emit('user.registered', USER);
  await lab.send();
  t.equal(app.received.length, 1, 'without the key, nothing is sent');
  const [{ lastResult = '' } = {}] = (
    await lab.deliveries.page({ where: { status: 'pending' }, sort: 'createdAt', limit: 1 })
  ).items;
  t.match(lastResult, /SETTINGS_ENCRYPTION_KEY/);
});

t.test('a new key also encrypts the previous secret, until it ends', async (t) => {
  const app = await receiver(t);
  const lab = await laboratory(t);
  const [first, other] = [await lab.add(app.url), await lab.add(app.url, ['invoice.paid'])];
  await lab.module.service.rotate(first.endpoint.id, { atOnce: false }, OPERATOR);
  const NEW = 'settings-another-Zq7vLd0mXw4RkT9';
  const withKeys = (...keys: string[]) => webhooksOn(lab.store, { ...lab, reach: 'loopback', keys });
  await (await withKeys(NEW, KEY)).run('webhooks-encryption');
  const renewed = await withKeys(NEW);
  await renewed.emit('user.registered', USER);
  await renewed.send();
  const [request] = app.received;
  t.ok(request && verify(request, first.secret), 'the previous secret signs');
  const stored = async () => Object.keys((await lab.endpoints.findOne({ id: first.endpoint.id })) ?? {});
  t.ok((await stored()).includes('previousSecret'));
  lab.clock.advance(DAY);
  await renewed.run('webhooks-encryption');
  t.notOk((await stored()).includes('previousSecret'), 'it is removed');
  await lab.endpoints.updateOne({ id: first.endpoint.id }, { set: { secret: 'v1.unreadable' } });
  const newest = await withKeys('settings-newest-Zq7vLd0mXw4RkT9xY', NEW);
  await t.rejects(newest.run('webhooks-encryption'), /SETTINGS_ENCRYPTION_KEY/);
  await newest.emit('invoice.paid', { userId: 'usr_1' });
  const alone = await withKeys('settings-newest-Zq7vLd0mXw4RkT9xY');
  await alone.send();
  const sent = app.received.at(-1);
  t.ok(sent && verify(sent, other.secret), 'one that is unreadable does not stop the others');
});

t.test('an attempt that began before a success does not disable the endpoint', async (t) => {
  const { app, lab, endpoint } = await connected(t);
  app.state.answer = (_, response) => response.writeHead(500).end();
  await lab.emit('invoice.paid', { id: 'evt_first' });
  await lab.send();
  lab.clock.advance(3 * DAY);
  app.state.answer = async ({ headers }, response) => {
    if (!String(headers['webhook-id']).includes('evt_first')) return response.writeHead(204).end();
    await waitUntil(
      'the success of the other attempt',
      async () => (await lab.endpoints.findOne({ id: endpoint.id }))?.failingSince === undefined,
    );
    return response.writeHead(500).end();
  };
  await lab.emit('invoice.paid', { id: 'evt_second' });
  await lab.send();
  t.equal((await lab.endpoints.findOne({ id: endpoint.id }))?.disabledAt, undefined);
});

t.test('a slow endpoint does not delay the others', async (t) => {
  const [slow, fast] = [await receiver(t), await receiver(t)];
  const lab = await laboratory(t);
  await lab.add(slow.url);
  await lab.add(fast.url);
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  slow.state.answer = async (_, response) => {
    await held;
    response.writeHead(200).end();
  };
  for (let index = 0; index < 30; index++) await lab.emit('user.registered', USER);
  const sending = lab.send();
  await waitUntil('the fast endpoint has all', () => fast.received.length === 30);
  t.equal(slow.received.length, 4, 'attempts in parallel are limited');
  await lab.emit('user.registered', USER);
  await waitUntil('a new event while the slow one is waited for', () => fast.received.length === 31);
  t.equal(slow.received.length, 4);
  release();
  await sending;
  t.equal(slow.received.length, 31);
});

t.test('Retry-After delays the next attempt by a day at most, and 410 disables the endpoint', async (t) => {
  const { app, lab, endpoint } = await connected(t);
  const next = async () => ((await lab.latest())?.dueAt ?? 0) - lab.clock.now();
  let answer: [number, Record<string, string>] = [503, { 'retry-after': '120' }];
  app.state.answer = (_, response) => response.writeHead(...answer).end();
  await lab.emit('user.registered', USER);
  await lab.send();
  t.equal(await next(), 120 * SECOND);
  await lab.emit('user.registered', USER);
  await lab.send();
  t.equal(app.received.length, 1, 'it gets no other events before that');
  lab.clock.advance(120 * SECOND);
  answer = [429, { 'retry-after': '99999999' }];
  await lab.send();
  t.equal(await next(), DAY);
  lab.clock.advance(DAY);
  answer = [503, { 'retry-after': new Date(lab.clock.now() + HOUR).toUTCString() }];
  await lab.send();
  t.equal(await next(), HOUR);
  lab.clock.advance(HOUR);
  answer = [503, { 'retry-after': '1' }];
  await lab.send();
  t.equal(await next(), 2 * HOUR, 'and does not make it earlier');
  lab.clock.advance(2 * HOUR);
  answer = [410, {}];
  await lab.send();
  t.match(await lab.endpoints.findOne({ id: endpoint.id }), { disabledReason: 'it answered 410 Gone' });
  t.same(await lab.statuses(), ['failed', 'failed']);
  const count = app.received.length;
  lab.clock.advance(3 * DAY);
  await lab.send();
  t.equal(app.received.length, count);
});

t.test(
  'an endpoint that does not answer is paused, longer each time, and forgiven after a success',
  async (t) => {
    const { app, lab, endpoint } = await connected(t);
    const stored = () => lab.endpoints.findOne({ id: endpoint.id });
    app.state.answer = (_, response) => response.destroy();
    await lab.emit('user.registered', USER);
    await lab.send();
    const pauses: number[] = [];
    for (let count = 0; count < 4; count++) {
      const pause = ((await stored())?.pausedUntil ?? 0) - lab.clock.now();
      pauses.push(pause / SECOND);
      lab.clock.advance(pause - 1);
      await lab.emit('user.registered', USER);
      const before = app.received.length;
      await lab.send();
      t.equal(app.received.length, before);
      lab.clock.advance(1);
      app.state.answer = (_, response) => response.destroy();
      await lab.send();
    }
    t.ok(
      pauses.every((pause, index) => index === 0 || pause > (pauses[index - 1] ?? 0)),
      String(pauses),
    );
    app.state.answer = undefined;
    lab.clock.advance(10 * MINUTE);
    await lab.send();
    t.match(await stored(), { lastSuccessAt: lab.clock.now() });
    const { failingSince, pausedUntil, unanswered } = (await stored()) ?? {};
    t.same([failingSince, pausedUntil, unanswered], [undefined, undefined, undefined]);
  },
);

t.test('an attempt that is under way when the endpoint is disabled is not repeated', async (t) => {
  const { app, lab, endpoint } = await connected(t);
  app.state.answer = async (_, response) => {
    await lab.module.service.disable(endpoint.id, OPERATOR);
    response.writeHead(500).end();
  };
  await lab.emit('user.registered', USER);
  await lab.send();
  const delivery = await lab.latest();
  t.match(delivery, { status: 'failed', lastResult: 'the endpoint was disabled' });
  t.equal(delivery?.dueAt, undefined);
});

t.test('only the beginning of a response is read, of any media type', async (t) => {
  const { app, lab } = await connected(t);
  let written = 0;
  const endless = function* () {
    yield Buffer.from('<script>alert(1)</script>\u0000');
    for (; written < 1000; written++) yield Buffer.alloc(65_536, 0xff);
  };
  app.state.answer = (_, response) => {
    response.writeHead(500, { 'content-type': 'text/html' });
    // Ends with an error when the sender closes the connection.
    pipeline(Readable.from(endless()), response).catch(() => undefined);
  };
  await lab.emit('user.registered', USER);
  await lab.send();
  t.ok(written < 1000, `${written} blocks`);
  const delivery = await lab.latest();
  t.match(delivery, {
    lastResult: 'status 500',
    status: 'pending',
    answer: /^<script>alert\(1\)<\/script> /,
  });
  t.ok((delivery?.answer ?? '').length <= 300);
});

/** A name server that answers 127.0.0.1. */
const toLoopback = ((_host: string, _options: object, callback: (...result: unknown[]) => void) =>
  callback(null, [{ address: '127.0.0.1', family: 4 }])) as never;

t.test('endpoints are public https addresses, also those behind names and redirects', async (t) => {
  const app = await receiver(t);
  const lab = await laboratory(t, {
    reach: 'public',
    lookup: toLoopback,
  });
  for (const url of [
    app.url,
    'http://example.com/hook',
    'https://127.0.0.1/hook',
    'https://10.0.0.1/hook',
    'https://169.254.169.254/latest',
    'https://[::1]/hook',
    'https://[::ffff:10.0.0.1]/hook',
    'https://user:secret@example.com/hook',
    'https://example.com/#hook',
    'ftp://example.com/hook',
    'example.com',
  ]) {
    await t.rejects(lab.add(url), { code: 'VALIDATION_ERROR', details: [{ path: 'url' }] }, url);
  }
  await lab.add('https://rebinding.example.com/hook');
  await lab.emit('user.registered', USER);
  await lab.send();
  const delivery = await lab.latest();
  t.match(delivery, { status: 'pending', lastResult: 'its address is not public' });
  t.equal(app.received.length, 0);

  const [inner, near] = [await receiver(t), await laboratory(t)];
  await near.add(app.url);
  app.state.answer = (_, response) => response.writeHead(307, { location: inner.url }).end();
  await near.emit('user.registered', USER);
  await near.send();
  t.equal(app.received.length, 1);
  t.equal(inner.received.length, 0, 'a redirect is not followed');
});

t.test('in development, endpoints of this machine are also named localhost', async (t) => {
  const app = await receiver(t);
  const lab = await laboratory(t, {
    lookup: toLoopback,
  });
  for (const url of ['http://localhost.example.com/hook', 'http://notlocalhost/hook'])
    await t.rejects(lab.add(url), { code: 'VALIDATION_ERROR', details: [{ path: 'url' }] }, url);
  await lab.add(app.url.replace('127.0.0.1', 'localhost'));
  await lab.emit('user.registered', USER);
  await lab.send();
  t.same([app.received.length, await lab.statuses()], [1, ['delivered']]);
});

t.test('deliveries are sent again one by one, or all that have failed', async (t) => {
  const { app, lab, endpoint } = await connected(t);
  const { service } = lab.module;
  for (let index = 0; index < 3; index++) await lab.emit('user.registered', { userId: `usr_${index}` });
  await service.disable(endpoint.id, OPERATOR);
  t.same(await lab.statuses(), ['failed', 'failed', 'failed']);
  const { items } = await lab.resend.list({ status: 'failed', after: undefined, limit: 10 });
  const [first] = items;
  if (!first) throw new Error('no request');
  await t.rejects(lab.resend.resend(first.id, OPERATOR), { code: 'ENDPOINT_DISABLED' });
  await t.rejects(lab.resend.resendFailed(endpoint.id, OPERATOR), { code: 'ENDPOINT_DISABLED' });
  await t.rejects(service.sendTest(endpoint.id, OPERATOR), { code: 'ENDPOINT_DISABLED' });
  await service.enable(endpoint.id, OPERATOR);
  await lab.resend.resend(first.id, OPERATOR);
  await t.rejects(lab.resend.resend(first.id, OPERATOR), { code: 'DELIVERY_PENDING' });
  await lab.send();
  t.equal(app.received.length, 1);
  t.equal(await lab.resend.resendFailed(endpoint.id, OPERATOR), 2);
  await lab.send();
  t.equal(app.received.length, 3);
  const id = app.received.find(({ headers }) => headers['webhook-id'] === first.webhookId);
  await lab.resend.resend(first.id, OPERATOR);
  await lab.send();
  t.equal(app.received.length, 4);
  t.same(app.received.at(-1)?.headers['webhook-id'], id?.headers['webhook-id']);
  t.same(app.received.at(-1)?.body, id?.body);
  const test = await service.sendTest(endpoint.id, OPERATOR);
  await lab.send();
  t.match(app.received.at(-1)?.event, { type: 'webhook.test', data: { endpointId: endpoint.id } });
  t.match(await lab.resend.find(test), { status: 'delivered', history: [{ result: 'status 204' }] });
  await service.remove(endpoint.id, OPERATOR);
  t.equal(await lab.deliveries.count(), 0);
});

t.test(
  'of many failed deliveries, 1,000 at a time are sent again, and a job ends those of a disabled endpoint',
  async (t) => {
    const lab = await laboratory(t);
    const { endpoint } = await lab.add('http://127.0.0.1:9/');
    const one = { webhookId: 'x', event: 'invoice.paid', endpointId: endpoint.id, body: '{}', history: [] };
    const failed = { ...one, status: 'failed', attempts: 10, createdAt: lab.clock.now() } as const;
    await lab.deliveries.insertMany(
      Array.from({ length: 1001 }, (_, index) => ({ ...failed, id: `dlv_${index}` })),
    );
    t.equal(await lab.resend.resendFailed(endpoint.id, OPERATOR), 1000);
    t.equal(await lab.resend.resendFailed(endpoint.id, OPERATOR), 1);
    await lab.module.service.disable(endpoint.id, OPERATOR);
    t.equal(await lab.deliveries.count({ status: 'failed' }), 1000, 'before the response');
    await lab.run('webhooks-purge');
    t.equal(await lab.deliveries.count({ status: 'failed' }), 1001, 'all of them fail when it is disabled');
  },
);

t.test(
  'an event that is recorded while its endpoint is removed or disabled is dropped by the job',
  async (t) => {
    const { app, lab, endpoint: removed } = await connected(t);
    const [{ endpoint: disabled }] = [await lab.add(app.url), await lab.add(app.url)];
    const event = await lab.event('user.registered', USER);
    await lab.module.service.remove(removed.id, OPERATOR);
    await lab.module.service.disable(disabled.id, OPERATOR);
    t.same(await lab.commit([event]), { committed: true });
    await lab.send();
    t.same((await lab.statuses()).sort(), ['delivered', 'pending', 'pending']);
    await lab.run('webhooks-purge');
    t.same((await lab.statuses()).sort(), ['delivered', 'failed', 'pending'], 'it may be of a new endpoint');
    lab.clock.advance(HOUR + 1);
    await lab.run('webhooks-purge');
    t.same((await lab.statuses()).sort(), ['delivered', 'failed']);
    t.equal(app.received.length, 1);
  },
);

t.test('deliveries are removed after 30 days', async (t) => {
  const { lab } = await connected(t);
  await lab.emit('user.registered', USER);
  await lab.send();
  lab.clock.advance(30 * DAY);
  await lab.run('webhooks-purge');
  t.equal(await lab.deliveries.count(), 1);
  lab.clock.advance(1);
  await lab.run('webhooks-purge');
  t.equal(await lab.deliveries.count(), 0);
});

t.test('a stopping server ends its attempts, and another process continues', async (t) => {
  const { app, lab, endpoint } = await connected(t);
  app.state.answer = () => undefined;
  await lab.emit('user.registered', USER);
  const controller = new AbortController();
  const sending = lab.send(controller);
  await waitUntil('the attempt is under way', () => app.received.length === 1);
  controller.abort();
  await sending;
  t.same(await lab.statuses(), ['pending']);
  const stored = await lab.endpoints.findOne({ id: endpoint.id });
  t.equal(stored?.failingSince, undefined, 'which says nothing about the endpoint');
  app.state.answer = undefined;
  lab.clock.advance(MINUTE);
  await lab.send();
  t.same(await lab.statuses(), ['delivered']);
});
