import { type Clock, HOUR, MINUTE, SECOND } from '../kernel/clock.js';
import type { Job, Lease } from '../ops/jobs.js';
import { type Expiring, purgeExpired } from '../ops/purge.js';
import { partiesOf } from './consents.js';
import type { Directory } from './model.js';
import type { Consents, Grants, Interactions, Sessions } from './store.js';

/** What is over is removed. Nothing depends on it: whatever is read is judged by its own time. */

export interface PurgeDependencies {
  grants: Grants;
  interactions: Interactions;
  sessions: Sessions;
  consents: Consents;
  directory: Pick<Directory, 'findClient' | 'isGone'>;
  clock: Clock;
}

/** Consents that are looked at in one step and in one round. */
const BATCH = 200;
const ROUND = 50_000;

/** Its jobs by their names. */
export function createPurges(deps: PurgeDependencies): Record<string, Job> {
  const { grants, interactions, sessions, consents, directory, clock } = deps;
  const expired = (documents: Expiring, every: number): Job => ({
    everySeconds: every / SECOND,
    run: async ({ signal }) => void (await purgeExpired(documents, { now: clock.now(), signal })),
  });
  return {
    // Every sign-in leaves one, so they are removed as evenly as they come.
    'grant-purge': expired(grants, MINUTE),
    'interaction-purge': expired(interactions, HOUR),
    'session-purge': expired(sessions, HOUR),
    'consent-purge': { everySeconds: HOUR / SECOND, run: createConsentPurge(consents, directory) },
  };
}

/** Consents have no end of their own: they go with the person, or the application, that they are about. */
function createConsentPurge(
  consents: Consents,
  directory: PurgeDependencies['directory'],
): (lease: Pick<Lease, 'signal'>) => Promise<void> {
  let after: string | undefined;

  const isOver = async (id: string): Promise<boolean> => {
    const { sub, clientId } = partiesOf(id);
    return (await directory.findClient(clientId)) === null || (await directory.isGone(sub));
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
