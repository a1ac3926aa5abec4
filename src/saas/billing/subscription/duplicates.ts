import { toTimestamp } from '../../../core/http/schemas.js';
import { readPage } from '../../../core/storage/pages.js';
import type { BillingContext, CommitPart } from '../context.js';
import type { Holding, Holdings } from '../holdings.js';
import { referenceTo } from '../owners.js';
import type { DuplicateSubscriptions } from '../schemas.js';
import type { SubscriptionDocument } from '../store.js';

/**
 * Users who pay for more than one subscription of a family, for example through two Payment Links. Each of them gives
 * access; the operator decides which one to cancel and refund.
 */
export type Duplicates = ReturnType<typeof createDuplicates>;

export function createDuplicates(context: BillingContext, { listBought }: Holdings) {
  const { duplicates, owners, event, clock, log } = context;

  /** The subscriptions that share their family with another one, the newest first. */
  const duplicatesAmong = (bought: readonly Holding[]): SubscriptionDocument[] => {
    const entitled = bought.filter(
      ({ subscription, entitled, family }) => subscription && entitled && family !== undefined,
    );
    return entitled
      .filter((one) => entitled.some((other) => other !== one && other.family === one.family))
      .flatMap(({ subscription }) => subscription ?? [])
      .toSorted((a, b) => b.startedAt - a.startedAt || (b.id > a.id ? 1 : -1));
  };

  return {
    /**
     * The report of a duplicate to the operator, once for each subscription that is added. For a commit that writes the user's record, by
     * which the reports of a user are made one after the other.
     */
    async reporting(id: string, bought: readonly Holding[]): Promise<CommitPart[]> {
      const found = duplicatesAmong(bought);
      const [newest] = found;
      if (!newest) return [];
      const known = await duplicates.findOne({ id });
      const reported = known?.reportedIds ?? [];
      // A subscription can be the newest again, after a newer one was unpaid for a while.
      if (reported.includes(newest.id)) return [];
      const at = clock.now();
      const set = { subscriptionId: newest.id, reportedIds: [...reported, newest.id], at };
      const subscriptionIds = found.map((one) => one.id);
      return [
        known
          ? duplicates.changing({ id, subscriptionId: known.subscriptionId }, { set })
          : duplicates.inserting({ id, ...set }),
        await event('subscription.duplicated', {
          id: `duplicate:${newest.id}`,
          at: toTimestamp(at),
          ...referenceTo(id),
          subscriptionIds,
          plans: found.map(({ plan }) => plan),
        }),
        {
          writes: [],
          afterCommit: () =>
            log.warn(
              { ownerId: id, subscriptions: subscriptionIds },
              'a customer pays for more than one subscription',
            ),
        },
      ];
    },

    /** The owners who have duplicates now, a page at a time. @throws VALIDATION_ERROR for an invalid `after` */
    async list(after: string | undefined): Promise<DuplicateSubscriptions> {
      const page = await readPage(duplicates, { sort: 'id', after });
      const items = await Promise.all(
        page.items.map(async ({ id, at }) => {
          const [owner, bought] = await Promise.all([owners.find(id), listBought(id)]);
          const found = duplicatesAmong(bought);
          if (!owner || found.length === 0) return [];
          return [
            { ownerId: id, email: owner.email, reportedAt: toTimestamp(at), subscriptions: found.map(view) },
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
