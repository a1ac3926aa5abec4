import { HOUR } from '../../core/kernel/clock.js';
import { defined } from '../../core/kernel/fields.js';
import type { Job } from '../../core/ops/jobs.js';
import type { BillingContext } from './context.js';
import type { Holdings } from './holdings.js';
import type { HeldView } from './schemas.js';
import type { SubscriptionChanges } from './subscription/changes.js';
import type { SubscriptionService } from './subscription/service.js';

const PAGE_SIZE = 50;
const RETRY_MS = HOUR;

/** Changes the quantity of plans that count members, soon after a change of their number. */
export function createSeatJob(
  { owners, plans, clock, log }: BillingContext,
  {
    holdings,
    subscription: service,
    changes,
  }: { holdings: Holdings; subscription: SubscriptionService; changes: SubscriptionChanges },
): Job {
  /** The order of what is scheduled for the end of the period, because another change ends it. */
  const scheduledIn = ({ id: subscriptionId, family, scheduledChange }: HeldView) => {
    const { reason, items = [] } = scheduledChange ?? {};
    const next = items.find(({ priceId }) => plans.familyOfPrice(priceId) === family);
    if (reason !== 'schedule' || !next) return undefined;
    // The number of members, if that plan counts them.
    const quantity = plans.seatsOf(next.priceId) === 'members' ? undefined : (next.quantity ?? undefined);
    return defined({ subscriptionId, priceId: next.priceId, quantity, when: 'period_end' as const });
  };

  /** Whether nothing remains to be done: a change may await its payment. */
  const adjust = async (ownerId: string, quantity: number): Promise<boolean> => {
    const counting = (await holdings.listBought(ownerId)).flatMap(({ plan, entitled, subscription }) =>
      // Without access, nothing is charged. Once there is access again, the numbers are compared.
      subscription && entitled && plans.configOf(plan)?.seats === 'members' ? subscription : [],
    );
    const different = counting.filter((one) => one.quantity !== quantity);
    for (const { id: subscriptionId, priceId = '', scheduleId } of different) {
      const view = (await service.holdings(ownerId)).holdings.find(({ id }) => id === subscriptionId);
      const scheduled = scheduleId !== undefined && view ? scheduledIn(view) : undefined;
      try {
        await changes.change(ownerId, { subscriptionId, priceId, quantity });
      } finally {
        if (scheduled) await changes.change(ownerId, scheduled);
      }
    }
    return different.length === 0;
  };

  return {
    everySeconds: 60,
    async run({ signal }) {
      for (const change of await owners.seatChanges.list(clock.now(), PAGE_SIZE)) {
        if (signal.aborted) return;
        const { ownerId, members } = change;
        const isDone = await adjust(ownerId, members).catch((err: unknown) => {
          log.warn(
            { err, ownerId, members },
            'the seats of an organization could not be changed; it is retried',
          );
          return false;
        });
        if (isDone) await owners.seatChanges.acknowledge(change);
        else await owners.seatChanges.postpone(change, clock.now() + RETRY_MS);
      }
    },
  };
}
