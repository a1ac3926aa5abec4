import {
  isRevoked,
  type RevocableClaims,
  type RevocationKind,
  revocationKey,
  revocationKeysOf,
} from '../../../core/http/revocation-list.js';
import { type Clock, MINUTE, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { type Collection, nullIfTaken, type Store } from '../../../core/storage/collection.js';

/**
 * What resource servers must know about access tokens that they verify themselves, kept until every token that it concerns
 * has expired.
 */
export interface RevocationDocument {
  /** The key in the published list. */
  id: string;
  /** Tokens of lower generations are revoked; absent if all are. */
  valid?: number;
  /** When resource servers have to receive it. */
  revokedAt: number;
  expiresAt: number;
}

export type RevocationCollection = Collection<RevocationDocument>;

export function revocationCollection(store: Store): RevocationCollection {
  return store.collection<RevocationDocument>('tokenRevocations', {
    indexes: [['expiresAt'], ['revokedAt']],
    numbers: ['expiresAt', 'revokedAt', 'valid'],
  });
}

/** The longest time for which access tokens for resources are valid, and a minute for clocks that differ. */
const RETENTION_MS = 11 * MINUTE;

/** How far ahead the clock of another process, which has issued tokens, is expected to be. */
const EXPECTED_SKEW_MS = 5 * SECOND;

/** Something with generations, after a change that may have begun another one. */
export interface Generation {
  epoch?: number;
}

export type Revocations = ReturnType<typeof createRevocations>;

export interface RevocationDependencies {
  revocationDocuments: RevocationCollection;
  /** Without resources, no token can be verified without the provider. */
  resources: { hasAny(): Promise<boolean> };
  /** The active principal. */
  findPrincipal(sub: string): Promise<Generation | null>;
  clock: Clock;
}

export function createRevocations(deps: RevocationDependencies) {
  const { revocationDocuments, resources, findPrincipal, clock } = deps;
  const record = async (kind: RevocationKind, value: string, valid?: number): Promise<void> => {
    const id = revocationKey(kind, value);
    const now = clock.now();
    const times = { revokedAt: now, expiresAt: now + RETENTION_MS };
    const generation = valid === undefined ? {} : { valid };
    const isNew = await revocationDocuments
      .insert({ id, ...generation, ...times })
      .then(() => true, nullIfTaken);
    if (isNew) return;
    // What is revoked for good, or up to a later generation, remains so.
    if (valid === undefined) await revocationDocuments.updateOne({ id }, { set: times, unset: ['valid'] });
    else await revocationDocuments.updateOne({ id, valid: { lte: valid } }, { set: { ...times, valid } });
  };

  return {
    /** Revokes tokens for good. */
    revoke: (kind: RevocationKind, value: string) => record(kind, value),

    /**
     * Runs a change that ends what tokens were issued for. The revocation comes first: after a crash in between, tokens are
     * refused needlessly for some minutes, and never accepted wrongly.
     */
    async end<T>(kind: RevocationKind, value: string, change: () => Promise<T>): Promise<T> {
      if (await resources.hasAny()) await record(kind, value);
      return change();
    },

    /** The same for a principal whose credentials change or that is disabled, with its later tokens unaffected. */
    async endPrincipal<T extends Generation | null>(sub: string, change: () => Promise<T>): Promise<T> {
      if (!(await resources.hasAny())) return change();
      const before = await findPrincipal(sub);
      const begins = (before?.epoch ?? 0) + 1;
      if (before) await record('sub', sub, begins);
      const after = await change();
      // A simultaneous change may have begun a generation that this one has ended.
      const current = after?.epoch ?? 0;
      if (current > begins || (!before && current > 0)) await record('sub', sub, current);
      return after;
    },

    /** The same for the access of a client to a principal. @param generation that begins now */
    async endAccess<T>(access: string, generation: number, change: () => Promise<T>): Promise<T> {
      if (await resources.hasAny()) await record('access', access, generation);
      return change();
    },

    /** The same for a resource, whose identifier may be registered again: later tokens are unaffected. */
    async endResource<T>(identifier: string, change: () => Promise<T>): Promise<T> {
      await record('aud', identifier, toSeconds(clock.now() + EXPECTED_SKEW_MS) + 1);
      return change();
    },

    /** Whether a token with these claims is revoked. */
    async includes(claims: RevocableClaims): Promise<boolean> {
      const keys = revocationKeysOf(claims).map(([key]) => key);
      const { items } = await revocationDocuments.page({
        where: { id: { in: keys } },
        sort: 'id',
        limit: keys.length,
      });
      return isRevoked(claims, Object.fromEntries(items.map(listed)));
    },
  };
}

/** As in the published list. */
export const listed = ({ id, valid }: RevocationDocument): [key: string, valid: number | true] => [
  id,
  valid ?? true,
];
