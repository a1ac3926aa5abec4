import type { BillingDeletion } from '../account-deletion.js';
import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import type { Projector } from '../entitlement.js';
import { createEnqueueMail } from '../notifications.js';
import type { SubscriptionWriter } from '../subscription/writer.js';
import { createProcessChange } from './changes.js';
import { createChargeRecorder } from './charges.js';
import { createEventLeases } from './leases.js';
import { createEventLog } from './log.js';
import { createPaymentRecorder } from './payments.js';
import { createEventProcessor } from './processor.js';
import { createPurchaseRecorder } from './purchases.js';
import { createSubscriptionEvents } from './subscription-events.js';
import { createWebhook } from './webhook.js';

/** The processing of the provider's events: webhook, then processor, then what records each kind of object. */
export function createBillingEvents(
  context: BillingContext,
  deps: { links: CustomerLinks; deletion: BillingDeletion; projector: Projector; writer: SubscriptionWriter },
) {
  const { projector } = deps;
  const leases = createEventLeases(context.events, context);
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
