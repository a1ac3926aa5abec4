import { type Clock, DAY, HOUR, MINUTE, SECOND } from '../../core/kernel/clock.js';
import { idsUntil } from '../../core/kernel/secrets.js';
import type { Job, Lease, RunReport } from '../../core/ops/jobs.js';
import {
  createExpiryPurge,
  PURGE_BATCH_SIZE,
  PURGE_MARGIN_MS,
  purgeInBatches,
} from '../../core/ops/purge.js';
import { partiesOf } from './consents.js';
import type { Directory } from './directory.js';
import { grantExpiry, MAX_LIFETIME_WITHOUT_REFRESH_MS, REFRESH_MAX_LIFETIME_MS } from './grant-tokens.js';
import {
  type ConsentDocument,
  type Consents,
  GRANT,
  type GrantDocument,
  type Grants,
  type Sessions,
} from './store.js';

/** Removes expired documents. Responses do not depend on it, because every read checks the expiration. */

export interface PurgeDependencies {
  grants: Grants;
  sessionDocuments: Sessions;
  consentDocuments: Consents;
  directory: Pick<Directory, 'findClient' | 'isDeleted'>;
  clock: Clock;
}

type Run = (lease: Pick<Lease, 'signal'>) => Promise<RunReport>;

/** The jobs by their names. */
export function createPurges(deps: PurgeDependencies): Record<string, Job> {
  const { grants, sessionDocuments, consentDocuments, directory, clock } = deps;
  return {
    // Every sign-in creates a grant, so they are removed continuously.
    'grant-purge': { everySeconds: MINUTE / SECOND, run: createGrantPurge(grants, directory, clock) },
    'session-purge': createExpiryPurge(sessionDocuments, clock),
    'consent-purge': {
      everySeconds: HOUR / SECOND,
      run: createConsentPurge(consentDocuments, directory, clock),
    },
  };
}

/**
 * Reads grants in the order of their creation, so that no index of their expiration is needed. Only grants with
 * refresh tokens remain before the cursor; those are read again every day, and removed if their principal is deleted.
 */
function createGrantPurge(grants: Grants, directory: PurgeDependencies['directory'], clock: Clock): Run {
  let after: string | undefined;
  let startedAt = Number.NEGATIVE_INFINITY;

  const findObsolete = async (items: readonly GrantDocument[], now: number): Promise<GrantDocument[]> => {
    const isExpired = (grant: GrantDocument) => grantExpiry(grant) <= now - PURGE_MARGIN_MS;
    const owners = [...new Set(items.flatMap((grant) => (isExpired(grant) ? [] : [grant.sub])))];
    const areDeleted = await Promise.all(owners.map((sub) => directory.isDeleted(sub)));
    const deleted = new Set(owners.filter((_, index) => areDeleted[index]));
    return items.filter((grant) => isExpired(grant) || deleted.has(grant.sub));
  };

  return async ({ signal }) => {
    const now = clock.now();
    if (now - startedAt >= DAY) {
      after = undefined;
      startedAt = now;
    }
    const where = { id: { lt: idsUntil(GRANT, now - MAX_LIFETIME_WITHOUT_REFRESH_MS - PURGE_MARGIN_MS) } };
    return purgeInBatches(signal, async () => {
      const { items, next } = await grants.page({
        where,
        sort: 'id',
        limit: PURGE_BATCH_SIZE,
        ...(after && { after }),
      });
      const removed = await removeUnchanged(grants, await findObsolete(items, now));
      // The last page is read again, because it grows.
      after = next ?? after;
      return { removed, isLast: next === null };
    });
  };
}

/** Deletes grants with one call per revision. A grant refreshed since it was read has another revision and stays. */
async function removeUnchanged(grants: Grants, obsolete: readonly GrantDocument[]): Promise<number> {
  const idsByRevision = new Map<number | null, string[]>();
  for (const { id, revision = null } of obsolete) {
    const ids = idsByRevision.get(revision);
    if (ids) ids.push(id);
    else idsByRevision.set(revision, [id]);
  }
  const calls = [...idsByRevision].map(([revision, ids]) => grants.deleteMany({ id: { in: ids }, revision }));
  return (await Promise.all(calls)).reduce((sum, removed) => sum + removed, 0);
}

const isOld = (time: number, now: number): boolean => time < now - REFRESH_MAX_LIFETIME_MS - DAY;

/** Consents do not expire: they are removed with their principal or client. */
function createConsentPurge(
  consents: Consents,
  directory: PurgeDependencies['directory'],
  clock: Clock,
): Run {
  let after: string | undefined;

  const isObsolete = async ({ id, updatedAt }: ConsentDocument): Promise<boolean> => {
    const { sub, clientId } = partiesOf(id);
    if (await directory.isDeleted(sub)) return true;
    if ((await directory.findClient(clientId)) !== null) return false;
    // A client that names itself may return: its revocations have to outlive the grants that they have ended.
    return !clientId.startsWith('http') || isOld(updatedAt, clock.now());
  };

  return async ({ signal }) => {
    return purgeInBatches(signal, async () => {
      const { items, next } = await consents.page({
        sort: 'id',
        limit: PURGE_BATCH_SIZE,
        ...(after && { after }),
      });
      const checked = await Promise.all(items.map(async (one) => ((await isObsolete(one)) ? [one.id] : [])));
      const obsolete = checked.flat();
      // Identifiers are never reused, so nothing can have changed since the check.
      const removed = obsolete.length > 0 ? await consents.deleteMany({ id: { in: obsolete } }) : 0;
      after = next ?? undefined;
      return { removed, isLast: next === null };
    });
  };
}
