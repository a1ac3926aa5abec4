import { isDeepStrictEqual } from 'node:util';
import { type Clock, DAY } from '../../kernel/clock.js';
import { nullIfTaken, type OptionalField } from '../../storage/collection.js';
import { UNKNOWN_PLAN } from '../plans/plans.js';
import type { SubscriptionDocument, Subscriptions } from '../store.js';
import { paidAmountOf } from './payment-objects.js';
import type { BillingEvent, Snapshot } from './provider-objects.js';

/** Decides which of two states of a subscription is newer, which of two subscriptions is better, and writes the result. */

/** From the most to the least valuable for a user. An unknown status ranks last. */
const BEST_FIRST = [
  'active',
  'trialing',
  'past_due',
  'unpaid',
  'paused',
  'incomplete',
  'canceled',
  'incomplete_expired',
];

/** The order in which a subscription passes through them: of two states of the same second, the later one is newer. */
const LIFECYCLE = [
  'incomplete',
  'trialing',
  'active',
  'past_due',
  'unpaid',
  'paused',
  'incomplete_expired',
  'canceled',
];

const TERMINAL = ['canceled', 'incomplete_expired'];

export const isTerminal = (status: string): boolean => TERMINAL.includes(status);

type Rankable = Pick<SubscriptionDocument, 'id' | 'status' | 'startedAt'>;

/** The subscription that is shown for a user: the best status and, among equal ones, the newest. */
export function selectBest<T extends Rankable>(subscriptions: readonly T[]): T | undefined {
  return subscriptions.toSorted(
    (a, b) => rankOf(b) - rankOf(a) || b.startedAt - a.startedAt || (b.id > a.id ? 1 : b.id < a.id ? -1 : 0),
  )[0];
}

function rankOf({ status }: Rankable): number {
  const rank = BEST_FIRST.indexOf(status);
  return rank < 0 ? 0 : BEST_FIRST.length - rank;
}

/**
 * - `apply`: newer than the stored state
 * - `repeated`: applied before, by a delivery that was interrupted
 * - `stale`: older than the stored state
 * - `uncertain`: only the provider knows
 */
export type EventOrder = 'apply' | 'repeated' | 'stale' | 'uncertain';

type Stored = Pick<SubscriptionDocument, 'status' | 'at' | 'statusAt' | 'lastEvent' | 'heardAt'>;

/** @param status the status in the event; absent if it has none */
export function compareSubscriptionEvent(
  stored: Stored | null,
  event: Pick<BillingEvent, 'id' | 'type' | 'created' | 'receivedAt'>,
  status: string | undefined,
): EventOrder {
  if (!stored) return 'apply';
  if (stored.lastEvent === event.id) return 'repeated';
  if (isTerminal(stored.status)) return 'stale';
  // A deletion is always the last event.
  if (event.type === 'customer.subscription.deleted') return 'apply';
  if (event.created === undefined) return isOutdated(stored, event) ? 'uncertain' : 'apply';
  if (event.created < stored.at) return 'stale';
  if (event.created === stored.at) {
    return event.type === 'customer.subscription.created' ? 'stale' : 'uncertain';
  }
  const contradictsInvoice = event.created === stored.statusAt && status !== stored.status;
  return contradictsInvoice ? 'uncertain' : 'apply';
}

/** An invoice reports a status indirectly: it changes the status only if the provider is unavailable. */
export function compareInvoiceEvent(
  stored: Stored | null,
  event: Pick<BillingEvent, 'id' | 'type' | 'created' | 'object'>,
): Exclude<EventOrder, 'apply'> {
  if (!stored) return 'uncertain';
  if (stored.lastEvent === event.id) return 'repeated';
  const isVoided = event.type === 'invoice.voided' && UNPAID.includes(stored.status);
  const contradicts = isVoided || statusAfterInvoice(stored.status, event) !== stored.status;
  if (!contradicts || (event.created !== undefined && event.created < stored.statusAt)) return 'stale';
  return 'uncertain';
}

const UNPAID = ['past_due', 'unpaid', 'incomplete'];

/** The status that follows from an invoice alone. Nothing follows from a voided one: other invoices may be open. */
export function statusAfterInvoice(
  status: string,
  { type, object }: Pick<BillingEvent, 'type' | 'object'>,
): string {
  if (type === 'invoice.payment_failed') return ['active', 'trialing'].includes(status) ? 'past_due' : status;
  // An invoice with amount 0, such as that of a trial, does not prove a payment.
  if (type === 'invoice.voided' || paidAmountOf({ type, object }) === 0) return status;
  return UNPAID.includes(status) ? 'active' : status;
}

/** Whether an event without a time was received before the last applied update. */
export const isOutdated = (
  { heardAt }: Pick<Stored, 'heardAt'>,
  { created, receivedAt }: Pick<BillingEvent, 'created' | 'receivedAt'>,
): boolean => created === undefined && receivedAt !== undefined && receivedAt < heardAt;

/** Whether an event of the same second probably follows the stored state, for use while the provider is unavailable. */
export function followsStored(
  stored: Pick<SubscriptionDocument, 'status'>,
  status: string,
  previousStatus: unknown,
): boolean {
  if (status === stored.status || previousStatus === stored.status) return true;
  return LIFECYCLE.indexOf(status) > LIFECYCLE.indexOf(stored.status);
}

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
  eventId?: string;
  /** Whether a sync is needed as soon as possible; `unchanged` keeps the stored value. */
  isUncertain: boolean | 'unchanged';
}

export interface SubscriptionKey {
  id: string;
  userId: string;
}

