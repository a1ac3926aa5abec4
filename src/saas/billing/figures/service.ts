import { DAY, HOUR, MINUTE, SECOND, timesOf } from '../../../core/kernel/clock.js';
import type { Job } from '../../../core/ops/jobs.js';
import type { Metrics } from '../../../core/ops/metrics.js';
import type { BillingContext } from '../context.js';
import type { FigureDependencies } from './job.js';
import { type DailyFigures, MOVEMENTS } from './store.js';

/** Figures about subscriptions, payments and events per day, for the operator. */
export type BillingFigures = ReturnType<typeof createBillingFigures>;

/** Events that arrived since are being processed. */
const PROCESSING_MS = 10 * MINUTE;

export function createBillingFigures({ dailyFigures, payments, paymentEvents, clock }: BillingContext) {
  return {
    /** The movements of the MRR, in the order of their presentation. */
    movements: MOVEMENTS,

    /** The figures of each day (ISO 8601 dates, UTC); null if none were made. */
    async daily(days: readonly string[]): Promise<(DailyFigures | null)[]> {
      const where = { id: { in: days } };
      const { items } = await dailyFigures.page({ where, sort: 'id', limit: days.length });
      const found = new Map(items.map((one) => [one.id, one]));
      return days.map((day) => found.get(day) ?? null);
    },

    /** Failed payments of each day or month, each up to `limit`. */
    countFailedPayments: (days: readonly string[], limit: number): Promise<number[]> =>
      Promise.all(days.map((day) => payments.count({ status: 'failed', at: timesOf(day) }, limit))),

    /** Received events of each day that are not applied, each up to `limit`. */
    async countOpenEvents(
      days: readonly string[],
      limit: number,
    ): Promise<{ unmatched: number[]; incomplete: number[] }> {
      const count = (outcome: 'unmatched' | null, until: number) =>
        Promise.all(
          days.map((day) => {
            const { gte, lt } = timesOf(day);
            return paymentEvents.count({ outcome, receivedAt: { gte, lt: Math.min(lt, until) } }, limit);
          }),
        );
      const now = clock.now();
      const [unmatched, incomplete] = await Promise.all([
        count('unmatched', now + DAY),
        count(null, now - PROCESSING_MS),
      ]);
      return { unmatched, incomplete };
    },
  };
}

/** Updates the figures of the current day every hour. */
export const createFigureJob = (deps: FigureDependencies): Job => ({
  everySeconds: HOUR / SECOND,
  async run(lease) {
    const { updateFigures } = await import('./job.js');
    await updateFigures(deps, lease);
  },
});

/** Declares the metrics of the business: the latest figures of the job, at most an hour old. */
export function measureFigures(
  metrics: Metrics,
  { dailyFigures }: Pick<BillingContext, 'dailyFigures'>,
): void {
  const latest = async () => (await dailyFigures.page({ sort: 'id', desc: true, limit: 1 })).items[0];
  metrics.storeGauge(
    { name: 'subscriptions', help: 'Subscriptions by status, without ended ones.', labels: ['status'] },
    async () =>
      Object.entries((await latest())?.statuses ?? {}).map(([status, value]) => ({
        labels: { status },
        value,
      })),
  );
  metrics.storeGauge(
    {
      name: 'mrr_minor_units',
      help: 'Monthly recurring revenue in the smallest unit of each currency.',
      labels: ['currency'],
    },
    async () =>
      Object.entries((await latest())?.mrr ?? {}).map(([currency, value]) => ({
        labels: { currency },
        value,
      })),
  );
}
