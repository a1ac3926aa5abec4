import { DAY } from '../../../core/kernel/clock.js';
import { isEntitled } from '../entitlement.js';
import type { PastDue } from '../options.js';
import type { AccessTerms, BillingOwner } from '../owners.js';
import { FREE_PLAN, type Quota } from '../plans/options.js';
import type { Plans } from '../plans/plans.js';

/** Which limit applies to a user, and to which period it applies. */

interface Period {
  /** Unix time in milliseconds; 0 for what is never reset. */
  start: number;
  /** When the next period starts. Absent for what is never reset. */
  resetsAt?: number;
}

export interface QuotaRule extends Period {
  /** What may be used in the period; `Infinity` is unlimited. */
  limit: number;
  /** What happens above the limit. */
  overuse: NonNullable<Quota['overuse']>;
  /** The meter of the provider to which use above the limit is reported. */
  meter?: string;
}

/** What gives a user a plan, and since when the periods of that plan are counted. */
interface Source {
  quota: Quota;
  seats: number;
  anchor: number;
  term: AccessTerms | undefined;
}

/** The rule with the highest limit of the user's plans; null if no plan of the configuration has the limit. */
export function quotaRule(
  name: string,
  user: BillingOwner,
  { plans, pastDue, now }: { plans: Plans; pastDue: PastDue; now: number },
): QuotaRule | null {
  if (!plans.limits.has(name)) return null;
  const sourcesOf = (plan: string, anchor: number, term?: AccessTerms): Source[] => {
    const quota = plans.quotaOf(plan, name);
    return quota ? [{ quota, seats: quota.perSeat ? (term?.quantity ?? 1) : 1, anchor, term }] : [];
  };
  const { grant, held } = user;
  const isGranted = grant && isEntitled({ ...grant, status: 'granted' }, pastDue, now);
  const sources = [
    ...sourcesOf(FREE_PLAN, user.createdAt),
    ...(isGranted ? sourcesOf(grant.plan, grant.since) : []),
    ...held
      .filter((term) => isEntitled(term, pastDue, now))
      .flatMap((term) => {
        const anchor = term.currentPeriodStart ?? term.startedAt;
        const others = term.otherPriceIds?.flatMap((priceId) => plans.configured?.get(priceId) ?? []) ?? [];
        return [term.plan, ...others].flatMap((plan) => sourcesOf(plan, anchor, term));
      }),
  ];
  const limitOf = ({ quota, seats }: Source) => (quota.amount ?? Number.POSITIVE_INFINITY) * seats;
  const best = sources.toSorted((a, b) => limitOf(b) - limitOf(a))[0];
  if (!best) return { limit: 0, start: 0, overuse: 'refused' };
  const { overuse = 'refused', meter } = best.quota;
  return { limit: limitOf(best), ...periodOf(best, now), overuse, ...(meter !== undefined && { meter }) };
}

function periodOf({ quota, anchor, term }: Source, now: number): Period {
  switch (quota.per) {
    case undefined:
      return { start: 0 };
    case 'day': {
      const start = Math.floor(now / DAY) * DAY;
      return { start, resetsAt: start + DAY };
    }
    case 'month':
      return monthsFrom(anchor, 1, now);
    case 'year':
      return monthsFrom(anchor, 12, now);
    default: {
      const { currentPeriodStart: start, currentPeriodEnd: resetsAt } = term ?? {};
      // A grant and a purchase have no period.
      if (start === undefined || resetsAt === undefined) return monthsFrom(anchor, 1, now);
      // The next period begins with the end of this one, also if its event is late.
      const length = Math.max(DAY, resetsAt - start);
      const passed = Math.max(0, Math.floor((now - start) / length)) * length;
      return { start: start + passed, resetsAt: resetsAt + passed };
    }
  }
}

/** The period of some months that contains `now`, counted from an anchor. The 31st becomes the last day of a shorter month. */
function monthsFrom(anchor: number, months: number, now: number): Period {
  const passed = Math.floor((monthOf(now) - monthOf(anchor)) / months);
  const startOf = (periods: number) => addMonths(anchor, periods * months);
  const periods = startOf(passed) <= now ? passed : passed - 1;
  return { start: startOf(periods), resetsAt: startOf(periods + 1) };
}

const monthOf = (time: number): number => {
  const date = new Date(time);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
};

function addMonths(time: number, months: number): number {
  const date = new Date(time);
  const day = date.getUTCDate();
  date.setUTCMonth(date.getUTCMonth() + months);
  // A day that the month does not have is in the month after it, before whose first day is the last of the month.
  if (date.getUTCDate() !== day) date.setUTCDate(0);
  return date.getTime();
}
