import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Json } from '../../src/saas/billing/provider/json.js';
import { accountRoutes, pricesOfKeys } from './stripe-account.js';
import { changeRoutes } from './stripe-changes.js';
import {
  chargeObject,
  itemObjects,
  PRICES,
  subscriptionObject,
  type WorldPayment,
} from './stripe-objects.js';
import { lineItemsOf, purchaseChargeObject } from './stripe-purchases.js';
import { refundRoutes } from './stripe-refunds.js';
import { expanded, scheduleRoutes } from './stripe-schedules.js';
import type { World } from './stripe-simulator.js';

/** The part of the payment provider's API that billing uses, called by the provider's own SDK. */

export interface ProviderCall {
  method: string;
  path: string;
  query: URLSearchParams;
  form: URLSearchParams;
  headers: IncomingMessage['headers'];
}

/** A response instead of the regular one. `hang` never responds, `cut` closes the connection. */
export type Fault = { status: number; body: string; headers?: Record<string, string> } | 'hang' | 'cut';

export interface StripeApi {
  readonly url: string;
  readonly calls: readonly ProviderCall[];
  /** Idempotency key → customer. */
  readonly customers: Map<string, Json>;
  readonly sessions: Map<string, Json>;
  readonly invoices: Json[];
  /** Meter events in the order of their arrival, with the time of the provider in seconds. */
  readonly meterEvents: {
    identifier: string;
    value: number;
    meter: string;
    customer: string;
    at: number;
    receivedAt: number;
  }[];
  readonly promotionCodes: Json[];
  /** Prices beside those of the simulator. */
  readonly prices: Map<string, Json>;
  /** The code with which the bank declines every payment; undefined: it accepts. */
  declines: string | undefined;
  /** Session → what it sells. */
  readonly lineItems: Map<string, Json[]>;
  /** Called for each request. */
  fault: (call: ProviderCall) => Fault | undefined | Promise<Fault | undefined>;
  close(): Promise<void>;
}

/** Returns null for an unknown object, and an object with `error` to reject the call. */
export type Handler = (call: ProviderCall, id: string) => Json | null;

const metadataIn = (form: URLSearchParams): Json =>
  Object.fromEntries(
    [...form].flatMap(([name, value]) => {
      const key = /^metadata\[(\w+)\]$/.exec(name)?.[1];
      return key === undefined ? [] : [[key, value]];
    }),
  );

