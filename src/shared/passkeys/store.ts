import type { RequestSource } from '../../core/http/routes.js';
import { sha256 } from '../../core/kernel/secrets.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
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
export type ChangeSource = Pick<RequestSource, 'ip' | 'by' | 'browser' | 'acceptLanguage'>;

/** A new passkey or a removal, for the mail about it. */
export interface PasskeyChange {
  kind: 'added' | 'removed';
  /** Identifies the mail: one for each change, also if a passkey is added again. */
  key: string;
  /** The change is stored once this field has reached the version. */
  versionField: string;
  version: number;
}

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
  { id, account, createdAt }: Pick<PasskeyDocument, 'id' | 'account' | 'createdAt'>,
): PasskeyChange => ({
  kind,
  // With the account: someone else could otherwise replace the mail by naming the same passkey.
  key: sha256(`${kind} ${account} ${id} ${createdAt}`),
  versionField: `passkey-${kind} ${id}`,
  version: kind === 'added' ? createdAt : createdAt + 1,
});

/** The current value of the `versionField` of a change; undefined for any other field. */
export async function readPasskeyVersion(
  passkeys: Pick<Passkeys, 'findOne'>,
  account: string,
  field: string,
): Promise<number | undefined> {
  const [, kind, id] = /^passkey-(added|removed) ([\w-]+)$/.exec(field) ?? [];
  if (id === undefined) return undefined;
  const found = await passkeys.findOne({ id, account });
  return found?.createdAt ?? (kind === 'added' ? 0 : Number.MAX_SAFE_INTEGER);
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
  source: ChangeSource,
  { passkeys, audit, announce }: RemovalDependencies,
): Promise<number> {
  if (announce) {
    const { items } = await passkeys.page({ where: { account }, sort: 'account', limit: 1 });
    // One mail about all of them.
    const [first] = items;
    const by = source.by === undefined ? source : undefined;
    if (first) await announce(changeOf('removed', first), account, by);
  }
  const removed = await passkeys.deleteMany({ account });
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
