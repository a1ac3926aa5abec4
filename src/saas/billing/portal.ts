import { invalidFields } from '../../core/kernel/errors.js';
import type { BillingContext } from './context.js';
import type { CustomerLinks } from './customers/customers.js';
import { billingErrors } from './errors.js';
import { returnPathProblem } from './options.js';

/**
 * Opens a session of the provider's customer portal.
 * @throws VALIDATION_ERROR, CUSTOMER_NOT_FOUND, PAYMENT_PROVIDER_ERROR, BILLING_NOT_CONFIGURED
 */
export type OpenPortal = ReturnType<typeof createOpenPortal>;

export function createOpenPortal({ gateway, returnUrl }: BillingContext, links: CustomerLinks) {
  return async (ownerId: string, returnPath?: string): Promise<{ url: string }> => {
    const problem = returnPath !== undefined && returnPathProblem(returnPath);
    if (problem) throw invalidFields({ path: 'returnPath', message: problem });
    if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
    const [customerId] = await links.list(ownerId);
    if (customerId === undefined) throw billingErrors.CUSTOMER_NOT_FOUND();
    return gateway.createPortal(customerId, returnUrl(ownerId, returnPath));
  };
}
