import { pagesOf } from '../../core/storage/pages.js';
import type { Trials } from './checkout/trials.js';
import type { BillingContext } from './context.js';
import type { CustomerLinks } from './customers/customers.js';
import { billingErrors, isCustomerMissing } from './errors.js';
import type { Quotas } from './quotas/service.js';
import { listSubscriptions } from './store.js';

/** Deletes the billing data of a deleted account. Invoices and customers remain at the provider. */
export type BillingDeletion = ReturnType<typeof createBillingDeletion>;

export function createBillingDeletion(
  context: BillingContext,
  { links, quotas, trials }: { links: CustomerLinks; quotas: Quotas; trials: Trials },
) {
  const { customers, checkouts, duplicates, gateway } = context;
  const { subscriptions, payments, purchases, usage, paymentEvents } = context;

  const deleteEvents = async (ids: readonly (string | undefined)[]): Promise<void> => {
    const about = ids.filter((id) => id !== undefined);
    if (about.length > 0) await paymentEvents.deleteMany({ about: { in: about } });
  };

  /** Deletes what is stored about a user. Once the deletion of the account has begun, nothing is inserted any more. */
  const deleteBillingData = async (ownerId: string): Promise<void> => {
    const customerIds = await links.list(ownerId);
    const all = await listSubscriptions(subscriptions, ownerId);
    // The bodies of events contain personal data as well. Later events are unmatched.
    await deleteEvents([...customerIds, ...all.flatMap(({ customerId, id }) => [customerId, id])]);
    // Disputes refer to a payment only.
    for await (const page of pagesOf(payments, { where: { ownerId }, sort: 'at' }))
      await deleteEvents(
        page.flatMap(({ id, paymentIntentId, chargeId }) => [id, paymentIntentId, chargeId]),
      );
    await subscriptions.deleteMany({ ownerId });
    await payments.deleteMany({ ownerId });
    await usage.deleteMany({ ownerId });
    await purchases.deleteMany({ ownerId });
    await quotas.deleteAll(ownerId);
    await checkouts.deleteMany({ ownerId });
    await duplicates.deleteOne({ id: ownerId });
    await trials.forget(ownerId);
    await customers.deleteMany({ ownerId });
  };

  /** The user's customer, and others that were created at the provider by hand. */
  const customersOf = async (ownerId: string): Promise<Set<string>> => {
    const all = await listSubscriptions(subscriptions, ownerId);
    return new Set([...(await links.list(ownerId)), ...all.flatMap(({ customerId }) => customerId ?? [])]);
  };

  return {
    deleteBillingData,

    /**
     * Cancels every subscription at the provider, so that the user is not charged again. Does nothing without a customer
     * or an API key.
     * @throws PAYMENT_PROVIDER_ERROR
     */
    async cancelSubscriptions(ownerId: string) {
      for (const customerId of gateway ? await customersOf(ownerId) : []) {
        await gateway?.cancelSubscriptions(customerId).catch((cause: unknown) => {
          if (isCustomerMissing(cause)) return;
          throw billingErrors.PAYMENT_PROVIDER_ERROR({ message: NOT_CANCELLED, cause });
        });
      }
      // After the open sessions have ended, because until then one of them may be paid.
      await trials.settle(ownerId);
    },
  };
}

const NOT_CANCELLED =
  'The payment provider did not respond as expected. The account is closed and will be deleted when the subscription has been cancelled.';
