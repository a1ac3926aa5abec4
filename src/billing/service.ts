import { withLeadingSlash, withQuery } from '../config/public-url.js';
import { toTimestamp, type User } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import { sha256 } from '../kernel/secrets.js';
import { nullIfTaken } from '../storage/collection.js';
import { mapPages, pagesOf } from '../storage/pages.js';
import { billingErrors, isGone, isNotSold, isUnanswered } from './errors.js';
import type { ForgetGone } from './forget.js';
import type { Checkout, Gateway } from './gateway.js';
import type { Plans } from './plans.js';
import type { Processor } from './process.js';
import type { Projector } from './project.js';
import type { Refresh } from './refresh.js';
import { returnPathProblem } from './schemas.js';
import { isTerminal } from './status.js';
import type { Customers, Payments, SubscriptionDocument } from './store.js';

export interface Billing {
  /**
   * Begins a purchase at the provider's hosted page.
   * @throws VALIDATION_ERROR, BILLING_NOT_CONFIGURED, PRICE_NOT_ALLOWED, ALREADY_SUBSCRIBED, PAYMENT_PROVIDER_ERROR;
   *   UNAUTHENTICATED where the account was closed meanwhile
   */
  checkout(user: User, order: Order): Promise<{ sessionId: string; url: string }>;
  /**
   * Opens the provider's page on which people manage what they bought.
   * @throws VALIDATION_ERROR, CUSTOMER_NOT_FOUND, PAYMENT_PROVIDER_ERROR, BILLING_NOT_CONFIGURED
   */
  portal(user: User, returnPath?: string): Promise<{ url: string }>;
  /**
   * Of a user who leaves: nothing is charged any more. Nothing happens where there is no customer or no key.
   * @throws PAYMENT_PROVIDER_ERROR
   */
  cancelSubscriptions(userId: string): Promise<void>;
  /** What is stored of a user; the customer is `null` before the first purchase. */
  recordsOf(userId: string): Promise<BillingRecords>;
}

