import type { FastifyInstance } from 'fastify';
import type { Test } from 'tap';
import type { User } from '../../../src/core/http/schemas.js';
import type { Store } from '../../../src/core/storage/collection.js';
import type { BillingConfiguration } from '../../../src/saas/billing/options.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { type OrganizationDocument, organizationCollections } from '../../../src/saas/organizations/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import {
  type Account,
  type Answer,
  PASSWORD,
  type SaasApp,
  SECRETS,
  saasApp,
  storeOf,
} from '../../kit/app.js';
import { billingOn, runJobs, type TestBilling } from '../../kit/billing.js';
import { storedValues } from '../../kit/mail.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { type ProviderCall, type StripeApi, stripeApi } from '../../kit/stripe.js';
import { isChange } from '../../kit/stripe-changes.js';
import type { WorldSubscription } from '../../kit/stripe-objects.js';
import { World } from '../../kit/stripe-simulator.js';

export const KEY = 'sk_test_51Qm7vLd0mXw4RkT9cYb2NfHs6';

export const CONFIG = { billingReturnUrlRelative: '/settings/billing', pastDue: 'entitled' } as const;

/** The provider's API for one test, with the same clock. */
export async function provider(
  t: Test,
  fault: StripeApi['fault'] = () => undefined,
): Promise<StripeApi & { world: World }> {
  const world = new World(1, Date.UTC(2040, 0, 1) / 1000);
  const api = await stripeApi(world);
  t.teardown(() => api.close());
  api.fault = fault;
  return Object.assign(api, { world });
}

type Signed = Pick<Account, 'accessToken'>;

export interface Buyer extends Account {
  customer: string;
}

export interface Shop {
  app: SaasApp;
  api: StripeApi & { world: World };
  /** Delivers a signed body and returns the outcome or the error code. */
  deliver(event: Json): Promise<string>;
  /** A user with a customer at the provider. */
  buyer(): Promise<Buyer>;
  /** A request below `/api` of a user. */
  post(account: Signed, path: string, body?: object): Promise<Answer>;
  /** Orders at checkout. */
  buy(account: Signed, order: object): Promise<Answer>;
  /** `GET /billing/subscription` */
  subscription(account: Signed): Promise<Json>;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  exported(account: Signed): Promise<any>;
  /** Deletes the account. */
  leave(account: Signed): Promise<Answer>;
  /** A subscription at the provider, active and of one `price_basic` unless stated otherwise. */
  subscribe(buyer: Pick<Buyer, 'id' | 'customer'>, more?: Partial<WorldSubscription>): WorldSubscription;
  /** Collects the events of these names. */
  heard(...names: string[]): Json[];
  /** Runs the background jobs of another process. */
  runJobs(billing?: BillingConfiguration['billing']): Promise<void>;
}

/** A backend and its payment provider. The options may remove the API key. */
export async function shop(t: Test, options: Parameters<typeof saasApp>[1] = {}): Promise<Shop> {
  const api = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: api.url, ...options });
  const post: Shop['post'] = ({ accessToken: token }, path, body) =>
    app.request('POST', `/api${path}`, { token, ...(body && { body }) });
  const get = async ({ accessToken: token }: Signed, path: string) =>
    (await app.request('GET', `/api${path}`, { token })).body.data;
  const buy: Shop['buy'] = (account, order) => post(account, '/billing/create-checkout-session', order);
  return {
    app,
    api,
    post,
    buy,
    deliver: async (event) => outcomeOf(await deliver(app, event)),
    async buyer() {
      const account = await app.signUp();
      const { body } = await buy(account, { mode: 'setup' });
      return { ...account, customer: String(api.sessions.get(body.data.sessionId)?.['customer']) };
    },
    subscription: (account) => get(account, '/billing/subscription'),
    exported: (account) => get(account, '/user/export'),
    leave: (account) => post(account, '/user/delete', { password: PASSWORD }),
    subscribe({ customer, id }, more) {
      const basics = { status: 'active', price: 'price_basic', quantity: 1, trialEnd: null };
      return Object.assign(api.world.subscribe(customer, id, true), basics, more);
    },
    heard(...names) {
      const received: Json[] = [];
      for (const name of names)
        app.server.fastify.saas.events.on(
          name as 'invoice.paid',
          (one) => void received.push({ name, ...one }),
        );
      return received;
    },
    runJobs: async (billing) => runJobs(await secondProcess(t, { app, api }, billing)),
  };
}

export const CHANGE = 'subscription/change';
export const CANCEL = 'subscription/cancel';
export const RESUME = 'subscription/resume';
export const PAUSE = 'subscription/pause';

