import { setTimeout as sleep } from 'node:timers/promises';
import type Stripe from 'stripe';
import { billingErrors } from './errors.js';
import {
  addressed,
  allPages,
  asOf,
  listed,
  malformed,
  named,
  strict,
  whole,
  within,
} from './gateway-answers.js';
import { type Json, nameIn, objectIn } from './snapshot.js';
import { isTerminal } from './status.js';

/**
 * The payment provider: the only file that knows its SDK, which is loaded at the first use. Whatever goes wrong there
 * is a PAYMENT_PROVIDER_ERROR here, within ten seconds; CUSTOMER_NOT_FOUND where it knows a customer no more.
 */
export interface Gateway {
  /** Makes a customer. The same key makes the same one. */
  createCustomer(
    customer: { email: string; userId: string },
    idempotencyKey: string,
  ): Promise<{ id: string }>;
  /** @throws PRICE_NOT_ALLOWED when the provider does not know the price or does not sell it like this */
  createCheckout(checkout: Checkout): Promise<{ id: string; url: string }>;
  createPortal(portal: { customerId: string; returnUrl: string }): Promise<{ url: string }>;
  /** A checkout session as the provider has it; null where it knows none of this id, and likewise a subscription. */
  checkoutSession(id: string): Promise<Json | null>;
  subscription(id: string): Promise<{ object: Json; asOf: number } | null>;
  /** Every subscription that a customer has or had. */
  subscriptionsOf(customerId: string): Promise<{ objects: Json[]; asOf: number }>;
  /** Cancels at once what the customer has subscribed to, and what could still become a subscription. */
  cancelSubscriptions(customerId: string): Promise<void>;
  /** The newest 100. */
  invoicesOf(customerId: string): Promise<Json[]>;
  /** What is for sale, each price with its product inside. */
  prices(): Promise<Json[]>;
  /** What the provider has told since then, the newest first. It remembers 30 days. */
  eventsSince(milliseconds: number, types: readonly string[]): Promise<Json[]>;
}

export interface Checkout {
  customerId: string;
  userId: string;
  mode: 'subscription' | 'payment' | 'setup';
  /** Absent for `setup`. What is billed by use has no quantity. */
  item?: { price: string; quantity?: number };
  successUrl: string;
  cancelUrl: string;
}

/** How long the provider may take, in milliseconds. */
export interface Patience {
  /** One attempt of the SDK, whose own default would take minutes. One more may follow. */
  attempt: number;
  /** A call as a whole, however it trickles and whatever pauses the provider asks the SDK for. */
  call: number;
  /** A call that a webhook waits for, whose own answer is awaited, too. */
  look: number;
}

const PATIENCE: Patience = { attempt: 4_500, call: 9_500, look: 5_000 };

const MOST = 100;

/** @param apiUrl another address for the provider's API */
export function createGateway(
  secretKey: string,
  apiUrl: string | undefined,
  patience: Patience = PATIENCE,
): Gateway {
  let loading: Promise<Stripe> | undefined;
  const call = async <T>(
    work: (stripe: Stripe) => Promise<T>,
    deadline: number = patience.call,
  ): Promise<T> => {
    loading ??= loadStripe(secretKey, apiUrl, patience.attempt);
    const stripe = await loading;
    return within(deadline, work(stripe)).catch(translate);
  };

  return {
    async createCustomer({ email, userId }, idempotencyKey) {
      const customer = { email, metadata: { userId } };
      const { id } = await call((stripe) =>
        persistently(idempotencyKey, (key) => stripe.customers.create(customer, { idempotencyKey: key })),
      );
      if (nameIn(id) === undefined) throw malformed('A customer without an id.');
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
      return addressed(session);
    },

    async createPortal({ customerId, returnUrl }) {
      const session = await call((stripe) =>
        stripe.billingPortal.sessions.create({ customer: customerId, return_url: returnUrl }),
      );
      return { url: addressed(session).url };
    },

    async checkoutSession(id) {
      const found = await call((stripe) => stripe.checkout.sessions.retrieve(id).catch(nullIfMissing));
      return found && objectIn(named(found, id));
    },

    async subscription(id) {
      const found = await call(
        (stripe) =>
          stripe.subscriptions.retrieve(id, undefined, { maxNetworkRetries: 0 }).catch(nullIfMissing),
        patience.look,
      );
      return found && { object: whole(named(found, id)), asOf: asOf(found) };
    },

    async subscriptionsOf(customer) {
      const pages = await call((stripe) =>
        allPages((after) => stripe.subscriptions.list({ customer, status: 'all', limit: MOST, ...after })),
      );
      return { objects: pages.flatMap(({ data }) => data.map(whole)), asOf: asOf(pages[0]) };
    },

    cancelSubscriptions: (customer) => call((stripe) => cancelAll(stripe, customer)),

    async invoicesOf(customer) {
      const newest = await call((stripe) => stripe.invoices.list({ customer, limit: MOST }));
      return listed(newest).data.map(objectIn);
    },

    async prices() {
      const pages = await call((stripe) =>
        allPages((after) =>
          stripe.prices.list({ active: true, limit: MOST, expand: ['data.product'], ...after }),
        ),
      );
      return pages.flatMap(({ data }) => data.map(objectIn));
    },

    async eventsSince(milliseconds, types) {
      const created = { gte: Math.floor(milliseconds / 1000) };
      // Nobody waits for all of them at once, and there may be many: each page has its own time.
      const pages = await allPages((after) =>
        call((stripe) => stripe.events.list({ created, types: [...types], limit: MOST, ...after })),
      );
      return pages.flatMap(({ data }) => data.map(objectIn));
    },
  };
}

