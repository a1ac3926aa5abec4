import { defineErrors } from '../kernel/errors.js';

export const billingErrors = defineErrors({
  CUSTOMER_NOT_FOUND: [404, 'There is nothing to manage yet: you have not bought anything.'],
  PRICE_NOT_ALLOWED: [422, 'This price is not for sale.'],
  PAYMENT_PROVIDER_ERROR: [502, 'The payment provider did not answer as expected. Try again later.'],
  BILLING_NOT_CONFIGURED: [503, 'Billing is not configured.'],
});