export interface SubscriptionWriter {
  /** Writes if the revision is still the one that was read; null if a concurrent write came first. */
  write(
    stored: SubscriptionDocument | null,
    key: SubscriptionKey,
    update: SubscriptionUpdate,
  ): Promise<SubscriptionDocument | null>;
  /** The document that `write` would store. */
  preview(
    stored: SubscriptionDocument | null,
    key: SubscriptionKey,
    update: SubscriptionUpdate,
  ): SubscriptionDocument;
  /** Schedules a sync, at once or after a delay, and leaves the terms unchanged. */
  requestReconcile(stored: SubscriptionDocument, delayMs?: number): Promise<SubscriptionDocument | null>;
  /** Restores the regular sync time. */
  scheduleReconcile(stored: SubscriptionDocument): Promise<SubscriptionDocument | null>;
}

/** How long after the end of a period a sync runs if no event has arrived. */
const RECONCILE_DELAY_MS = DAY;

export function createSubscriptionWriter(subscriptions: Subscriptions, clock: Clock): SubscriptionWriter {
  return {
    preview: (stored, key, update) => merge(stored, key, update, clock.now()),

    async write(stored, key, update) {
      const document = merge(stored, key, update, clock.now());
      if (!stored) return subscriptions.insert(document).then(() => document, nullIfTaken);
      const { id, ...set } = document;
      const removed = Object.keys(stored).filter((field) => !(field in document));
      const unset = removed as OptionalField<SubscriptionDocument>[];
      return subscriptions.updateOne({ id, rev: stored.rev }, { set, unset });
    },

    requestReconcile: ({ id, rev }, delayMs = 0) =>
      subscriptions.updateOne({ id, rev }, { set: { recheckAt: clock.now() + delayMs }, inc: { rev: 1 } }),

    scheduleReconcile(stored) {
      const recheckAt = reconcileTimeOf(stored, clock.now());
      const change = recheckAt === undefined ? { unset: ['recheckAt' as const] } : { set: { recheckAt } };
      return subscriptions.updateOne({ id: stored.id, rev: stored.rev }, { ...change, inc: { rev: 1 } });
    },
  };
}

/** The stored subscription with an update. Fields that are cleared or unknown are absent. */
function merge(
  stored: SubscriptionDocument | null,
  { id, userId }: SubscriptionKey,
  { snapshot, isUncertain, eventId, ...times }: SubscriptionUpdate,
  now: number,
): SubscriptionDocument {
  const at = Math.max(stored?.at ?? 0, times.at ?? 0);
  const statusAt = Math.max(stored?.statusAt ?? 0, times.statusAt ?? 0, at);
  const terms = Object.assign({ startedAt: now }, INITIAL_TERMS, stored, snapshot);
  const isPastDue = terms.status === 'past_due';
  const beganAt = times.pastDueSince ?? (times.statusAt || times.at || times.receivedAt || now);
  const planned = reconcileTimeOf(terms, now);
  const document = Object.assign(terms, {
    id,
    userId: stored?.userId ?? userId,
    cancelAtPeriodEnd: terms.cancelAtPeriodEnd === true,
    pastDueSince: isPastDue ? (stored?.pastDueSince ?? beganAt) : undefined,
    recheckAt: isUncertain === true ? now : earliest(isUncertain && stored?.recheckAt, planned),
    lastEvent: eventId,
    heardAt: Math.max(stored?.heardAt ?? 0, times.receivedAt ?? now),
    at,
    statusAt,
    rev: (stored?.rev ?? 0) + 1,
    createdAt: stored?.createdAt ?? now,
    updatedAt: now,
  });
  const merged = Object.fromEntries(
    Object.entries(document).filter(([, value]) => value !== undefined && value !== null),
  ) as unknown as SubscriptionDocument;
  if (!stored || changedFields(stored, merged).length > 0) return merged;
  // The event that changed the terms may have been interrupted, and its repetition notifies about them.
  const lastEvent = stored.lastEvent ?? eventId;
  return lastEvent === undefined ? merged : { ...merged, lastEvent };
}

/** The names of the terms in which two states of a subscription differ. */
export function changedFields(before: SubscriptionDocument | null, after: SubscriptionDocument): string[] {
  // Earlier versions did not store the details: to store them is no change.
  const isComplete = !before || before.items !== undefined;
  const [old, current] = [before ? termsOf(before) : {}, termsOf(isComplete ? after : withoutDetails(after))];
  const changed = [...new Set([...Object.keys(old), ...Object.keys(current)])].filter(
    (name) => !isDeepStrictEqual(old[name], current[name]),
  );
  // These fields repeat parts of the items.
  const isRepeated = changed.some((name) => ['priceId', 'otherPriceIds', 'quantity'].includes(name));
  return isRepeated ? changed.filter((name) => name !== 'items') : changed;
}

function withoutDetails(subscription: SubscriptionDocument): SubscriptionDocument {
  const { items, pendingUpdate, collectionPause, scheduleId, discountIds, ...rest } = subscription;
  return rest;
}

/** The terms of a subscription at the provider, without the fields for internal use. */
function termsOf(subscription: SubscriptionDocument): Partial<Record<string, unknown>> {
  const { at, statusAt, lastEvent, heardAt, recheckAt, rev, updatedAt, createdAt, ...rest } = subscription;
  const { livemode, isPlanFromMetadata, ...terms } = rest;
  return terms;
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

/** The regular sync time: when the next event of a subscription should have arrived. */
function reconcileTimeOf(
  { status, currentPeriodEnd, trialEnd }: Pick<Snapshot, 'status' | 'currentPeriodEnd' | 'trialEnd'>,
  now: number,
): number | undefined {
  const end = currentPeriodEnd ?? trialEnd;
  return isTerminal(status ?? '') || end == null ? undefined : Math.max(end, now) + RECONCILE_DELAY_MS;
}
