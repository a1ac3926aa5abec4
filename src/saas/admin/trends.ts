import { setImmediate } from 'node:timers/promises';
import { lastDays, MINUTE, SECOND } from '../../core/kernel/clock.js';
import { decimalsOf } from '../../core/kernel/currencies.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import { type Period, type PeriodName, periodOf } from '../../shared/console-kit/periods.js';
import type { TimeSeries } from '../../shared/console-kit/plots.js';
import type { BillingFigures } from '../billing/figures/service.js';
import type { DailyFigures } from '../billing/figures/store.js';
import { type Counted, keyFiguresOf } from './key-figures.js';
import type { AdminServices } from './services.js';

/** The plots of the overview. Their data is read and drawn at most once a minute, whatever the number of requests. */

type TrendSources = Pick<AdminServices, 'users' | 'auth' | 'email' | 'billing' | 'console' | 'clock'>;

export type Trends = Awaited<ReturnType<typeof makeTrends>>;

/** Index entries that are read per day or month and plot. */
export const MAX_COUNTED = 10_000;

/** What a plot of counted things has in common with others. */
const COUNTS = { shape: 'stacked', isSummable: true, bound: MAX_COUNTED } as const;

/** What is kept for a month only, and what needs attention, is about these days in every period. */
const RECENT_DAYS = 30;
const MAX_CURRENCIES = 3;

/** Statuses with a series of their own; the others share one. */
const STATUSES = ['active', 'trialing', 'past_due', 'unpaid', 'paused', 'incomplete'];

const REFRESH_MS = MINUTE;

/** Older plots are not shown: the request waits for new ones. */
const MAX_AGE_MS = 10 * MINUTE;

export type TrendsOf = (name: PeriodName) => Promise<Trends>;

/** Returns the plots of a period; while they are at most ten minutes old, new ones are made after the response. */
export function createTrends(sources: TrendSources, backgroundTasks: BackgroundTasks): TrendsOf {
  const { clock } = sources;
  const made = new Map<PeriodName, Trends>();
  const pending = new Map<PeriodName, Promise<Trends>>();
  const update = (name: PeriodName) => {
    const running =
      pending.get(name) ??
      makeTrends(sources, name)
        .then((trends) => {
          made.set(name, trends);
          return trends;
        })
        .finally(() => pending.delete(name));
    pending.set(name, running);
    return running;
  };
  return async (name) => {
    const known = made.get(name);
    const age = known ? clock.now() - known.at : Number.POSITIVE_INFINITY;
    if (!known || age < 0 || age > MAX_AGE_MS) return update(name);
    if (age >= REFRESH_MS && !pending.has(name)) {
      backgroundTasks.run('plots of the overview', async () => void (await update(name)));
    }
    return known;
  };
}

async function makeTrends(sources: TrendSources, name: PeriodName) {
  const { clock, console } = sources;
  const at = clock.now();
  const period = periodOf(name, clock);
  const recent = lastDays(clock, RECENT_DAYS);
  const [general, billing] = await Promise.all([
    generalTrends(sources, period, recent),
    billingTrends(sources, period, recent),
  ]);
  const whole = [...general, ...billing.trends];
  const main =
    whole.find(({ id }) => /^mrr-[a-z]{3}$/.test(id)) ?? whole.find(({ id }) => id === 'active-users');
  const { renderPlot } = await import('../../shared/console-kit/plots.js');
  const trends: (Counted & TimeSeries & { markup: string })[] = [];
  for (const one of whole) {
    const { days = period.spans.slice(period.count), series, ...shown } = one;
    const ofPeriod = series.map((part) => ({ ...part, values: part.values.slice(-days.length) }));
    const wide = one === main && { wide: { before: series[0]?.values.slice(0, period.count) ?? [] } };
    const trend = { ...shown, days, series: ofPeriod, ...wide };
    const markup = console.renderPart('_console-plot', { ...renderPlot(trend) });
    trends.push({ ...trend, markup });
    await setImmediate();
  }
  return { at, trends, keyFigures: keyFiguresOf([...whole, ...billing.levels]), figures: billing.figures };
}

