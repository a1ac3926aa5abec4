import type Stripe from 'stripe';
import { isTerminal } from '../store.js';
import { createAccountSetup } from './account-setup.js';
import { cardOf } from './cards.js';
import { createCheckoutSessions } from './checkout-sessions.js';
import {
  isUnconfiguredPortal,
  loadStripe,
  nullIfMissing,
  nullIfNothingToInvoice,
  type ProviderCall,
  rejectionIfFinal,
  repeatWhileLimited,
  retryIdempotently,
  throwBillingError,
  withTimeout,
} from './client.js';
import { asInteger, asObject, asText, idOf, type Json } from './json.js';
import { createMeterEvent, type MeterEvent } from './meter-events.js';
import {
  completeUntil,
  eachPage,
  fetchAllPages,
  malformed,
  PAGE_SIZE,
  requireId,
  requireList,
  requirePage,
  requireSubscription,
  withAllItems,
} from './responses.js';
import {
  changeSubscription,
  type ItemChange,
  type Proration,
  previewChange,
  type SubscriptionChange,
} from './subscription-changes.js';

/**
 * The payment provider. Its SDK is loaded on first use. Every failure is a
 * PAYMENT_PROVIDER_ERROR within ten seconds, or CUSTOMER_NOT_FOUND if the customer does not exist there.
 */
export type Gateway = ReturnType<typeof createGateway>;

export interface GatewayTimeouts {
  /** Timeout of one attempt; the default of the SDK is minutes. The SDK retries once. */
  attemptMs: number;
  /** Timeout of a whole call, including slow bodies and the retry delays that the provider requests. */
  callMs: number;
  /** A lookup during a webhook delivery, which the provider itself waits for. */
  lookupMs: number;
}

const DEFAULT_TIMEOUTS: GatewayTimeouts = { attemptMs: 4_500, callMs: 9_500, lookupMs: 5_000 };

const PRICE_DETAILS = ['data.product', 'data.currency_options'];

const SUBSCRIPTION_DETAILS = ['schedule', 'discounts.source.coupon', 'latest_invoice'];

/** How many types of events the provider lists at a time. */
const MAX_EVENT_TYPES = 20;

/** The provider's maximum in one request. */
const MAX_LOOKUP_KEYS = 10;

/** A user rarely has more customers. */
const SEARCH_LIMIT = 10;

