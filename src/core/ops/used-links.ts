import { type Clock, SECOND } from '../kernel/clock.js';
import { AppError } from '../kernel/errors.js';
import { StoreUnavailable } from '../storage/collection.js';
import type { UnknownWritesRegistry } from './unknown-writes.js';

/**
 * The last link that an account has used, stored by the commit of its use. A client whose request got no answer repeats it: until the link
 * would have expired, a repetition succeeds if what it asks for is stored, and changes nothing.
 */
export interface UsedLink {
  /** SHA-256 of the link. */
  hash: string;
  /** That of the link. */
  expiresAt: number;
}

/** The used link, if it is this one and would still be valid. */
export function repeatedLink<T extends UsedLink>(
  usedLink: T | undefined,
  hash: string,
  now: number,
): T | undefined {
  return usedLink?.hash === hash && usedLink.expiresAt > now ? usedLink : undefined;
}

/**
 * The owner of single-use links. The write that uses a link sets these fields, and the request removes the last two
 * before it responds with success. If it fails instead, the client can repeat the same request at any process.
 */
export interface LinkOwner {
  id: string;
  /** SHA-256 of the last used link. */
  usedLinkHash?: string;
  /** What completing the request requires; `expiresAt` is that of the link. */
  usedLink?: { expiresAt: number };
  /** When the request began that has used the link and has not been answered with success. 0: it has failed. */
  unansweredSince?: number;
}

/** The fields to unset where a repetition must not succeed any more. */
export const UNANSWERED_LINK_FIELDS = ['usedLink', 'unansweredSince'] as const;

/** A request with a link. */
export interface LinkUse {
  /** Of the owner. */
  id: string;
  usedLinkHash: string;
  unansweredSince: number;
}

export type UsedLinks<T extends LinkOwner> = ReturnType<typeof createUsedLinks<T>>;

/** The part of a collection in use. */
interface LinkOwners<T> {
  updateOne(
    where: { id: string; usedLinkHash: string; unansweredSince?: number | { lte: number } },
    change:
      | { set: { usedLinkHash: string } | { unansweredSince: number } }
      | { unset: typeof UNANSWERED_LINK_FIELDS },
  ): Promise<T | null>;
}

/** Longer than a request that waits for the store: after this time without an answer, its process has crashed. */
const REQUEST_TIMEOUT_MS = 10 * SECOND;

export function createUsedLinks<T extends LinkOwner>(
  owners: LinkOwners<T>,
  { unknownWrites, clock }: { unknownWrites: Pick<UnknownWritesRegistry, 'track'>; clock: Clock },
) {
  /** Failed requests. Allows the repetition if the use has taken effect and is their own. */
  const failed = unknownWrites.track<LinkUse>('used link', async (uses) => {
    const released = uses.map((use) => owners.updateOne({ ...use }, { set: { unansweredSince: 0 } }));
    return (await Promise.all(released)).some((owner) => owner !== null);
  });

  const remove = ({ id, usedLinkHash }: LinkUse) =>
    owners.updateOne({ id, usedLinkHash }, { unset: UNANSWERED_LINK_FIELDS });
  const answered = unknownWrites.track<LinkUse>('answered link', async ([use]) => {
    await remove(use as LinkUse);
    return true;
  });

  const changeUnanswered = async (
    { id, usedLinkHash }: LinkUse,
    set: { usedLinkHash: string } | { unansweredSince: number },
  ): Promise<T | null> => {
    await failed.settle(usedLinkHash);
    const now = clock.now();
    const unansweredSince = { lte: now - REQUEST_TIMEOUT_MS };
    const owner = await owners.updateOne({ id, usedLinkHash, unansweredSince }, { set });
    return owner?.usedLink && owner.usedLink.expiresAt > now ? owner : null;
  };

  return {
    begin: (id: string, usedLinkHash: string): LinkUse => ({
      id,
      usedLinkHash,
      unansweredSince: clock.now(),
    }),

    /**
     * Runs a request that uses a link or repeats the use. If it succeeds, the link cannot be used again. If it fails, the
     * same request can be repeated.
     */
    async complete<R>(use: LinkUse, request: () => Promise<R>): Promise<R> {
      let result: R;
      try {
        result = await request();
      } catch (error) {
        if (!(error instanceof AppError)) {
          failed.retry(use.usedLinkHash, use);
          // At once, because often only one connection has failed; otherwise when the store responds.
          failed.settle(use.usedLinkHash).catch(() => undefined);
        }
        throw error;
      }
      // The outcome is known and the response is success, so this write is repeated until it succeeds.
      await remove(use).catch((error: unknown) => {
        if (!(error instanceof StoreUnavailable)) throw error;
        answered.retry(use.usedLinkHash, use);
      });
      return result;
    },

    /**
     * The owner, if the link was used by a request that has failed; `null` otherwise, and while that request is running. A write
     * that changes nothing, because a read does not see what the majority has not confirmed yet.
     */
    findUnanswered: (use: LinkUse) => changeUnanswered(use, { usedLinkHash: use.usedLinkHash }),

    /** The same, for uses that must not be completed twice: of concurrent repetitions, one gets the owner. */
    takeOverUnanswered: (use: LinkUse) => changeUnanswered(use, { unansweredSince: use.unansweredSince }),
  };
}
