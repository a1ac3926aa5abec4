import { type Clock, SECOND } from '../../core/kernel/clock.js';
import type { Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { isResourceUri, spellingsOf } from './identifier.js';
import type { ResourceCollection, ResourceDocument } from './store.js';

/** Reads resources. Only commands on the host change them (`administration.ts`). */
export type ResourceService = ReturnType<typeof createResourceService>;

/** Resources of one provider. */
export const MAX_RESOURCES = 100;

const MAX_AGE_MS = SECOND;

export function createResourceService(resources: ResourceCollection, { clock }: { clock: Clock }) {
  let known: { resources: readonly ResourceDocument[]; at: number } = {
    resources: [],
    at: Number.NEGATIVE_INFINITY,
  };

  /** @param after the `next` of the previous page. @throws VALIDATION_ERROR when it is invalid */
  const list = (after?: string, limit?: number): Promise<Page<ResourceDocument>> =>
    readPage(resources, { sort: 'identifier', after, limit });

  return {
    /** The resource that a request names, whose own identifier may be spelled differently. */
    async find(named: string): Promise<ResourceDocument | null> {
      if (!isResourceUri(named)) return null;
      for (const identifier of spellingsOf(named)) {
        const found = await resources.findOne({ identifier });
        if (found) return found;
      }
      return null;
    },

    /** Whether both texts are spellings of one identifier. */
    isSame: (one: string, other: string): boolean =>
      one === other || spellingsOf(one).some((spelling) => spellingsOf(other).includes(spelling)),

    /** The resource with this `res_…`, with the previous secret only while that is valid. */
    async findServer(id: string): Promise<ResourceDocument | null> {
      const resource = /^res_[0-9a-f]{32}$/.test(id) ? await resources.findOne({ id }) : null;
      if (resource?.previousSecretUntil === undefined || resource.previousSecretUntil > clock.now())
        return resource;
      const { previousSecretHash, previousSecretUntil, ...current } = resource;
      return current;
    },

    hasAny: async (): Promise<boolean> => (await resources.count({}, 1)) > 0,

    /** All of them, as read at most one second ago; in an outage of the store, as last read. */
    async all(): Promise<readonly ResourceDocument[]> {
      const now = clock.now();
      if (Math.abs(now - known.at) < MAX_AGE_MS) return known.resources;
      // Before the read, so that simultaneous requests cause one.
      known = { ...known, at: now };
      const page = await list(undefined, MAX_RESOURCES).catch(() => null);
      if (page) known = { resources: page.items, at: now };
      return known.resources;
    },

    list,
  };
}
