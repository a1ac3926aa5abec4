import type Stripe from 'stripe';
import { billingErrors } from './errors.js';

/** The payment provider: the only file that knows its SDK, which is loaded at the first use. */
export interface Gateway {
  /** Makes a customer. The same key makes the same one. @throws PAYMENT_PROVIDER_ERROR */
  createCustomer(
    customer: { email: string; userId: string },
    idempotencyKey: string,
  ): Promise<{ id: string }>;
  /** @throws PRICE_NOT_ALLOWED when the provider does not know the price, PAYMENT_PROVIDER_ERROR */
  createCheckout(checkout: Checkout): Promise<{ id: string; url: string }>;
  /** @throws PAYMENT_PROVIDER_ERROR */
  createPortal(portal: { customerId: string; returnUrl: string }): Promise<{ url: string }>;
  /** Cancels at once what the customer has subscribed to, and what could still become a subscription. @throws PAYMENT_PROVIDER_ERROR */
  cancelSubscriptions(customerId: string): Promise<void>;
}

export interface Checkout {
  customerId: string;
  userId: string;
  mode: 'subscription' | 'payment' | 'setup';
  /** Absent for `setup`. */
  price?: { id: string; quantity: number };
  successUrl: string;
  cancelUrl: string;
}

/** One attempt and one retry end within ten seconds; the SDK's own defaults would take minutes. */
const ATTEMPT_TIMEOUT = 4_500;

/** @param apiUrl another address for the provider's API */
export function createGateway(secretKey: string, apiUrl: string | undefined): Gateway {
  let loading: Promise<Stripe> | undefined;
  const load = async (): Promise<Stripe> => {
    const { default: StripeSdk } = await import('stripe');
    return new StripeSdk(secretKey, {
      timeout: ATTEMPT_TIMEOUT,
      maxNetworkRetries: 1,
      telemetry: false,
      ...(apiUrl !== undefined && addressOf(apiUrl)),
    });
  };
  const call = async <T>(work: (stripe: Stripe) => Promise<T>): Promise<T> => {
    loading ??= load();
    const stripe = await loading;
    return work(stripe).catch(translate);
  };

  return {
    createCustomer: ({ email, userId }, idempotencyKey) =>
      call((stripe) => stripe.customers.create({ email, metadata: { userId } }, { idempotencyKey })),

    async createCheckout({ customerId, userId, mode, price, successUrl, cancelUrl }) {
      const { id, url } = await call((stripe) =>
        stripe.checkout.sessions.create({
          customer: customerId,
          client_reference_id: userId,
          metadata: { userId },
          mode,
          success_url: successUrl,
          cancel_url: cancelUrl,
          ...(price && { line_items: [{ price: price.id, quantity: price.quantity }] }),
          ...(mode === 'subscription' && { subscription_data: { metadata: { userId } } }),
          ...(mode === 'setup' && { payment_method_types: ['card'] }),
        }),
      );
      if (!url)
        throw billingErrors.PAYMENT_PROVIDER_ERROR({
          cause: new Error('A checkout session without an address.'),
        });
      return { id, url };
    },

    createPortal: ({ customerId, returnUrl }) =>
      call((stripe) => stripe.billingPortal.sessions.create({ customer: customerId, return_url: returnUrl })),

    cancelSubscriptions: (customer) =>
      call(async (stripe) => {
        for await (const { id } of stripe.checkout.sessions.list({ customer, status: 'open', limit: 100 })) {
          await stripe.checkout.sessions.expire(id);
        }
        // Without a status the provider lists all that have not ended.
        for await (const { id } of stripe.subscriptions.list({ customer, limit: 100 })) {
          await stripe.subscriptions.cancel(id);
        }
      }),
  };
}

function addressOf(apiUrl: string): { host: string; port: string; protocol: 'http' | 'https' } {
  const { hostname, port, protocol } = new URL(apiUrl);
  const scheme = protocol === 'http:' ? 'http' : 'https';
  return { host: hostname, port: port || (scheme === 'http' ? '80' : '443'), protocol: scheme };
}

/** What went wrong there, in our words. The provider's own may hold parts of the key, so only its codes are logged. */
function translate(error: Stripe.errors.StripeError): never {
  const { type = error.name, code, statusCode, requestId, param } = error;
  const cause = new Error(
    `Payment provider: ${[type, code, statusCode, requestId].filter(Boolean).join(' ')}`,
  );
  const isUnknownPrice = code === 'resource_missing' && param?.includes('price') === true;
  throw isUnknownPrice
    ? billingErrors.PRICE_NOT_ALLOWED({ cause })
    : billingErrors.PAYMENT_PROVIDER_ERROR({ cause });
}
