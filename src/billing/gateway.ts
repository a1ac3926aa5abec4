import { setTimeout as sleep } from 'node:timers/promises';
import type Stripe from 'stripe';
import { billingErrors } from './errors.js';
import {
  asObject,
  asText,
  completeUntil,
  fetchAllPages,
  type Json,
  malformed,
  rejectForeignResponses,
  requireId,
  requireList,
  requirePage,
  requireSubscription,
} from './events/provider-objects.js';
import { isTerminal } from './events/subscription-order.js';

/**
 * The payment provider. This is the only file that imports its SDK, which is loaded on first use. Every failure is a
 * PAYMENT_PROVIDER_ERROR within ten seconds, or CUSTOMER_NOT_FOUND if the customer does not exist there.
 */
export interface Gateway {
  /** Creates a customer. The same key returns the same customer. */
  createCustomer(
    customer: { email: string; userId: string },
    idempotencyKey: string,
  ): Promise<{ id: string }>;
  /** @throws PRICE_NOT_ALLOWED if the price does not exist at the provider or cannot be purchased in this way */
  createCheckout(checkout: Checkout): Promise<{ id: string; url: string }>;
  createPortal(portal: { customerId: string; returnUrl: string }): Promise<{ url: string }>;
  /** Null if the provider has no such session. */
  checkoutSession(id: string): Promise<Json | null>;
  /** Null if the provider has no such subscription. `asOf`: the provider's time up to which it is complete. */
  subscription(id: string): Promise<{ object: Json; asOf: number } | null>;
  /** Every subscription of a customer, ended ones included. */
  subscriptionsOf(customerId: string): Promise<{ objects: Json[]; asOf: number }>;
  /** Cancels every subscription at once, and expires the checkout sessions that could still start one. */
  cancelSubscriptions(customerId: string): Promise<void>;
  /** The newest 100. */
  invoicesOf(customerId: string): Promise<Json[]>;
  /** The active prices, each with its product expanded. */
  prices(): Promise<Json[]>;
  /** The provider's events since a time, the newest first. It keeps them for 30 days. */
  eventsSince(milliseconds: number, types: readonly string[]): Promise<Json[]>;
}

export interface Checkout {
  customerId: string;
  userId: string;
  mode: 'subscription' | 'payment' | 'setup';
  /** Absent for `setup`. Metered prices have no quantity. */
  item?: { price: string; quantity?: number };
  successUrl: string;
  cancelUrl: string;
}

export interface GatewayTimeouts {
  /** Timeout of one attempt; the default of the SDK is minutes. The SDK retries once. */
  attemptMs: number;
  /** Timeout of a whole call, including slow bodies and the retry delays that the provider requests. */
  callMs: number;
  /** A lookup during a webhook delivery, which the provider itself waits for. */
  lookupMs: number;
}

const DEFAULT_TIMEOUTS: GatewayTimeouts = { attemptMs: 4_500, callMs: 9_500, lookupMs: 5_000 };

/** The provider's maximum. */
const PAGE_SIZE = 100;

/** @param apiUrl another address for the provider's API */
export function createGateway(
  secretKey: string,
  apiUrl: string | undefined,
  timeouts: GatewayTimeouts = DEFAULT_TIMEOUTS,
): Gateway {
  let loading: Promise<Stripe> | undefined;
  const call = async <T>(
    work: (stripe: Stripe) => Promise<T>,
    timeoutMs: number = timeouts.callMs,
  ): Promise<T> => {
    loading ??= loadStripe(secretKey, apiUrl, timeouts.attemptMs);
    const stripe = await loading;
    return withTimeout(timeoutMs, work(stripe)).catch(throwBillingError);
  };

  return {
    async createCustomer({ email, userId }, idempotencyKey) {
      const customer = { email, metadata: { userId } };
      const { id } = await call((stripe) =>
        retryIdempotently(idempotencyKey, (key) =>
          stripe.customers.create(customer, { idempotencyKey: key }),
        ),
      );
      if (asText(id) === undefined) throw malformed('A customer without an ID.');
      return { id };
    },

    async createCheckout({ customerId, userId, mode, item, successUrl, cancelUrl }) {
      const session = await call((stripe) =>
        stripe.checkout.sessions.create({
          customer: customerId,
          client_reference_id: userId,
          metadata: { userId },
          mode,
          success_url: successUrl,
          cancel_url: cancelUrl,
          ...(item && { line_items: [item] }),
          ...(mode === 'subscription' && { subscription_data: { metadata: { userId } } }),
          ...(mode === 'setup' && { payment_method_types: ['card'] }),
        }),
      );
      return requirePage(session);
    },

    async createPortal({ customerId, returnUrl }) {
      const session = await call((stripe) =>
        stripe.billingPortal.sessions.create({ customer: customerId, return_url: returnUrl }),
      );
      return { url: requirePage(session).url };
    },

    async checkoutSession(id) {
      const found = await call((stripe) => stripe.checkout.sessions.retrieve(id).catch(nullIfMissing));
      return found && asObject(requireId(found, id));
    },

    async subscription(id) {
      const found = await call(
        (stripe) =>
          stripe.subscriptions.retrieve(id, undefined, { maxNetworkRetries: 0 }).catch(nullIfMissing),
        timeouts.lookupMs,
      );
      return found && { object: requireSubscription(requireId(found, id)), asOf: completeUntil(found) };
    },

    async subscriptionsOf(customer) {
      const pages = await call((stripe) =>
        fetchAllPages((after) =>
          stripe.subscriptions.list({ customer, status: 'all', limit: PAGE_SIZE, ...after }),
        ),
      );
      return {
        objects: pages.flatMap(({ data }) => data.map(requireSubscription)),
        asOf: completeUntil(pages[0]),
      };
    },

    cancelSubscriptions: (customer) => call((stripe) => cancelAll(stripe, customer)),

    async invoicesOf(customer) {
      const newest = await call((stripe) => stripe.invoices.list({ customer, limit: PAGE_SIZE }));
      return requireList(newest).data.map(asObject);
    },

    async prices() {
      const pages = await call((stripe) =>
        fetchAllPages((after) =>
          stripe.prices.list({ active: true, limit: PAGE_SIZE, expand: ['data.product'], ...after }),
        ),
      );
      return pages.flatMap(({ data }) => data.map(asObject));
    },

    async eventsSince(milliseconds, types) {
      const created = { gte: Math.floor(milliseconds / 1000) };
      // The list may be long and no request waits for all of it, so each page has its own timeout.
      const pages = await fetchAllPages((after) =>
        call((stripe) => stripe.events.list({ created, types: [...types], limit: PAGE_SIZE, ...after })),
      );
      return pages.flatMap(({ data }) => data.map(asObject));
    },
  };
}

