import { type Clock, HOUR, isUnexpired } from '../../core/kernel/clock.js';
import { isSecretOf, newId, newToken, type Random, sha256, UNUSED_HASH } from '../../core/kernel/secrets.js';
import type { CommitParts, Effect } from '../../core/ops/commit.js';
import { type Collection, nullIfTaken, type Store, UniqueViolation } from '../../core/storage/collection.js';
import { provisioningErrors } from './errors.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/**
 * The link with which the first operator of an empty store is made. It contains the `sub` of that principal, which does not
 * exist yet: creating the principal is the one write that uses the link, in whatever process.
 */

/** How long a link works that makes an operator. */
export const OPERATOR_LINK_LIFETIME_MS = HOUR;

interface SetupDocument {
  id: 'first-operator';
  /** Of the principal that the link creates. */
  sub: string;
  linkHash: string;
  expiresAt: number;
}

export interface FirstOperatorLink {
  url: string;
  expiresAt: number;
}

export type FirstOperator = ReturnType<typeof createFirstOperator>;

const ID = 'first-operator';

export function setupCollection(store: Store): Collection<SetupDocument> {
  return store.collection<SetupDocument>('setup', { numbers: ['expiresAt'] });
}

export function createFirstOperator(
  setup: Collection<SetupDocument>,
  principals: PrincipalCollection,
  { commit, clock, random, issuer }: { commit: CommitParts; clock: Clock; random: Random; issuer(): string },
) {
  return {
    /**
     * A new link if the store contains no principal; else `null`, also while an earlier link is valid, whose secret is not
     * stored.
     */
    async offer(): Promise<FirstOperatorLink | null> {
      const { items } = await principals.page({ sort: 'id', limit: 1 });
      if (items.length > 0) return null;
      const now = clock.now();
      const sub = newId('u_', clock, random);
      const token = newLinkToken(sub, random);
      const expiresAt = now + OPERATOR_LINK_LIFETIME_MS;
      const link = { sub, linkHash: sha256(token), expiresAt };
      const isStored =
        (await setup.insert({ id: ID, ...link }).then(() => true, nullIfTaken)) ??
        // Of several processes, one replaces an expired link.
        (await setup.updateOne({ id: ID, expiresAt: { lte: now } }, { set: link })) !== null;
      return isStored ? { url: linkUrl(issuer(), token), expiresAt } : null;
    },

    /** When the link expires, if the token is its secret; else `null`. It is used if its principal exists. */
    async look(token: string): Promise<{ expiresAt: number; hasExpired: boolean } | null> {
      const link = await setup.findOne({ id: ID });
      if (!isSecretOf(token, link?.linkHash ?? UNUSED_HASH) || !link) return null;
      const { expiresAt } = link;
      const life = OPERATOR_LINK_LIFETIME_MS;
      return { expiresAt, hasExpired: !isUnexpired(expiresAt, { now: clock.now(), life }) };
    },

    /** Creates the principal with its audit records; `null` if a concurrent request has. @throws handle_taken */
    async create(principal: PrincipalDocument, records: Effect[]): Promise<PrincipalDocument | null> {
      try {
        await commit([principals.inserting(principal), ...records]);
        return principal;
      } catch (error) {
        if (!(error instanceof UniqueViolation)) throw error;
        // Engines name either field if both exist.
        if (await principals.findOne({ id: principal.id })) return null;
        throw provisioningErrors.handle_taken();
      }
    },
  };
}

/** Contains the id of the principal, to find it without an index; the 256 random bits after it are the secret. */
export function newLinkToken(id: string, random: Random): string {
  return newToken(random, id.slice('u_'.length));
}

/** The page behind a link. */
export const linkUrl = (issuer: string, token: string): string => `${issuer}/invite/${token}`;
