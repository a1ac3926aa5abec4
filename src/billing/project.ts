import { isDeepStrictEqual } from 'node:util';
import { mayEntitle, type SubscriptionTerms } from './entitlement.js';
import { UNKNOWN_PLAN } from './plans.js';
import { bestOf } from './status.js';
import type { SubscriptionDocument, Subscriptions } from './store.js';

/** What a user's record says of their subscriptions. */
export interface Projection {
  /** Of the best subscription. */
  status: string;
  plan: string;
  /** Those that may entitle. */
  held: SubscriptionTerms[];
}

/** The user's record, as far as billing writes it. */
export interface ProjectionTarget {
  /** How often it was written; null where the user is gone. */
  revision(userId: string): Promise<number | null>;
  /** Writes where the revision is still the one named, and raises it. */
  write(userId: string, revision: number, projection: Projection): Promise<boolean>;
}

export const NO_SUBSCRIPTION = { status: 'none', plan: 'free' } as const;

export interface Projector {
  /** Puts the best subscription of a user on the user's record. */
  project(userId: string): Promise<void>;
  /** What a user has or had, the newest first. */
  all(userId: string): Promise<SubscriptionDocument[]>;
}

const PAGE = 100;

/** Whether the user's record is the same with one state of a subscription as with another. */
export const projectsAlike = (before: SubscriptionDocument, after: SubscriptionDocument): boolean =>
  isDeepStrictEqual(termsOf(before), termsOf(after));

/** What a user has or had, the newest first. */
export async function allOf(subscriptions: Subscriptions, userId: string): Promise<SubscriptionDocument[]> {
  const found: SubscriptionDocument[] = [];
  const query = { where: { userId }, sort: 'startedAt', desc: true, limit: PAGE } as const;
  let page = await subscriptions.page(query);
  for (;;) {
    found.push(...page.items);
    if (page.next === null) return found;
    page = await subscriptions.page({ ...query, after: page.next });
  }
}

/** The terms of a subscription that decide on access, without those that it lacks. */
function termsOf(subscription: SubscriptionDocument): SubscriptionTerms {
  const { id, status, plan, startedAt, trialEnd, pastDueSince } = subscription;
  return {
    id,
    status,
    plan,
    startedAt,
    ...(trialEnd !== undefined && { trialEnd }),
    ...(pastDueSince !== undefined && { pastDueSince }),
  };
}

export function createProjector(subscriptions: Subscriptions, target: ProjectionTarget): Projector {
  const all = (userId: string) => allOf(subscriptions, userId);

  return {
    all,
    async project(userId) {
      for (;;) {
        const revision = await target.revision(userId);
        if (revision === null) return;
        const bought = await all(userId);
        const { status, plan } = bestOf(bought) ?? NO_SUBSCRIPTION;
        const held = bought.filter((one) => mayEntitle(one.status) && one.plan !== UNKNOWN_PLAN).map(termsOf);
        // Written also where it looks equal: somebody who read before us may be about to write what is old by now,
        // and only a raised revision stops them.
        if (await target.write(userId, revision, { status, plan, held })) return;
      }
    },
  };
}
