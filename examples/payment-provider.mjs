// A stand-in for Stripe on your machine: a payment page, a portal and signed webhooks for one price, in memory. Nothing is charged.
// It knows the requests that saas-backend sends, and accepts every card: test with Stripe itself before you sell.
import { createHmac, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

const { APP = 'http://localhost:3000', PORT = '4242' } = process.env;
const { PRICE = 'price_1Pro', PAYMENT_WEBHOOK_SECRET = 'whsec_test' } = process.env;
const WEBHOOK = `${APP}/api/billing/webhook`;
const MONTH = 30 * 86_400;
const price = {
  ...{ id: PRICE, object: 'price', active: true, livemode: false, lookup_key: null, metadata: {} },
  ...{
    currency: 'eur',
    unit_amount: 2900,
    recurring: { interval: 'month', interval_count: 1, usage_type: 'licensed' },
  },
  product: { id: 'prod_1', object: 'product', active: true, name: 'Professional', description: null },
};

const stored = { customers: [], sessions: [], portals: [], subscriptions: [], invoices: [], events: [] };
/** Answers by their idempotency keys. */
const answers = new Map();
let origin = '';

const now = () => Math.floor(Date.now() / 1000);
const newId = (prefix) => `${prefix}_${randomUUID().replaceAll('-', '')}`;
const listOf = (data) => ({ object: 'list', url: '/', has_more: false, data });
const add = (kind, prefix, fields) => {
  const object = { id: newId(prefix), created: now(), livemode: false, ...fields };
  stored[kind].unshift(object);
  return object;
};
const find = (kind, id) => stored[kind].find((object) => object.id === id);
const ofCustomer = (kind, query) => stored[kind].filter(({ customer }) => customer === query.get('customer'));
const rejected = (message, code) => ({ error: { type: 'invalid_request_error', code, message } });

/** Stores an event and delivers it, signed as Stripe signs. */
async function publish(type, object) {
  const event = add('events', 'evt', { object: 'event', type, data: { object: structuredClone(object) } });
  const body = JSON.stringify(event);
  const signature = createHmac('sha256', PAYMENT_WEBHOOK_SECRET)
    .update(`${event.created}.${body}`)
    .digest('hex');
  const headers = {
    'content-type': 'application/json',
    'stripe-signature': `t=${event.created},v1=${signature}`,
  };
  const delivered = await fetch(WEBHOOK, { method: 'POST', headers, body }).catch((error) => error);
  console.log(type, delivered.status ?? delivered.message);
}

/** What the customer does on the payment page. */
async function pay(session) {
  if (session.status !== 'open') return;
  const created = now();
  session.status = 'complete';
  session.payment_status = 'paid';
  session.url = null;
  const { customer, metadata } = session;
  if (session.mode === 'subscription') {
    const period = { current_period_start: created, current_period_end: created + MONTH };
    const subscription = add('subscriptions', 'sub', {
      ...{ object: 'subscription', customer, metadata, status: 'active', currency: 'eur', discounts: [] },
      ...{ trial_end: null, cancel_at_period_end: false, cancel_at: null, canceled_at: null, ended_at: null },
      items: listOf([
        { id: newId('si'), object: 'subscription_item', quantity: session.quantity, price, ...period },
      ]),
    });
    session.subscription = subscription.id;
    const amount = price.unit_amount * session.quantity;
    const invoice = add('invoices', 'in', {
      ...{
        object: 'invoice',
        customer,
        currency: 'eur',
        status: 'paid',
        number: `TEST-${stored.invoices.length + 1}`,
      },
      ...{ amount_due: amount, amount_paid: amount, attempt_count: 1, next_payment_attempt: null },
      parent: {
        type: 'subscription_details',
        subscription_details: { subscription: subscription.id, metadata },
      },
    });
    await publish('customer.subscription.created', subscription);
    await publish('invoice.paid', invoice);
  }
  await publish('checkout.session.completed', session);
}

/** Whose something is: `metadata` of a form, which names a user or an organization. */
const ownerIn = (form) =>
  Object.fromEntries(
    ['userId', 'organizationId'].flatMap((key) => {
      const id = form.get(`metadata[${key}]`);
      return id === null ? [] : [[key, id]];
    }),
  );

/** What customers and applications change about a subscription. */
async function change(subscription, { ends, quantity, isNow = false }) {
  const [item] = subscription.items.data;
  const { current_period_end: end } = item;
  if (quantity !== undefined) item.quantity = quantity;
  else if (isNow) Object.assign(subscription, { status: 'canceled', canceled_at: now(), ended_at: now() });
  else
    Object.assign(subscription, {
      ...{ cancel_at_period_end: ends, cancel_at: ends ? end : null, canceled_at: ends ? now() : null },
    });
  await publish(`customer.subscription.${isNow ? 'deleted' : 'updated'}`, subscription);
  return subscription;
}

/** The requests of saas-backend: `METHOD /path`, with the ID of the object in place of `:id`. */
const api = {
  'POST /v1/customers': ({ form }) =>
    add('customers', 'cus', {
      ...{ object: 'customer', email: form.get('email'), name: form.get('name') },
      metadata: ownerIn(form),
    }),
  'POST /v1/customers/:id': ({ form }, id) => {
    const customer = find('customers', id);
    return customer && Object.assign(customer, { email: form.get('email'), name: form.get('name') });
  },
  'GET /v1/customers/search': ({ query }) =>
    listOf(
      stored.customers.filter(({ metadata }) =>
        Object.values(metadata).some((id) => query.get('query')?.includes(`'${id}'`)),
      ),
    ),
  'GET /v1/prices': () => listOf([price]),
  'GET /v1/prices/:id': (_, id) => (id === PRICE ? price : undefined),
  'POST /v1/checkout/sessions': ({ form }) => {
    const wanted = form.get('line_items[0][price]');
    if (wanted !== null && wanted !== PRICE) return rejected(`No such price: ${wanted}`, 'resource_missing');
    const session = add('sessions', 'cs', {
      ...{ object: 'checkout.session', status: 'open', payment_status: 'unpaid', currency: 'eur' },
      ...{ mode: form.get('mode'), customer: form.get('customer'), expires_at: now() + 86_400 },
      ...{ success_url: form.get('success_url'), cancel_url: form.get('cancel_url') },
      ...{
        client_reference_id: form.get('client_reference_id'),
        metadata: ownerIn(form),
      },
      quantity: Number(form.get('line_items[0][quantity]') ?? 1),
    });
    return Object.assign(session, { url: `${origin}/pay/${session.id}` });
  },
  'GET /v1/checkout/sessions': ({ query }) =>
    listOf(ofCustomer('sessions', query).filter(({ status }) => status === (query.get('status') ?? status))),
  'GET /v1/checkout/sessions/:id': (_, id) => find('sessions', id),
  'GET /v1/checkout/sessions/:id/line_items': (_, id) =>
    find('sessions', id) &&
    listOf([{ id: newId('li'), object: 'item', price, quantity: find('sessions', id).quantity }]),
  'POST /v1/checkout/sessions/:id/expire': (_, id) => {
    const session = find('sessions', id);
    if (session?.status !== 'open') return session && rejected('Only open sessions can be expired.');
    return Object.assign(session, { status: 'expired', url: null });
  },
  'POST /v1/billing_portal/sessions': ({ form }) => {
    const made = {
      object: 'billing_portal.session',
      customer: form.get('customer'),
      return_url: form.get('return_url'),
    };
    const portal = add('portals', 'bps', made);
    return Object.assign(portal, { url: `${origin}/portal/${portal.id}` });
  },
  'GET /v1/subscriptions': ({ query }) => listOf(ofCustomer('subscriptions', query)),
  'GET /v1/subscriptions/:id': (_, id) => find('subscriptions', id),
  'POST /v1/subscriptions/:id': ({ form }, id) => {
    const subscription = find('subscriptions', id);
    const quantity = form.get('items[0][quantity]');
    if (subscription && quantity !== null) return change(subscription, { quantity: Number(quantity) });
    if (!form.has('cancel_at_period_end'))
      return subscription && rejected('This stand-in knows cancellations and quantities only.');
    return subscription && change(subscription, { ends: form.get('cancel_at_period_end') === 'true' });
  },
  'DELETE /v1/subscriptions/:id': (_, id) => {
    const subscription = find('subscriptions', id);
    return subscription && change(subscription, { isNow: true });
  },
  'GET /v1/invoices': ({ query }) => listOf(ofCustomer('invoices', query)),
  'GET /v1/events': ({ query }) =>
    listOf(stored.events.filter(({ created }) => created >= Number(query.get('created[gte]') ?? 0))),
  'GET /v1/events/:id': (_, id) => find('events', id),
};

const page = (title, ...forms) =>
  `<!doctype html><meta charset="utf-8"><title>${title}</title><h1>${title}</h1><p>A stand-in for Stripe. Nothing is charged.</p>${forms
    .map(([action, label]) => `<form method="post" action="?${action}"><button>${label}</button></form>`)
    .join('')}`;

/** The pages for customers, by their first word: HTML, or the address that follows. */
const pages = {
  async pay(id, action) {
    const session = find('sessions', id);
    if (!session) return undefined;
    if (action === '?back') return new URL(session.cancel_url);
    if (action === '?pay') await pay(session);
    if (session.status === 'complete')
      return new URL(session.success_url.replace('{CHECKOUT_SESSION_ID}', id));
    if (session.status !== 'open') return page('This page has expired');
    const amount = (price.unit_amount * session.quantity) / 100;
    return page(`Pay ${amount.toFixed(2)} EUR per month`, ['pay', 'Pay'], ['back', 'Back']);
  },
  async portal(id, action) {
    const portal = find('portals', id);
    if (!portal) return undefined;
    if (action === '?back') return new URL(portal.return_url);
    const running = stored.subscriptions.find(
      ({ customer, status }) => customer === portal.customer && status === 'active',
    );
    if (running && action === '?cancel') await change(running, { ends: true });
    if (!running || running.cancel_at_period_end) return page('No subscription renews', ['back', 'Return']);
    return page('Your subscription', ['cancel', 'Cancel subscription'], ['back', 'Return']);
  },
};

async function answer(request, response) {
  const { pathname, searchParams: query, search } = new URL(request.url, 'http://localhost');
  const [, first, id] = pathname.split('/');
  if (Object.hasOwn(pages, first)) {
    const result = await pages[first](id, request.method === 'POST' ? search : '');
    if (result instanceof URL) return response.writeHead(303, { location: result.href }).end();
    return response.writeHead(result ? 200 : 404, { 'content-type': 'text/html' }).end(result ?? 'Not found');
  }
  let text = '';
  for await (const chunk of request) text += chunk;
  const [object] = pathname.match(/(?<=\/)(cus|cs|sub|evt|price)_\w+/) ?? [];
  const route = `${request.method} ${object ? pathname.replace(object, ':id') : pathname}`;
  const key = request.headers['idempotency-key'];
  const known = answers.get(key);
  const result = known ?? (await api[route]?.({ query, form: new URLSearchParams(text) }, object));
  const body = result ?? rejected(`Not found: ${route}`, 'resource_missing');
  // A repeated request gets the answer of the first one, as it was then.
  if (key && result) answers.set(key, structuredClone(result));
  response.writeHead(body.error ? (result ? 400 : 404) : 200, { 'content-type': 'application/json' });
  return response.end(JSON.stringify(body));
}

const server = createServer((request, response) =>
  answer(request, response).catch((error) => response.writeHead(500).end(String(error))),
);
server.listen(Number(PORT), '127.0.0.1', () => {
  // Another site than the application at localhost, as Stripe is.
  origin = `http://127.0.0.1:${server.address().port}`;
  console.log(`Payments for ${APP} at ${origin}`);
});
process.once('SIGTERM', () => server.close());
