import { toTimestamp } from '../../../core/http/schemas.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import { readPage } from '../../../core/storage/pages.js';
import type { BillingContext } from '../context.js';
import { isEntitled } from '../entitlement.js';
import type { DuplicateSubscriptions } from '../schemas.js';
import { listSubscriptions, type SubscriptionDocument } from '../store.js';

/**
 * Users who pay for more than one subscription of a family, for example through two Payment Links. Each of them gives
 * access; the operator decides which one to cancel and refund.
 */
export type Duplicates = ReturnType<typeof createDuplicates>;

export function createDuplicates(context: BillingContext) {
  const { duplicates, subscriptions, users, plans, pastDue, emit, clock, log } = context;

  /** The subscriptions that share their family with another one, the newest first. */
  const duplicatesAmong = (all: readonly SubscriptionDocument[]): SubscriptionDocument[] => {
    const entitled = all.filter((one) => isEntitled(one, pastDue, clock.now()));
    if (entitled.length < 2) return [];
    const families = entitled.map(({ plan }) => plans.familyOf(plan));
    return entitled
      .filter(
        (_, index) => families.indexOf(families[index] ?? '') !== families.lastIndexOf(families[index] ?? ''),
      )
      .toSorted((a, b) => b.startedAt - a.startedAt || (b.id > a.id ? 1 : -1));
  };

  /** Whether this is the first report about these subscriptions, in any process. */
  const record = async (id: string, subscriptionId: string): Promise<boolean> => {
    const known = await duplicates.findOne({ id });
    const reported = known ? (known.reportedIds ?? [known.subscriptionId]) : [];
    // A subscription can be the newest again, after a newer one was unpaid for a while.
    if (reported.includes(subscriptionId)) return false;
    const at = clock.now();
    const written = known
      ? duplicates.updateOne(
          { id, subscriptionId: known.subscriptionId },
          { set: { subscriptionId, reportedIds: [...reported, subscriptionId], at } },
        )
      : duplicates.insert({ id, subscriptionId, at }).then(() => true, nullIfTaken);
    return (await written) !== null;
  };

  return {
    /** Reports a duplicate to the operator, once for each subscription that is added. */
    async report(userId: string, all: readonly SubscriptionDocument[]) {
      const found = duplicatesAmong(all);
      const [newest] = found;
      if (!newest || !(await record(userId, newest.id))) return;
      const subscriptionIds = found.map(({ id }) => id);
      log.warn({ userId, subscriptions: subscriptionIds }, 'a user pays for more than one subscription');
      await emit('subscription.duplicated', {
        id: `duplicate:${newest.id}`,
        at: toTimestamp(clock.now()),
        userId,
        subscriptionIds,
        plans: found.map(({ plan }) => plan),
      });
    },

    /** The users who have duplicates now, a page at a time. @throws VALIDATION_ERROR for an invalid `after` */
    async list(after: string | undefined): Promise<DuplicateSubscriptions> {
      const page = await readPage(duplicates, { sort: 'id', after });
      const items = await Promise.all(
        page.items.map(async ({ id, at }) => {
          const [user, all] = await Promise.all([users.find(id), listSubscriptions(subscriptions, id)]);
          const found = duplicatesAmong(all);
          if (!user || found.length === 0) return [];
          return [
            { userId: id, email: user.email, reportedAt: toTimestamp(at), subscriptions: found.map(view) },
          ];
        }),
      );
      return { items: items.flat(), next: page.next };
    },
  };
}

const view = ({ id, status, plan, priceId, startedAt }: SubscriptionDocument) => ({
  id,
  status,
  plan,
  priceId: priceId ?? null,
  startedAt: toTimestamp(startedAt),
});
