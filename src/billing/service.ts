import { withLeadingSlash, withQuery } from '../config/public-url.js';
import { toTimestamp, type User } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { httpErrors, invalidFields } from '../kernel/errors.js';
import { sha256 } from '../kernel/secrets.js';
import { nullIfTaken } from '../storage/collection.js';
import { mapPages, pagesOf } from '../storage/pages.js';
import type { DeleteIfUserIsGone } from './account-deletion.js';
import { billingErrors, isCustomerMissing, isPriceNotAllowed, isProviderError } from './errors.js';
import type { EventProcessor } from './events/processor.js';
import { isTerminal } from './events/subscription-order.js';
import { returnPathProblem } from './options.js';
import type { Plans } from './plans.js';
import type { Checkout, Gateway } from './provider/gateway.js';
import {
  type BillingUsers,
  type Customers,
  listSubscriptions,
  type Payments,
  type SubscriptionDocument,
  type Subscriptions,
} from './store.js';
import type { SubscriptionSync } from './sync.js';

/** Buying, managing and exporting purchases. */
export interface BillingService {
  /**
   * Opens a checkout session at the provider.
   * @throws VALIDATION_ERROR, BILLING_NOT_CONFIGURED, PRICE_NOT_ALLOWED, ALREADY_SUBSCRIBED, PAYMENT_PROVIDER_ERROR;
   *   UNAUTHENTICATED if the account was closed concurrently
   */
  checkout(user: User, order: Order): Promise<{ sessionId: string; url: string }>;
  /**
   * Opens a session of the provider's customer portal.
   * @throws VALIDATION_ERROR, CUSTOMER_NOT_FOUND, PAYMENT_PROVIDER_ERROR, BILLING_NOT_CONFIGURED
   */
  portal(user: User, returnPath?: string): Promise<{ url: string }>;
  /** What is stored about a user, for export. */
  recordsOf(userId: string): Promise<BillingRecords>;
}

export interface BillingRecords {
  /** `null` before the first purchase. */
  customer: { customerId: string; createdAt: string } | null;
  subscriptions: Record<string, unknown>[];
  /** The newest first, a page at a time. */
  payments: AsyncIterable<Record<string, unknown>[]>;
}

export interface Order {
  priceId?: string;
  mode: Checkout['mode'];
  quantity?: number;
}

export interface BillingServiceDependencies {
  customers: Customers;
  subscriptions: Subscriptions;
  payments: Payments;
  users: Pick<BillingUsers, 'find'>;
  processor: Pick<EventProcessor, 'replayUnmatched'>;
  plans: Plans;
  deleteIfUserIsGone: DeleteIfUserIsGone;
  /** Both absent while no API key is configured. */
  gateway: Gateway | undefined;
  sync: SubscriptionSync | undefined;
  publicUrl(): string;
  returnPath: string;
  clock: Clock;
}

