import { type Clock, DAY, HOUR, MINUTE, SECOND } from '../../core/kernel/clock.js';
import { idsUntil } from '../../core/kernel/secrets.js';
import type { Job } from '../../core/ops/jobs.js';
import {
  createExpiryPurge,
  PURGE_BATCH_SIZE,
  PURGE_MARGIN_MS,
  purgeInBatches,
} from '../../core/ops/purge.js';
import type { Collection, DeclaredField, Where } from '../../core/storage/collection.js';
import { partiesOf } from './consents.js';
import type { DelegationDocument } from './delegations/store.js';
import { grantExpiry, MAX_LIFETIME_WITHOUT_REFRESH_MS, REFRESH_MAX_LIFETIME_MS } from './grant-tokens.js';
import type { OidcShared } from './shared.js';
import { type ConsentDocument, GRANT, type GrantDocument, type Grants } from './store.js';

/** Removes what has expired, or belongs to what has been removed. Responses do not depend on it, because every read checks that. */

/** The jobs by their names. */
export function createPurges(
  services: Pick<
    OidcShared,
    'grants' | 'sessionDocuments' | 'consentDocuments' | 'delegationDocuments' | 'delegations'
  > &
    Lookups & { clock: Clock },
): Record<string, Job> {
  const { grants, sessionDocuments, consentDocuments, delegationDocuments, delegations, clock } = services;
  return {
    // Every sign-in creates a grant, so they are removed continuously.
    'grant-purge': { everySeconds: MINUTE / SECOND, run: createGrantPurge(grants, services) },
    'session-purge': createExpiryPurge(sessionDocuments, clock),
    'consent-purge': createSweep(consentDocuments, {}, async (items) => {
      const checked = await Promise.all(items.map((one) => isObsoleteConsent(one, services)));
      const obsolete = items.flatMap(({ id }, index) => (checked[index] ? [id] : []));
      // Identifiers are never reused, so nothing can have changed since the check.
      return obsolete.length > 0 ? consentDocuments.deleteMany({ id: { in: obsolete } }) : 0;
    }),
    'orphaned-delegations': createSweep(delegationDocuments, { revokedAt: null }, async (items) => {
      let ended = 0;
      for (const one of items)
        if ((await isOrphan(one, services)) && (await delegations.end(one.id, { ip: 'local' }))) ended++;
      return ended;
    }),
  };
}

interface Lookups {
  directory: Pick<OidcShared['directory'], 'findClient' | 'isDeleted'>;
  resources: Pick<OidcShared['resources'], 'find'>;
}

/** Reads all documents that match, in one run after another, and has those removed that are obsolete. */
function createSweep<T extends { id: string }>(
  documents: Collection<T>,
  where: Where<T>,
  remove: (items: readonly T[]) => Promise<number>,
): Job {
  let after: string | undefined;
  return {
    everySeconds: HOUR / SECOND,
    run: ({ signal }) =>
      purgeInBatches(signal, async () => {
        const sort = 'id' as DeclaredField<T>;
        const query = { where, sort, limit: PURGE_BATCH_SIZE, ...(after && { after }) };
        const { items, next } = await documents.page(query);
        const removed = await remove(items);
        after = next ?? undefined;
        return { removed, isLast: next === null };
      }),
  };
}

/**
 * Reads grants in the order of their creation, so that no index of their expiration is needed. Only grants with
 * refresh tokens remain before the cursor; those are read again every day, and removed if their principal is deleted.
 */
function createGrantPurge(
  grants: Grants,
  { directory, clock }: Pick<Lookups, 'directory'> & { clock: Clock },
): Job['run'] {
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

/** A client that names itself may return. */
const namesItself = (clientId: string): boolean => clientId.startsWith('http');

/** Whether the principal or the client of a consent has been removed. Consents do not expire. */
async function isObsoleteConsent(
  { id, updatedAt }: ConsentDocument,
  { directory, clock }: Pick<Lookups, 'directory'> & { clock: Clock },
): Promise<boolean> {
  const { sub, clientId } = partiesOf(id);
  if (await directory.isDeleted(sub)) return true;
  if ((await directory.findClient(clientId)) !== null) return false;
  // The revocations have to outlive the grants that they have ended.
  return !namesItself(clientId) || updatedAt < clock.now() - REFRESH_MAX_LIFETIME_MS - DAY;
}

/** Whether the client or the resource of a delegation was removed while it was given, or its removal was interrupted. */
async function isOrphan(
  { clientId, resource }: DelegationDocument,
  { directory, resources }: Lookups,
): Promise<boolean> {
  const isClient = namesItself(clientId) || (await directory.findClient(clientId)) !== null;
  return !isClient || (await resources.find(resource)) === null;
}
