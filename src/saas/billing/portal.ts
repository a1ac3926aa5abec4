import type { User } from '../../core/http/schemas.js';
import { invalidFields } from '../../core/kernel/errors.js';
import type { BillingContext } from './context.js';
import { billingErrors } from './errors.js';
import { returnPathProblem } from './options.js';

/**
 * Opens a session of the provider's customer portal.
 * @throws VALIDATION_ERROR, CUSTOMER_NOT_FOUND, PAYMENT_PROVIDER_ERROR, BILLING_NOT_CONFIGURED
 */
export type OpenPortal = ReturnType<typeof createOpenPortal>;

export function createOpenPortal({ customers, gateway, config, returnUrl }: BillingContext) {
  return async (user: User, returnPath = config.billingReturnUrlRelative): Promise<{ url: string }> => {
    const problem = returnPathProblem(returnPath);
    if (problem) throw invalidFields({ path: 'returnPath', message: problem });
    if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
    const customer = await customers.findOne({ id: user.id });
    if (!customer) throw billingErrors.CUSTOMER_NOT_FOUND();
    return gateway.createPortal({ customerId: customer.customerId, returnUrl: returnUrl(returnPath) });
  };
}
