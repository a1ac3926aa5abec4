import { problemsOf } from '../../../core/config/options.js';
import { withQuery } from '../../../core/config/public-url.js';
import { isOrganizationId } from '../../../core/http/identity.js';
import { httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import { defined } from '../../../core/kernel/fields.js';
import type { BillingContext } from '../context.js';
import type { EnsureCustomer } from '../customers/customers.js';
import { billingErrors, isCustomerMissing, isProviderError } from '../errors.js';
import { type Holding, type Holdings, hasPrice, isRunning } from '../holdings.js';
import { type BillingOwner, ownerNotFound } from '../owners.js';
import type { Catalog } from '../plans/catalog.js';
import { type Checkout, type CheckoutPageOptions, sessionParams } from '../provider/checkout-sessions.js';
import { idOf } from '../provider/json.js';
import { CheckoutOrder } from '../schemas.js';
import type { Seats } from '../seats.js';
import type { SubscriptionDocument } from '../store.js';
import type { SubscriptionSync } from '../subscription/sync.js';
import {
  type CheckoutSubject,
  checkoutIdOf,
  checkoutReplaced,
  createOpenCheckouts,
  type OpenedCheckout,
} from './open-checkouts.js';
import type { Trials } from './trials.js';

/** Sends users to the provider's payment page. */
export type CheckoutService = ReturnType<typeof createCheckoutService>;

/** Who buys. */
export interface Buyer extends Pick<BillingOwner, 'id' | 'email'> {
  /** Of the person who orders for an organization: it is persons who have one trial. Default: `email`. */
  personEmail?: string;
}

export interface CheckoutDependencies {
  seats: Seats;
  ensureCustomer: EnsureCustomer;
  holdings: Holdings;
  catalog: Catalog;
  trials: Trials;
  sync: SubscriptionSync;
}

export function createCheckoutService(context: BillingContext, deps: CheckoutDependencies) {
  const { owners, plans, requireGateway, returnUrl, editCheckout } = context;
  const { seats, ensureCustomer, holdings, catalog, trials, sync } = deps;
  const openCheckouts = createOpenCheckouts(context);

  /** The state at the provider, or the stored one if the provider does not respond. */
  const refresh = async (stored: SubscriptionDocument): Promise<SubscriptionDocument> => {
    try {
      return (await sync.syncOne(stored.id, stored.ownerId)).after;
    } catch (error) {
      if (isProviderError(error)) return stored;
      throw error;
    }
  };

  /** A user has one subscription of a family at a time: a second one would charge the user twice. */
  const refuseSecond = async (ownerId: string, price: string): Promise<void> => {
    const family = plans.familyOfPrice(price);
    const excludes = (held: Holding) =>
      isRunning(held) && (held.families.includes(family ?? '') || hasPrice(held, price));
    for (const held of (await holdings.listBought(ownerId)).filter(excludes)) {
      // The event of its end may have been lost, for example if the customer was deleted at the provider.
      const { subscription } = held;
      if (subscription && excludes(holdings.ofSubscription(await refresh(subscription))))
        throw billingErrors.ALREADY_SUBSCRIBED();
    }
  };

  const subjectOf = (ownerId: string, mode: Checkout['mode'], price: string | undefined): CheckoutSubject => {
    if (price === undefined) return { ownerId, name: mode };
    if (mode === 'payment') return { ownerId, name: `${mode}:${price}` };
    return {
      ownerId,
      name: `${mode}:${plans.familyOfPrice(price)}`,
      async onPaid(session) {
        // The event of the subscription may not have arrived yet.
        const subscriptionId = idOf(session['subscription']);
        if (subscriptionId !== undefined) await sync.syncOne(subscriptionId, ownerId);
        await refuseSecond(ownerId, price);
      },
    };
  };

  /** A concurrent deletion may have expired the open sessions already, so a later one must not be returned. */
  const refuseIfClosed = async (ownerId: string): Promise<void> => {
    if ((await owners.find(ownerId))?.isOpen) return;
    throw isOrganizationId(ownerId) ? ownerNotFound(ownerId) : httpErrors.UNAUTHENTICATED();
  };

  /** The currency of the first price, in which users are likely to pay later. */
  const setupCurrency = async (): Promise<string> =>
    (await catalog.plans()).find(({ currency }) => currency !== null)?.currency ?? DEFAULT_CURRENCY;

  /** The quantity of an order within the bounds of its plan: the lowest one if none is given. */
  const quantityWithin = (price: string, quantity: number | undefined): number | undefined => {
    const { min = 1, max = Number.POSITIVE_INFINITY } = plans.checkoutOf(price).quantity ?? {};
    const wanted = quantity ?? min;
    if (wanted >= min && wanted <= max) return quantity ?? (min > 1 ? min : undefined);
    const bounds = max === Number.POSITIVE_INFINITY ? `${min} or more` : `from ${min} to ${max}`;
    throw invalidFields({ path: 'quantity', message: `must be ${bounds} for this price` });
  };

  /** The options of the page, with a trial only if the user may have one. */
  const pageOptions = async (
    { id, email, personEmail = email }: Buyer,
    { priceId, mode, quantity: _, ...given }: CheckoutOrder,
    checkoutId: string,
  ): Promise<CheckoutPageOptions> => {
    const { quantity: _bounds, ...ofPlan } = plans.checkoutOf(priceId ?? '');
    const { trialDays, ...options } = { ...ofPlan, ...given };
    if (trialDays === undefined || mode !== 'subscription') return options;
    return (await trials.claim({ id, email: personEmail }, checkoutId)) ? { ...options, trialDays } : options;
  };

  /**
   * Opens a checkout session at the provider, or returns the open one of the same order.
   * @param options.isHosted whether the user is sent to the provider's page, even if the hook would embed it
   * @throws VALIDATION_ERROR, BILLING_NOT_CONFIGURED, PRICE_NOT_ALLOWED, CURRENCY_MISMATCH, PROMOTION_NOT_VALID,
   *   TAX_NOT_CONFIGURED, TAX_LOCATION_INVALID, ALREADY_SUBSCRIBED, VERSION_CONFLICT, PAYMENT_PROVIDER_ERROR;
   *   UNAUTHENTICATED if the account was closed concurrently
   */
  const open = async (
    owner: Buyer,
    order: CheckoutOrder,
    { isHosted = false }: { isHosted?: boolean } = {},
  ): Promise<OpenedCheckout> => {
    const { mode = 'subscription' } = order;
    const priceId = order.priceId === undefined ? undefined : plans.priceIdOf(order.priceId);
    if (mode !== 'setup' && priceId === undefined)
      throw invalidFields({ path: 'priceId', message: 'is required' });
    const gateway = requireGateway();
    const price = mode === 'setup' ? undefined : priceId;
    if (price && !plans.isForSale(price)) throw billingErrors.PRICE_NOT_ALLOWED();
    const quantity =
      price === undefined
        ? undefined
        : quantityWithin(price, await seats.quantityOf(owner.id, price, order.quantity));
    if (price && mode === 'subscription') await refuseSecond(owner.id, price);
    const subject = subjectOf(owner.id, mode, price);
    const checkoutId = checkoutIdOf(subject);
    const options = await pageOptions(owner, { ...order, mode }, checkoutId);
    const page = returnUrl(owner.id);
    const checkout = {
      ...options,
      ownerId: owner.id,
      mode,
      ...(price && { item: defined({ price, quantity }) }),
      ...(mode === 'setup' && { currency: await setupCurrency() }),
      // Not encoded, because the provider replaces the placeholder.
      successUrl: withQuery(page, 'checkout=success&session_id={CHECKOUT_SESSION_ID}'),
      cancelUrl: withQuery(page, 'checkout=cancelled'),
    };
    const openFor = async (customerId: string) => {
      const complete: Checkout = { ...checkout, customerId };
      const edited = await editCheckout?.({
        parameters: sessionParams(complete),
        owner: { id: owner.id, email: owner.email },
        order: { ...order, mode },
      });
      return openCheckouts.open(subject, edited ? { ...complete, edited, isHosted } : complete);
    };
    try {
      const customerId = await ensureCustomer(owner, gateway);
      const opened = await openFor(customerId).catch(async (error: unknown) => {
        if (!isCustomerMissing(error)) throw error;
        return openFor(await ensureCustomer(owner, gateway, customerId)).catch((cause: unknown) => {
          throw isCustomerMissing(cause) ? billingErrors.PAYMENT_PROVIDER_ERROR({ cause }) : cause;
        });
      });
      const { email, personEmail = email } = owner;
      const keepsTrial = options.trialDays === undefined || (await trials.confirm(personEmail, checkoutId));
      if (keepsTrial) return opened;
      await gateway.expireCheckout(opened.sessionId);
      throw checkoutReplaced();
    } finally {
      await refuseIfClosed(owner.id);
    }
  };

  return {
    open,

    /**
     * The same for code of the operator, which may set the options of the page, too; they take precedence over those of the plan.
     * @throws NOT_FOUND if there is no such owner
     */
    async create(ownerId: string, order: CheckoutOrder): Promise<OpenedCheckout> {
      const problems = problemsOf(CheckoutOrder, order);
      if (problems.length > 0) throw invalidFields(...problems);
      const owner = await owners.find(ownerId);
      if (!owner) throw ownerNotFound(ownerId);
      return open(owner, order);
    },
  };
}

/** For payment methods that are saved while there is no price. */
const DEFAULT_CURRENCY = 'usd';
