import { AppError, defineErrors } from '../../core/kernel/errors.js';

export const billingErrors = defineErrors({
  INVALID_SIGNATURE: [400, 'The webhook signature is missing, invalid or too old.'],
  PAYMENT_DECLINED: [402, 'The payment was declined, so nothing was changed. Use another payment method.'],
  PAYMENT_METHOD_REQUIRED: [
    402,
    'The trial ended without a payment method. Add one in the customer portal, then resume the subscription.',
  ],
  FEATURE_NOT_INCLUDED: [403, 'Your plan does not include this feature.'],
  LIMIT_REACHED: [403, 'The limit of your plan is reached.'],
  CUSTOMER_NOT_FOUND: [404, 'There is no billing account yet: nothing has been purchased.'],
  SUBSCRIPTION_NOT_FOUND: [404, 'There is no such subscription. Start one at checkout.'],
  ALREADY_SUBSCRIBED: [
    409,
    'You already have a subscription. Change it with POST /billing/subscription/change instead of buying another one.',
  ],
  EVENT_IN_PROGRESS: [409, 'The same event is being processed. Deliver it again later.'],
  EVENT_ALREADY_MATCHED: [409, 'The event has a user already. Only unmatched events can be assigned.'],
  EVENT_BODY_UNAVAILABLE: [
    409,
    'The body of the event is no longer available: the provider keeps events for 30 days, and reading them needs PAYMENT_SECRET_KEY. Resync the user instead.',
  ],
  USAGE_KEY_REUSED: [409, 'Usage with this key was reported before, with another quantity. Use another key.'],
  REFUND_REFUSED: [
    409,
    'The payment provider refuses this refund. Look at the payment in its dashboard, which says why.',
  ],
  SUBSCRIPTION_NOT_CHANGEABLE: [409, 'The subscription cannot be changed in this way.'],
  CURRENCY_MISMATCH: [
    422,
    'This price is in another currency than your earlier purchases. Choose a price in the currency of those.',
  ],
  PRICE_NOT_ALLOWED: [422, 'This price is not available for purchase. Choose another one.'],
  PROMOTION_NOT_VALID: [
    422,
    'The coupon or promotion code has expired or does not apply to this purchase. Continue without it or use another one.',
  ],
  TAX_LOCATION_INVALID: [
    422,
    'The billing address is not sufficient to calculate the tax. Correct it in the customer portal and try again.',
  ],
  TAX_NOT_CONFIGURED: [
    422,
    'The tax cannot be calculated. The operator must complete the tax settings at the payment provider: the address of the head office, the registrations and the tax behavior of the price.',
  ],
  PAYMENT_PROVIDER_ERROR: [502, 'The payment provider did not respond as expected. Try again later.'],
  BILLING_NOT_CONFIGURED: [503, 'Billing is not configured.'],
});

const hasCode = (error: unknown, code: keyof typeof billingErrors): boolean =>
  error instanceof AppError && error.code === code;

/** Whether the provider does not sell the price in this way. */
export const isPriceNotAllowed = (error: unknown): boolean => hasCode(error, 'PRICE_NOT_ALLOWED');

/** Whether the provider could not be reached or rejected the request. */
export const isProviderError = (error: unknown): boolean => hasCode(error, 'PAYMENT_PROVIDER_ERROR');

/** Whether the provider has no such customer, for example because the customer was deleted there. */
export const isCustomerMissing = (error: unknown): boolean => hasCode(error, 'CUSTOMER_NOT_FOUND');

/** Whether the provider could not collect the payment that a change requires. */
export const isPaymentDeclined = (error: unknown): boolean => hasCode(error, 'PAYMENT_DECLINED');

class SubscriptionNotFound extends Error {
  override readonly name = 'SubscriptionNotFound';
}

/** A PAYMENT_PROVIDER_ERROR that `isSubscriptionMissing` recognises. */
export const subscriptionNotFound = () =>
  billingErrors.PAYMENT_PROVIDER_ERROR({
    cause: new SubscriptionNotFound('The provider has no such subscription.'),
  });

/** Whether the provider responded that the subscription does not exist. */
export const isSubscriptionMissing = (error: unknown): boolean =>
  isProviderError(error) && (error as Error).cause instanceof SubscriptionNotFound;