export interface BillingRecords {
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

export interface BillingDependencies {
  customers: Customers;
  payments: Payments;
  projector: Projector;
  processor: Processor;
  plans: Plans;
  /** Whether the account is open: neither gone nor about to go. */
  isOpen(userId: string): Promise<boolean>;
  forgetGone: ForgetGone;
  /** Both absent while no key is configured. */
  gateway: Gateway | undefined;
  refresh: Refresh | undefined;
  publicUrl(): string;
  returnPath: string;
  clock: Clock;
}

export function createBilling(deps: BillingDependencies): Billing {
  const { customers, payments, projector, processor, plans, publicUrl, clock } = deps;
  const configured = (): Gateway => {
    if (!deps.gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
    return deps.gateway;
  };

  /**
   * The customer of a user, made at the first purchase; two first purchases at once make one.
   * @param gone whom the provider knows no more: another takes their place
   */
  const ensureCustomer = async ({ id, email }: User, gateway: Gateway, gone = ''): Promise<string> => {
    if (gone !== '') await customers.deleteOne({ id, customerId: gone });
    const known = await customers.findOne({ id });
    if (known) return known.customerId;
    // The address is part of the key: the provider refuses a key that comes again with other words.
    const key = `customer-${id}-${sha256(email + gone).slice(0, 16)}`;
    const { id: customerId } = await gateway.createCustomer({ email, userId: id }, key);
    const customer = { id, customerId, createdAt: clock.now() };
    const linked = await customers.insert(customer).then(() => customer, nullIfTaken);
    const kept = linked ?? (await customers.findOne({ id }));
    if (!kept)
      throw billingErrors.PAYMENT_PROVIDER_ERROR({ cause: new Error('A customer of somebody else.') });
    if (linked) await processor.replay(customerId);
    return kept.customerId;
  };

  /** The customer of a user, and others whom somebody at the provider has made for them. */
  const customersOf = async (userId: string): Promise<Set<string>> => {
    const known = [await customers.findOne({ id: userId }), ...(await projector.all(userId))];
    return new Set(known.flatMap((one) => one?.customerId ?? []));
  };

  /** Every payment, the newest first, as clients see them. */
  const paidBy = (userId: string): BillingRecords['payments'] =>
    mapPages(pagesOf(payments, { where: { userId }, sort: 'at', desc: true }), ({ at, ...told }) => ({
      ...told,
      at: toTimestamp(at),
    }));

  /** A subscription as the provider has it, or as it is stored where that does not say. */
  const lookAt = async (held: SubscriptionDocument): Promise<SubscriptionDocument> => {
    try {
      return (await deps.refresh?.one(held.id, held.userId))?.after ?? held;
    } catch (error) {
      if (isUnanswered(error)) return held;
      throw error;
    }
  };

  const refuseTwice = async (userId: string, priceId: string): Promise<void> => {
    const holds = ({ status, priceId: first, otherPriceIds = [] }: SubscriptionDocument) =>
      !isTerminal(status) && [first, ...otherPriceIds].includes(priceId);
    for (const held of (await projector.all(userId)).filter(holds)) {
      // Its end may never have been told, as where somebody has removed the customer. Only who would be refused waits.
      if (holds(await lookAt(held))) throw billingErrors.ALREADY_SUBSCRIBED();
    }
  };

  /** A quantity that nobody names is 1, unless the price is billed by use and has none, which only the provider knows. */
  const sell = async (gateway: Gateway, checkout: Checkout) => {
    const { item } = checkout;
    if (!item || item.quantity !== undefined) return gateway.createCheckout(checkout);
    return gateway.createCheckout({ ...checkout, item: { ...item, quantity: 1 } }).catch((error: unknown) => {
      if (isNotSold(error)) return gateway.createCheckout(checkout);
      throw error;
    });
  };

  return {
    async checkout(user, { priceId, mode, quantity }) {
      if (mode !== 'setup' && priceId === undefined) throw invalid('priceId', 'is required');
      const gateway = configured();
      const price = mode === 'setup' ? undefined : priceId;
      if (price && !plans.allows(price)) throw billingErrors.PRICE_NOT_ALLOWED();
      if (price && mode === 'subscription') await refuseTwice(user.id, price);
      const back = publicUrl() + withLeadingSlash(deps.returnPath);
      const sellTo = (customerId: string) =>
        sell(gateway, {
          customerId,
          userId: user.id,
          mode,
          ...(price && { item: { price, ...(quantity !== undefined && { quantity }) } }),
          // The provider fills the placeholder in, so it must not be encoded.
          successUrl: withQuery(back, 'checkout=success&session_id={CHECKOUT_SESSION_ID}'),
          cancelUrl: withQuery(back, 'checkout=cancelled'),
        });
      const customerId = await ensureCustomer(user, gateway);
      const { id, url } = await sellTo(customerId).catch(async (error: unknown) => {
        if (!isGone(error)) throw error;
        return sellTo(await ensureCustomer(user, gateway, customerId)).catch((cause: unknown) => {
          throw isGone(cause) ? billingErrors.PAYMENT_PROVIDER_ERROR({ cause }) : cause;
        });
      });
      // A deletion that began meanwhile may have looked before for what is to be ended: nobody learns where to pay.
      if (!(await deps.isOpen(user.id))) {
        await deps.forgetGone(user.id);
        throw httpErrors.UNAUTHENTICATED();
      }
      return { sessionId: id, url };
    },

    async portal(user, returnPath = deps.returnPath) {
      const problem = returnPathProblem(returnPath);
      if (problem) throw invalid('returnPath', problem);
      const gateway = configured();
      const customer = await customers.findOne({ id: user.id });
      if (!customer) throw billingErrors.CUSTOMER_NOT_FOUND();
      const returnUrl = publicUrl() + withLeadingSlash(returnPath);
      const { url } = await gateway.createPortal({ customerId: customer.customerId, returnUrl });
      return { url };
    },

    async cancelSubscriptions(userId) {
      const { gateway } = deps;
      if (!gateway) return;
      for (const customerId of await customersOf(userId)) {
        await gateway.cancelSubscriptions(customerId).catch((cause: unknown) => {
          if (isGone(cause)) return;
          throw billingErrors.PAYMENT_PROVIDER_ERROR({ message: NOT_CANCELLED, cause });
        });
      }
    },

    async recordsOf(userId) {
      const [customer, bought] = await Promise.all([
        customers.findOne({ id: userId }),
        projector.all(userId),
      ]);
      return {
        customer: customer && { customerId: customer.customerId, createdAt: toTimestamp(customer.createdAt) },
        subscriptions: bought.map(({ rev, lastEvent, ...told }) => withTimestamps(told)),
        payments: paidBy(userId),
      };
    },
  };
}

/** A subscription with its times as clients see them, without those that nobody knows. */
function withTimestamps(told: Partial<SubscriptionDocument>): Record<string, unknown> {
  const { quantity, ...rest } = told;
  const known = Object.entries(rest).filter(([, value]) => value !== 0);
  const shown = known.map(([name, value]) => [name, typeof value === 'number' ? toTimestamp(value) : value]);
  return { ...Object.fromEntries(shown), ...(quantity !== undefined && { quantity }) };
}

const NOT_CANCELLED =
  'The payment provider did not respond as expected. The account is closed and will be deleted when the subscription has been cancelled.';

const invalid = (path: string, message: string) =>
  httpErrors.VALIDATION_ERROR({ details: [{ path, message }] });
