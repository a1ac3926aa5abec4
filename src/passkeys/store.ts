import type { Origin } from '../http/scope.js';
import type { Audit } from '../ops/audit.js';
import type { Collection, Store } from '../storage/collection.js';

/** A public key with which a person signs in. */
export interface PasskeyDocument {
  /** The credential ID, base64url. */
  id: string;
  /** The ID of the account. */
  account: string;
  /** As a COSE key, base64url. */
  publicKey: string;
  /** The signature counter of the latest use; always 0 if the authenticator has none. */
  counter: number;
  /** How browsers reach the authenticator. */
  transports: string[];
  /** Whether the passkey can be synchronized to other devices. Never changes. */
  backupEligible: boolean;
  backedUp: boolean;
  name: string;
  createdAt: number;
  lastUsedAt?: number;
}

export type Passkeys = Collection<PasskeyDocument>;

export const passkeyCollection = (store: Store): Passkeys =>
  store.collection<PasskeyDocument>('passkeys', { fields: ['counter'], indexes: [['account']] });

/** A challenge that was answered: none is accepted twice. */
export interface UsedChallengeDocument {
  id: string;
  expiresAt: number;
}

export type UsedChallenges = Collection<UsedChallengeDocument>;

export const usedChallengeCollection = (store: Store): UsedChallenges =>
  store.collection<UsedChallengeDocument>('usedChallenges', { indexes: [['expiresAt']] });

/**
 * Removes all passkeys of an account and returns their number. It needs neither the configuration nor the library of the
 * service.
 */
export async function removePasskeys(
  account: string,
  { ip }: Pick<Origin, 'ip'>,
  { passkeys, audit }: { passkeys: Passkeys; audit: Pick<Audit, 'record'> },
): Promise<number> {
  const removed = await passkeys.deleteMany({ account });
  if (removed > 0) await audit.record({ event: 'passkey.removed', subject: account, ip });
  return removed;
}
