import type { Clock } from '../kernel/clock.js';
import { StoreUnavailable } from '../storage/collection.js';
import type { UnknownWritesRegistry } from './unknown-writes.js';

/**
 * The owner of single-use links. The write that uses a link sets both fields, and the request removes `usedLink` before
 * it responds with success. While `usedLink` is present, the client may have got an error instead, so the same request
 * can be repeated: at any process, and also after a crash.
 */
export interface LinkOwner {
  id: string;
  /** SHA-256 of the last used link. */
  usedLinkHash?: string;
  /** What completing the request requires; `expiresAt` is that of the link. */
  usedLink?: { expiresAt: number };
}

export interface UsedLinks<T extends LinkOwner> {
  /** The owner, if the link was used by a request that has not been answered with success; `null` otherwise. */
  findUnanswered(id: string, hash: string): Promise<T | null>;
  /** Ends the repetitions of a link. Called last, because nothing is repeated afterwards. */
  close(id: string, hash: string): Promise<void>;
}

/** The part of a collection in use. */
interface LinkOwners<T> {
  updateOne(
    where: { id: string; usedLinkHash: string },
    change: { set: { usedLinkHash: string } } | { unset: ['usedLink'] },
  ): Promise<T | null>;
}

export function createUsedLinks<T extends LinkOwner>(
  owners: LinkOwners<T>,
  { unknownWrites, clock }: { unknownWrites: Pick<UnknownWritesRegistry, 'track'>; clock: Clock },
): UsedLinks<T> {
  const remove = (id: string, usedLinkHash: string) =>
    owners.updateOne({ id, usedLinkHash }, { unset: ['usedLink'] });
  const unclosed = unknownWrites.track<{ id: string; hash: string }>('used link', async (attempts) => {
    const [{ id, hash }] = attempts as [{ id: string; hash: string }];
    await remove(id, hash);
    return true;
  });

  return {
    async findUnanswered(id, usedLinkHash) {
      // A write that changes nothing, because a read does not see what the majority has not confirmed yet.
      const owner = await owners.updateOne({ id, usedLinkHash }, { set: { usedLinkHash } });
      return owner?.usedLink && owner.usedLink.expiresAt > clock.now() ? owner : null;
    },

    async close(id, hash) {
      // The outcome is known and the response is success, so this write is repeated until it succeeds.
      await remove(id, hash).catch((error: unknown) => {
        if (!(error instanceof StoreUnavailable)) throw error;
        unclosed.retry(hash, { id, hash });
      });
    },
  };
}
