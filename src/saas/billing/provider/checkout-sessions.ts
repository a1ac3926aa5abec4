import type Stripe from 'stripe';
import { defined } from '../../../core/kernel/fields.js';
import { referenceTo } from '../owners.js';
import type { CheckoutOrder } from '../schemas.js';
import { nullIfMissing, type ProviderCall, retryIdempotently } from './client.js';
import { asObject, asText, asTime, type Json } from './json.js';
import { fetchAll, malformed, PAGE_SIZE, retrieve } from './responses.js';

/** The provider's payment pages. A session is open until it is paid, expired by a request or 24 hours old. */
export type CheckoutSessions = ReturnType<typeof createCheckoutSessions>;

export interface OpenSession extends PaymentPage {
  id: string;
  /** Unix time in milliseconds; absent if the provider did not send it. */
  expiresAt?: number;
}

/** Where the user pays. */
export interface PaymentPage {
  /** Empty for a page that is embedded. */
  url: string;
  /** With which the browser embeds the page. */
  clientSecret?: string;
}

/** The parameters of a session, in the names of the provider. */
export type CheckoutParameters = Stripe.Checkout.SessionCreateParams;

export interface Checkout extends CheckoutPageOptions {
  customerId: string;
  ownerId: string;
  mode: 'subscription' | 'payment' | 'setup';
  /** Absent for `setup`. Metered prices have no quantity. */
  item?: { price: string; quantity?: number };
  /** For `setup`, the currency of later payments. */
  currency?: string;
  successUrl: string;
  cancelUrl: string;
  /** The parameters that the operator's code has made of those of the order. */
  edited?: CheckoutParameters;
  /** Whether the user is sent to the provider's page, whatever the edited parameters say. */
  isHosted?: boolean;
}

/** What the payment page offers and asks for. */
export type CheckoutPageOptions = Omit<CheckoutOrder, 'priceId' | 'mode' | 'quantity'>;

export function createCheckoutSessions(call: ProviderCall) {
  return {
    /**
     * Opens a session. The same key returns the same session.
     * @throws PRICE_NOT_ALLOWED if the price does not exist at the provider or cannot be purchased in this way,
     *   CURRENCY_MISMATCH, PROMOTION_NOT_VALID, TAX_NOT_CONFIGURED, TAX_LOCATION_INVALID
     */
    async createCheckout(checkout: Checkout, key: string): Promise<OpenSession> {
      const params = checkoutParameters(checkout);
      const session = await call((stripe) =>
        retryIdempotently(key, (idempotencyKey) =>
          stripe.checkout.sessions.create(params, { idempotencyKey }),
        ),
      );
      const id = asText(session.id);
      const page = pageOf(asObject(session));
      if (id === undefined || !page) throw malformed('A checkout session without an ID or a page.');
      return defined({ id, ...page, expiresAt: asTime(session.expires_at) });
    },

    /** With the customer expanded. Null if the provider has no such session. */
    checkoutSession: (id: string) =>
      retrieve(call, id, ({ checkout }) => checkout.sessions.retrieve(id, { expand: ['customer'] })),

    /** What a session sells, with the prices. Null if the provider has no such session. */
    lineItems: (id: string): Promise<Json[] | null> =>
      call(({ checkout }) =>
        fetchAll((after) => checkout.sessions.listLineItems(id, { limit: PAGE_SIZE, ...after })).catch(
          nullIfMissing,
        ),
      ),

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

/** Where an open session is paid; null if it has ended. */
export function pageOf(session: Json): PaymentPage | null {
  const [url, clientSecret] = [session['url'], session['client_secret']].map((value) =>
    typeof value === 'string' && value !== '' ? value : undefined,
  );
  if (url === undefined && clientSecret === undefined) return null;
  return defined({ url: url ?? '', clientSecret });
}

export const checkoutParameters = (checkout: Checkout): CheckoutParameters =>
  checkout.edited
    ? withOwn(checkout.edited, sessionParams(checkout), checkout.isHosted === true)
    : sessionParams(checkout);

/** What the operator's code may not change: whose session it is, what it sells, who has a trial, and to where the user returns. */
function withOwn(edited: CheckoutParameters, own: CheckoutParameters, isHosted: boolean): CheckoutParameters {
  const { ui_mode, customer_email, success_url, cancel_url, return_url, ...others } = edited;
  const [item] = own.line_items ?? [];
  const isOwn = ({ price }: Stripe.Checkout.SessionCreateParams.LineItem) => price === item?.price;
  const lines = edited.line_items ?? [];
  const { trial_period_days, trial_end, ...subscription } = edited.subscription_data ?? {};
  const params: CheckoutParameters = {
    ...others,
    customer: own.customer as string,
    client_reference_id: own.client_reference_id as string,
    mode: own.mode as Stripe.Checkout.SessionCreateParams.Mode,
    metadata: ownMetadata(edited, own),
    ...(item && {
      line_items: [{ ...lines.find(isOwn), ...item }, ...lines.filter((line) => !isOwn(line))],
    }),
    ...(own.subscription_data && {
      subscription_data: {
        ...subscription,
        ...own.subscription_data,
        metadata: ownMetadata(subscription, own.subscription_data),
      },
    }),
  };
  const isEmbedded = !isHosted && ui_mode !== undefined && ui_mode !== 'hosted_page';
  const [returned, left] = [own.success_url as string, own.cancel_url as string];
  if (!isEmbedded) return { ...params, success_url: returned, cancel_url: left };
  const returns = edited.redirect_on_completion !== 'never';
  return { ...params, ui_mode, ...(returns && { return_url: returned }) };
}

interface WithMetadata {
  metadata?: unknown;
}

/** Names the owner, and no other one. */
function ownMetadata(edited: WithMetadata, own: WithMetadata): Stripe.MetadataParam {
  const { userId, organizationId, ...others } = asObject(edited.metadata);
  return { ...others, ...asObject(own.metadata) } as Stripe.MetadataParam;
}

/** Assigned one by one, because TypeScript does not check the names of parameters in a spread. */
export function sessionParams(checkout: Checkout): CheckoutParameters {
  const { customerId, ownerId, mode, item, currency, billingAddress, locale } = checkout;
  const params: CheckoutParameters = {
    customer: customerId,
    client_reference_id: ownerId,
    metadata: { ...referenceTo(ownerId) },
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
  // Without it, the address remains in the session, and no later invoice has it.
  if (billingAddress !== undefined) params.customer_update = { address: 'auto' };
  if (mode === 'payment' && checkout.invoice) params.invoice_creation = { enabled: true };
  setDiscounts(params, checkout);
  setTaxes(params, checkout);
  if (mode === 'subscription') {
    params.subscription_data = { metadata: { ...referenceTo(ownerId) } };
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
