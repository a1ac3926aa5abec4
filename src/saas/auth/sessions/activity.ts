import { type Clock, DAY, HOUR, lastDays, SECOND } from '../../../core/kernel/clock.js';
import type { Job } from '../../../core/ops/jobs.js';
import { type Collection, nullIfTaken, type Store } from '../../../core/storage/collection.js';
import { pagesOf } from '../../../core/storage/pages.js';
import type { SessionDocument, Sessions } from '../store.js';

/**
 * Active users per day: those who signed in, or refreshed or used a session that day (UTC). A job counts them from the sessions,
 * which contain the last use and that of the last day before, so that requests pay nothing. A day is counted once it has ended;
 * until then, its document remembers sessions that expire early.
 */

interface ActivityDocument {
  /** The day: ISO 8601, UTC. */
  id: string;
  /** Up to {@link MAX_COUNTED_USERS}. */
  users: number;
  /** Present until the day has ended and is counted. */
  isOpen?: true;
}

export const activityCollection = (store: Store): Collection<ActivityDocument> =>
  store.collection<ActivityDocument>('active_users');

/** Bounds the memory of a count. */
export const MAX_COUNTED_USERS = 100_000;

/** Days that are counted later, if no process has run on the day after. */
const MAX_OPEN_DAYS = 7;

export type Activity = ReturnType<typeof createActivity>;

/** The start of the day of a time. */
const startOf = (time: number): number => Math.floor(time / DAY) * DAY;

type Uses = Pick<SessionDocument, 'rotatedAt' | 'seenAt'>;

/** When a session was last used, as far as it is recorded. */
export const lastUseOf = ({ rotatedAt, seenAt = rotatedAt }: Uses): number => Math.max(rotatedAt, seenAt);

/** What a use changes besides, at the first one of a day. */
export const lastDayBefore = (lastUse: number, now: number): { activeBefore?: number } =>
  startOf(lastUse) < startOf(now) ? { activeBefore: lastUse } : {};

/** Whether to record a use that exchanges no token: once a day, or more often if sessions end sooner without a use. */
export const isDueForUse = (
  session: Uses,
  { now, lifetimeMs }: { now: number; lifetimeMs: number },
): boolean => {
  const lastUse = lastUseOf(session);
  return startOf(lastUse) < startOf(now) || now - lastUse >= lifetimeMs / 4;
};

export function createActivity({
  activity,
  sessions,
  clock,
}: {
  activity: Collection<ActivityDocument>;
  sessions: Sessions;
  clock: Clock;
}) {
  const find = async (days: readonly string[]) => {
    const found = await activity.page({ where: { id: { in: days } }, sort: 'id', limit: days.length });
    return new Map(found.items.map((day) => [day.id, day]));
  };

  const write = async (id: string, users: number, isOpen: boolean): Promise<void> => {
    const open = isOpen && ({ isOpen: true } as const);
    const change = isOpen ? { set: { users, ...open } } : { set: { users }, unset: ['isOpen' as const] };
    if ((await activity.updateOne({ id }, change)) !== null) return;
    await activity.insert({ id, users, ...open }).catch(nullIfTaken);
  };

  return {
    /** Active users of each day, oldest first; null if the day is not over or was not counted. */
    async countActive(days: readonly string[]): Promise<(number | null)[]> {
      const counts = await find(days);
      return days.map((day) => {
        const counted = counts.get(day);
        return counted && !counted.isOpen ? counted.users : null;
      });
    },

    /** Counts the active users of the days that have ended, and of the current one so far. */
    job: {
      everySeconds: HOUR / SECOND,
      async run({ signal }) {
        const days = lastDays(clock, MAX_OPEN_DAYS + 1);
        const [today] = days.slice(-1);
        const known = await find(days);
        const open = days.filter((day) => day === today || (known.get(day)?.isOpen ?? !known.has(day)));
        const active = new Map(open.map((day) => [Date.parse(day), new Set<string>()]));
        const query = {
          where: { expiresAt: { gte: Math.min(...active.keys()) } },
          sort: 'expiresAt',
          desc: true,
        } as const;
        for await (const page of pagesOf(sessions, query)) {
          for (const session of page) {
            if (session.impersonator) continue;
            for (const time of [lastUseOf(session), session.activeBefore ?? 0]) {
              const users = active.get(startOf(time));
              if (users && users.size < MAX_COUNTED_USERS) users.add(session.userId);
            }
          }
          if (signal.aborted) return;
          if ([...active.values()].every(({ size }) => size >= MAX_COUNTED_USERS)) break;
        }
        for (const day of open) {
          // Sessions that have expired since the last count are gone.
          const users = Math.max(known.get(day)?.users ?? 0, active.get(Date.parse(day))?.size ?? 0);
          // Without a count on the day itself, there were no users or no process.
          if (day === today || known.has(day) || users > 0) await write(day, users, day === today);
        }
      },
    } satisfies Job,
  };
}