/** @param world the state and the clock of the provider */
export async function stripeApi(world: World): Promise<StripeApi> {
  const calls: ProviderCall[] = [];
  const customers = new Map<string, Json>();
  const sessions = new Map<string, Json>();
  const invoices: Json[] = [];
  const prices = new Map<string, Json>();
  const meterEvents: StripeApi['meterEvents'] = [];
  const lineItems = new Map<string, Json[]>();

  const session = (call: ProviderCall, prefix: string): Json => {
    const id = world.name(prefix);
    const { form } = call;
    const made = {
      id,
      object: prefix === 'bps' ? 'billing_portal.session' : 'checkout.session',
      customer: form.get('customer'),
      client_reference_id: form.get('client_reference_id'),
      metadata: metadataIn(form),
      mode: form.get('mode'),
      status: 'open',
      expires_at: world.now + 86_400,
      ...(['embedded_page', 'elements'].includes(form.get('ui_mode') ?? '')
        ? { url: null, client_secret: `${id}_secret` }
        : { url: `https://pay.example.test/${id}` }),
    };
    if (prefix !== 'bps') sessions.set(id, made);
    return made;
  };
  /** Sessions by idempotency key, and the parameters of the first request, which later ones must repeat. */
  const created = new Map<string, { params: string; session: Json }>();
  const checkout = (call: ProviderCall): Json => {
    const { form } = call;
    const key = String(call.headers['idempotency-key']);
    const params = form.toString();
    const known = created.get(key);
    if (known) return known.params === params ? known.session : rejected({ type: 'idempotency_error' });
    const removed = [...form.keys()].find((name) => name.startsWith('payment_method_types'));
    if (removed !== undefined) return rejected({ code: 'parameter_unknown', param: removed });
    if (form.get('mode') === 'setup' && !form.has('currency')) {
      return rejected({ code: 'parameter_missing', param: 'currency' });
    }
    const price = form.get('line_items[0][price]');
    if (price !== null && !Object.hasOwn(PRICES, price)) return missing('line_items[0][price]');
    const opened = session(call, 'cs');
    // Repeated responses show the session as it was opened.
    created.set(key, { params, session: { ...opened } });
    return opened;
  };
  const listOf = (objects: Json[], { query }: ProviderCall): Json => {
    const from = objects.findIndex(({ id }) => id === query.get('starting_after')) + 1;
    const data = objects.slice(from, from + Number(query.get('limit') ?? 10));
    return { object: 'list', url: '/', has_more: from + data.length < objects.length, data };
  };
  const subscriptionsOf = ({ query }: ProviderCall) =>
    [...world.subscriptions.values()].filter(
      ({ customer, status }) =>
        customer === query.get('customer') &&
        // Without a status, expired subscriptions are listed as well.
        (query.get('status') === 'all' || status !== 'canceled'),
    );

  const paymentOf = (matches: (payment: WorldPayment) => boolean) =>
    [...world.payments.values()].find(matches);

  const routes: Record<string, Handler> = {
    'POST /v1/customers': ({ form, headers }) => {
      const key = String(headers['idempotency-key']);
      const customer = customers.get(key) ?? {
        id: world.name('cus'),
        object: 'customer',
        email: form.get('email'),
        name: form.get('name'),
        metadata: metadataIn(form),
      };
      customers.set(key, customer);
      return customer;
    },
    'GET /v1/promotion_codes': (call) =>
      listOf(
        api.promotionCodes.filter(({ code, active }) => code === call.query.get('code') && active),
        call,
      ),
    'GET /v1/customers/:id': (_call, id) =>
      [...customers.values()].find((customer) => customer['id'] === id) ?? null,
    'GET /v1/customers': (call) => listOf([...customers.values()], call),
    'POST /v1/customers/:id': ({ form }, id) => {
      const found = [...customers.values()].find((customer) => customer['id'] === id);
      if (!found) return missing('customer');
      return Object.assign(found, { email: form.get('email'), name: form.get('name') || null });
    },
    ...accountRoutes(world, prices),
    'POST /v1/checkout/sessions': checkout,
    'GET /v1/checkout/sessions': (call) =>
      listOf(
        [...sessions.values()].filter(
          ({ customer, status }) => customer === call.query.get('customer') && status === 'open',
        ),
        call,
      ),
    'GET /v1/checkout/sessions/:id': ({ query }, id) => {
      const found = sessions.get(id);
      if (!found || query.get('expand[0]') !== 'customer') return found ?? null;
      const customer = [...customers.values()].find((one) => one['id'] === found['customer']);
      return { ...found, customer: customer ?? found['customer'] };
    },
    'POST /v1/checkout/sessions/:id/expire': (_call, id) => {
      const found = sessions.get(id);
      if (found?.['status'] !== 'open') return found ? rejected({ param: 'session' }) : null;
      return Object.assign(found, { status: 'expired', url: null });
    },
    'POST /v1/billing_portal/sessions': (call) => session(call, 'bps'),
    'GET /v1/subscriptions': (call) => listOf(subscriptionsOf(call).map(subscriptionObject), call),
    'GET /v1/subscriptions/:id': ({ query }, id) => {
      const found = world.subscriptions.get(id);
      if (!found) return null;
      const payer = [...query.values()].includes('default_payment_method') && {
        default_payment_method: null,
        customer: { id: found.customer, invoice_settings: { default_payment_method: found.card ?? null } },
      };
      return { ...expanded(world, found, [...query.values()]), ...payer };
    },
    'GET /v1/subscription_items': (call) => {
      const found = world.subscriptions.get(call.query.get('subscription') ?? '');
      return found ? listOf(itemObjects(found), call) : missing('subscription');
    },
    'GET /v1/checkout/sessions/:id/line_items': (call, id) => {
      const purchase = world.purchases.get(id);
      return listOf(lineItems.get(id) ?? (purchase ? lineItemsOf(purchase) : []), call);
    },
    'GET /v1/customers/search': ({ query }) => {
      const [, key = '', id] = /^metadata\['(\w+)'\]:'(.*)'$/.exec(query.get('query') ?? '') ?? [];
      const data = [...customers.values()].filter(
        ({ metadata }) => (metadata as Json | undefined)?.[key] === id,
      );
      return { object: 'search_result', url: '/', has_more: false, data };
    },
    'GET /v1/charges/:id': (_call, id) => {
      const purchase = [...world.purchases.values()].find(({ charge }) => charge.id === id);
      if (purchase) return purchaseChargeObject(purchase);
      const found = paymentOf(({ charge }) => charge?.id === id);
      if (!found) return null;
      // The API has the newest version.
      const { invoice, ...charge } = chargeObject(found);
      return charge;
    },
    'GET /v1/invoices': (call) =>
      listOf(
        invoices.filter(({ customer }) => customer === call.query.get('customer')),
        call,
      ),
    'GET /v1/prices': (call) => {
      const isExpanded = [...call.query.values()].includes('data.currency_options');
      const made = [...prices.values()].filter(({ active, lookup_key }) => active === true && lookup_key);
      return listOf(
        pricesOfKeys(call.query, prices) ?? [
          ...Object.entries(PRICES).map((price) => priceObject(price, isExpanded)),
          ...made,
        ],
        call,
      );
    },
    'GET /v1/events': (call) => {
      const since = Number(call.query.get('created[gte]') ?? 0);
      const until = Number(call.query.get('created[lte]') ?? Number.POSITIVE_INFINITY);
      const types = [...call.query].filter(([name]) => name.startsWith('types[')).map(([, type]) => type);
      if (types.length > 20) return rejected({ param: 'types' });
      const isListed = ({ created, type }: Json) =>
        Number(created) >= since && Number(created) <= until && types.includes(String(type));
      return listOf(world.events.filter(isListed).toReversed(), call);
    },
    'GET /v1/events/:id': (_call, id) => world.events.find((event) => event['id'] === id) ?? null,
    'POST /v1/billing/meter_events': ({ form }) => {
      const event = {
        identifier: form.get('identifier') ?? '',
        value: Number(form.get('payload[value]')),
        meter: form.get('event_name') ?? '',
        customer: form.get('payload[stripe_customer_id]') ?? '',
        at: Number(form.get('timestamp')),
        receivedAt: world.now,
      };
      if (event.meter === 'unknown')
        return rejected({ message: 'No active meter found matching this event name.' });
      if (event.at < world.now - 35 * 86_400 || event.at > world.now + 300)
        return rejected({ message: 'The timestamp is out of range.' });
      const isDuplicate = meterEvents.some(
        ({ identifier, receivedAt }) => identifier === event.identifier && receivedAt > world.now - 86_400,
      );
      if (isDuplicate)
        return rejected({ message: `An event already exists with identifier ${event.identifier}.` });
      meterEvents.push(event);
      return { object: 'billing.meter_event', identifier: event.identifier, event_name: event.meter };
    },
    'GET /v1/prices/:id': (_call, id) => {
      const known = PRICES[id];
      return prices.get(id) ?? (known ? priceObject([id, known], true) : null);
    },
    ...changeRoutes(world, {
      prices,
      isDeclined: () => api.declines,
      hasPaymentMethod: (id) =>
        [...customers.values()].some((one) => one['id'] === id && one['invoice_settings'] !== undefined),
    }),
    ...scheduleRoutes(world),
    ...refundRoutes(world),
  };

  const server = createServer(async (request, response) => {
    const call = await readCall(request);
    calls.push(call);
    response.setHeader('date', new Date(world.now * 1000).toUTCString());
    response.setHeader('content-type', 'application/json');
    answer(response, (await api.fault(call)) ?? rightAnswer(routes, call));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const api: StripeApi = {
    url: `http://127.0.0.1:${port}`,
    calls,
    customers,
    sessions,
    invoices,
    promotionCodes: [],
    meterEvents,
    prices,
    declines: undefined,
    lineItems,
    fault: () => undefined,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return api;
}

async function readCall(request: IncomingMessage): Promise<ProviderCall> {
  let text = '';
  for await (const chunk of request) text += chunk;
  const { pathname: path, searchParams: query } = new URL(request.url ?? '', 'http://provider');
  const { method = '', headers } = request;
  return { method, path, query, form: new URLSearchParams(text), headers };
}

function rightAnswer(routes: Record<string, Handler>, call: ProviderCall): Exclude<Fault, string> {
  const [, version, ...words] = call.path.split('/');
  const id = words.find((word) => /^(cs|cus|sub|in|ch|price|evt|we|plan)_/.test(word)) ?? '';
  const pattern = `${call.method} /${version}/${words.map((word) => (word === id ? ':id' : word)).join('/')}`;
  const found = routes[pattern]?.(call, id) ?? missing('id');
  return { status: statusOf(found), body: JSON.stringify(found) };
}

function statusOf({ error }: Json): number {
  if (error === undefined) return 200;
  const { type, code } = error as Json;
  return type === 'card_error' ? 402 : code === 'resource_missing' ? 404 : 400;
}

export const rejected = (error: Json): Json => ({
  error: { type: 'invalid_request_error', message: 'The request was rejected.', ...error },
});

export const missing = (param: string): Json => ({
  error: { type: 'invalid_request_error', code: 'resource_missing', param, message: `No such ${param}` },
});

function priceObject(
  [id, { lookupKey, amount }]: [string, { lookupKey: string; amount: number }],
  withCurrencies: boolean,
): Json {
  return {
    id,
    object: 'price',
    active: true,
    currency: 'eur',
    ...(withCurrencies && {
      currency_options: { eur: { unit_amount: amount }, usd: { unit_amount: amount + 300 } },
    }),
    unit_amount: amount,
    lookup_key: lookupKey,
    metadata: {},
    recurring: { interval: 'month', interval_count: 1, usage_type: 'licensed' },
    product: { id: `prod_${lookupKey}`, object: 'product', name: lookupKey, description: null },
  };
}

function answer(response: ServerResponse, fault: Fault): void {
  if (fault === 'hang') return;
  if (fault === 'cut') {
    response.destroy();
    return;
  }
  response.writeHead(fault.status, fault.headers).end(fault.body);
}
