import { type Clock, HOUR, isUnexpired } from '../../core/kernel/clock.js';
import { isSecretOf, newId, type Random, UNUSED_HASH } from '../../core/kernel/secrets.js';
import { type Collection, nullIfTaken, type Store } from '../../core/storage/collection.js';
import { linkUrl, newLink } from './link-tokens.js';
import type { PrincipalCollection } from './store.js';

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

export type FirstOperator = ReturnType<typeof createFirstOperator>;

const ID = 'first-operator';

export function setupCollection(store: Store): Collection<SetupDocument> {
  return store.collection<SetupDocument>('setup', { numbers: ['expiresAt'] });
}

export function createFirstOperator(
  setup: Collection<SetupDocument>,
  principals: PrincipalCollection,
  { clock, random, issuer }: { clock: Clock; random: Random; issuer(): string },
) {
  return {
    /**
     * A new link if the store contains no principal; else `null`, also while an earlier link is valid, whose secret is not
     * stored.
     */
    async offer(): Promise<{ url: string; expiresAt: number } | null> {
      const { items } = await principals.page({ sort: 'id', limit: 1 });
      if (items.length > 0) return null;
      const sub = newId('u_', clock, random);
      const link = newLink(sub, OPERATOR_LINK_LIFETIME_MS, { clock, random });
      const { hash: linkHash, expiresAt } = link;
      const set = { sub, linkHash, expiresAt };
      const isStored =
        (await setup.insert({ id: ID, ...set }).then(() => true, nullIfTaken)) ??
        // Of several processes, one replaces an expired link.
        (await setup.changeOne({ id: ID, expiresAt: { lte: clock.now() } }, { set }));
      return isStored ? { url: linkUrl(issuer(), link), expiresAt } : null;
    },

    /** When the link expires, if the token is its secret; else `null`. It is used if its principal exists. */
    async look(token: string): Promise<{ expiresAt: number; hasExpired: boolean } | null> {
      const link = await setup.findOne({ id: ID });
      if (!isSecretOf(token, link?.linkHash ?? UNUSED_HASH) || !link) return null;
      const { expiresAt } = link;
      const life = OPERATOR_LINK_LIFETIME_MS;
      return { expiresAt, hasExpired: !isUnexpired(expiresAt, { now: clock.now(), life }) };
    },
  };
}
