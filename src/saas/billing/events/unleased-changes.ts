import type { AnnouncedEvent, EventProof } from '../../../core/ops/events.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import type { BillingContext } from '../context.js';
import { isEntitled, type Projector } from '../entitlement.js';
import { type EventOutcome, PAYMENT_EVENT } from '../store.js';
import { subscriptionNotification } from '../subscription/writer.js';
import type { EventLeases } from './leases.js';
import type { PaymentEvent } from './provider-objects.js';
import type { PreparedChange, SubscriptionEvents } from './subscription-events.js';

/**
 * Processes a change of a stored subscription that is newer than the stored state, without a lease: its writes, of which the last
 * one stores the event with its outcome, are made together. Of two deliveries, one makes them and notifies. Null for every
 * other event, and if a concurrent write came first: then the leased processing decides.
 */
export type ProcessChange = ReturnType<typeof createProcessChange>;

export function createProcessChange(
  { store, announceEvent, pastDue, clock }: BillingContext,
  {
    subscriptionEvents,
    leases,
    projector,
  }: { subscriptionEvents: SubscriptionEvents; leases: EventLeases; projector: Projector },
) {
  /** Before the writes, after which a delivery would not repeat it. */
  const announce = async (
    { id: eventId, created: at = clock.now() }: PaymentEvent,
    { change, subscription }: PreparedChange['applied'],
  ): Promise<AnnouncedEvent | undefined> => {
    if (change === undefined) return undefined;
    const proof: EventProof = { of: PAYMENT_EVENT, id: eventId, has: { isUnleased: true } };
    const entitled = isEntitled(subscription, pastDue, clock.now());
    const notification = subscriptionNotification(eventId, subscription, { at, entitled });
    return announceEvent('subscription.updated', notification, proof);
  };

  return async (event: PaymentEvent): Promise<EventOutcome | null> => {
    const prepared = await subscriptionEvents.prepareChange(event);
    if (!prepared) return null;
    const { write, applied } = prepared;
    const writes = [write, leases.storing(event)];
    if (!applied.isProjected) {
      const projecting = await projector.projecting(applied.subscription);
      if (!projecting) return null;
      writes.splice(1, 0, projecting);
    }
    const announced = await announce(event, applied);
    // An announcement without a change is not withdrawn, because it may be that of another delivery that is being processed; it is
    // dropped later.
    const commit = await store.commit(writes).catch(nullIfTaken);
    if (!commit?.committed) return null;
    await announced?.emit();
    return applied.outcome;
  };
}
