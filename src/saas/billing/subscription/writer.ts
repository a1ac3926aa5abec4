import { isDeepStrictEqual } from 'node:util';
import type { ActingProgram } from '../../../core/http/identity.js';
import { type SubscriptionStatus, toTimestamp } from '../../../core/http/schemas.js';
import { DAY, MINUTE } from '../../../core/kernel/clock.js';
import { defined, present } from '../../../core/kernel/fields.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { Write } from '../../../core/storage/collection.js';
import { changeTo } from '../../../core/storage/semantics.js';
import type { BillingContext } from '../context.js';
import { isEntitled } from '../entitlement.js';
import { referenceTo } from '../owners.js';
import { UNKNOWN_PLAN } from '../plans/plans.js';
import { isTerminal, type SubscriptionDocument } from '../store.js';
import type { Snapshot } from './snapshot.js';

/** Merges a newer state of a subscription with the stored one, and writes the result. */

/** A newer state of a subscription, from an event or from the provider's API. */
export interface SubscriptionUpdate {
  snapshot: Snapshot;
  /** The provider's time of the snapshot; absent if unknown. */
  at?: number;
  /** The same for the status, if different. */
  statusAt?: number;
  /** When the update was received, if not now. */
  receivedAt?: number;
  /** The provider's time at which payments began to fail, if it is not that of the status. */
  pastDueSince?: number;
  /** Whether a sync is needed as soon as possible; `unchanged` keeps the stored value. */
  isUncertain: boolean | 'unchanged';
  /** Whether the provider has answered the change of which `changeCheckAt` was to find the result. */
  isChangeAnswered?: boolean;
}

export interface SubscriptionKey {
  id: string;
  ownerId: string;
}

export type SubscriptionWriter = ReturnType<typeof createSubscriptionWriter>;

/** How long after the end of a period a sync runs if no event has arrived. */
const RECONCILE_DELAY_MS = DAY;

export function createSubscriptionWriter({ subscriptions, event, pastDue, clock }: BillingContext) {
  return {
    /** The stored subscription with an update. Fields that are cleared or unknown are absent. */
    merge(
      stored: SubscriptionDocument | null,
      { id, ownerId }: SubscriptionKey,
      update: SubscriptionUpdate,
    ): SubscriptionDocument {
      const { snapshot, isUncertain } = update;
      const now = clock.now();
      const at = Math.max(stored?.at ?? 0, update.at ?? 0);
      const statusAt = Math.max(stored?.statusAt ?? 0, update.statusAt ?? 0, at);
      const terms = Object.assign({ startedAt: now }, INITIAL_TERMS, stored, snapshot);
      const isPastDue = terms.status === 'past_due';
      const beganAt = update.pastDueSince ?? (update.statusAt || update.at || update.receivedAt || now);
      const changeCheckAt = update.isChangeAnswered ? undefined : openCheck(stored, now);
      const planned = earliest(changeCheckAt, reconcileTimeOf(terms, now));
      const reconcileAt = isUncertain === true ? now : earliest(isUncertain && stored?.recheckAt, planned);
      const document = Object.assign(terms, {
        id,
        ownerId: stored?.ownerId ?? ownerId,
        cancelAtPeriodEnd: terms.cancelAtPeriodEnd === true,
        items: terms.items ?? [],
        pastDueSince: isPastDue ? (stored?.pastDueSince ?? beganAt) : undefined,
        recheckAt: isTerminal(terms.status) ? undefined : reconcileAt,
        changeCheckAt: isTerminal(terms.status) ? undefined : changeCheckAt,
        heardAt: Math.max(stored?.heardAt ?? 0, update.receivedAt ?? now),
        at,
        statusAt,
        rev: (stored?.rev ?? 0) + 1,
        createdAt: stored?.createdAt ?? now,
        updatedAt: now,
      });
      return present<SubscriptionDocument>(document);
    },

    /** The write of a merged document, made if the revision is still the one that was read. */
    writing: (stored: SubscriptionDocument | null, merged: SubscriptionDocument): Write =>
      stored
        ? subscriptions.changing(stateOf(stored), changeTo(stored, merged))
        : subscriptions.inserting(merged),

    /** The event about an update, for its commit. @param actor the program that has made it for the user */
    announcing(
      eventId: string,
      updated: SubscriptionDocument,
      { at, actor }: { at: number; actor?: ActingProgram | undefined },
    ): Promise<Effect> {
      const { id: subscriptionId, ownerId, plan } = updated;
      return event('subscription.updated', {
        id: eventId,
        at: toTimestamp(at),
        ...referenceTo(ownerId),
        subscriptionId,
        status: updated.status as SubscriptionStatus,
        plan,
        entitled: isEntitled(updated, pastDue, clock.now()),
        ...defined({ actor }),
      });
    },

    /**
     * Before a change at the provider: schedules a sync that finds its result, whatever is synced in between, unless the provider answers.
     * Null if a concurrent write came first.
     */
    requestReconcile(stored: SubscriptionDocument, delayMs: number): Promise<SubscriptionDocument | null> {
      const changeCheckAt = clock.now() + delayMs;
      const recheckAt = Math.min(changeCheckAt, stored.recheckAt ?? changeCheckAt);
      return subscriptions.updateOne(stateOf(stored), { set: { changeCheckAt, recheckAt }, inc: { rev: 1 } });
    },

    /** Schedules a sync at once, for a commit. */
    requestingReconcile: (stored: SubscriptionDocument): Write =>
      subscriptions.changing(stateOf(stored), { set: { recheckAt: clock.now() }, inc: { rev: 1 } }),
  };
}

