import { CLOCK_SKEW_MS, type Clock } from '../kernel/clock.js';
import { newToken, type Random } from '../kernel/secrets.js';
import { nullIfTaken } from '../storage/collection.js';
import { billingErrors } from './errors.js';
import type { BillingEvent } from './event.js';
import type { EventOutcome, WebhookEventDocument, WebhookEvents } from './store.js';

/**
 * Who works on an event. A claim is made by inserting the event, and ends with its outcome. One whose worker is gone
 * runs out and is taken over, so an event that was received is never taken for one that was processed.
 */
export interface Claims {
  /** Makes an event that was delivered ours to work on, or tells what came of it. @throws EVENT_IN_PROGRESS */
  begin(event: BillingEvent, payload: string): Promise<Claim | EventOutcome>;
  /** Takes up an event that nobody works on: one that was `unmatched`, or whose worker is gone. */
  resume(document: Pick<WebhookEventDocument, 'id' | 'outcome'>): Promise<Claim | null>;
  /** Ends the claim. False where somebody else has taken over. */
  finish(claim: Claim, outcome: EventOutcome): Promise<boolean>;
  /** Gives up a claim whose work failed, so that the next delivery need not wait for its end. */
  release(claim: Claim): Promise<void>;
}

export interface Claim {
  id: string;
  owner: string;
}

/** How long an event may be worked on before somebody else takes over, in milliseconds. */
export const LEASE = 30_000;

/** Leases that bind nobody: those that have run out, and those of a clock that has been put back since. */
export const leasesOver = (now: number) => [{ lte: now }, { gt: now + LEASE + CLOCK_SKEW_MS }] as const;

/** How long a repeated delivery waits for the one that is being worked on, and how often it looks. Milliseconds. */
const PATIENCE = 5_000;
const LOOK_EVERY = 100;

/** Resolves after so many milliseconds. */
export type Pause = (milliseconds: number) => Promise<unknown>;

export function createClaims(
  events: WebhookEvents,
  { clock, random, pause }: { clock: Clock; random: Random; pause: Pause },
): Claims {
  // One name for each claim: who lost it to another must not end it, in whatever process they are.
  const claimOf = (id: string): Claim => ({ id, owner: newToken(random) });

  const insert = async (event: BillingEvent, payload: string): Promise<Claim | null> => {
    const claim = claimOf(event.id);
    const now = clock.now();
    const { type, objectId, customerId: about = event.subscriptionId } = event;
    const document: WebhookEventDocument = {
      id: event.id,
      type,
      objectId,
      ...(about !== undefined && { about }),
      payload,
      receivedAt: now,
      attempts: 1,
      owner: claim.owner,
      leaseUntil: now + LEASE,
    };
    return events.insert(document).then(() => claim, nullIfTaken);
  };

  const takeOver = async (id: string): Promise<Claim | null> => {
    const claim = claimOf(id);
    const now = clock.now();
    for (const leaseUntil of leasesOver(now)) {
      const taken = await events.updateOne(
        { id, outcome: null, leaseUntil },
        { set: { owner: claim.owner, leaseUntil: now + LEASE }, inc: { attempts: 1 } },
      );
      if (taken) return claim;
    }
    return null;
  };

  return {
    async begin(event, payload) {
      const inserted = await insert(event, payload);
      if (inserted) return inserted;
      for (let waited = 0; ; waited += LOOK_EVERY) {
        const claim = await takeOver(event.id);
        if (claim) return claim;
        const known = await events.findOne({ id: event.id });
        if (known?.outcome !== undefined) return known.outcome;
        if (waited >= PATIENCE) throw billingErrors.EVENT_IN_PROGRESS();
        await pause(LOOK_EVERY);
      }
    },

    async resume({ id, outcome }) {
      if (outcome === undefined) return takeOver(id);
      const claim = claimOf(id);
      const taken = await events.updateOne(
        { id, outcome: 'unmatched' },
        {
          set: { owner: claim.owner, leaseUntil: clock.now() + LEASE },
          unset: ['outcome'],
          inc: { attempts: 1 },
        },
      );
      return taken && claim;
    },

    async finish({ id, owner }, outcome) {
      return (await events.updateOne({ id, owner, outcome: null }, { set: { outcome } })) !== null;
    },

    async release({ id, owner }) {
      await events.updateOne({ id, owner, outcome: null }, { set: { leaseUntil: clock.now() } });
    },
  };
}
