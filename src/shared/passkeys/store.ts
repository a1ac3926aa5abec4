import type { RequestSource } from '../../core/http/routes.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { createStoredChanges, type StoredChange } from '../../core/ops/stored-changes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Collection, Store } from '../../core/storage/collection.js';

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
  /** Identifies a removal that has begun and must leave another way to sign in. */
  leaving?: string;
}

export type Passkeys = Collection<PasskeyDocument>;

export const passkeyCollection = (store: Store): Passkeys =>
  store.collection<PasskeyDocument>('passkeys', {
    fields: ['leaving'],
    numbers: ['counter'],
    indexes: [['account']],
  });

/** A challenge that was answered: none is accepted twice. */
export interface UsedChallengeDocument {
  id: string;
  expiresAt: number;
}

export type UsedChallenges = Collection<UsedChallengeDocument>;

export const usedChallengeCollection = (store: Store): UsedChallenges =>
  store.collection<UsedChallengeDocument>('usedChallenges', {
    indexes: [['expiresAt']],
    numbers: ['expiresAt'],
  });

/** Who changes a passkey: the person, or the operator named by `by`. */
export type ChangeSource = Pick<RequestSource, 'ip' | 'by' | 'browser' | 'acceptLanguage'>;

const changes = createStoredChanges('passkey', 'added', 'removed');

/** A new passkey or a removal, for the mail about it. */
export type PasskeyChange = StoredChange & { kind: 'added' | 'removed' };

/**
 * Enqueues the mail about a change, before the change and to be sent after it.
 *
 * @param from absent if the operator makes the change
 */
export type AnnouncePasskey = (
  change: PasskeyChange,
  account: string,
  source: ChangeSource | undefined,
) => Promise<void>;

export const changeOf = (
  kind: PasskeyChange['kind'],
  passkey: Pick<PasskeyDocument, 'id' | 'account' | 'createdAt'>,
): PasskeyChange => changes.of(kind, passkey.account, passkey);

/** The current value of the `versionField` of a change; undefined for any other field. */
export const readPasskeyVersion = (
  passkeys: Pick<Passkeys, 'findOne'>,
  account: string,
  field: string,
): Promise<number | undefined> => changes.readVersion(field, (id) => passkeys.findOne({ id, account }));

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
  source: ChangeSource,
  { passkeys, audit, announce }: RemovalDependencies,
): Promise<number> {
  const { items } = await passkeys.page({ where: { account }, sort: 'account', limit: 1 });
  const removed = await passkeys.deleteMany({ account });
  // One mail about all of them.
  const [first] = items;
  if (first && removed > 0)
    await announce?.(changeOf('removed', first), account, source.by === undefined ? source : undefined);
  if (removed > 0) await audit.record({ event: 'passkey.removed', subject: account, ...actorOf(source) });
  return removed;
}

/** Also without the option: an account that is deleted or has a new owner loses its passkeys. */
export function contributePasskeys({
  store,
  audit,
  signInMethods,
  versions,
}: Pick<ModuleContext, 'store' | 'audit' | 'signInMethods' | 'versions'>): void {
  const passkeys = passkeyCollection(store);
  versions.add((account, field) => readPasskeyVersion(passkeys, account, field));
  signInMethods.add('passkey', {
    forget: (account) => passkeys.deleteMany({ account }),
    remove: (account, source) => removePasskeys(account, source, { passkeys, audit }),
  });
}