/** Each write increases the revision. */
const stateOf = ({ id, rev }: SubscriptionDocument) => ({ id, rev });

/** Fields for internal use, which are not terms of the subscription at the provider. */
const INTERNAL_FIELDS = new Set(
  'at statusAt heardAt recheckAt changeCheckAt rev updatedAt createdAt livemode isPlanFromMetadata'.split(
    ' ',
  ),
);

/** These fields repeat parts of the items. */
const REPEATED_FIELDS = new Set(['priceId', 'otherPriceIds', 'quantity']);

/** The names of the terms in which two states of a subscription differ. */
export function changedFields(before: SubscriptionDocument | null, after: SubscriptionDocument): string[] {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after)]) as Set<
    keyof SubscriptionDocument
  >;
  const changed = [...names].filter(
    (name) => !INTERNAL_FIELDS.has(name) && !isDeepStrictEqual(before?.[name], after[name]),
  );
  const isRepeated = changed.some((name) => REPEATED_FIELDS.has(name));
  return isRepeated ? changed.filter((name) => name !== 'items') : changed;
}

/**
 * When payments began to fail, for a state that was fetched later: when the period began, but not while the status was
 * another one. Absent if the period is unknown.
 *
 * @param asOf the provider's time of the state; 0 if unknown
 */
export function estimatePastDueSince(
  stored: Pick<SubscriptionDocument, 'statusAt'> | null,
  { currentPeriodStart }: Snapshot,
  asOf: number,
): { pastDueSince?: number } {
  if (currentPeriodStart == null) return {};
  const since = Math.max(currentPeriodStart, stored?.statusAt ?? 0);
  return { pastDueSince: Math.min(since, asOf || since) };
}

const INITIAL_TERMS = { status: 'incomplete', plan: UNKNOWN_PLAN, cancelAtPeriodEnd: false };

const earliest = (kept: number | false | undefined, planned: number | undefined): number | undefined =>
  kept ? Math.min(kept, planned ?? kept) : planned;

/** When to look for the result of a change that the provider has not answered. */
const openCheck = (stored: SubscriptionDocument | null, now: number): number | undefined =>
  stored?.changeCheckAt !== undefined && stored.changeCheckAt > now ? stored.changeCheckAt : undefined;

/** The regular sync time: when the next event of a subscription should have arrived. */
function reconcileTimeOf(
  { status, currentPeriodEnd, trialEnd }: Pick<Snapshot, 'status' | 'currentPeriodEnd' | 'trialEnd'>,
  now: number,
): number | undefined {
  // Access ends with the trial, so a lost event would keep out a user who has paid.
  if (status === 'trialing' && trialEnd != null)
    return trialEnd > now ? trialEnd : now + Math.min(DAY, Math.max(MINUTE, now - trialEnd));
  const end = currentPeriodEnd ?? trialEnd;
  return isTerminal(status ?? '') || end == null ? undefined : Math.max(end, now) + RECONCILE_DELAY_MS;
}
