import { HOUR } from '../../core/kernel/clock.js';
import type { Job } from '../../core/ops/jobs.js';
import type { BillingContext } from './context.js';
import { type Holdings, isRunning } from './holdings.js';
import type { SubscriptionChanges } from './subscription/changes.js';

const PAGE_SIZE = 50;
const RETRY_MS = HOUR;

/** Changes the quantity of plans that count members, soon after a change of their number. */
export function createSeatJob(
  { owners, plans, clock, log }: BillingContext,
  { holdings, changes }: { holdings: Holdings; changes: SubscriptionChanges },
): Job {
  const adjust = async (ownerId: string, quantity: number): Promise<void> => {
    for (const held of await holdings.listBought(ownerId)) {
      const { id: subscriptionId, plan, subscription: { priceId, quantity: present } = {} } = held;
      if (!isRunning(held) || plans.configOf(plan)?.seats !== 'members' || priceId === undefined) continue;
      if (present !== quantity) await changes.change(ownerId, { subscriptionId, priceId, quantity });
    }
  };

  return {
    everySeconds: 60,
    async run({ signal }) {
      for (const { ownerId, members, dueAt } of await owners.seatChanges.list(clock.now(), PAGE_SIZE)) {
        if (signal.aborted) return;
        try {
          await adjust(ownerId, members);
          await owners.seatChanges.acknowledge({ ownerId, members, dueAt });
        } catch (err) {
          log.warn(
            { err, ownerId, members },
            'the seats of an organization could not be changed; it is retried',
          );
          await owners.seatChanges.postpone({ ownerId, members, dueAt }, clock.now() + RETRY_MS);
        }
      }
    },
  };
}
