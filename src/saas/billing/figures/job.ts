import { isDeepStrictEqual } from 'node:util';
import { type Clock, DAY } from '../../../core/kernel/clock.js';
import { defined } from '../../../core/kernel/fields.js';
import type { Lease } from '../../../core/ops/jobs.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import { allOf } from '../../../core/storage/pages.js';
import { UNKNOWN_PLAN } from '../plans/plans.js';
import { isTerminal, listSubscriptions, type SubscriptionDocument, type Subscriptions } from '../store.js';
import { type Amounts, monthlyRevenueOf } from './amounts.js';
import type {
  FigureCollections,
  Figures,
  Movement,
  ProgressDocument,
  RevenueDocument,
  Trials,
} from './store.js';

/**
 * Derives the figures of the current day from all subscriptions. A run reads them in order of their ID, in batches whose result is
 * stored with the position, so that a run after a crash continues there: a batch that is read twice finds the same changes,
 * because each amount is compared with the one at the end of the day before.
 */

/** Few enough to take a few milliseconds: requests are served between two batches. */
const BATCH_SIZE = 200;

/** Days whose trials are counted again in each run, because a payment may follow days later. */
const TRIAL_DAYS = 30;

/** A trial that ends within these days is counted as ending. */
const ENDING_DAYS = 7;

const ID = 'subscriptions';

export interface FigureDependencies extends FigureCollections {
  subscriptions: Subscriptions;
  clock: Clock;
}

/** Runs until the figures of the day are stored, or the lease is lost. */
export async function updateFigures(deps: FigureDependencies, { term, signal }: Lease): Promise<void> {
  const { figureProgress: progress, dailyFigures } = deps;
  const write = (set: Partial<Omit<ProgressDocument, 'id'>>) => progress.updateOne({ id: ID, term }, { set });
  let current = await begin(deps, term);
  while (current && !signal.aborted) {
    const next = await readBatch(deps, current);
    if (next.isDone) {
      const figures = { at: next.startedAt, ...next.figures };
      const stored = await dailyFigures.updateOne({ id: next.day }, { set: figures });
      if (!stored) await dailyFigures.insert({ id: next.day, ...figures }).catch(nullIfTaken);
    }
    const { id, ...set } = next;
    current = await write(set);
    if (next.isDone) return;
  }
}

/** Takes over an interrupted run of this day, or begins a new one; null if another process has. */
async function begin(
  { figureProgress: progress, dailyFigures, clock }: FigureDependencies,
  term: number,
): Promise<ProgressDocument | null> {
  const startedAt = clock.now();
  const day = dayOf(startedAt);
  const found = await progress.findOne({ id: ID });
  const isInterrupted = found?.day === day && !found.isDone;
  const fresh = {
    day,
    startedAt,
    term,
    isFirst: (await dailyFigures.count({}, 1)) === 0,
    figures: {
      statuses: {},
      mrr: {},
      movements: {},
      incomplete: 0,
      withoutPlan: 0,
      trials: {},
      trialsEnding: 0,
    },
    isDone: false,
  };
  if (!found) {
    await progress.insert({ id: ID, ...fresh }).catch(nullIfTaken);
    return progress.findOne({ id: ID, term });
  }
  const change = isInterrupted ? { set: { term } } : { set: fresh, unset: ['after' as const] };
  return progress.updateOne({ id: ID, term: { lt: term } }, change);
}

async function readBatch(deps: FigureDependencies, progress: ProgressDocument): Promise<ProgressDocument> {
  const { subscriptions, revenue } = deps;
  const { after, day, startedAt } = progress;
  const inOrder = (range: { gt?: string | undefined; lte?: string | undefined }) => {
    const id = defined(range);
    return { ...(Object.keys(id).length > 0 && { where: { id } }), sort: 'id' } as const;
  };
  const page = await subscriptions.page({ ...inOrder({ gt: after }), limit: BATCH_SIZE });
  const last = page.next === null ? undefined : page.items.at(-1)?.id;
  const records = await allOf(revenue, inOrder({ gt: after, lte: last }));
  const known = new Map(records.map((record) => [record.id, record]));

  const figures = structuredClone(progress.figures);
  await Promise.all(
    page.items.map((subscription) => {
      const record = known.get(subscription.id);
      known.delete(subscription.id);
      countSubscription(figures, subscription, startedAt);
      return compare(deps, { figures, progress, subscription, record });
    }),
  );
  await Promise.all([...known.values()].map((record) => churn(deps, figures, record, day)));
  return {
    ...progress,
    figures,
    ...(last === undefined ? { isDone: true } : { after: last }),
  };
}

function countSubscription(figures: Figures, subscription: SubscriptionDocument, now: number): void {
  const { status, plan, trialEnd, endedAt } = subscription;
  const left = (trialEnd ?? 0) - now;
  if (status === 'trialing' && left > 0 && left <= ENDING_DAYS * DAY) figures.trialsEnding += 1;
  if (!isTerminal(status)) {
    add(figures.statuses, status, 1);
    if (plan === UNKNOWN_PLAN) figures.withoutPlan += 1;
  }
  const end = Math.min(trialEnd ?? Number.POSITIVE_INFINITY, endedAt ?? Number.POSITIVE_INFINITY);
  if (trialEnd === undefined || end > now || end < startOf(dayOf(now)) - TRIAL_DAYS * DAY) return;
  const outcome = status === 'active' ? 'converted' : isTerminal(status) ? 'ended' : 'open';
  const trials: Trials = figures.trials[dayOf(end)] ?? { converted: 0, open: 0, ended: 0 };
  figures.trials[dayOf(end)] = { ...trials, [outcome]: trials[outcome] + 1 };
}

