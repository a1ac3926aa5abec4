import { setImmediate } from 'node:timers/promises';
import { type Clock, lastDays, MINUTE, SECOND } from '../../core/kernel/clock.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import type { Console } from '../../shared/console-kit/console.js';
import type { KeyFigure } from '../../shared/console-kit/key-figures.js';
import type { TimeSeries } from '../../shared/console-kit/plots.js';
import type { EmailService } from '../../shared/email/service.js';
import type { Activity } from '../auth/sessions/activity.js';
import type { UserDirectory } from '../auth/users/users.js';
import type { BillingFigures } from '../billing/figures/service.js';
import type { DailyFigures } from '../billing/figures/store.js';
import { decimalsOf } from './billing.js';
import { keyFiguresOf } from './key-figures.js';

/** The plots of the overview. Their data is read and drawn at most once a minute, whatever the number of requests. */

export interface TrendSources {
  users: UserDirectory;
  activity: Activity;
  mails: EmailService;
  /** Absent if billing is not configured. */
  billing: BillingFigures | undefined;
}

/** A plot with its place on the page. */
export interface Trend extends TimeSeries {
  id: string;
  /** How the values come about, as sentences. */
  definition: string;
  /** The list of what is counted, relative to the root. */
  path?: string;
}

export interface Trends {
  /** When the data was read. */
  at: number;
  /** `markup`: the plot with its summary and table. */
  trends: (Trend & { markup: string })[];
  /** The most important numbers. */
  keyFigures: KeyFigure[];
  /** The newest figures about subscriptions. */
  figures: DailyFigures | null;
}

/** A plot of the days that the page shows. */
type Shown = Omit<Trend, 'days'>;

/** Index entries that are read per day and plot. */
export const MAX_COUNTED_PER_DAY = 10_000;

/** What a plot of counted things has in common with others. */
const COUNTS = { shape: 'stacked', isSummable: true, bound: MAX_COUNTED_PER_DAY } as const;

/** The days of a period. As many before it are read, too, for the changes. */
const DAYS = 30;
const MAX_CURRENCIES = 3;

/** Statuses with a series of their own; the others share one. */
const STATUSES = ['active', 'trialing', 'past_due', 'unpaid', 'paused', 'incomplete'];

const REFRESH_MS = MINUTE;

/** Older plots are not shown: the request waits for new ones. */
const MAX_AGE_MS = 10 * MINUTE;

/** Returns the plots; while they are at most ten minutes old, new ones are made after the response. */
export function createTrends(
  sources: TrendSources,
  { clock, backgroundTasks, console }: { clock: Clock; backgroundTasks: BackgroundTasks; console: Console },
): () => Promise<Trends> {
  let made: Trends | undefined;
  let pending: Promise<Trends> | undefined;
  const update = () => {
    pending ??= makeTrends(sources, clock, console)
      .then((trends) => {
        made = trends;
        return trends;
      })
      .finally(() => {
        pending = undefined;
      });
    return pending;
  };
  return async () => {
    const age = made ? clock.now() - made.at : Number.POSITIVE_INFINITY;
    if (!made || age < 0 || age > MAX_AGE_MS) return update();
    if (age >= REFRESH_MS && !pending) {
      backgroundTasks.run('plots of the overview', async () => void (await update()));
    }
    return made;
  };
}

async function makeTrends(sources: TrendSources, clock: Clock, console: Console): Promise<Trends> {
  const at = clock.now();
  const read = lastDays(clock, 2 * DAYS);
  const days = read.slice(DAYS);
  const [general, billing] = await Promise.all([generalTrends(sources, read), billingTrends(sources, read)]);
  const whole = [...general, ...billing.trends];
  const main =
    whole.find(({ id }) => /^mrr-[a-z]{3}$/.test(id)) ?? whole.find(({ id }) => id === 'active-users');
  const { renderPlot } = await import('../../shared/console-kit/plots.js');
  const trends: Trends['trends'] = [];
  for (const { series, ...shown } of whole) {
    const ofPeriod = series.map((one) => ({ ...one, values: one.values.slice(-DAYS) }));
    const before = series[0]?.values.slice(0, DAYS) ?? [];
    const isMain = shown.id === main?.id;
    const trend = { ...shown, days, series: ofPeriod, ...(isMain && { wide: { before } }) };
    const markup = console.renderPart('_console-plot', { ...renderPlot(trend) });
    trends.push({ ...trend, markup });
    await setImmediate();
  }
  return { at, trends, keyFigures: keyFiguresOf(whole), figures: billing.figures };
}