/** @param apiUrl another address for the provider's API */
export function createGateway(
  secretKey: string,
  apiUrl: string | undefined,
  timeouts: GatewayTimeouts = DEFAULT_TIMEOUTS,
) {
  let loading: Promise<Stripe> | undefined;
  const call: ProviderCall = async (
    work,
    { timeoutMs = timeouts.callMs, onError = throwBillingError } = {},
  ) => {
    loading ??= loadStripe(secretKey, apiUrl, timeouts.attemptMs);
    const stripe = await loading;
    const working = repeatWhileLimited(timeoutMs, () => work(stripe));
    return withTimeout(timeoutMs, working).catch(onError);
  };

  const lookup = { timeoutMs: timeouts.lookupMs };

  const setup = createAccountSetup(call);

  return {
    ...createCheckoutSessions(call),
    ...setup,

    /** Creates a customer. The same key returns the same customer. */
    async createCustomer(
      { email, name, userId }: { email: string; name: string; userId: string },
      idempotencyKey: string,
    ): Promise<{ id: string }> {
      const customer: Stripe.CustomerCreateParams = { email, metadata: { userId } };
      if (name !== '') customer.name = name;
      const { id } = await call((stripe) =>
        retryIdempotently(idempotencyKey, (key) =>
          stripe.customers.create(customer, { idempotencyKey: key }),
        ),
      );
      if (asText(id) === undefined) throw malformed('A customer without an ID.');
      return { id };
    },

    /**
     * An empty name removes it. Does nothing if the customer does not exist. `rejection`: the provider's codes if it would
     * reject these values again.
     */
    async updateCustomer(
      id: string,
      { email, name }: { email: string; name: string },
    ): Promise<{ rejection?: string }> {
      // A customer that was deleted at the provider is replaced with the current values at the next purchase.
      return call((stripe) =>
        stripe.customers
          .update(id, { email, name })
          .catch(nullIfMissing)
          .then((updated) => {
            if (updated) requireId(updated, id);
            return {};
          }, rejectionIfFinal),
      );
    },

    /** The customers whose metadata names the user. */
    async customersOf(userId: string): Promise<string[]> {
      const query = `metadata['userId']:'${userId.replace(/['\\]/g, '\\$&')}'`;
      const found = await call((stripe) => stripe.customers.search({ query, limit: SEARCH_LIMIT }));
      return requireList(found).data.flatMap((customer) => idOf(customer) ?? []);
    },

    /** Every customer, in pages. */
    async *customerPages() {
      const pages = eachPage((after) =>
        call((stripe) => stripe.customers.list({ limit: PAGE_SIZE, ...after })),
      );
      for await (const { data } of pages) yield data.map(asObject);
    },

    async createPortal({
      customerId,
      returnUrl,
    }: {
      customerId: string;
      returnUrl: string;
    }): Promise<{ url: string }> {
      const open = (configuration?: string) =>
        call((stripe) =>
          stripe.billingPortal.sessions.create({
            customer: customerId,
            return_url: returnUrl,
            ...(configuration !== undefined && { configuration }),
          }),
        );
      // Only settings that were saved in the dashboard apply without being named.
      const session = await open().catch(async (error: unknown) => {
        const own = isUnconfiguredPortal(error) ? await setup.portalSettings() : undefined;
        if (own === undefined) throw error;
        return open(own);
      });
      return { url: requirePage(session).url };
    },

    /** Null if the provider has no such subscription. `asOf`: the provider's time up to which it is complete. */
    async subscription(id: string): Promise<{ object: Json; asOf: number } | null> {
      const found = await call(
        (stripe) =>
          stripe.subscriptions.retrieve(id, undefined, { maxNetworkRetries: 0 }).catch(nullIfMissing),
        lookup,
      );
      if (!found) return null;
      const object = requireSubscription(requireId(found, id));
      return { object: await withAllItems(call, object, lookup), asOf: completeUntil(found) };
    },

    /** A subscription with its schedule, its discounts and its newest invoice. Null if the provider has no such subscription. */
    async expandedSubscription(id: string): Promise<Json | null> {
      const found = await call(
        (stripe) =>
          stripe.subscriptions
            .retrieve(id, { expand: SUBSCRIPTION_DETAILS }, { maxNetworkRetries: 0 })
            .catch(nullIfMissing),
        lookup,
      );
      return found && withAllItems(call, requireSubscription(requireId(found, id)), lookup);
    },

    /** The card that pays a subscription; null if none does. */
    cardOf: (subscriptionId: string) => cardOf(call, subscriptionId, lookup),

    /** A schedule of a subscription. Null if the provider has none. */
    async schedule(id: string): Promise<Json | null> {
      const found = await call(
        (stripe) => stripe.subscriptionSchedules.retrieve(id).catch(nullIfMissing),
        lookup,
      );
      return found && asObject(requireId(found, id));
    },

    /** The active promotion code that users enter as `code`; null if there is none. */
    async promotionCode(code: string): Promise<Json | null> {
      const found = await call(
        (stripe) => stripe.promotionCodes.list({ code, active: true, limit: 1 }),
        lookup,
      );
      const [first] = requireList(found).data;
      return first === undefined ? null : asObject(first);
    },

    /** Whether a customer has a payment method for invoices. */
    async hasPaymentMethod(customerId: string): Promise<boolean> {
      const found = await call((stripe) => stripe.customers.retrieve(customerId), lookup);
      const { default_source, invoice_settings } = asObject(requireId(found, customerId));
      return idOf(asObject(invoice_settings)['default_payment_method'] ?? default_source) !== undefined;
    },

    /** A preview of the next invoice of a subscription; null if there will be none. */
    async upcomingInvoice(subscription: string): Promise<Json | null> {
      const found = await call(
        (stripe) =>
          stripe.invoices
            .createPreview({ subscription }, { maxNetworkRetries: 0 })
            .catch(nullIfNothingToInvoice),
        lookup,
      );
      return found && asObject(found);
    },

    /** Null if the provider has no such price. */
    async price(id: string): Promise<Json | null> {
      const found = await call(
        (stripe) => stripe.prices.retrieve(id, { expand: ['currency_options'] }).catch(nullIfMissing),
        lookup,
      );
      return found && asObject(requireId(found, id));
    },

    /**
     * Every change states the result and not the difference, so that a repeated one has no further effect. `asOf`: the
     * provider's time of the response.
     * @throws PAYMENT_DECLINED, PRICE_NOT_ALLOWED, CURRENCY_MISMATCH, SUBSCRIPTION_NOT_CHANGEABLE
     */
    changeSubscription: (id: string, change: SubscriptionChange) =>
      changeSubscription(call, id, change, timeouts.callMs),
    /** The invoice that a change would cause now. @throws the same */
    previewChange: (id: string, item: ItemChange, proration: Proration) =>
      previewChange(call, id, item, proration),
    /** Does not throw: the outcome decides whether the event may be sent again. */
    createMeterEvent: (event: MeterEvent) => createMeterEvent(call, event),

    /** Every subscription of a customer, ended ones included. */
    async subscriptionsOf(customer: string): Promise<{ objects: Json[]; asOf: number }> {
      const pages = await call((stripe) =>
        fetchAllPages((after) =>
          stripe.subscriptions.list({ customer, status: 'all', limit: PAGE_SIZE, ...after }),
        ),
      );
      const objects: Json[] = [];
      for (const found of pages.flatMap(({ data }) => data))
        objects.push(await withAllItems(call, requireSubscription(found)));
      return { objects, asOf: completeUntil(pages[0]) };
    },

    /** What a charge belongs to, and what is refunded of it. Null if the provider has no such charge. */
    async charge(id: string): Promise<{
      customerId?: string;
      paymentIntentId?: string;
      invoiceId?: string;
      refundedAmount?: number;
    } | null> {
      const options = { maxNetworkRetries: 0 };
      const found = await call(
        (stripe) => stripe.charges.retrieve(id, undefined, options).catch(nullIfMissing),
        lookup,
      );
      if (!found) return null;
      const { customer, payment_intent: intent, amount_refunded } = asObject(requireId(found, id));
      const [customerId, payment_intent] = [idOf(customer), idOf(intent)];
      const refundedAmount = asInteger(amount_refunded);
      const known = {
        ...(customerId !== undefined && { customerId }),
        ...(refundedAmount !== undefined && { refundedAmount }),
      };
      if (payment_intent === undefined) return known;
      const payment = { type: 'payment_intent' as const, payment_intent };
      const list = await call(
        (stripe) => stripe.invoicePayments.list({ payment, limit: 1 }, options),
        lookup,
      );
      const invoiceId = idOf(asObject(requireList(list).data[0])['invoice']);
      return { ...known, paymentIntentId: payment_intent, ...(invoiceId !== undefined && { invoiceId }) };
    },

    /** Cancels every subscription at once, and expires the checkout sessions that could still start one. */
    cancelSubscriptions: (customer: string) => call((stripe) => cancelAll(stripe, customer)),

    /** The newest 100. */
    async invoicesOf(customer: string): Promise<Json[]> {
      const newest = await call((stripe) => stripe.invoices.list({ customer, limit: PAGE_SIZE }));
      return requireList(newest).data.map(asObject);
    },

    /** The active prices, each with its product and its other currencies. */
    async prices(): Promise<Json[]> {
      const pages = await call((stripe) =>
        fetchAllPages((after) =>
          stripe.prices.list({ active: true, limit: PAGE_SIZE, expand: PRICE_DETAILS, ...after }),
        ),
      );
      return pages.flatMap(({ data }) => data.map(asObject));
    },

    /** The active prices with these lookup keys. */
    async pricesOfKeys(keys: readonly string[]): Promise<Json[]> {
      const found: Json[] = [];
      for (let at = 0; at < keys.length; at += MAX_LOOKUP_KEYS) {
        const lookup_keys = keys.slice(at, at + MAX_LOOKUP_KEYS);
        const list = await call((stripe) =>
          stripe.prices.list({ lookup_keys, active: true, expand: ['data.product'] }),
        );
        found.push(...requireList(list).data.map(asObject));
      }
      return found;
    },

    /** Null if the provider has no such event, or no longer. */
    async event(id: string): Promise<Json | null> {
      const found = await call((stripe) => stripe.events.retrieve(id).catch(nullIfMissing));
      return found && asObject(requireId(found, id));
    },

    /** The provider's events between two times in milliseconds, in pages, the newest of some types first. It keeps them for 30 days. */
    async *eventPages({ from, to }: { from: number; to?: number }, types: readonly string[]) {
      const created = {
        gte: Math.floor(from / 1000),
        ...(to !== undefined && { lte: Math.floor(to / 1000) }),
      };
      for (let first = 0; first < types.length; first += MAX_EVENT_TYPES) {
        const listed = types.slice(first, first + MAX_EVENT_TYPES);
        // The list may be long and no request waits for all of it, so each page has its own timeout.
        const pages = eachPage((after) =>
          call((stripe) => stripe.events.list({ created, types: listed, limit: PAGE_SIZE, ...after })),
        );
        for await (const { data } of pages) yield data.map(asObject);
      }
    },
  };
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