async function loadStripe(secretKey: string, apiUrl: string | undefined, timeout: number): Promise<Stripe> {
  const { default: StripeSdk } = await import('stripe');
  const http = StripeSdk.createNodeHttpClient();
  const send = http.makeRequest.bind(http);
  // Decompressing is left to nobody: what is small when it comes is small when it is read.
  http.makeRequest = (host, port, path, method, headers, ...rest) =>
    send(host, port, path, method, { ...headers, 'Accept-Encoding': 'identity' }, ...rest).then(strict);
  return new StripeSdk(secretKey, {
    timeout,
    maxNetworkRetries: 1,
    telemetry: false,
    httpClient: http,
    ...(apiUrl !== undefined && addressOf(apiUrl)),
  });
}

function addressOf(apiUrl: string): { host: string; port: string; protocol: 'http' | 'https' } {
  const { hostname, port, protocol } = new URL(apiUrl);
  const scheme = protocol === 'http:' ? 'http' : 'https';
  // Node takes an IPv6 address without the brackets that it has in a URL.
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return { host, port: port || (scheme === 'http' ? '80' : '443'), protocol: scheme };
}

/** How often a key is tried that is in use, and how long to wait in between. Milliseconds. */
const [MOST_TRIES, BETWEEN_TRIES] = [20, 200];

/** What the provider makes once for a key, also where a twin is at it, or where it only remembers a failure of its own. */
async function persistently<T>(key: string, make: (key: string) => Promise<T>): Promise<T> {
  let latest = key;
  for (let tries = 1; ; tries++) {
    try {
      return await make(latest);
    } catch (error) {
      const next = keyAfter(error as Stripe.errors.StripeError, { key, latest });
      if (next === undefined || tries === MOST_TRIES) throw error;
      if (next === latest) await sleep(BETWEEN_TRIES);
      latest = next;
    }
  }
}

/** https://docs.stripe.com/api/idempotent_requests: a failure of the provider's is repeated for a day, too. */
function keyAfter(
  { code, statusCode = 0, headers = {} }: Stripe.errors.StripeError,
  { key, latest }: { key: string; latest: string },
): string | undefined {
  if (code === 'idempotency_key_in_use') return latest;
  const isRepeated = statusCode >= 500 && headers['idempotent-replayed'] === 'true';
  // Whoever else is told of that failure goes on with the same key.
  return isRepeated ? `${key}-${headers['original-request']}` : undefined;
}

async function cancelAll(stripe: Stripe, customer: string): Promise<void> {
  for await (const { id } of stripe.checkout.sessions.list({ customer, status: 'open', limit: MOST })) {
    await stripe.checkout.sessions.expire(id);
  }
  // Without a status the provider lists all but the canceled, among them some that cannot be canceled any more.
  for await (const { id, status } of stripe.subscriptions.list({ customer, limit: MOST })) {
    if (!isTerminal(status)) await stripe.subscriptions.cancel(id).catch(nullIfMissing);
  }
}

function nullIfMissing(error: Stripe.errors.StripeError): null {
  if (error.code === 'resource_missing') return null;
  throw error;
}

/** What went wrong there, in our words. The provider's own may hold parts of the key, so only its codes are logged. */
function translate(error: Stripe.errors.StripeError): never {
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
  // Unknown, sold no more, or not to this customer or in this mode.
  const isAboutPrice = type === 'StripeInvalidRequestError' && /^(line_items(\[.*)?|mode)$/.test(param ?? '');
  throw isAboutPrice
    ? billingErrors.PRICE_NOT_ALLOWED({ cause })
    : billingErrors.PAYMENT_PROVIDER_ERROR({ cause });
}
