import {
  agentAt,
  isRevoked,
  type RevocableClaims,
  type RevocationKind,
  revocationKey,
  revocationKeysOf,
} from '../../../core/http/revocation-list.js';
import { MINUTE, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { newId } from '../../../core/kernel/secrets.js';
import type { ModuleContext } from '../../../core/server/module-context.js';
import { type Collection, nullIfTaken, type Store, type Write } from '../../../core/storage/collection.js';
import { pagesOf } from '../../../core/storage/pages.js';

/**
 * What resource servers must know about access tokens that they verify themselves, kept until every token that it concerns
 * has expired. Each end of something is a document of its own, so that commits with one never conflict.
 */
export interface RevocationDocument {
  id: string;
  /** The key in the published list. */
  key: string;
  /** Tokens of lower generations are revoked; absent if all are. */
  valid?: number;
  /** When resource servers have to receive it. */
  revokedAt: number;
  expiresAt: number;
}

export type RevocationCollection = Collection<RevocationDocument>;

export function revocationCollection(store: Store): RevocationCollection {
  return store.collection<RevocationDocument>('tokenRevocations', {
    indexes: [['expiresAt'], ['revokedAt'], ['key']],
    numbers: ['expiresAt', 'revokedAt'],
  });
}

/** The longest time for which access tokens for resources are valid, and a minute for clocks that differ. */
const RETENTION_MS = 11 * MINUTE;

/** How far ahead the clock of another process, which has issued tokens, is expected to be. */
const EXPECTED_SKEW_MS = 5 * SECOND;

export type Revocations = ReturnType<typeof createRevocations>;

/** @param resources without any, no token can be verified without the provider */
export function createRevocations({
  revocationDocuments,
  resources,
  clock,
  random,
}: Pick<ModuleContext, 'clock' | 'random'> & {
  revocationDocuments: RevocationCollection;
  resources: { hasAny(): Promise<boolean> };
}) {
  const revocationOf = (
    key: string,
    valid?: number,
    id = newId('rev_', clock, random),
  ): RevocationDocument => {
    const now = clock.now();
    return {
      id,
      key,
      ...(valid !== undefined && { valid }),
      revokedAt: now,
      expiresAt: now + RETENTION_MS,
    };
  };

  return {
    /** Revokes one token, by its `jti`. */
    async revokeToken(jti: string) {
      const key = revocationKey('jti', jti);
      await revocationDocuments.insert(revocationOf(key, undefined, key)).catch(nullIfTaken);
    },

    /**
     * The revocation of what was issued for something, for the commit that ends it.
     * @param generation that begins now, with its tokens unaffected; absent if it ends for good
     */
    async ending(kind: RevocationKind, value: string, generation?: number): Promise<Write | undefined> {
      if (!(await resources.hasAny())) return undefined;
      return revocationDocuments.inserting(revocationOf(revocationKey(kind, value), generation));
    },

    /** The same for a resource, whose identifier may be registered again: later tokens are unaffected. */
    endingResource(identifier: string): Write {
      const begins = toSeconds(clock.now() + EXPECTED_SKEW_MS) + 1;
      return revocationDocuments.inserting(revocationOf(revocationKey('aud', identifier), begins));
    },

    /** The same for one agent at a resource: it may get further tokens there later. */
    endingAgent(sub: string, identifier: string): Write {
      const begins = toSeconds(clock.now() + EXPECTED_SKEW_MS) + 1;
      return revocationDocuments.inserting(
        revocationOf(revocationKey('agent', agentAt(sub, identifier)), begins),
      );
    },

    /** Whether a token with these claims is revoked. */
    async includes(claims: RevocableClaims): Promise<boolean> {
      const keys = revocationKeysOf(claims).map(([key]) => key);
      const where = { key: { in: keys } };
      for await (const items of pagesOf(revocationDocuments, { where, sort: 'id' }))
        if (isRevoked(claims, listOf(items))) return true;
      return false;
    },
  };
}

/** As in the published list: of several revocations with one key, the one that revokes most. */
export function listOf(revocations: Iterable<RevocationDocument>): Record<string, number | true> {
  const list: Record<string, number | true> = {};
  for (const { key, valid = true } of revocations) {
    const known = Object.hasOwn(list, key) ? list[key] : 0;
    list[key] = valid === true || known === true ? true : Math.max(valid, known ?? 0);
  }
  return list;
}
