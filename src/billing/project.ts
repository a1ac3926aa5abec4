import { bestOf } from './status.js';
import type { SubscriptionDocument, Subscriptions } from './store.js';

/** What a user's record says of their subscription. */
export interface Projection {
  status: string;
  plan: string;
}

/** The user's record, as far as billing writes it. */
export interface ProjectionTarget {
  /** How often it was written; null where the user is gone. */
  revision(userId: string): Promise<number | null>;
  /** Writes where the revision is still the one named, and raises it. */
  write(userId: string, revision: number, projection: Projection): Promise<boolean>;
}

export const NO_SUBSCRIPTION: Projection = { status: 'none', plan: 'free' };

export interface Projector {
  /** Puts the best subscription of a user on the user's record. */
  project(userId: string): Promise<void>;
  /** What a user has or had, the newest first. */
  all(userId: string): Promise<SubscriptionDocument[]>;
}

const PAGE = 100;

/** Whether the user's record is the same with one state of a subscription as with another. */
export const projectsAlike = (before: SubscriptionDocument, after: SubscriptionDocument): boolean =>
  before.status === after.status && before.plan === after.plan && before.startedAt === after.startedAt;

export function createProjector(subscriptions: Subscriptions, target: ProjectionTarget): Projector {
  const all = async (userId: string): Promise<SubscriptionDocument[]> => {
    const found: SubscriptionDocument[] = [];
    const query = { where: { userId }, sort: 'startedAt', desc: true, limit: PAGE } as const;
    let page = await subscriptions.page(query);
    for (;;) {
      found.push(...page.items);
      if (page.next === null) return found;
      page = await subscriptions.page({ ...query, after: page.next });
    }
  };

  return {
    all,
    async project(userId) {
      for (;;) {
        const revision = await target.revision(userId);
        if (revision === null) return;
        const { status, plan } = bestOf(await all(userId)) ?? NO_SUBSCRIPTION;
        // Written also where it looks equal: somebody who read before us may be about to write what is old by now,
        // and only a raised revision stops them.
        if (await target.write(userId, revision, { status, plan })) return;
      }
    },
  };
}
