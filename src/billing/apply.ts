import { type BillingEvent, isInvoice } from './event.js';
import type { FetchSubscription } from './fetch.js';
import { followsStored, isOutrun, judgeInvoice, judgeSubscription, statusAfterInvoice } from './judge.js';
import type { Owner } from './owner.js';
import type { Plans } from './plans.js';
import { projectsAlike } from './project.js';
import { readSnapshot, type Snapshot } from './snapshot.js';
import type { SubscriptionDocument, Subscriptions } from './store.js';
import type { News, SubscriptionWriter } from './write.js';

/** What an event did to its subscription. */
export interface Applied {
  /** `known` was done by an earlier delivery that did not get to its end. */
  effect: 'inserted' | 'updated' | 'known' | 'none';
  /** The user's record says what it should, as far as this event goes. */
  isProjected: boolean;
  /** As it is now; absent where nobody knows it yet. */
  subscription?: SubscriptionDocument;
}

/** Applies an event to its subscription, whatever else happens to the subscription meanwhile. */
export type Apply = (event: BillingEvent, subscriptionId: string, owner: Owner) => Promise<Applied>;

export interface ApplyDependencies {
  subscriptions: Subscriptions;
  writer: SubscriptionWriter;
  plans: Plans;
  fetch: FetchSubscription;
}

export function createApply({ subscriptions, writer, plans, fetch }: ApplyDependencies): Apply {
  const newsFor = (event: BillingEvent, stored: SubscriptionDocument | null): Promise<News | Skip> =>
    isInvoice(event) ? newsOfInvoice(event, stored) : newsOfSubscription(event, stored);

  const newsOfSubscription = async (
    event: BillingEvent,
    stored: SubscriptionDocument | null,
  ): Promise<News | Skip> => {
    const payload = readSubscription(event, plans);
    const status = payload.status ?? undefined;
    const verdict = judgeSubscription(stored, event, status);
    if (verdict === 'known' || verdict === 'stale') return verdict;
    const told = { snapshot: payload, eventId: event.id, ...dated(event) };
    if (verdict === 'apply' || !stored) {
      const isOlder = stored && event.created !== undefined && event.created < stored.statusAt;
      const keepsStatus = isOlder && event.type !== 'customer.subscription.deleted';
      // The status of an invoice that was believed without a look stays to be looked at.
      return keepsStatus
        ? { ...told, snapshot: without(payload, 'status'), inDoubt: 'still' }
        : { inDoubt: false, ...told };
    }
    const fetched = await newsFetched(event);
    if (fetched) return fetched;
    if (isOutrun(stored, event)) return 'mark';
    const isNewer = status === undefined || followsStored(stored, status, event.previous['status']);
    return isNewer ? { inDoubt: true, ...told } : 'mark';
  };

  const newsOfInvoice = async (
    event: BillingEvent,
    stored: SubscriptionDocument | null,
  ): Promise<News | Skip> => {
    const verdict = judgeInvoice(stored, event);
    if (verdict !== 'doubt') return verdict;
    const fetched = await newsFetched(event);
    if (fetched) return fetched;
    // Without the provider nobody knows what an invoice's own subscription looks like: its event is on its way.
    if (!stored) return 'stale';
    const status = statusAfterInvoice(stored.status, event);
    const isTie = event.created !== undefined && event.created === stored.statusAt;
    if (isTie && !followsStored(stored, status, undefined)) return 'mark';
    return {
      snapshot: { status },
      ...(event.created !== undefined && { statusAt: event.created }),
      eventId: event.id,
      inDoubt: true,
    };
  };

  const newsFetched = async (event: BillingEvent): Promise<News | null> => {
    const fetched = event.subscriptionId === undefined ? null : await fetch(event.subscriptionId);
    if (!fetched) return null;
    const { created = 0 } = event;
    const statusAt = Math.max(fetched.asOf, created);
    // Events about the subscription that are of the invoice's second and still on their way are not old for that.
    const at = isInvoice(event) ? fetched.asOf : statusAt;
    return { snapshot: fetched.snapshot, at, statusAt, eventId: event.id, inDoubt: false };
  };

  return async (event, id, { userId, subscription: seen }) => {
    for (let first = seen; ; first = undefined) {
      const stored = first ?? (await subscriptions.findOne({ id }));
      const news = await newsFor(event, stored);
      if (news === 'stale' || news === 'known') {
        // It may have been applied by a delivery that did not get as far as the user's record.
        const effect = news === 'known' ? 'known' : 'none';
        return { effect, isProjected: false, ...(stored && { subscription: stored }) };
      }
      if (news === 'mark') {
        const marked = stored && (await writer.mark(stored));
        if (marked) return { effect: 'none', isProjected: false, subscription: marked };
        continue;
      }
      const subscription = await writer.write(stored, { id, userId }, news);
      // Somebody else was first: what was judged is not what is stored any more.
      if (!subscription) continue;
      if (!stored) return { effect: 'inserted', isProjected: false, subscription };
      // What was stored by an event is on the user's record, or will be by its repetition; what was learnt otherwise may not.
      const isProjected = stored.lastEvent !== undefined && projectsAlike(stored, subscription);
      return { effect: 'updated', isProjected, subscription };
    }
  };
}

/** Why an event changes no terms. `mark`: the provider is to be asked later. */
type Skip = 'stale' | 'known' | 'mark';

/** What an event says of its subscription. One that is gone is gone, whatever its status says. */
function readSubscription({ type, object, created }: BillingEvent, plans: Plans): Snapshot {
  const snapshot = readSnapshot(object, plans);
  if (type !== 'customer.subscription.deleted') return snapshot;
  return {
    ...snapshot,
    status: 'canceled',
    ...(snapshot.endedAt == null && created !== undefined && { endedAt: created }),
  };
}

const dated = ({ created, heldSince }: BillingEvent) => ({
  ...(created !== undefined && { at: created }),
  ...(heldSince !== undefined && { heardAt: heldSince }),
});

function without(snapshot: Snapshot, field: keyof Snapshot): Snapshot {
  const { [field]: _, ...rest } = snapshot;
  return rest;
}
