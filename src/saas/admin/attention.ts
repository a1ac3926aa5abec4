import { withSeparators } from '../../shared/console-kit/lists.js';
import type { EndpointService } from '../webhooks/service.js';
import { MAX_COUNTED, type Trends } from './trends.js';

/** How many endpoints of webhooks do not work. */
type EndpointProblems = Awaited<ReturnType<EndpointService['countProblems']>>;

/** What needs attention, with the page that shows it, relative to the root. */
export interface AttentionEntry {
  name: string;
  text: string;
  path: string;
}

/** What the operator should look at, by the figures of the last 30 days and the present state. */
export function attentionTo(
  { trends, figures }: Trends,
  { duplicates, endpoints }: { duplicates: boolean; endpoints: EndpointProblems | undefined },
): AttentionEntry[] {
  const totalOf = (id: string, index?: number) => {
    const series = trends.find((trend) => trend.id === id)?.series ?? [];
    return (index === undefined ? series : series.slice(index, index + 1))
      .flatMap(({ values }) => values)
      .reduce<number>((sum, value) => sum + (value ?? 0), 0);
  };
  const entries = [
    {
      name: 'events-not-completed',
      count: totalOf('webhook-failures', 1),
      text: 'Payment events that are not completed',
      path: 'webhooks?outcome=pending',
    },
    {
      name: 'unmatched-events',
      count: totalOf('webhook-failures', 0),
      text: 'Payment events of unknown users',
      path: 'webhooks?outcome=unmatched',
    },
    {
      name: 'failed-mails',
      count: totalOf('mail-failures'),
      text: 'E-mails that were not sent',
      path: '#plot-mail-failures',
    },
    {
      name: 'subscriptions-without-plan',
      count: figures?.withoutPlan ?? 0,
      text: 'Subscriptions whose price has no configured plan',
      path: 'subscriptions',
    },
    {
      name: 'unknown-amounts',
      count: figures?.incomplete ?? 0,
      text: 'Paying subscriptions with an unknown amount, which the monthly recurring revenue lacks',
      path: 'subscriptions',
    },
    {
      name: 'disabled-endpoints',
      count: endpoints?.disabled ?? 0,
      text: 'Endpoints of webhooks that were disabled because they failed',
      path: 'endpoints',
    },
    {
      name: 'failing-endpoints',
      count: endpoints?.failing ?? 0,
      text: 'Endpoints of webhooks whose last attempt failed',
      path: 'endpoints',
    },
  ];
  const counted = entries
    .filter(({ count }) => count > 0)
    .map(({ count, text, ...rest }) => ({ ...rest, text: `${text}: ${writeCount(count)}` }));
  const users = {
    name: 'duplicate-subscriptions',
    text: 'Users pay for more than one subscription',
    path: '#duplicates',
  };
  return duplicates ? [users, ...counted] : counted;
}

const writeCount = (count: number) =>
  count >= MAX_COUNTED ? `${withSeparators(count)} or more` : withSeparators(count);
