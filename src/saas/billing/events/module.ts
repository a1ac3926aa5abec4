import type { BillingDeletion } from '../account-deletion.js';
import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import type { Projector } from '../entitlement.js';
import { createEnqueueMail } from '../notifications.js';
import type { SubscriptionWriter } from '../subscription/writer.js';
import { createChargeRecorder } from './charges.js';
import { createEventLeases } from './leases.js';
import { createEventLog } from './log.js';
import { createPaymentRecorder } from './payments.js';
import { createEventProcessor } from './processor.js';
import { createPurchaseRecorder } from './purchase-recorder.js';
import { createSubscriptionEvents } from './subscription-events.js';
import { createProcessChange } from './unleased-changes.js';
import { createWebhook } from './webhook.js';

/**
 * The processing of payment events, which the provider sends. `webhook` verifies one and `provider-objects` reads it. Then `unleased-changes`
 * applies it in one step if it is a newer change of a stored subscription, as most are; otherwise `leases` stores it, and `processor`
 * orders its effects: the subscription, the user's record, and what records an invoice (`payments`), charge or purchase.
 */
export function createPaymentEvents(
  context: BillingContext,
  deps: { links: CustomerLinks; deletion: BillingDeletion; projector: Projector; writer: SubscriptionWriter },
) {
  const { projector } = deps;
  const leases = createEventLeases(context.paymentEvents, context);
  const recorder = createPaymentRecorder(context, projector);
  const charges = createChargeRecorder(context, recorder);
  const purchaseRecorder = createPurchaseRecorder(context, { recorder, projector });
  const subscriptionEvents = createSubscriptionEvents(context, deps.writer);
  const processChange = createProcessChange(context, { subscriptionEvents, leases, projector });
  const processor = createEventProcessor(context, {
    ...deps,
    leases,
    subscriptionEvents,
    recorder,
    charges,
    purchaseRecorder,
    enqueueMail: createEnqueueMail(context),
  });
  return {
    webhook: createWebhook(context, { leases, processChange, processor }),
    processor,
    charges,
    purchaseRecorder,
    /** For the operator. */
    eventLog: createEventLog(context, { leases, processor }),
  };
}
