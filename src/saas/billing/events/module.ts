import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import type { Projector } from '../projection.js';
import type { Quotas } from '../quotas/service.js';
import type { SubscriptionWriter } from '../subscription/writer.js';
import { createChargeRecorder } from './charges.js';
import { createEventLeases } from './leases.js';
import { createEventLog } from './log.js';
import { createPaymentRecorder } from './payments.js';
import { createEventProcessor } from './processor.js';
import { createPurchaseRecorder } from './purchase-recorder.js';
import { createEventRecovery } from './recovery.js';
import { createSubscriptionEvents } from './subscription-events.js';
import { createWebhook } from './webhook.js';

/**
 * The processing of payment events, which the provider sends. `webhook` verifies one and `provider-objects` reads it. `processor` commits it
 * with all that it changes: the subscription, the user's record, and what records an invoice (`payments`), charge or purchase. `leases`
 * stores it beforehand if the provider has to be asked, and `recovery` finds those that were not received.
 */
export function createPaymentEvents(
  context: BillingContext,
  deps: { links: CustomerLinks; projector: Projector; writer: SubscriptionWriter; quotas: Quotas },
) {
  const { links, projector, writer, quotas } = deps;
  const leases = createEventLeases(context.paymentEvents, context);
  const recorder = createPaymentRecorder(context);
  const charges = createChargeRecorder(context, { recorder, projector });
  const purchaseRecorder = createPurchaseRecorder(context, { recorder, projector, quotas });
  const subscriptionEvents = createSubscriptionEvents(context, writer);
  const processor = createEventProcessor(context, {
    links,
    projector,
    leases,
    subscriptionEvents,
    recorder,
    charges,
    purchaseRecorder,
  });
  return {
    webhook: createWebhook(context, processor),
    processor,
    charges,
    purchaseRecorder,
    recovery: createEventRecovery(context, leases),
    /** For the operator. */
    eventLog: createEventLog(context, { leases, processor }),
  };
}
