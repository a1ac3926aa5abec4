import type { RequestSource } from '../../core/http/routes.js';
import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { type CommitParts, decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { ReadAccount } from '../../core/server/contributions.js';
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
}

export type Passkeys = Collection<PasskeyDocument>;

export const passkeyCollection = (store: Store): Passkeys =>
  store.collection<PasskeyDocument>('passkeys', { numbers: ['counter'], indexes: [['account']] });

/** A passkey as its owner sees it. */
export const viewOf = ({ id, name, backedUp, createdAt, lastUsedAt }: PasskeyDocument) => ({
  id,
  name,
  backedUp,
  createdAt: toTimestamp(createdAt),
  lastUsedAt: toTimestampOrNull(lastUsedAt),
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

/** The account of a passkey. */
export interface PasskeyAccount extends ReadAccount {
  /** The mail about a change, to its owner. */
  passkeyMail(change: 'added' | 'removed', source: ChangeSource): Effect | undefined;
}

export interface RemovalDependencies {
  passkeys: Passkeys;
  /** Null if there is no such account. */
  readAccount(account: string): Promise<PasskeyAccount | null>;
  commit: CommitParts;
  audit: Pick<Audit, 'entry'>;
}

export const MAX_PER_ACCOUNT = 20;

/** The passkeys of an account, in the order of their IDs. */
export const passkeysOf = async (passkeys: Passkeys, account: string): Promise<PasskeyDocument[]> =>
  (await passkeys.page({ where: { account }, sort: 'account', limit: MAX_PER_ACCOUNT })).items;

/**
 * Removes all passkeys of an account and returns their number. It needs neither the configuration nor the library of the
 * service.
 */
export const removePasskeys = (
  id: string,
  source: ChangeSource,
  { passkeys, readAccount, commit, audit }: RemovalDependencies,
): Promise<number> =>
  decideAndCommit<number>(commit, async () => {
    const account = await readAccount(id);
    const removed = await passkeysOf(passkeys, id);
    if (!account || removed.length === 0) return { result: 0 };
    const parts = [
      account.nextRevision,
      ...removed.map((passkey) => passkeys.deleting({ id: passkey.id, account: id })),
      // One mail about all of them.
      account.passkeyMail('removed', source),
      audit.entry({ event: 'passkey.removed', subject: id, ...actorOf(source) }),
    ];
    return { parts, result: removed.length };
  });

/** Also without the option: an account that is deleted or has a new owner loses its passkeys. */
export function contributePasskeys({
  store,
  audit,
  signInMethods,
}: Pick<ModuleContext, 'store' | 'signInMethods'> & { audit: Pick<Audit, 'entry'> }): void {
  const passkeys = passkeyCollection(store);
  signInMethods.add('passkey', {
    async removal(account, source) {
      const removed = await passkeysOf(passkeys, account);
      const isRecorded = source !== undefined && removed.length > 0;
      return [
        ...removed.map(({ id }) => passkeys.deleting({ id, account })),
        isRecorded
          ? audit.entry({ event: 'passkey.removed', subject: account, ...actorOf(source) })
          : undefined,
      ];
    },
  });
}