async function generalTrends(
  { users, auth, email }: TrendSources,
  { spans, days, fold }: Period,
  recent: readonly string[],
): Promise<Counted[]> {
  const [signUps, active, failures] = await Promise.all([
    users.directory.countRegistrations(spans, MAX_COUNTED),
    auth.activity.countActive(days),
    email.service.countFailures(recent, MAX_COUNTED),
  ]);
  return [
    {
      ...COUNTS,
      id: 'sign-ups',
      label: 'Sign-ups',
      unit: 'users',
      series: [{ name: 'Sign-ups', values: signUps }],
      definition: 'Accounts that exist, by the time of their registration.',
      path: 'users',
    },
    {
      id: 'active-users',
      label: 'Active users',
      unit: 'users',
      shape: 'lines',
      isSummable: false,
      bound: 100_000,
      series: [{ name: 'Active users', values: fold(active, false) }],
      definition:
        'Users who signed in or refreshed a session on the day. A day is counted when it is over; a month shows its latest counted day.',
    },
    {
      ...COUNTS,
      id: 'mail-failures',
      label: 'Failed e-mails',
      unit: 'e-mails',
      days: recent,
      series: Object.entries(failures).map(([name, values]) => ({ name, values })),
      definition: 'E-mails that were not sent, by the day of the last attempt. Kept for 30 days.',
    },
  ];
}

async function billingTrends(sources: TrendSources, period: Period, recent: readonly string[]) {
  const billing = sources.billing.figures;
  if (!billing) return { trends: [], levels: [], figures: null };
  const [daily, failedPayments, openEvents] = await Promise.all([
    billing.daily(period.days),
    billing.countFailedPayments(period.spans, MAX_COUNTED),
    billing.countOpenEvents(recent, MAX_COUNTED),
  ]);
  const figures = daily.findLast((one) => one !== null) ?? null;
  /** The values of a plot by those of the days. */
  const folded = ({ series, ...trend }: Counted): Counted => ({
    ...trend,
    series: series.map(({ name, values }) => ({ name, values: period.fold(values, trend.isSummable) })),
  });
  const trends: Counted[] = [
    folded(subscriptionTrend(daily)),
    ...currenciesOf(figures)
      .flatMap((currency) => revenueTrends(currency, daily, billing.movements))
      .map(folded),
    trialTrend(recent, figures),
    {
      ...COUNTS,
      id: 'failed-payments',
      label: 'Failed payments',
      unit: 'payments',
      series: [{ name: 'Failed payments', values: failedPayments }],
      definition: 'Payments whose last attempt failed, by the time of that attempt.',
      path: 'payments?status=failed',
    },
    {
      ...COUNTS,
      id: 'webhook-failures',
      label: 'Payment events without effect',
      unit: 'events',
      days: recent,
      series: [
        { name: 'unmatched', values: openEvents.unmatched },
        { name: 'not completed', values: openEvents.incomplete },
      ],
      definition:
        'Received events whose user is not known, and events whose processing failed or continues, by the day of their arrival.',
      path: 'webhooks?outcome=unmatched',
    },
  ];
  const ending = {
    id: 'trials-ending',
    unit: 'trials',
    isSummable: false,
    series: [
      {
        name: 'ending',
        values: period.fold(
          daily.map((day) => day?.trialsEnding ?? null),
          false,
        ),
      },
    ],
    path: 'subscriptions?status=trialing',
  };
  return { trends, levels: [ending], figures };
}

function subscriptionTrend(daily: (DailyFigures | null)[]): Counted {
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
    definition: 'Subscriptions that have not ended, at the last count of each day or month.',
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
): Counted[] {
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

function trialTrend(days: readonly string[], figures: DailyFigures | null): Counted {
  const of = (outcome: 'converted' | 'open' | 'ended') =>
    days.map((day) => figures && (figures.trials[day]?.[outcome] ?? 0));
  return {
    id: 'trials',
    label: 'Trials by outcome',
    unit: 'trials',
    days,
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
