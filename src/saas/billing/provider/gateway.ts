import type Stripe from 'stripe';
import { defined } from '../../../core/kernel/fields.js';
import { referenceTo } from '../owners.js';
import { isTerminal } from '../store.js';
import { createAccountSetup } from './account-setup.js';
import { cardOf } from './cards.js';
import { createCheckoutSessions } from './checkout-sessions.js';
import {
  createProviderCall,
  isUnconfiguredPortal,
  nullIfMissing,
  nullIfNothingToInvoice,
  rejectionIfFinal,
  retryIdempotently,
  TIMEOUTS,
} from './client.js';
import { asInteger, asObject, asText, idOf, type Json } from './json.js';
import { createMeterEvent, type MeterEvent } from './meter-events.js';
import { createProviderRefunds } from './refunds.js';
import {
  completeUntil,
  eachPage,
  fetchAll,
  malformed,
  PAGE_SIZE,
  requireId,
  requireList,
  requirePage,
  requireSubscription,
  retrieve,
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

const SUBSCRIPTION_DETAILS = ['schedule', 'discounts.source.coupon', 'latest_invoice'];

/** For lookups that requests and deliveries wait for. */
const ONCE = { maxNetworkRetries: 0 };

/** How many types of events the provider lists at a time. */
const MAX_EVENT_TYPES = 20;

/** A user rarely has more customers. */
const SEARCH_LIMIT = 10;

/** @param apiUrl another address for the provider's API */
export function createGateway(secretKey: string, apiUrl: string | undefined, timeouts = TIMEOUTS) {
  const call = createProviderCall(secretKey, apiUrl, timeouts);
  const lookup = { timeoutMs: timeouts.lookupMs };
  /** Null if the provider has no such object. */
  const find = (id: string, request: (stripe: Stripe) => Promise<object>) =>
    retrieve(call, id, request, lookup);
  const setup = createAccountSetup(call);

  const invoiceOf = async (payment_intent: string): Promise<string | undefined> => {
    const query = { payment: { type: 'payment_intent', payment_intent }, limit: 1 } as const;
    const list = await call(({ invoicePayments }) => invoicePayments.list(query, ONCE), lookup);
    return idOf(requireList(list)[0]?.['invoice']);
  };

  return {
    ...createCheckoutSessions(call),
    ...setup,

    /** Creates a customer. The same key returns the same customer. */
    async createCustomer(
      { email, name, ownerId }: { email: string; name: string; ownerId: string },
      idempotencyKey: string,
    ): Promise<{ id: string }> {
      const customer: Stripe.CustomerCreateParams = { email, metadata: { ...referenceTo(ownerId) } };
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

    /** The customers whose metadata names the owner. */
    async customersOf(ownerId: string): Promise<string[]> {
      const [[key, id] = []] = Object.entries(referenceTo(ownerId));
      const query = `metadata['${key}']:'${id?.replace(/['\\]/g, '\\$&')}'`;
      const found = await call((stripe) => stripe.customers.search({ query, limit: SEARCH_LIMIT }));
      return requireList(found).flatMap((customer) => idOf(customer) ?? []);
    },

    /** Every customer, in pages. */
    customerPages: () =>
      eachPage((after) => call(({ customers }) => customers.list({ limit: PAGE_SIZE, ...after }))),

    async createPortal(customer: string, return_url: string): Promise<{ url: string }> {
      const open = (configuration?: string) =>
        call(({ billingPortal }) =>
          billingPortal.sessions.create(defined({ customer, return_url, configuration })),
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
      const found = await find(id, ({ subscriptions }) => subscriptions.retrieve(id, undefined, ONCE));
      if (!found) return null;
      const object = await withAllItems(call, requireSubscription(found), lookup);
      return { object, asOf: completeUntil(found) };
    },

    /** A subscription with its schedule, its discounts and its newest invoice. Null if the provider has no such subscription. */
    async expandedSubscription(id: string): Promise<Json | null> {
      const found = await find(id, ({ subscriptions }) =>
        subscriptions.retrieve(id, { expand: SUBSCRIPTION_DETAILS }, ONCE),
      );
      return found && withAllItems(call, requireSubscription(found), lookup);
    },

    /** The card that pays a subscription; null if none does. */
    cardOf: (subscriptionId: string) => cardOf(call, subscriptionId, lookup),

    /** A schedule of a subscription. Null if the provider has none. */
    schedule: (id: string) => find(id, ({ subscriptionSchedules }) => subscriptionSchedules.retrieve(id)),

    /** The active promotion code that users enter as `code`; null if there is none. */
    async promotionCode(code: string): Promise<Json | null> {
      const found = await call(
        ({ promotionCodes }) => promotionCodes.list({ code, active: true, limit: 1 }),
        lookup,
      );
      return requireList(found)[0] ?? null;
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
        ({ invoices }) => invoices.createPreview({ subscription }, ONCE).catch(nullIfNothingToInvoice),
        lookup,
      );
      return found && asObject(found);
    },

    /** Null if the provider has no such price. */
    price: (id: string) => find(id, ({ prices }) => prices.retrieve(id, { expand: ['currency_options'] })),

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
      let asOf: number | undefined;
      const all = await call(({ subscriptions }) =>
        fetchAll(async (after) => {
          const page = await subscriptions.list({ customer, status: 'all', limit: PAGE_SIZE, ...after });
          asOf ??= completeUntil(page);
          return page;
        }),
      );
      const objects: Json[] = [];
      for (const found of all) objects.push(await withAllItems(call, requireSubscription(found)));
      return { objects, asOf: asOf ?? 0 };
    },

    ...createProviderRefunds(call),

    /** What a charge belongs to, and what is refunded of it. Null if the provider has no such charge. */
    async charge(id: string) {
      const found = await find(id, ({ charges }) => charges.retrieve(id, undefined, ONCE));
      if (!found) return null;
      const paymentIntentId = idOf(found['payment_intent']);
      return defined({
        customerId: idOf(found['customer']),
        paymentIntentId,
        invoiceId: paymentIntentId && (await invoiceOf(paymentIntentId)),
        refundedAmount: asInteger(found['amount_refunded']),
      });
    },

    /** Cancels every subscription at once, and expires the checkout sessions that could still start one. */
    cancelSubscriptions: (customer: string) => call((stripe) => cancelAll(stripe, customer)),

    /** The newest 100. */
    invoicesOf: async (customer: string): Promise<Json[]> =>
      requireList(await call(({ invoices }) => invoices.list({ customer, limit: PAGE_SIZE }))),

    /** The active prices, each with its product and its other currencies. */
    prices(): Promise<Json[]> {
      const query = { active: true, limit: PAGE_SIZE, expand: ['data.product', 'data.currency_options'] };
      return call(({ prices }) => fetchAll((after) => prices.list({ ...query, ...after })));
    },

    /** Null if the provider has no such event, or no longer. */
    event: (id: string) => retrieve(call, id, ({ events }) => events.retrieve(id)),

    /** The provider's events between two times in milliseconds, in pages, the newest of some types first. It keeps them for 30 days. */
    async *eventPages({ from, to }: { from: number; to?: number }, types: readonly string[]) {
      const created = {
        gte: Math.floor(from / 1000),
        ...(to !== undefined && { lte: Math.floor(to / 1000) }),
      };
      for (let first = 0; first < types.length; first += MAX_EVENT_TYPES) {
        const listed = types.slice(first, first + MAX_EVENT_TYPES);
        // The list may be long and no request waits for all of it, so each page has its own timeout.
        yield* eachPage((after) =>
          call(({ events }) => events.list({ created, types: listed, limit: PAGE_SIZE, ...after })),
        );
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