async function loadStripe(secretKey: string, apiUrl: string | undefined, timeout: number): Promise<Stripe> {
  const { default: StripeSdk } = await import('stripe');
  const http = StripeSdk.createNodeHttpClient();
  const send = http.makeRequest.bind(http);
  // Compression is disabled, so that a small response cannot expand in memory.
  http.makeRequest = (host, port, path, method, headers, ...rest) =>
    send(host, port, path, method, { ...headers, 'Accept-Encoding': 'identity' }, ...rest).then(
      rejectForeignResponses,
    );
  return new StripeSdk(secretKey, {
    timeout,
    maxNetworkRetries: 1,
    telemetry: false,
    httpClient: http,
    ...(apiUrl !== undefined && endpointOf(apiUrl)),
  });
}

function endpointOf(apiUrl: string): { host: string; port: string; protocol: 'http' | 'https' } {
  const { hostname, port, protocol } = new URL(apiUrl);
  const scheme = protocol === 'http:' ? 'http' : 'https';
  // Node.js expects an IPv6 address without the brackets of the URL.
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return { host, port: port || (scheme === 'http' ? '80' : '443'), protocol: scheme };
}

const MAX_ATTEMPTS = 20;
const RETRY_DELAY_MS = 200;

/** Creates an object once per key, also while a parallel request uses the key or after a failure stored with it. */
async function retryIdempotently<T>(key: string, create: (key: string) => Promise<T>): Promise<T> {
  let currentKey = key;
  for (let attempts = 1; ; attempts++) {
    try {
      return await create(currentKey);
    } catch (error) {
      const nextKey = keyAfter(error as Stripe.errors.StripeError, { key, currentKey });
      if (nextKey === undefined || attempts === MAX_ATTEMPTS) throw error;
      if (nextKey === currentKey) await sleep(RETRY_DELAY_MS);
      currentKey = nextKey;
    }
  }
}

/** https://docs.stripe.com/api/idempotent_requests: the provider repeats its own failures for a day as well. */
function keyAfter(
  { code, statusCode = 0, headers = {} }: Stripe.errors.StripeError,
  { key, currentKey }: { key: string; currentKey: string },
): string | undefined {
  if (code === 'idempotency_key_in_use') return currentKey;
  const isRepeated = statusCode >= 500 && headers['idempotent-replayed'] === 'true';
  // Every request that receives this failure continues with the same key.
  return isRepeated ? `${key}-${headers['original-request']}` : undefined;
}

async function cancelAll(stripe: Stripe, customer: string): Promise<void> {
  for await (const { id } of stripe.checkout.sessions.list({ customer, status: 'open', limit: PAGE_SIZE })) {
    await stripe.checkout.sessions.expire(id);
  }
  // Without a status the provider lists all but canceled ones, including expired ones that cannot be canceled.
  for await (const { id, status } of stripe.subscriptions.list({ customer, limit: PAGE_SIZE })) {
    if (!isTerminal(status)) await stripe.subscriptions.cancel(id).catch(nullIfMissing);
  }
}

function nullIfMissing(error: Stripe.errors.StripeError): null {
  if (error.code === 'resource_missing') return null;
  throw error;
}

/** The provider's messages may contain parts of the key, so only its codes are kept. */
function throwBillingError(error: Stripe.errors.StripeError): never {
  const { type = error.name, code, statusCode, requestId, param } = error;
  const cause = new Error(
    `Payment provider: ${[type, code, statusCode, requestId].filter(Boolean).join(' ')}`,
  );
  if (code === 'resource_missing' && param === 'customer') {
    throw billingErrors.CUSTOMER_NOT_FOUND({
      message: 'The customer does not exist at the payment provider.',
      cause,
    });
  }
  // The price does not exist, is archived, or is not sold to this customer or in this mode.
  const isAboutPrice = type === 'StripeInvalidRequestError' && /^(line_items(\[.*)?|mode)$/.test(param ?? '');
  throw isAboutPrice
    ? billingErrors.PRICE_NOT_ALLOWED({ cause })
    : billingErrors.PAYMENT_PROVIDER_ERROR({ cause });
}

/** The timeouts of the SDK do not limit the total duration of a response. */
async function withTimeout<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('Timed out.')), timeoutMs).unref();
  });
  return Promise.race([work, timeout]).finally(() => clearTimeout(timer));
}