export function createBillingService(deps: BillingServiceDependencies): BillingService {
  const { customers, subscriptions, payments, processor, plans, publicUrl, clock } = deps;
  const configuredGateway = (): Gateway => {
    if (!deps.gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
    return deps.gateway;
  };

  /**
   * The customer of a user, created for the first purchase. Parallel first purchases create one customer.
   * @param missing a customer that the provider no longer has, to be replaced
   */
  const ensureCustomer = async ({ id, email }: User, gateway: Gateway, missing = ''): Promise<string> => {
    if (missing !== '') await customers.deleteOne({ id, customerId: missing });
    const existing = await customers.findOne({ id });
    if (existing) return existing.customerId;
    // The address is part of the key, because the provider rejects a repeated key with different parameters.
    const key = `customer-${id}-${sha256(email + missing).slice(0, 16)}`;
    const { id: customerId } = await gateway.createCustomer({ email, userId: id }, key);
    const customer = { id, customerId, createdAt: clock.now() };
    const inserted = await customers.insert(customer).then(() => customer, nullIfTaken);
    const stored = inserted ?? (await customers.findOne({ id }));
    if (!stored)
      throw billingErrors.PAYMENT_PROVIDER_ERROR({
        cause: new Error('The customer belongs to another user.'),
      });
    if (inserted) await processor.replayUnmatched(customerId);
    return stored.customerId;
  };

  const paymentsOf = (userId: string): BillingRecords['payments'] =>
    mapPages(pagesOf(payments, { where: { userId }, sort: 'at', desc: true }), ({ at, ...payment }) => ({
      ...payment,
      at: toTimestamp(at),
    }));

  /** The state at the provider, or the stored one if the provider does not respond. */
  const refresh = async (stored: SubscriptionDocument): Promise<SubscriptionDocument> => {
    try {
      return (await deps.sync?.syncOne(stored.id, stored.userId))?.after ?? stored;
    } catch (error) {
      if (isProviderError(error)) return stored;
      throw error;
    }
  };

  const refuseDuplicate = async (userId: string, priceId: string): Promise<void> => {
    const includesPrice = ({ status, priceId: first, otherPriceIds = [] }: SubscriptionDocument) =>
      !isTerminal(status) && [first, ...otherPriceIds].includes(priceId);
    for (const stored of (await listSubscriptions(subscriptions, userId)).filter(includesPrice)) {
      // The event of its end may have been lost, for example if the customer was deleted at the provider.
      if (includesPrice(await refresh(stored))) throw billingErrors.ALREADY_SUBSCRIBED();
    }
  };

  /** Without a given quantity, tries 1 and then none: only the provider knows whether the price is metered. */
  const createCheckout = async (gateway: Gateway, checkout: Checkout) => {
    const { item } = checkout;
    if (!item || item.quantity !== undefined) return gateway.createCheckout(checkout);
    return gateway.createCheckout({ ...checkout, item: { ...item, quantity: 1 } }).catch((error: unknown) => {
      if (isPriceNotAllowed(error)) return gateway.createCheckout(checkout);
      throw error;
    });
  };

  return {
    async checkout(user, { priceId, mode, quantity }) {
      if (mode !== 'setup' && priceId === undefined)
        throw invalidFields({ path: 'priceId', message: 'is required' });
      const gateway = configuredGateway();
      const price = mode === 'setup' ? undefined : priceId;
      if (price && !plans.isForSale(price)) throw billingErrors.PRICE_NOT_ALLOWED();
      if (price && mode === 'subscription') await refuseDuplicate(user.id, price);
      const returnUrl = publicUrl() + withLeadingSlash(deps.returnPath);
      const checkoutFor = (customerId: string) =>
        createCheckout(gateway, {
          customerId,
          userId: user.id,
          mode,
          ...(price && { item: { price, ...(quantity !== undefined && { quantity }) } }),
          // Not encoded, because the provider replaces the placeholder.
          successUrl: withQuery(returnUrl, 'checkout=success&session_id={CHECKOUT_SESSION_ID}'),
          cancelUrl: withQuery(returnUrl, 'checkout=cancelled'),
        });
      const customerId = await ensureCustomer(user, gateway);
      const { id, url } = await checkoutFor(customerId).catch(async (error: unknown) => {
        if (!isCustomerMissing(error)) throw error;
        return checkoutFor(await ensureCustomer(user, gateway, customerId)).catch((cause: unknown) => {
          throw isCustomerMissing(cause) ? billingErrors.PAYMENT_PROVIDER_ERROR({ cause }) : cause;
        });
      });
      // A concurrent deletion may have expired the open sessions already, so this one must not be returned.
      if (!(await deps.users.find(user.id))?.isOpen) {
        await deps.deleteIfUserIsGone(user.id);
        throw httpErrors.UNAUTHENTICATED();
      }
      return { sessionId: id, url };
    },

    async portal(user, returnPath = deps.returnPath) {
      const problem = returnPathProblem(returnPath);
      if (problem) throw invalidFields({ path: 'returnPath', message: problem });
      const gateway = configuredGateway();
      const customer = await customers.findOne({ id: user.id });
      if (!customer) throw billingErrors.CUSTOMER_NOT_FOUND();
      const returnUrl = publicUrl() + withLeadingSlash(returnPath);
      const { url } = await gateway.createPortal({ customerId: customer.customerId, returnUrl });
      return { url };
    },

    async recordsOf(userId) {
      const [customer, all] = await Promise.all([
        customers.findOne({ id: userId }),
        listSubscriptions(subscriptions, userId),
      ]);
      return {
        customer: customer && { customerId: customer.customerId, createdAt: toTimestamp(customer.createdAt) },
        subscriptions: all.map(({ rev, lastEvent, ...subscription }) => withTimestamps(subscription)),
        payments: paymentsOf(userId),
      };
    },
  };
}

/** A subscription with its times in ISO 8601, without unknown ones, which are 0. */
function withTimestamps(subscription: Partial<SubscriptionDocument>): Record<string, unknown> {
  const { quantity, ...rest } = subscription;
  const known = Object.entries(rest).filter(([, value]) => value !== 0);
  const shown = known.map(([name, value]) => [name, typeof value === 'number' ? toTimestamp(value) : value]);
  return { ...Object.fromEntries(shown), ...(quantity !== undefined && { quantity }) };
}
