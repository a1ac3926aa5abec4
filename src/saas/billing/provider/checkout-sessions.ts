import type Stripe from 'stripe';
import { nullIfMissing, type ProviderCall, retryIdempotently } from './client.js';
import { asObject, asText, asTime, type Json } from './json.js';
import { fetchAllPages, malformed, PAGE_SIZE, requireId, requirePage } from './responses.js';

/** The provider's payment pages. A session is open until it is paid, expired by a request or 24 hours old. */
export type CheckoutSessions = ReturnType<typeof createCheckoutSessions>;

export interface OpenSession {
  id: string;
  url: string;
  /** Unix time in milliseconds; absent if the provider did not send it. */
  expiresAt?: number;
}

export interface Checkout extends CheckoutPageOptions {
  customerId: string;
  userId: string;
  mode: 'subscription' | 'payment' | 'setup';
  /** Absent for `setup`. Metered prices have no quantity. */
  item?: { price: string; quantity?: number };
  /** For `setup`, the currency of later payments. */
  currency?: string;
  successUrl: string;
  cancelUrl: string;
}

/** What the payment page offers and asks for. */
export interface CheckoutPageOptions {
  /** Days without a charge at the start of a subscription. */
  trialDays?: number;
  /** Whether users can enter promotion codes. */
  promotionCodes?: boolean;
  /** The ID of a coupon that is applied, instead of codes that users enter. */
  coupon?: string;
  /** The ID of a promotion code that is applied, instead of codes that users enter. */
  promotionCode?: string;
  /** Whether the provider calculates the tax. */
  automaticTax?: boolean;
  /** Whether users can enter the tax ID of a business. */
  taxIds?: boolean;
  billingAddress?: 'auto' | 'required';
  /** Language of the page as an IETF tag. Default: that of the browser. */
  locale?: string;
}

export function createCheckoutSessions(call: ProviderCall) {
  return {
    /**
     * Opens a session. The same key returns the same session.
     * @throws PRICE_NOT_ALLOWED if the price does not exist at the provider or cannot be purchased in this way,
     *   CURRENCY_MISMATCH, PROMOTION_NOT_VALID, TAX_NOT_CONFIGURED, TAX_LOCATION_INVALID
     */
    async createCheckout(checkout: Checkout, key: string): Promise<OpenSession> {
      const params = sessionParams(checkout);
      const session = await call((stripe) =>
        retryIdempotently(key, (idempotencyKey) =>
          stripe.checkout.sessions.create(params, { idempotencyKey }),
        ),
      );
      const expiresAt = asTime(session.expires_at);
      return { ...requirePage(session), ...(expiresAt !== undefined && { expiresAt }) };
    },

    /** With the customer expanded. Null if the provider has no such session. */
    async checkoutSession(id: string): Promise<Json | null> {
      const found = await call((stripe) =>
        stripe.checkout.sessions.retrieve(id, { expand: ['customer'] }).catch(nullIfMissing),
      );
      return found && asObject(requireId(found, id));
    },

    /** What a session sells, with the prices. Null if the provider has no such session. */
    async lineItems(id: string): Promise<Json[] | null> {
      const pages = await call((stripe) =>
        fetchAllPages((after) =>
          stripe.checkout.sessions.listLineItems(id, { limit: PAGE_SIZE, ...after }),
        ).catch(nullIfMissing),
      );
      return pages?.flatMap(({ data }) => data.map(asObject)) ?? null;
    },

    /** Ends an open session and returns it; a session that is not open is returned as it is. Null if there is none. */
    async expireCheckout(id: string): Promise<Json | null> {
      const found = await call((stripe) =>
        stripe.checkout.sessions.expire(id).catch((error: Stripe.errors.StripeError) => {
          if (error.type !== 'StripeInvalidRequestError') throw error;
          // It may have been paid or have expired in the meantime.
          return stripe.checkout.sessions.retrieve(id).catch(nullIfMissing);
        }),
      );
      if (found && asText(found.status) === undefined)
        throw malformed('A checkout session without a status.');
      return found && asObject(found);
    },
  };
}

/** Assigned one by one, because TypeScript does not check the names of parameters in a spread. */
function sessionParams(checkout: Checkout): Stripe.Checkout.SessionCreateParams {
  const { customerId, userId, mode, item, currency, billingAddress, locale } = checkout;
  const params: Stripe.Checkout.SessionCreateParams = {
    customer: customerId,
    client_reference_id: userId,
    metadata: { userId },
    mode,
    success_url: checkout.successUrl,
    cancel_url: checkout.cancelUrl,
  };
  if (item) params.line_items = [item];
  if (billingAddress !== undefined) params.billing_address_collection = billingAddress;
  if (locale !== undefined) params.locale = locale;
  if (mode === 'setup') {
    if (currency !== undefined) params.currency = currency;
    return params;
  }
  setDiscounts(params, checkout);
  setTaxes(params, checkout);
  if (mode === 'subscription') {
    params.subscription_data = { metadata: { userId } };
    if (checkout.trialDays !== undefined) params.subscription_data.trial_period_days = checkout.trialDays;
  }
  return params;
}

function setDiscounts(
  params: Stripe.Checkout.SessionCreateParams,
  { coupon, promotionCode, promotionCodes }: CheckoutPageOptions,
): void {
  // The provider rejects a session with both a discount and a field for codes.
  if (coupon !== undefined) params.discounts = [{ coupon }];
  else if (promotionCode !== undefined) params.discounts = [{ promotion_code: promotionCode }];
  else if (promotionCodes) params.allow_promotion_codes = true;
}

/** The provider requires that the customer is updated with what tax calculation and tax IDs need. */
function setTaxes(
  params: Stripe.Checkout.SessionCreateParams,
  { automaticTax, taxIds }: CheckoutPageOptions,
): void {
  if (!automaticTax && !taxIds) return;
  params.customer_update = { address: 'auto' };
  if (automaticTax) params.automatic_tax = { enabled: true };
  if (taxIds) {
    params.tax_id_collection = { enabled: true };
    params.customer_update.name = 'auto';
  }
}
