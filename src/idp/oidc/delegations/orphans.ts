import { HOUR, SECOND } from '../../../core/kernel/clock.js';
import type { Job } from '../../../core/ops/jobs.js';
import { PURGE_BATCH_SIZE, purgeInBatches } from '../../../core/ops/purge.js';
import type { Directory } from '../directory.js';
import type { Resources } from '../resources.js';
import type { DelegationCollection, DelegationDocument } from './store.js';

export interface OrphanPurgeDependencies {
  directory: Pick<Directory, 'findClient'>;
  resources: Pick<Resources, 'find'>;
  end(id: string): Promise<boolean>;
}

/**
 * Ends delegations whose client or resource does not exist any more: those that were given while it was removed, or whose
 * removal was interrupted.
 */
export function createOrphanPurge(
  delegations: DelegationCollection,
  { directory, resources, end }: OrphanPurgeDependencies,
): Job {
  let after: string | undefined;

  const isOrphan = async ({ clientId, resource }: DelegationDocument): Promise<boolean> => {
    // A client that names itself may return.
    const isClient = clientId.startsWith('http') || (await directory.findClient(clientId)) !== null;
    return !isClient || (await resources.find(resource)) === null;
  };

  return {
    everySeconds: HOUR / SECOND,
    async run({ signal }) {
      return purgeInBatches(signal, async () => {
        const { items, next } = await delegations.page({
          where: { revokedAt: null },
          sort: 'id',
          limit: PURGE_BATCH_SIZE,
          ...(after && { after }),
        });
        let removed = 0;
        for (const one of items) if ((await isOrphan(one)) && (await end(one.id))) removed++;
        after = next ?? undefined;
        return { removed, isLast: next === null };
      });
    },
  };
}
