import type { Store } from '../../../core/storage/collection.js';
import type { Amounts } from './amounts.js';

/** Daily figures about subscriptions, and the state from which a job derives them. Days are ISO 8601 in UTC. */

export const MOVEMENTS = ['new', 'reactivation', 'expansion', 'contraction', 'churned'] as const;

/** A change of the MRR; the amounts of contraction and churn are negative. */
export type Movement = (typeof MOVEMENTS)[number];

export interface Figures {
  /** Subscriptions by status, without ended ones. */
  statuses: Record<string, number>;
  /** MRR by currency. */
  mrr: Amounts;
  /** What changed since the end of the previous day with figures, by currency. */
  movements: Record<string, Partial<Record<Movement, number>>>;
  /** Paying subscriptions with an item whose amount is unknown. */
  incomplete: number;
  /** Subscriptions whose price has no configured plan, without ended ones. */
  withoutPlan: number;
  /** Trials by the day of their end. */
  trials: Record<string, Trials>;
  /** Trials that end within the seven days after the count. */
  trialsEnding: number;
}

export interface Trials {
  /** Active now. */
  converted: number;
  /** Not paid yet. */
  open: number;
  ended: number;
}

export interface DailyFigures extends Figures {
  /** The day. */
  id: string;
  /** When the job read the subscriptions; the last run of a day stays. */
  at: number;
}

/** The MRR of a subscription that has had one. */
export interface RevenueDocument {
  /** The provider's subscription ID. */
  id: string;
  ownerId: string;
  /** The day of `amounts`. */
  day: string;
  amounts: Amounts;
  /** The amounts at the end of the day before: several runs of a day find the same change. */
  before: Amounts;
  isIncomplete: boolean;
  /** Whether it had one at the end of an earlier day. */
  hasPaid: boolean;
}

/** How far the current run is. */
export interface ProgressDocument {
  id: 'subscriptions';
  day: string;
  startedAt: number;
  /** Of the lease: an older run can no longer write. */
  term: number;
  /** The first run records amounts without movements. */
  isFirst: boolean;
  /** The last subscription that was read. */
  after?: string;
  figures: Figures;
  isDone: boolean;
}

export type FigureCollections = ReturnType<typeof figureCollections>;

export const figureCollections = (store: Store) => ({
  dailyFigures: store.collection<DailyFigures>('billing_figures'),
  revenue: store.collection<RevenueDocument>('billing_revenue', { indexes: [['ownerId']] }),
  figureProgress: store.collection<ProgressDocument>('billing_figure_progress', { numbers: ['term'] }),
});
