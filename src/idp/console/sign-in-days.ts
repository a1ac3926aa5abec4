import { type Clock, DAY, HOUR, MINUTE, SECOND } from '../../core/kernel/clock.js';
import type { AuditRecord } from '../../core/ops/audit.js';
import { auditIdsFrom } from '../../core/ops/audit-search.js';
import type { Job } from '../../core/ops/jobs.js';
import { type Collection, nullIfTaken, type Store } from '../../core/storage/collection.js';

/** The sign-ins of each day, which a job counts from the audit: the overview would read far too many records. */

export interface SignInDay {
  /** The day: ISO 8601, UTC. */
  id: string;
  succeeded: number;
  failed: number;
}

/** How far the audit was counted. */
interface Progress {
  id: 'sign-ins';
  /** The last record that was counted, or a bound before the first one. */
  after: string;
  /** The first day that was counted completely. */
  since: string;
}

export const signInDayCollection = (store: Store) => store.collection<SignInDay>('sign_in_days');
export const signInProgressCollection = (store: Store) =>
  store.collection<Progress>('sign_in_progress', { fields: ['after'] });

/** What is counted when counting begins. */
const COUNTED_DAYS = 60;
const BATCH_SIZE = 500;
/** Batches before a page is shown; the job counts the rest. */
const MAX_BATCHES = 10;
/** A record may come later than its time: from a process with another clock, or after a write was tried again. */
const DELAY_MS = MINUTE;

export function createSignInDays(
  { store, clock }: { store: Store; clock: Clock },
  records: Pick<Collection<AuditRecord>, 'page'>,
) {
  const days = signInDayCollection(store);
  const progress = signInProgressCollection(store);

  const begin = async (): Promise<Progress> => {
    const { items } = await records.page({ sort: 'id', limit: 1 });
    const start = Math.max(clock.now() - COUNTED_DAYS * DAY, items[0]?.at ?? clock.now());
    const since = new Date(start).toISOString().slice(0, 10);
    const first: Progress = { id: 'sign-ins', after: auditIdsFrom(Date.parse(since)), since };
    await progress.insert(first).catch(nullIfTaken);
    return (await progress.findOne({ id: 'sign-ins' })) ?? first;
  };

  /** Counts the next records; false if there are none, or if another process counts. */
  const countBatch = async (): Promise<boolean> => {
    const { after } = (await progress.findOne({ id: 'sign-ins' })) ?? (await begin());
    const where = { id: { gt: after, lt: auditIdsFrom(clock.now() - DELAY_MS) } };
    const { items, next } = await records.page({ where, sort: 'id', limit: BATCH_SIZE });
    const last = items.at(-1);
    if (!last) return false;
    const counts = new Map<string, { succeeded: number; failed: number }>();
    for (const { at, event, count = 1 } of items) {
      // One that a session continues is none: some applications ask for it every minute.
      if (event !== 'login.succeeded' && event !== 'login.failed') continue;
      const day = new Date(at).toISOString().slice(0, 10);
      const sums = counts.get(day) ?? { succeeded: 0, failed: 0 };
      if (event === 'login.failed') sums.failed += count;
      else sums.succeeded += count;
      counts.set(day, sums);
    }
    for (const id of counts.keys()) await days.insert({ id, succeeded: 0, failed: 0 }).catch(nullIfTaken);
    const { committed } = await store.commit([
      progress.changing({ id: 'sign-ins', after }, { set: { after: last.id } }),
      ...[...counts].map(([id, inc]) => days.changing({ id }, { inc })),
    ]);
    return committed && next !== null;
  };

  return {
    /** Counts what is new, every hour. */
    job: {
      everySeconds: HOUR / SECOND,
      async run({ signal }) {
        while (!signal.aborted && (await countBatch()));
      },
    } satisfies Job,

    /** The sign-ins of each day (ISO 8601 dates, UTC); null where they were not counted. */
    async read(shown: readonly string[]): Promise<(Omit<SignInDay, 'id'> | null)[]> {
      for (let batch = 0; batch < MAX_BATCHES && (await countBatch()); batch++);
      const { since } = (await progress.findOne({ id: 'sign-ins' })) ?? (await begin());
      const { items } = await days.page({ where: { id: { in: shown } }, sort: 'id', limit: shown.length });
      const found = new Map(items.map((one) => [one.id, one]));
      return shown.map((day) => (day < since ? null : (found.get(day) ?? { succeeded: 0, failed: 0 })));
    },
  };
}
