import type { Problem } from '../../shared/console-kit/attention.js';
import { MAX_COUNTED, type Trends } from './trends.js';

/** What operators learn as events, unless nobody is told: what begins or ends to need attention. */
export interface AttentionEvents {
  /** For the operator: something needs attention. `since`: when it was noticed; `url`: the page that mends it. */
  'attention.began': { problem: string; count: number; since: string; url: string };
  /** For the operator: it no longer needs attention. */
  'attention.ended': { problem: string; count: number; since: string; url: string };
}

export const ATTENTION_EVENTS: Record<keyof AttentionEvents, true> = {
  'attention.began': true,
  'attention.ended': true,
};

/** What the operator should look at, by the figures of the last 30 days and the present state. */
export function attentionTo(
  { trends, figures }: Trends,
  duplicates: Pick<Problem, 'count' | 'isPart'>,
  endpoints: { disabled: number; failing: number } = { disabled: 0, failing: 0 },
): Problem[] {
  /** What a plot has counted, or one of its series. */
  const totalOf = (id: string, name?: string) => {
    const series = trends.find((trend) => trend.id === id)?.series ?? [];
    return series
      .filter((one) => name === undefined || one.name === name)
      .flatMap(({ values }) => values)
      .reduce<number>((sum, value) => sum + (value ?? 0), 0);
  };
  const notCompleted = totalOf('webhook-failures', 'not completed');
  const unmatched = totalOf('webhook-failures', 'unmatched');
  const entries = [
    { name: 'duplicate-subscriptions', ...duplicates, path: '#duplicates' },
    { name: 'events-not-completed', count: notCompleted, path: 'webhooks?outcome=pending' },
    { name: 'unmatched-events', count: unmatched, path: 'webhooks?outcome=unmatched' },
    { name: 'failed-mails', count: totalOf('mail-failures'), path: '#plot-mail-failures' },
    { name: 'subscriptions-without-plan', count: figures?.withoutPlan ?? 0, path: 'subscriptions' },
    { name: 'unknown-amounts', count: figures?.incomplete ?? 0, path: 'subscriptions' },
    { name: 'disabled-endpoints', count: endpoints.disabled, path: 'endpoints' },
    { name: 'failing-endpoints', count: endpoints.failing, path: 'endpoints' },
  ];
  return entries
    .filter(({ count }) => count > 0)
    .map((problem) => ({ isPart: problem.count >= MAX_COUNTED, ...problem }));
}
