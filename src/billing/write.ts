import type { Clock } from '../kernel/clock.js';
import { nullIfTaken, type OptionalField } from '../storage/collection.js';
import { UNKNOWN_PLAN } from './plans.js';
import type { Snapshot } from './snapshot.js';
import { isTerminal } from './status.js';
import type { SubscriptionDocument, Subscriptions } from './store.js';

/** What becomes known of a subscription. */
export interface News {
  snapshot: Snapshot;
  /** The provider's time of the snapshot; absent where nothing said. */
  at?: number;
  /** The same of its status, where that is another one. */
  statusAt?: number;
  /** When it reached us, where that is not now. */
  heardAt?: number;
  /** The event it came with. */
  eventId?: string;
  /** Whether the provider is to be asked as soon as it can be; `still` where that stays as it was. */
  inDoubt: boolean | 'still';
}

export interface SubscriptionWriter {
  /** Writes over what was read; null where somebody else has written since. */
  write(stored: SubscriptionDocument | null, key: Key, news: News): Promise<SubscriptionDocument | null>;
  /** What `write` would make of it. */
  preview(stored: SubscriptionDocument | null, key: Key, news: News): SubscriptionDocument;
  /** Has the provider asked about a subscription that stays as it is. */
  mark(stored: SubscriptionDocument): Promise<SubscriptionDocument | null>;
  /** Takes back that the provider is to be asked soon. */
  settle(stored: SubscriptionDocument): Promise<SubscriptionDocument | null>;
}

interface Key {
  id: string;
  userId: string;
}

/** A period that is over for so long without a word from the provider is asked about. Milliseconds. */
const SILENCE = 24 * 60 * 60 * 1000;

export function createSubscriptionWriter(subscriptions: Subscriptions, clock: Clock): SubscriptionWriter {
  return {
    preview: (stored, key, news) => rewritten(stored, key, news, clock.now()),

    async write(stored, key, news) {
      const document = rewritten(stored, key, news, clock.now());
      if (!stored) return subscriptions.insert(document).then(() => document, nullIfTaken);
      const { id, ...set } = document;
      const gone = Object.keys(stored).filter((field) => !(field in document));
      const unset = gone as OptionalField<SubscriptionDocument>[];
      return subscriptions.updateOne({ id, rev: stored.rev }, { set, unset });
    },

    mark: ({ id, rev }) =>
      subscriptions.updateOne({ id, rev }, { set: { recheckAt: clock.now() }, inc: { rev: 1 } }),

    settle(stored) {
      const recheckAt = recheckOf(stored, clock.now());
      const change = recheckAt === undefined ? { unset: ['recheckAt' as const] } : { set: { recheckAt } };
      return subscriptions.updateOne({ id: stored.id, rev: stored.rev }, { ...change, inc: { rev: 1 } });
    },
  };
}

/** A subscription after the news of it. What is emptied or unknown is absent. */
function rewritten(
  stored: SubscriptionDocument | null,
  { id, userId }: Key,
  { snapshot, inDoubt, eventId, ...times }: News,
  now: number,
): SubscriptionDocument {
  const at = Math.max(stored?.at ?? 0, times.at ?? 0);
  const statusAt = Math.max(stored?.statusAt ?? 0, times.statusAt ?? 0, at);
  const terms = Object.assign({ startedAt: now }, FIRST_TERMS, stored, snapshot);
  const isPastDue = terms.status === 'past_due';
  const document = Object.assign(terms, {
    id,
    userId: stored?.userId ?? userId,
    cancelAtPeriodEnd: terms.cancelAtPeriodEnd === true,
    pastDueSince: isPastDue ? (stored?.pastDueSince ?? (times.statusAt || times.at || now)) : undefined,
    recheckAt: inDoubt === true ? now : earliest(inDoubt && stored?.recheckAt, recheckOf(terms, now)),
    lastEvent: eventId,
    heardAt: Math.max(stored?.heardAt ?? 0, times.heardAt ?? now),
    at,
    statusAt,
    rev: (stored?.rev ?? 0) + 1,
    createdAt: stored?.createdAt ?? now,
    updatedAt: now,
  });
  return Object.fromEntries(
    Object.entries(document).filter(([, value]) => value !== undefined && value !== null),
  ) as unknown as SubscriptionDocument;
}

const FIRST_TERMS = { status: 'incomplete', plan: UNKNOWN_PLAN, cancelAtPeriodEnd: false };

const earliest = (kept: number | false | undefined, planned: number | undefined): number | undefined =>
  kept ? Math.min(kept, planned ?? kept) : planned;

/** When to ask about a subscription that the provider should have said something of by itself. */
function recheckOf(
  { status, currentPeriodEnd, trialEnd }: Pick<Snapshot, 'status' | 'currentPeriodEnd' | 'trialEnd'>,
  now: number,
): number | undefined {
  const end = currentPeriodEnd ?? trialEnd;
  return isTerminal(status ?? '') || end == null ? undefined : Math.max(end, now) + SILENCE;
}
