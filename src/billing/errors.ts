import { AppError, defineErrors } from '../kernel/errors.js';

export const billingErrors = defineErrors({
  INVALID_SIGNATURE: [400, 'The webhook signature is missing, invalid or too old.'],
  FEATURE_NOT_INCLUDED: [403, 'Your plan does not include this feature.'],
  CUSTOMER_NOT_FOUND: [404, 'There is no billing account yet: nothing has been purchased.'],
  ALREADY_SUBSCRIBED: [409, 'You already have this subscription. Change it instead.'],
  EVENT_IN_PROGRESS: [409, 'The same event is being processed. Deliver it again later.'],
  PRICE_NOT_ALLOWED: [422, 'This price is not available for purchase.'],
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
