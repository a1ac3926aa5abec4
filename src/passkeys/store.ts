import type { Origin } from '../http/scope.js';
import { type Audit, actorOf } from '../ops/audit.js';
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
  /** Identifies a removal that has begun and must leave another passkey. */
  leaving?: string;
}

export type Passkeys = Collection<PasskeyDocument>;

export const passkeyCollection = (store: Store): Passkeys =>
  store.collection<PasskeyDocument>('passkeys', { fields: ['counter', 'leaving'], indexes: [['account']] });

/** A challenge that was answered: none is accepted twice. */
export interface UsedChallengeDocument {
  id: string;
  expiresAt: number;
}

export type UsedChallenges = Collection<UsedChallengeDocument>;

export const usedChallengeCollection = (store: Store): UsedChallenges =>
  store.collection<UsedChallengeDocument>('usedChallenges', { indexes: [['expiresAt']] });

/** Who changes a passkey: the person, or the operator named by `by`. */
export type ChangeOrigin = Pick<Origin, 'ip' | 'by' | 'browser' | 'acceptLanguage'>;

/**
 * Enqueues the mail about a new passkey or one that is removed, before the change and to be sent after it.
 *
 * @param id of the passkey
 * @param from absent if the operator makes the change
 */
export type AnnouncePasskey = (
  change: 'added' | 'removed',
  account: string,
  id: string,
  from: ChangeOrigin | undefined,
) => Promise<void>;

/** The version field of the mail about a passkey, for its send condition: 1 once the change is stored. */
export const passkeyVersionField = (change: 'added' | 'removed', id: string): string =>
  `passkey-${change} ${id}`;

/** The current value of such a field; undefined for any other field. */
export async function readPasskeyVersion(
  passkeys: Pick<Passkeys, 'findOne'>,
  account: string,
  field: string,
): Promise<number | undefined> {
  const [, change, id] = /^passkey-(added|removed) ([\w-]+)$/.exec(field) ?? [];
  if (id === undefined) return undefined;
  const isThere = (await passkeys.findOne({ id, account })) !== null;
  return isThere === (change === 'added') ? 1 : 0;
}

export interface RemovalDependencies {
  passkeys: Passkeys;
  audit: Pick<Audit, 'record'>;
  announce?: AnnouncePasskey | undefined;
}

/**
 * Removes all passkeys of an account and returns their number. It needs neither the configuration nor the library of the
 * service.
 */
export async function removePasskeys(
  account: string,
  from: ChangeOrigin,
  { passkeys, audit, announce }: RemovalDependencies,
): Promise<number> {
  if (announce) {
    const { items } = await passkeys.page({ where: { account }, sort: 'account', limit: 1 });
    // One mail about all of them.
    const [first] = items;
    if (first) await announce('removed', account, first.id, from.by === undefined ? from : undefined);
  }
  const removed = await passkeys.deleteMany({ account });
  if (removed > 0) await audit.record({ event: 'passkey.removed', subject: account, ...actorOf(from) });
  return removed;
}
