import { type Clock, DAY, HOUR, SECOND } from '../kernel/clock.js';
import type { Job } from '../ops/jobs.js';
import { type Collection, nullIfTaken, type Store } from '../storage/collection.js';
import { pagesOf } from '../storage/pages.js';
import type { Sessions } from './store.js';

/**
 * Active users per day: those who signed in or refreshed a session that day (UTC). A job counts them from the sessions, which
 * contain the last refresh, so that requests pay nothing. Sessions that were deleted before the job ran are not counted.
 */

interface ActivityDocument {
  /** The day: ISO 8601, UTC. */
  id: string;
  /** Up to {@link MAX_COUNTED_USERS}. */
  users: number;
}

export const activityCollection = (store: Store): Collection<ActivityDocument> =>
  store.collection<ActivityDocument>('active_users');

/** Bounds the memory of a count. */
export const MAX_COUNTED_USERS = 100_000;

export interface Activity {
  /** Active users of each day, oldest first; null if none were counted on it. */
  countActive(days: readonly string[]): Promise<(number | null)[]>;
  /** Counts the active users of the current day, every hour. */
  job: Job;
}

export function createActivity({
  activity,
  sessions,
  clock,
}: {
  activity: Collection<ActivityDocument>;
  sessions: Sessions;
  clock: Clock;
}): Activity {
  return {
    async countActive(days) {
      const found = await activity.page({ where: { id: { in: days } }, sort: 'id', limit: days.length });
      const counts = new Map(found.items.map(({ id, users }) => [id, users]));
      return days.map((day) => counts.get(day) ?? null);
    },

    job: {
      everySeconds: HOUR / SECOND,
      async run({ signal }) {
        const start = Math.floor(clock.now() / DAY) * DAY;
        const active = new Set<string>();
        const query = { where: { expiresAt: { gte: start } }, sort: 'expiresAt', desc: true } as const;
        for await (const page of pagesOf(sessions, query)) {
          for (const { userId, rotatedAt } of page) if (rotatedAt >= start) active.add(userId);
          if (signal.aborted) return;
          if (active.size >= MAX_COUNTED_USERS) break;
        }
        const id = new Date(start).toISOString().slice(0, 10);
        const counted = (await activity.findOne({ id }))?.users ?? 0;
        // Sessions that have ended since the last count are gone.
        const users = Math.max(counted, Math.min(active.size, MAX_COUNTED_USERS));
        if ((await activity.updateOne({ id }, { set: { users } })) !== null) return;
        await activity.insert({ id, users }).catch(nullIfTaken);
      },
    },
  };
}
