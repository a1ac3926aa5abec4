import { defined } from '../../../core/kernel/fields.js';
import type { BillingContext, CommitPart } from '../context.js';
import { subscriptionNotFound } from '../errors.js';
import type { Plans } from '../plans/plans.js';
import { haveSameProjection } from '../projection.js';
import { lacksItems } from '../provider/responses.js';
import { type EventOutcome, isTerminal, type SubscriptionDocument } from '../store.js';
import { readSnapshot, type Snapshot } from '../subscription/snapshot.js';
import {
  changedFields,
  estimatePastDueSince,
  type SubscriptionUpdate,
  type SubscriptionWriter,
} from '../subscription/writer.js';
import { isInvoice, type PaymentEvent, paidAmountOf } from './provider-objects.js';

/** What an event changes of its subscription. */
export interface AppliedEvent {
  outcome: Extract<EventOutcome, 'processed' | 'stale'>;
  /** Whether the subscription was not stored before. */
  isInserted?: boolean;
  /** Whether the user's record changes with it. */
  isProjected: boolean;
  /** The state after the event; absent if it is not stored. */
  subscription?: SubscriptionDocument;
  parts: CommitPart[];
}

export interface SubscriptionOwner {
  ownerId: string;
  /** The stored subscription that the event is about. */
  subscription?: SubscriptionDocument;
}

export type SubscriptionEvents = ReturnType<typeof createSubscriptionEvents>;

/** Why an event changes no terms. `deferred`: a later sync decides. */
type Unchanged = 'stale' | 'deferred';

/** What follows from an event for the subscription as it is stored. */
type Read<T> = (event: PaymentEvent, stored: SubscriptionDocument | null) => Promise<T>;

export function createSubscriptionEvents(context: BillingContext, writer: SubscriptionWriter) {
  const { plans, gateway, clock, log } = context;

  /** Whether only the provider has all items. Without an API key, those of the event must do. */
  const isPartial = ({ object }: PaymentEvent): boolean => gateway !== undefined && lacksItems(object);

  const updateFromSubscription: Read<SubscriptionUpdate | Unchanged> = async (event, stored) => {
    const { order, update } = readUpdate(event, stored);
    if (order === 'stale') return order;
    if (order === 'apply' || !stored) return isPartial(event) ? updateWithAllItems(event, stored) : update;
    const fetched = await updateFromProvider(event, stored);
    if (fetched) return fetched;
    if (isOutdated(stored, event)) return 'deferred';
    const { status } = update.snapshot;
    const isNewer = status == null || followsStored(stored, status, event.previous['status']);
    return isNewer ? { ...update, isUncertain: true } : 'deferred';
  };

  /** A newer event with all items. Only they are fetched: the rest of a response can be older than the event. */
  const updateWithAllItems: Read<SubscriptionUpdate> = async (event, stored) => {
    const found = await fetchSubscription(event);
    if (!found) return { ...readUpdate(event, stored).update, isUncertain: true };
    const object = { ...event.object, items: found.object['items'] };
    return readUpdate({ ...event, object }, stored).update;
  };

  /** What an event says about its subscription, and whether it is newer than the stored state. */
  const readUpdate = (
    event: PaymentEvent,
    stored: SubscriptionDocument | null,
  ): { order: EventOrder; update: SubscriptionUpdate } => {
    // Some of the items could name another plan than all.
    const object = isPartial(event) ? { ...event.object, items: undefined } : event.object;
    const snapshot = readEventSnapshot({ ...event, object }, plans, stored);
    const { status, ...terms } = snapshot;
    const order = compareSubscriptionEvent(stored, event, status ?? undefined);
    const update = { snapshot, ...timesOf(event), isUncertain: false };
    const isOlder = stored && event.created !== undefined && event.created < stored.statusAt;
    const keepsStatus = order === 'apply' && isOlder && event.type !== 'customer.subscription.deleted';
    // A status that was derived from an invoice without a request to the provider remains uncertain.
    return keepsStatus
      ? { order, update: { ...update, snapshot: terms, isUncertain: 'unchanged' } }
      : { order, update };
  };

  const updateFromInvoice: Read<SubscriptionUpdate | Unchanged> = async (event, stored) => {
    if (compareInvoiceEvent(stored, event) === 'stale') return 'stale';
    const fetched = await updateFromProvider(event, stored);
    if (fetched) return fetched;
    // An invoice does not describe its subscription, whose own event is still to come.
    if (!stored) return 'stale';
    if (event.type === 'invoice.voided') return 'deferred';
    const status = statusAfterInvoice(stored.status, event);
    const isSameSecond = event.created !== undefined && event.created === stored.statusAt;
    if (isSameSecond && !followsStored(stored, status, undefined)) return 'deferred';
    return { snapshot: { status }, ...defined({ statusAt: event.created }), isUncertain: true };
  };

  /** The state at the provider; null if it cannot be fetched. */
  const updateFromProvider: Read<SubscriptionUpdate | null> = async (event, stored) => {
    const found = await fetchSubscription(event);
    if (!found) return null;
    const { created = 0 } = event;
    const statusAt = Math.max(found.asOf, created);
    // A later subscription event with the same second as the invoice must not be treated as stale.
    const at = isInvoice(event) ? found.asOf : statusAt;
    const snapshot = readSnapshot(found.object, plans, stored);
    const failure = reportsFailure(event) && event.created !== undefined && { pastDueSince: event.created };
    const began = failure || estimatePastDueSince(stored, snapshot, statusAt);
    return { snapshot, at, statusAt, ...began, isUncertain: false };
  };

  const fetchSubscription = async (event: PaymentEvent) => {
    const { subscriptionId: id } = event;
    if (!gateway || id === undefined) return null;
    await event.beforeCall?.();
    try {
      const found = await gateway.subscription(id);
      if (!found) throw subscriptionNotFound();
      return found;
    } catch (err) {
      // The event is applied as far as possible, and a background job syncs it later.
      log.warn({ err, subscription: id }, 'a subscription could not be fetched from the payment provider');
      return null;
    }
  };

  return {
    /** What an event changes of its subscription, for the commit of the event. */
    async prepare(
      event: PaymentEvent,
      id: string,
      { ownerId, subscription: known }: SubscriptionOwner,
    ): Promise<AppliedEvent> {
      const stored = known ?? null;
      const read = isInvoice(event) ? updateFromInvoice : updateFromSubscription;
      const update = await read(event, stored);
      if (update === 'stale' || update === 'deferred') {
        const parts = update === 'deferred' && stored ? [writer.requestingReconcile(stored)] : [];
        return { outcome: 'stale', isProjected: false, ...defined({ subscription: known }), parts };
      }
      const subscription = writer.merge(stored, { id, ownerId }, update);
      const at = event.created ?? clock.now();
      const isChanged = !stored || changedFields(stored, subscription).length > 0;
      return {
        outcome: 'processed',
        subscription,
        isInserted: !stored,
        isProjected: !stored || !haveSameProjection(stored, subscription),
        parts: [
          writer.writing(stored, subscription),
          isChanged ? await writer.announcing(event.id, subscription, { at }) : undefined,
        ],
      };
    },
  };
}

