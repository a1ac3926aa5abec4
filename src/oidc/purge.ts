import { type Clock, DAY, HOUR, MINUTE, SECOND } from '../kernel/clock.js';
import { idsUntil } from '../kernel/secrets.js';
import type { Job, Lease } from '../ops/jobs.js';
import { type Expiring, MARGIN, purgeExpired } from '../ops/purge.js';
import { partiesOf } from './consents.js';
import type { Directory } from './model.js';
import { type Consents, GRANT, type Grants, type Sessions } from './store.js';
import { endOf, LONGEST_WITHOUT_REFRESH } from './tokens/token-lifetimes.js';

/** What is over is removed. Nothing depends on it: whatever is read is judged by its own time. */

export interface PurgeDependencies {
  grants: Grants;
  sessions: Sessions;
  consents: Consents;
  directory: Pick<Directory, 'findClient' | 'isDeleted'>;
  clock: Clock;
}

/** Documents that are looked at in one step and in one round. */
const BATCH = 200;
const ROUND = 50_000;

type Run = (lease: Pick<Lease, 'signal'>) => Promise<void>;

/** Its jobs by their names. */
export function createPurges(deps: PurgeDependencies): Record<string, Job> {
  const { grants, sessions, consents, directory, clock } = deps;
  const expired = (documents: Expiring): Job => ({
    everySeconds: HOUR / SECOND,
    run: async ({ signal }) => void (await purgeExpired(documents, { now: clock.now(), signal })),
  });
  return {
    // Every sign-in leaves one, so they are removed as evenly as they come.
    'grant-purge': { everySeconds: MINUTE / SECOND, run: createGrantPurge(grants, clock) },
    'session-purge': expired(sessions),
    'consent-purge': { everySeconds: HOUR / SECOND, run: createConsentPurge(consents, directory) },
  };
}

/**
 * Grants are gone through in the order in which they were made, so that no sign-in pays for an index of their ends.
 * Behind the place that was reached there are families only, which are looked at again every day.
 */
function createGrantPurge(grants: Grants, clock: Clock): Run {
  let after: string | undefined;
  let begunAt = Number.NEGATIVE_INFINITY;

  return async ({ signal }) => {
    const now = clock.now();
    if (now - begunAt >= DAY) {
      after = undefined;
      begunAt = now;
    }
    const where = { id: { lt: idsUntil(GRANT, now - LONGEST_WITHOUT_REFRESH - MARGIN) } };
    for (let seen = 0; seen < ROUND && !signal.aborted; seen += BATCH) {
      const { items, next } = await grants.page({ where, sort: 'id', limit: BATCH, ...(after && { after }) });
      const over = items.filter((grant) => endOf(grant) <= now - MARGIN);
      // As it was read: what was refreshed since lives on.
      await Promise.all(over.map(({ id, revision }) => grants.deleteOne({ id, revision: revision ?? null })));
      // The last page is looked at again, because it grows.
      if (next === null) return;
      after = next;
    }
  };
}

/** Consents have no end of their own: they go with the person, or the application, that they are about. */
function createConsentPurge(consents: Consents, directory: PurgeDependencies['directory']): Run {
  let after: string | undefined;

  const isOver = async (id: string): Promise<boolean> => {
    const { sub, clientId } = partiesOf(id);
    return (await directory.findClient(clientId)) === null || (await directory.isDeleted(sub));
  };

  return async ({ signal }) => {
    for (let seen = 0; seen < ROUND && !signal.aborted; seen += BATCH) {
      const { items, next } = await consents.page({ sort: 'id', limit: BATCH, ...(after && { after }) });
      const judged = await Promise.all(items.map(async ({ id }) => ((await isOver(id)) ? [id] : [])));
      // Identifiers are never used again, so what is gone stays gone.
      const over = judged.flat();
      if (over.length > 0) await consents.deleteMany({ id: { in: over } });
      after = next ?? undefined;
      if (next === null) return;
    }
  };
}
