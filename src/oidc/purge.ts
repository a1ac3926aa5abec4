import { type Clock, DAY, HOUR, MINUTE, SECOND } from '../kernel/clock.js';
import { idsUntil } from '../kernel/secrets.js';
import type { Job, Lease } from '../ops/jobs.js';
import { type Expiring, PURGE_MARGIN_MS, purgeExpired } from '../ops/purge.js';
import { partiesOf } from './consents.js';
import type { Directory } from './directory.js';
import { grantExpiry, MAX_LIFETIME_WITHOUT_REFRESH_MS } from './grant-tokens.js';
import { type Consents, GRANT, type Grants, type Sessions } from './store.js';

/** Removes expired documents. Responses do not depend on it, because every read checks the expiration. */

export interface PurgeDependencies {
  grants: Grants;
  sessions: Sessions;
  consents: Consents;
  directory: Pick<Directory, 'findClient' | 'isDeleted'>;
  clock: Clock;
}

/** Documents read in one step and in one run. */
const BATCH_SIZE = 200;
const MAX_PER_RUN = 50_000;

type Run = (lease: Pick<Lease, 'signal'>) => Promise<void>;

/** The jobs by their names. */
export function createPurges(deps: PurgeDependencies): Record<string, Job> {
  const { grants, sessions, consents, directory, clock } = deps;
  const expired = (documents: Expiring): Job => ({
    everySeconds: HOUR / SECOND,
    run: async ({ signal }) => void (await purgeExpired(documents, { now: clock.now(), signal })),
  });
  return {
    // Every sign-in creates a grant, so they are removed continuously.
    'grant-purge': { everySeconds: MINUTE / SECOND, run: createGrantPurge(grants, clock) },
    'session-purge': expired(sessions),
    'consent-purge': { everySeconds: HOUR / SECOND, run: createConsentPurge(consents, directory) },
  };
}

/**
 * Reads grants in the order of their creation, so that no index of their expiration is needed. Only grants with
 * refresh tokens remain before the cursor; those are read again every day.
 */
function createGrantPurge(grants: Grants, clock: Clock): Run {
  let after: string | undefined;
  let startedAt = Number.NEGATIVE_INFINITY;

  return async ({ signal }) => {
    const now = clock.now();
    if (now - startedAt >= DAY) {
      after = undefined;
      startedAt = now;
    }
    const where = { id: { lt: idsUntil(GRANT, now - MAX_LIFETIME_WITHOUT_REFRESH_MS - PURGE_MARGIN_MS) } };
    for (let seen = 0; seen < MAX_PER_RUN && !signal.aborted; seen += BATCH_SIZE) {
      const { items, next } = await grants.page({
        where,
        sort: 'id',
        limit: BATCH_SIZE,
        ...(after && { after }),
      });
      const expired = items.filter((grant) => grantExpiry(grant) <= now - PURGE_MARGIN_MS);
      // The revision is compared, so that a grant refreshed in the meantime stays.
      await Promise.all(
        expired.map(({ id, revision }) => grants.deleteOne({ id, revision: revision ?? null })),
      );
      // The last page is read again, because it grows.
      if (next === null) return;
      after = next;
    }
  };
}

/** Consents do not expire: they are removed with their principal or client. */
function createConsentPurge(consents: Consents, directory: PurgeDependencies['directory']): Run {
  let after: string | undefined;

  const isObsolete = async (id: string): Promise<boolean> => {
    const { sub, clientId } = partiesOf(id);
    return (await directory.findClient(clientId)) === null || (await directory.isDeleted(sub));
  };

  return async ({ signal }) => {
    for (let seen = 0; seen < MAX_PER_RUN && !signal.aborted; seen += BATCH_SIZE) {
      const { items, next } = await consents.page({ sort: 'id', limit: BATCH_SIZE, ...(after && { after }) });
      const checked = await Promise.all(items.map(async ({ id }) => ((await isObsolete(id)) ? [id] : [])));
      const obsolete = checked.flat();
      // Identifiers are never reused, so nothing can have changed since the check.
      if (obsolete.length > 0) await consents.deleteMany({ id: { in: obsolete } });
      after = next ?? undefined;
      if (next === null) return;
    }
  };
}
