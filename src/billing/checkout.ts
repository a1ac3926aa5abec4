import { withLeadingSlash, withQuery } from '../config/public-url.js';
import type { User } from '../http/schemas.js';
import { httpErrors, invalidFields } from '../kernel/errors.js';
import type { DeleteIfUserIsGone } from './account-deletion.js';
import type { EnsureCustomer } from './customers.js';
import { billingErrors, isCustomerMissing, isPriceNotAllowed, isProviderError } from './errors.js';
import { isTerminal } from './events/subscription-order.js';
import type { Plans } from './plans.js';
import type { Checkout, Gateway } from './provider/gateway.js';
import {
  type BillingUsers,
  listSubscriptions,
  type SubscriptionDocument,
  type Subscriptions,
} from './store.js';
import type { SubscriptionSync } from './sync.js';

/** Sends users to the provider's payment page. */
export interface CheckoutService {
  /**
   * Opens a checkout session at the provider.
   * @throws VALIDATION_ERROR, BILLING_NOT_CONFIGURED, PRICE_NOT_ALLOWED, ALREADY_SUBSCRIBED, PAYMENT_PROVIDER_ERROR;
   *   UNAUTHENTICATED if the account was closed concurrently
   */
  open(user: User, order: Order): Promise<{ sessionId: string; url: string }>;
}

export interface Order {
  priceId?: string;
  mode: Checkout['mode'];
  quantity?: number;
}

export interface CheckoutDependencies {
  subscriptions: Subscriptions;
  users: Pick<BillingUsers, 'find'>;
  ensureCustomer: EnsureCustomer;
  plans: Plans;
  deleteIfUserIsGone: DeleteIfUserIsGone;
  /** Both absent while no API key is configured. */
  gateway: Gateway | undefined;
  sync: SubscriptionSync | undefined;
  publicUrl(): string;
  returnPath: string;
}

export function createCheckoutService(deps: CheckoutDependencies): CheckoutService {
  const { subscriptions, users, ensureCustomer, plans, publicUrl } = deps;

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
  const createSession = async (gateway: Gateway, checkout: Checkout) => {
    const { item } = checkout;
    if (!item || item.quantity !== undefined) return gateway.createCheckout(checkout);
    return gateway.createCheckout({ ...checkout, item: { ...item, quantity: 1 } }).catch((error: unknown) => {
      if (isPriceNotAllowed(error)) return gateway.createCheckout(checkout);
      throw error;
    });
  };

  return {
    async open(user, { priceId, mode, quantity }) {
      if (mode !== 'setup' && priceId === undefined)
        throw invalidFields({ path: 'priceId', message: 'is required' });
      const { gateway } = deps;
      if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
      const price = mode === 'setup' ? undefined : priceId;
      if (price && !plans.isForSale(price)) throw billingErrors.PRICE_NOT_ALLOWED();
      if (price && mode === 'subscription') await refuseDuplicate(user.id, price);
      const returnUrl = publicUrl() + withLeadingSlash(deps.returnPath);
      const checkoutFor = (customerId: string) =>
        createSession(gateway, {
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
      if (!(await users.find(user.id))?.isOpen) {
        await deps.deleteIfUserIsGone(user.id);
        throw httpErrors.UNAUTHENTICATED();
      }
      return { sessionId: id, url };
    },
  };
}