/** The subscription is gone, because its user deleted the account. */
async function churn(
  deps: FigureDependencies,
  figures: Figures,
  record: RevenueDocument,
  day: string,
): Promise<void> {
  const before = baselineOf(record, day);
  addMovements(figures, before, {}, () => 'churned');
  if (record.day !== day && isEmpty(record.amounts)) await deps.revenue.deleteOne({ id: record.id });
  else if (!isEmpty(record.amounts)) {
    const hasPaid = hasPaidBefore(record, day);
    await store(deps, record, { day, amounts: {}, before, isIncomplete: false, hasPaid });
  }
}

interface Comparison {
  figures: Figures;
  progress: ProgressDocument;
  subscription: SubscriptionDocument;
  record: RevenueDocument | undefined;
}

async function compare(deps: FigureDependencies, comparison: Comparison): Promise<void> {
  const { figures, progress, subscription, record } = comparison;
  const { day } = progress;
  const current = monthlyRevenueOf(subscription);
  for (const [currency, amount] of Object.entries(current.amounts)) add(figures.mrr, currency, amount);
  if (current.isIncomplete) figures.incomplete += 1;
  if (!record && isEmpty(current.amounts) && !current.isIncomplete) return;

  const before = beforeOf(current, comparison);
  const hasPaid = record ? hasPaidBefore(record, day) : !isEmpty(before);
  if (!isDeepStrictEqual(before, current.amounts)) {
    const others = await othersOf(deps.subscriptions, subscription);
    const isReturning = hasPaid || others.hasEnded;
    addMovements(figures, before, current.amounts, (from, to) => {
      if (to > from) return from > 0 || others.isPaying ? 'expansion' : isReturning ? 'reactivation' : 'new';
      return to > 0 || others.isPaying ? 'contraction' : 'churned';
    });
  }
  const isUnchanged =
    record?.isIncomplete === current.isIncomplete &&
    isDeepStrictEqual(record.amounts, current.amounts) &&
    (record.day !== day || isDeepStrictEqual(record.before, before));
  if (isUnchanged) return;
  await store(deps, record ?? subscription, { day, before, hasPaid, ...current });
}

/** The amounts to compare with; an amount that becomes known is no change. */
function beforeOf(
  { amounts, isIncomplete }: ReturnType<typeof monthlyRevenueOf>,
  { progress, record }: Comparison,
): Amounts {
  if (!record) return progress.isFirst ? amounts : {};
  if (progress.isFirst || (record.isIncomplete && !isIncomplete)) return amounts;
  return baselineOf(record, progress.day);
}

const baselineOf = ({ day, amounts, before }: RevenueDocument, today: string): Amounts =>
  day === today ? before : amounts;

/** Whether the user has another subscription with MRR, and whether an older one, which had ended. */
async function othersOf(subscriptions: Subscriptions, { id, ownerId, startedAt }: SubscriptionDocument) {
  const others = (await listSubscriptions(subscriptions, ownerId)).filter((other) => other.id !== id);
  return {
    isPaying: others.some((other) => !isEmpty(monthlyRevenueOf(other).amounts)),
    hasEnded: others.some((other) => other.startedAt < startedAt && other.status === 'canceled'),
  };
}

/** Whether a subscription had MRR at the end of an earlier day. */
const hasPaidBefore = ({ day, amounts, hasPaid }: RevenueDocument, today: string): boolean =>
  hasPaid || (day !== today && !isEmpty(amounts));

function addMovements(
  { movements }: Figures,
  before: Amounts,
  after: Amounts,
  kindOf: (from: number, to: number) => Movement,
): void {
  for (const currency of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [from, to] = [before[currency] ?? 0, after[currency] ?? 0];
    if (from === to) continue;
    movements[currency] ??= {};
    add(movements[currency], kindOf(from, to), to - from);
  }
}

async function store(
  { revenue }: FigureDependencies,
  { id, ownerId }: Pick<RevenueDocument, 'id' | 'ownerId'>,
  set: Omit<RevenueDocument, 'id' | 'ownerId'>,
): Promise<void> {
  if ((await revenue.updateOne({ id }, { set })) !== null) return;
  await revenue.insert({ id, ownerId, ...set }).catch(nullIfTaken);
}

export const dayOf = (time: number): string => new Date(time).toISOString().slice(0, 10);

const startOf = (day: string): number => Date.parse(day);

const isEmpty = (amounts: Amounts): boolean => Object.keys(amounts).length === 0;

function add<K extends string>(sums: Partial<Record<K, number>>, key: K, amount: number): void {
  sums[key] = (sums[key] ?? 0) + amount;
}
