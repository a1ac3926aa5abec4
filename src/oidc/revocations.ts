import type { Clock } from '../kernel/clock.js';
import { type Collection, nullIfTaken, type Store } from '../storage/collection.js';

/** Revocations of tokens that resource servers verify themselves, kept until the tokens have expired. */
export interface RevocationDocument {
  /** The kind and the value: `jti:…`. */
  id: string;
  revokedAt: number;
  /** When every token that it concerns has expired. */
  expiresAt: number;
}

export type RevocationCollection = Collection<RevocationDocument>;

/** What is revoked: the claim of the tokens that it concerns. */
export type RevocationKind = 'jti';

export interface Revocations {
  revoke(kind: RevocationKind, value: string, expiresAt: number): Promise<void>;
  /** Whether one of these claims of a token is revoked. */
  includes(claims: Readonly<Partial<Record<RevocationKind, string>>>): Promise<boolean>;
}

export function revocationCollection(store: Store): RevocationCollection {
  return store.collection<RevocationDocument>('tokenRevocations', {
    indexes: [['expiresAt'], ['revokedAt']],
  });
}

export function createRevocations(revocations: RevocationCollection, clock: Clock): Revocations {
  return {
    async revoke(kind, value, expiresAt) {
      const revocation = { id: idOf(kind, value), revokedAt: clock.now(), expiresAt };
      await revocations.insert(revocation).catch(nullIfTaken);
    },

    async includes(claims) {
      const ids = Object.entries(claims).map(([kind, value]) => idOf(kind as RevocationKind, value));
      return ids.length > 0 && (await revocations.findOne({ id: { in: ids } })) !== null;
    },
  };
}

const idOf = (kind: RevocationKind, value: string): string => `${kind}:${value}`;