/** The subscription in an event. A deleted subscription is canceled, regardless of its status. */
function readEventSnapshot(
  { type, object, created }: PaymentEvent,
  plans: Plans,
  stored: SubscriptionDocument | null,
): Snapshot {
  const snapshot = readSnapshot(object, plans, stored);
  if (type !== 'customer.subscription.deleted') return snapshot;
  return {
    ...snapshot,
    status: 'canceled',
    ...(snapshot.endedAt == null && created !== undefined && { endedAt: created }),
  };
}

/** Whether an event says that payments fail since its time. */
const reportsFailure = ({ type, object }: PaymentEvent): boolean =>
  type === 'invoice.payment_failed' || object['status'] === 'past_due';

const timesOf = ({ created: at, receivedAt }: PaymentEvent) => defined({ at, receivedAt });

/**
 * - `apply`: newer than the stored state
 * - `stale`: older than the stored state
 * - `uncertain`: only the provider knows
 */
export type EventOrder = 'apply' | 'stale' | 'uncertain';

type Stored = Pick<SubscriptionDocument, 'status' | 'at' | 'statusAt' | 'heardAt'>;

/** @param status the status in the event; absent if it has none */
export function compareSubscriptionEvent(
  stored: Stored | null,
  event: Pick<PaymentEvent, 'type' | 'created' | 'receivedAt'>,
  status: string | undefined,
): EventOrder {
  if (!stored) return 'apply';
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
  event: Pick<PaymentEvent, 'type' | 'created' | 'object'>,
): Exclude<EventOrder, 'apply'> {
  if (!stored) return 'uncertain';
  const isVoided = event.type === 'invoice.voided' && UNPAID.includes(stored.status);
  const contradicts = isVoided || statusAfterInvoice(stored.status, event) !== stored.status;
  if (!contradicts || (event.created !== undefined && event.created < stored.statusAt)) return 'stale';
  return 'uncertain';
}

const UNPAID = ['past_due', 'unpaid', 'incomplete'];

/** The status that follows from an invoice alone. Nothing follows from a voided one: other invoices may be open. */
export function statusAfterInvoice(
  status: string,
  { type, object }: Pick<PaymentEvent, 'type' | 'object'>,
): string {
  if (type === 'invoice.payment_failed') return ['active', 'trialing'].includes(status) ? 'past_due' : status;
  // An invoice with amount 0, such as that of a trial, does not prove a payment.
  if (type === 'invoice.voided' || paidAmountOf({ type, object }) === 0) return status;
  return UNPAID.includes(status) ? 'active' : status;
}

/** Whether an event without a time was received before the last applied update. */
export const isOutdated = (
  { heardAt }: Pick<Stored, 'heardAt'>,
  { created, receivedAt }: Pick<PaymentEvent, 'created' | 'receivedAt'>,
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
