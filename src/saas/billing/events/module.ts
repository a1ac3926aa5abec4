import type { Random } from '../../../core/kernel/secrets.js';
import type { WebhookEvents } from '../store.js';
import { type ChangeDependencies, createProcessChange } from './changes.js';
import { type ChargeRecorderDependencies, createChargeRecorder } from './charges.js';
import { createEventLeases, type Wait } from './leases.js';
import { createEventLog, type EventLogDependencies } from './log.js';
import { createPaymentRecorder } from './payments.js';
import { createEventProcessor, type EventProcessorDependencies } from './processor.js';
import { createPurchaseRecorder, type PurchaseRecorderDependencies } from './purchases.js';
import { createSubscriptionEvents, type SubscriptionEventsDependencies } from './subscription-events.js';
import { createWebhook, type WebhookDependencies } from './webhook.js';

/** The processing of the provider's events: webhook, then processor, then what records each kind of object. */
export type BillingEvents = ReturnType<typeof createBillingEvents>;

type Recorders = 'recorder' | 'charges' | 'purchaseRecorder' | 'subscriptionEvents';

export type BillingEventsDependencies = Omit<EventProcessorDependencies, Recorders | 'leases'> &
  Omit<WebhookDependencies, 'processor' | 'processChange' | 'leases'> &
  Omit<ChangeDependencies, Recorders | 'leases'> &
  Omit<ChargeRecorderDependencies, 'recorder'> &
  Omit<PurchaseRecorderDependencies, 'recorder'> &
  Omit<EventLogDependencies, 'processor' | 'leases'> &
  SubscriptionEventsDependencies & { events: WebhookEvents; random: Random; wait: Wait };

export function createBillingEvents(deps: BillingEventsDependencies) {
  const leases = createEventLeases(deps.events, deps);
  const recorder = createPaymentRecorder(deps);
  const charges = createChargeRecorder({ ...deps, recorder });
  const purchaseRecorder = createPurchaseRecorder({ ...deps, recorder });
  const subscriptionEvents = createSubscriptionEvents(deps);
  const processChange = createProcessChange({ ...deps, leases, subscriptionEvents });
  const processor = createEventProcessor({
    ...deps,
    leases,
    recorder,
    charges,
    purchaseRecorder,
    subscriptionEvents,
  });
  return {
    webhook: createWebhook({ ...deps, leases, processChange, processor }),
    processor,
    charges,
    purchaseRecorder,
    eventLog: createEventLog({ ...deps, leases, processor }),
  };
}
