import { CLOCK_SKEW_MS, type Clock } from '../../../core/kernel/clock.js';
import { defined } from '../../../core/kernel/fields.js';
import { nullIfTaken, UniqueViolation, type Write } from '../../../core/storage/collection.js';
import { billingErrors } from '../errors.js';
import { idOf } from '../provider/json.js';
import type { EventOutcome, PaymentEventDocument, PaymentEvents } from '../store.js';
import type { PaymentEvent } from './provider-objects.js';

/**
 * The stored events. An event is stored with its outcome, in the commit of what it changes, and its unique ID decides between two
 * deliveries. Only before a call to the provider it is stored on its own, with a lease: repeated deliveries wait for the one in
 * progress, and the event of a worker that crashed is processed once the lease has expired.
 */
export type EventLeases = ReturnType<typeof createEventLeases>;

/** An event while it is processed. */
export interface ReceivedEvent {
  event: PaymentEvent;
  /** Its verified body. */
  payload: string;
  /** As it was stored before; null for a new one. */
  stored: PaymentEventDocument | null;
  /** Whether its worker has stored it, with a lease. */
  isLeased?: true;
}

/** Another worker has stored the event, or processes it. */
export class EventTaken extends Error {
  override readonly name = 'EventTaken';
}

/** How long a worker may process an event before another one takes over. */
export const EVENT_LEASE_MS = 30_000;

/** How long a repeated delivery waits for the one in progress. */
const WAIT_TIMEOUT_MS = 5_000;
const POLL_INTERVAL_MS = 100;

/** Resolves after the given number of milliseconds. */
export type Wait = (milliseconds: number) => Promise<unknown>;

export function createEventLeases(events: PaymentEvents, { clock, wait }: { clock: Clock; wait: Wait }) {
  const documentOf = (
    event: PaymentEvent,
    state: Pick<PaymentEventDocument, 'payload' | 'leaseUntil' | 'outcome'>,
  ): PaymentEventDocument => {
    const { id, type, objectId } = event;
    return defined({
      id,
      type,
      objectId,
      about: subjectOf(event),
      ...state,
      receivedAt: clock.now(),
      attempts: 1,
    });
  };

  /** Each worker that processes a stored event increments the attempts. */
  const stateOf = ({ id, attempts, outcome }: PaymentEventDocument) => ({
    id,
    attempts,
    outcome: outcome ?? null,
  });

  /** A lease that ends implausibly late was set by a clock that has been set back since. */
  const isInProgress = ({ outcome, leaseUntil = 0 }: PaymentEventDocument): boolean =>
    outcome === undefined &&
    leaseUntil > clock.now() &&
    leaseUntil <= clock.now() + EVENT_LEASE_MS + CLOCK_SKEW_MS;

  return {
    isInProgress,

    /** Stores a new event with a lease, before a call to the provider. @throws EventTaken */
    async acquire(received: ReceivedEvent): Promise<void> {
      if (received.stored) return;
      const { event, payload } = received;
      const document = documentOf(event, { payload, leaseUntil: clock.now() + EVENT_LEASE_MS });
      await events.insert(document).catch(throwTaken);
      Object.assign(received, { stored: document, isLeased: true });
    },

    /** Stores a new event that the background job processes. False if it was received before. */
    async enqueue(event: PaymentEvent, payload: string): Promise<boolean> {
      const document = documentOf(event, { payload, leaseUntil: clock.now() });
      return (await events.insert(document).then(() => true, nullIfTaken)) === true;
    },

    /** The write of the outcome. The body remains only of events that are retried. */
    completing({ event, payload, stored, isLeased }: ReceivedEvent, outcome: EventOutcome): Write {
      const isRetried = outcome === 'unmatched';
      if (!stored) return events.inserting(documentOf(event, { outcome, ...(isRetried && { payload }) }));
      return events.changing(stateOf(stored), {
        set: { outcome, ...(isRetried && { payload }) },
        ...(!isRetried && { unset: ['payload'] }),
        ...(!isLeased && { inc: { attempts: 1 } }),
      });
    },

    /** Completes a stored event that has no effect here. */
    ignore: (stored: PaymentEventDocument) =>
      events.updateOne(stateOf(stored), { set: { outcome: 'ignored' }, unset: ['payload'] }),

    /** Ends the lease after a failure, so that the next delivery does not wait for its expiration. */
    async release({ stored, isLeased }: ReceivedEvent): Promise<void> {
      if (stored && isLeased) await events.updateOne(stateOf(stored), { set: { leaseUntil: clock.now() } });
    },

    /** A taken event, once its worker has completed it or has lost the lease. @throws EVENT_IN_PROGRESS */
    async settled(id: string): Promise<PaymentEventDocument | null> {
      const startedAt = clock.now();
      for (let pausedMs = 0; ; pausedMs += POLL_INTERVAL_MS) {
        const stored = await events.findOne({ id });
        if (!stored || !isInProgress(stored)) return stored;
        // A slow store makes the polls longer than their pauses.
        if (Math.max(pausedMs, clock.now() - startedAt) >= WAIT_TIMEOUT_MS)
          throw billingErrors.EVENT_IN_PROGRESS();
        await wait(POLL_INTERVAL_MS);
      }
    },
  };
}

function throwTaken(error: unknown): never {
  throw error instanceof UniqueViolation ? new EventTaken() : error;
}

/** The customer of an event, else the subscription, else the payment: by it, the events of a user are found. */
const subjectOf = ({ customerId, subscriptionId, object }: PaymentEvent): string | undefined =>
  customerId ?? subscriptionId ?? idOf(object['payment_intent']) ?? idOf(object['charge']);
