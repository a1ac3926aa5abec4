import { CLOCK_SKEW_MS, type Clock } from '../../../core/kernel/clock.js';
import { newToken, type Random } from '../../../core/kernel/secrets.js';
import { nullIfTaken, type Write } from '../../../core/storage/collection.js';
import { billingErrors } from '../errors.js';
import { idOf } from '../provider/json.js';
import type { EventOutcome, PaymentEventDocument, PaymentEvents } from '../store.js';
import type { PaymentEvent } from './provider-objects.js';

/**
 * Exclusive processing of events. Inserting an event acquires its lease, storing its outcome completes it. The lease of
 * a worker that crashed expires and is taken over, so a received event never counts as processed.
 */
export type EventLeases = ReturnType<typeof createEventLeases>;

export interface EventLease {
  /** The event's ID. */
  id: string;
  owner: string;
}

/** How long a worker may process an event before another one takes over. */
export const EVENT_LEASE_MS = 30_000;

/** Filters for `leaseUntil`: leases that have expired, and those set by a clock that was later set back. */
export const expiredLeases = (now: number) =>
  [{ lte: now }, { gt: now + EVENT_LEASE_MS + CLOCK_SKEW_MS }] as const;

/** How long a repeated delivery waits for the one in progress. */
const WAIT_TIMEOUT_MS = 5_000;
const POLL_INTERVAL_MS = 100;

/** Resolves after the given number of milliseconds. */
export type Wait = (milliseconds: number) => Promise<unknown>;

export function createEventLeases(
  events: PaymentEvents,
  { clock, random, wait }: { clock: Clock; random: Random; wait: Wait },
) {
  // Each lease has its own owner, so that a worker that lost one cannot complete it, even within one process.
  const leaseOn = (id: string): EventLease => ({ id, owner: newToken(random) });

  const documentOf = (
    event: PaymentEvent,
    state: Omit<PaymentEventDocument, 'id' | 'type' | 'objectId' | 'about' | 'receivedAt' | 'attempts'>,
  ): PaymentEventDocument => {
    const { id, type, objectId } = event;
    const about = subjectOf(event);
    const document = { id, type, objectId, ...state, receivedAt: clock.now(), attempts: 1 };
    return about === undefined ? document : { ...document, about };
  };

  const takeOver = async (id: string): Promise<EventLease | null> => {
    const lease = leaseOn(id);
    const now = clock.now();
    for (const leaseUntil of expiredLeases(now)) {
      const taken = await events.updateOne(
        { id, outcome: null, leaseUntil },
        { set: { owner: lease.owner, leaseUntil: now + EVENT_LEASE_MS }, inc: { attempts: 1 } },
      );
      if (taken) return lease;
    }
    return null;
  };

  return {
    /** The lease on a delivered event, or the outcome of its earlier delivery. @throws EVENT_IN_PROGRESS */
    async acquire(event: PaymentEvent, payload: string): Promise<EventLease | EventOutcome> {
      const own = leaseOn(event.id);
      const lock = { owner: own.owner, leaseUntil: clock.now() + EVENT_LEASE_MS };
      const document = documentOf(event, { payload, ...lock });
      if (await events.insert(document).then(() => true, nullIfTaken)) return own;
      const startedAt = clock.now();
      for (let pausedMs = 0; ; pausedMs += POLL_INTERVAL_MS) {
        const lease = await takeOver(event.id);
        if (lease) return lease;
        const stored = await events.findOne({ id: event.id });
        if (stored?.outcome !== undefined) return stored.outcome;
        // A slow store makes the polls longer than their pauses.
        if (Math.max(pausedMs, clock.now() - startedAt) >= WAIT_TIMEOUT_MS)
          throw billingErrors.EVENT_IN_PROGRESS();
        await wait(POLL_INTERVAL_MS);
      }
    },

    /**
     * The lease on a stored event that is completed with this outcome or whose lease has expired; null if another worker has the
     * lease.
     * @param payload stored with it if the event has lost its own, so that a crash does not lose the event
     */
    async reacquire(
      { id, outcome }: Pick<PaymentEventDocument, 'id' | 'outcome'>,
      payload?: string,
    ): Promise<EventLease | null> {
      if (outcome === undefined) return takeOver(id);
      const lease = leaseOn(id);
      const taken = await events.updateOne(
        { id, outcome },
        {
          set: {
            owner: lease.owner,
            leaseUntil: clock.now() + EVENT_LEASE_MS,
            ...(payload !== undefined && { payload }),
          },
          unset: ['outcome'],
          inc: { attempts: 1 },
        },
      );
      return taken && lease;
    },

    /** Stores the outcome and removes the payload of events that are not retried. False if another worker has the lease. */
    async complete({ id, owner }: EventLease, outcome: EventOutcome): Promise<boolean> {
      const change = outcome === 'unmatched' ? {} : { unset: ['payload' as const] };
      return (await events.updateOne({ id, owner, outcome: null }, { set: { outcome }, ...change })) !== null;
    },

    /** Stores a processed event that needed no lease, unless it is stored already. */
    storing: (event: PaymentEvent): Write =>
      events.inserting(documentOf(event, { outcome: 'processed', isUnleased: true })),

    /** Ends the lease after a failure, so that the next delivery does not wait for its expiration. */
    async release({ id, owner }: EventLease) {
      await events.updateOne({ id, owner, outcome: null }, { set: { leaseUntil: clock.now() } });
    },
  };
}

/** The customer of an event, else the subscription, else the payment: by it, the events of a user are found. */
const subjectOf = ({ customerId, subscriptionId, object }: PaymentEvent): string | undefined =>
  customerId ?? subscriptionId ?? idOf(object['payment_intent']) ?? idOf(object['charge']);