async function generalTrends({ users, activity, mails }: TrendSources, days: string[]): Promise<Shown[]> {
  const [signUps, active, failures] = await Promise.all([
    users.countRegistrations(days, MAX_COUNTED_PER_DAY),
    activity.countActive(days),
    mails.countFailures(days.slice(-DAYS), MAX_COUNTED_PER_DAY),
  ]);
  return [
    {
      ...COUNTS,
      id: 'sign-ups',
      label: 'Sign-ups',
      unit: 'users',
      series: [{ name: 'Sign-ups', values: signUps }],
      definition: 'Accounts that exist, by the day of their registration.',
      path: 'users',
    },
    {
      id: 'active-users',
      label: 'Active users',
      unit: 'users',
      shape: 'lines',
      isSummable: false,
      bound: 100_000,
      series: [{ name: 'Active users', values: active }],
      definition: 'Users who signed in or refreshed a session on the day. Counted when the day is over.',
    },
    {
      ...COUNTS,
      id: 'mail-failures',
      label: 'Failed e-mails',
      unit: 'e-mails',
      series: Object.entries(failures).map(([name, values]) => ({ name, values })),
      definition: 'E-mails that were not sent, by the day of the last attempt. Kept for 30 days.',
    },
  ];
}

async function billingTrends(
  { billing }: TrendSources,
  days: string[],
): Promise<{ trends: Shown[]; figures: DailyFigures | null }> {
  if (!billing) return { trends: [], figures: null };
  const [daily, failedPayments, openEvents] = await Promise.all([
    billing.daily(days),
    billing.countFailedPayments(days, MAX_COUNTED_PER_DAY),
    billing.countOpenEvents(days.slice(-DAYS), MAX_COUNTED_PER_DAY),
  ]);
  const figures = daily.findLast((one) => one !== null) ?? null;
  const trends: Shown[] = [
    subscriptionTrend(daily),
    ...currenciesOf(figures).flatMap((currency) => revenueTrends(currency, daily, billing.movements)),
    trialTrend(days, figures),
    {
      ...COUNTS,
      id: 'failed-payments',
      label: 'Failed payments',
      unit: 'payments',
      series: [{ name: 'Failed payments', values: failedPayments }],
      definition: 'Payments whose last attempt failed, by the day of that attempt.',
      path: 'payments?status=failed',
    },
    {
      ...COUNTS,
      id: 'webhook-failures',
      label: 'Payment events without effect',
      unit: 'events',
      series: [
        { name: 'unmatched', values: openEvents.unmatched },
        { name: 'not completed', values: openEvents.incomplete },
      ],
      definition:
        'Received events whose user is not known, and events whose processing failed or continues, by the day of their arrival.',
      path: 'webhooks?outcome=unmatched',
    },
  ];
  return { trends, figures };
}

function subscriptionTrend(daily: (DailyFigures | null)[]): Shown {
  const othersOf = (statuses: Record<string, number>) =>
    Object.entries(statuses).reduce((sum, [name, count]) => (STATUSES.includes(name) ? sum : sum + count), 0);
  return {
    id: 'subscriptions',
    label: 'Subscriptions by status',
    unit: 'subscriptions',
    shape: 'stacked',
    isSummable: false,
    series: [
      ...STATUSES.map((name) => ({ name, values: daily.map((day) => day && (day.statuses[name] ?? 0)) })),
      { name: 'others', values: daily.map((day) => day && othersOf(day.statuses)) },
    ],
    definition: 'Subscriptions that have not ended, at the last count of each day.',
    path: 'subscriptions',
  };
}

/** Those with the highest numbers; a sum of several currencies would mean nothing. */
const currenciesOf = (figures: DailyFigures | null): string[] =>
  Object.entries(figures?.mrr ?? {})
    .sort(([, one], [, other]) => other - one)
    .slice(0, MAX_CURRENCIES)
    .map(([currency]) => currency);

function revenueTrends(
  currency: string,
  daily: (DailyFigures | null)[],
  movements: BillingFigures['movements'],
): Shown[] {
  const unit = currency.toUpperCase();
  const inUnits = (amount = 0) => amount / 10 ** decimalsOf(unit);
  return [
    {
      id: `mrr-${currency}`,
      label: `Monthly recurring revenue in ${unit}`,
      unit,
      shape: 'lines',
      isSummable: false,
      series: [{ name: 'MRR', values: daily.map((day) => day && inUnits(day.mrr[currency])) }],
      definition:
        'The monthly amount of all active and past due subscriptions, without trials, metered prices and taxes, before discounts.',
      path: 'subscriptions',
    },
    {
      id: `mrr-changes-${currency}`,
      label: `Changes of the monthly recurring revenue in ${unit}`,
      unit,
      shape: 'stacked',
      isSummable: true,
      series: movements.map((name) => ({
        name,
        values: daily.map((day) => day && inUnits(day.movements[currency]?.[name])),
      })),
      definition: 'The difference of each subscription to the end of the day before.',
      path: 'subscriptions',
    },
  ];
}

function trialTrend(days: string[], figures: DailyFigures | null): Shown {
  const of = (outcome: 'converted' | 'open' | 'ended') =>
    days.map((day) => figures && (figures.trials[day]?.[outcome] ?? 0));
  return {
    id: 'trials',
    label: 'Trials by outcome',
    unit: 'trials',
    shape: 'stacked',
    isSummable: true,
    series: [
      { name: 'converted', values: of('converted') },
      { name: 'not paid yet', values: of('open') },
      { name: 'ended', values: of('ended') },
    ],
    definition: 'Trials by the day of their end. Converted: the subscription is active now.',
    path: 'subscriptions',
  };
}

export const REFRESH_SECONDS = REFRESH_MS / SECOND;
