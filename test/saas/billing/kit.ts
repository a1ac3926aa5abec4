import type { FastifyInstance } from 'fastify';
import type { Test } from 'tap';
import type { User } from '../../../src/core/http/schemas.js';
import type { BillingConfiguration } from '../../../src/saas/billing/options.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import {
  type Account,
  type Answer,
  PASSWORD,
  type SaasApp,
  SECRETS,
  saasApp,
  storeOf,
} from '../../kit/app.js';
import { billingOn, type TestBilling } from '../../kit/billing.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { type ProviderCall, type StripeApi, stripeApi } from '../../kit/stripe.js';
import { World } from '../../kit/stripe-simulator.js';

export const KEY = 'sk_test_51Qm7vLd0mXw4RkT9cYb2NfHs6';

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

export interface Shop {
  app: SaasApp;
  api: StripeApi & { world: World };
  /** Delivers a signed body and returns the outcome or the error code. */
  deliver(event: Json): Promise<string>;
  /** A user with a customer at the provider. */
  buyer(): Promise<Account & { customer: string }>;
  /** `GET /billing/subscription` */
  subscription(account: Account): Promise<Json>;
}

/** A backend and its payment provider. The options may remove the API key. */
export async function shop(t: Test, options: Parameters<typeof saasApp>[1] = {}): Promise<Shop> {
  const api = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: api.url, ...options });
  return {
    app,
    api,
    deliver: async (event) => outcomeOf(await deliver(app, event)),
    async buyer() {
      const account = await app.signUp();
      const { body } = await app.request('POST', '/api/billing/create-checkout-session', {
        token: account.accessToken,
        body: { mode: 'setup' },
      });
      return { ...account, customer: String(api.sessions.get(body.data.sessionId)?.['customer']) };
    },
    async subscription({ accessToken: token }) {
      return (await app.request('GET', '/api/billing/subscription', { token })).body.data;
    },
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
  return {
    id: `evt_test_${++events}`,
    object: 'event',
    created: Date.UTC(2040, 0, 1) / 1000 + at,
    type: `customer.subscription.${what}`,
    data: {
      object: { object: 'subscription', ...object },
      ...(previous && { previous_attributes: previous }),
    },
  };
}

/** An event of any type, `at` seconds after the start of the tests. */
export function eventOf(type: string, at: number, object: Json): Json & { id: string } {
  const created = Date.UTC(2040, 0, 1) / 1000 + at;
  return { id: `evt_test_${++events}`, object: 'event', created, type, data: { object } };
}

export function invoiceEvent(how: 'succeeded' | 'failed', at: number, object: Json): Json & { id: string } {
  const id = `evt_test_${++events}`;
  return {
    id,
    object: 'event',
    created: Date.UTC(2040, 0, 1) / 1000 + at,
    type: `invoice.payment_${how}`,
    data: {
      object: {
        id: `in_${id}`,
        object: 'invoice',
        amount_due: 2900,
        amount_paid: how === 'succeeded' ? 2900 : 0,
        currency: 'eur',
        attempt_count: 1,
        next_payment_attempt: null,
        ...object,
      },
    },
  };
}

/** Billing in another process on the store of `app`, for functions without a route. */
export async function secondProcess(
  t: Test,
  { app, api }: Pick<Shop, 'app' | 'api'>,
  billing?: BillingConfiguration['billing'],
): Promise<TestBilling> {
  return billingOn(await storeOf(t, app), app.clock, {
    config: {
      paymentSecretKey: KEY,
      paymentApiUrl: api.url,
      billingReturnUrlRelative: '/settings/billing',
      pastDue: 'entitled',
      ...(billing && { billing }),
    },
  });
}
