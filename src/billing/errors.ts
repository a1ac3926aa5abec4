import { AppError, defineErrors } from '../kernel/errors.js';

export const billingErrors = defineErrors({
  INVALID_SIGNATURE: [400, 'The webhook signature is missing, invalid or too old.'],
  CUSTOMER_NOT_FOUND: [404, 'There is no billing account yet: nothing has been purchased.'],
  ALREADY_SUBSCRIBED: [409, 'You already have this subscription. Change it instead.'],
  EVENT_IN_PROGRESS: [409, 'The same event is being processed. Deliver it again later.'],
  PRICE_NOT_ALLOWED: [422, 'This price is not available for purchase.'],
  PAYMENT_PROVIDER_ERROR: [502, 'The payment provider did not respond as expected. Try again later.'],
  BILLING_NOT_CONFIGURED: [503, 'Billing is not configured.'],
});

/** Whether the provider does not sell a price like this. */
export function isNotSold(error: unknown): boolean {
  return error instanceof AppError && error.code === 'PRICE_NOT_ALLOWED';
}

/** Whether the provider could not be asked, or not about this. */
export function isUnanswered(error: unknown): boolean {
  return error instanceof AppError && error.code === 'PAYMENT_PROVIDER_ERROR';
}

/** Whether it is about a customer whom the provider knows no more. */
export function isGone(error: unknown): boolean {
  return error instanceof AppError && error.code === 'CUSTOMER_NOT_FOUND';
}

/** The provider answered, and has no subscription of this id. */
class UnknownSubscription extends Error {
  override readonly name = 'UnknownSubscription';
}

export const unknownSubscription = () =>
  billingErrors.PAYMENT_PROVIDER_ERROR({
    cause: new UnknownSubscription('The provider has no such subscription.'),
  });

/** Whether the provider answered that it has no such subscription. */
export function isUnknownSubscription(error: unknown): boolean {
  return isUnanswered(error) && (error as Error).cause instanceof UnknownSubscription;
}