/** A user with a subscription that is stored here, and requests of that user. */
export async function subscriber(
  t: Test,
  { truth: more, ...options }: Parameters<typeof shop>[1] & { truth?: Partial<WorldSubscription> } = {},
) {
  const opened = await shop(t, options);
  const { app, api, subscription } = opened;
  const ada = await opened.buyer();
  const truth = opened.subscribe(ada, more);
  const post = (path: string, body: Json = {}) => opened.post(ada, `/billing/${path}`, body);
  await post('sync');
  const pass = (seconds: number) => {
    api.world.now += seconds;
    app.clock.set(api.world.now * 1000);
  };
  pass(60);
  return {
    ...opened,
    ada,
    truth,
    post,
    postAs: opened.post,
    pass,
    told: opened.heard('subscription.updated'),
    changes: () => api.calls.filter(isChange),
    stored: () => subscription(ada),
    preview: (query: string) =>
      app.request('GET', `/api/billing/${CHANGE}/preview?${query}`, { token: ada.accessToken }),
    invoices: () => api.world.events.filter(({ type }) => type === 'invoice.paid').length,
  };
}

/** Signs a user up at a host that has the plugin. `get` sends requests of that user. */
export async function signUpAt(host: FastifyInstance) {
  const response = await host.inject({
    method: 'POST',
    url: '/api/auth/register',
    payload: { email: 'ada@example.test', password: PASSWORD },
  });
  const { accessToken, user } = response.json<{ data: { accessToken: string; user: User } }>().data;
  const get = (url: string) => host.inject({ url, headers: { authorization: `Bearer ${accessToken}` } });
  return { user, get };
}

export function deliver(app: SaasApp, event: Json | string): Promise<Answer> {
  const body = typeof event === 'string' ? event : JSON.stringify(event);
  const headers = { 'payment-signature': signWebhook(body, SECRETS.paymentWebhookSecret, app.clock.now()) };
  return app.request('POST', '/api/billing/webhook', { body, headers });
}

export const outcomeOf = ({ body }: Answer): string => body.data?.outcome ?? body.error.code;

/** Answers the next matching call with the state at its arrival, but only after `letGo`. */
export function holdNext(
  api: StripeApi,
  matches: (call: ProviderCall) => boolean,
  answer: () => Json,
): { asked: Promise<void>; letGo(): void } {
  let letGo = () => {};
  const isFree = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const asked = new Promise<void>((resolve) => {
    api.fault = async (call) => {
      if (!matches(call)) return undefined;
      api.fault = () => undefined;
      const body = JSON.stringify(answer());
      resolve();
      await isFree;
      return { status: 200, body };
    };
  });
  return { asked, letGo };
}

let events = 0;

/** A subscription event of the newest API version, `at` seconds after the start of the tests. */
export function subscriptionEvent(
  what: string,
  at: number,
  object: Json,
  previous?: Json,
): Json & { id: string } {
  const event = eventOf(`customer.subscription.${what}`, at, { object: 'subscription', ...object });
  return previous ? { ...event, data: { ...(event['data'] as Json), previous_attributes: previous } } : event;
}

/** An event of any type, `at` seconds after the start of the tests. */
export function eventOf(type: string, at: number, object: Json): Json & { id: string } {
  const created = Date.UTC(2040, 0, 1) / 1000 + at;
  return { id: `evt_test_${++events}`, object: 'event', created, type, data: { object } };
}

export const invoiceEvent = (how: 'succeeded' | 'failed', at: number, object: Json) =>
  eventOf(`invoice.payment_${how}`, at, {
    id: `in_test_${events}`,
    object: 'invoice',
    amount_due: 2900,
    amount_paid: how === 'succeeded' ? 2900 : 0,
    currency: 'eur',
    attempt_count: 1,
    next_payment_attempt: null,
    ...object,
  });

/** Billing in another process on the store of `app`, for functions without a route. */
export async function secondProcess(
  t: Test,
  { app, api }: Pick<Shop, 'app' | 'api'>,
  billing?: BillingConfiguration['billing'],
): Promise<TestBilling> {
  return billingOn(await storeOf(t, app), app.clock, {
    config: { ...CONFIG, paymentSecretKey: KEY, paymentApiUrl: api.url, ...(billing && { billing }) },
  });
}

/** An organization that only billing knows. */
export function insertOrganization(store: Store, id: string, more: Partial<OrganizationDocument> = {}) {
  const counts = { owners: 1, members: 1, createdAt: 1 };
  const billed = {
    billingEmail: 'invoices@example.test',
    subscriptionStatus: 'none',
    subscriptionPlan: 'free',
  };
  return organizationCollections(store).organizations.insert({
    ...{
      id,
      name: 'Analytical Engines',
      slug: id,
      ...counts,
      ...billed,
      ...more,
    },
  });
}

/** Items in the provider's format. */
export const items = (price = 'price_pro', lookup_key: string | null = 'pro') => ({
  data: [{ quantity: 1, price: { id: price, lookup_key }, current_period_end: 2_209_000_000 }],
});

/** Permutations in any order. */
export function ordersOf<T>(things: T[]): T[][] {
  if (things.length < 2) return [things];
  return things.flatMap((first, index) =>
    ordersOf(things.toSpliced(index, 1)).map((rest) => [first, ...rest]),
  );
}

/** The stored mails, of one template or all. */
export async function mailsOf(t: Test, app: SaasApp, template?: string) {
  const { items } = await mailCollection(await storeOf(t, app)).page({ sort: 'id', limit: 50 });
  return items
    .map((mail) => ({ ...mail, values: storedValues(mail, SECRETS.jwtRefreshSecret) }))
    .filter((mail) => template === undefined || mail.template === template);
}
