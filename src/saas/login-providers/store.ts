import { sha256 } from '../../core/kernel/secrets.js';
import { type UsedOnce, usedOnceCollection } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Collection, Store } from '../../core/storage/collection.js';

/** The account of a provider that signs in a user. */
export interface IdentityDocument {
  /** SHA-256 of issuer and subject, so that one account of a provider belongs to one user. */
  id: string;
  userId: string;
  /** The name of the provider in the configuration. */
  provider: string;
  issuer: string;
  subject: string;
  /** As of the first sign-in; only to recognize it. */
  email?: string;
  createdAt: number;
  /** Identifies a removal that has begun and must leave another way to sign in. */
  leaving?: string;
}

export type Identities = Collection<IdentityDocument>;

export const identityCollection = (store: Store): Identities =>
  store.collection<IdentityDocument>('identities', {
    fields: ['leaving'],
    indexes: [['userId', 'createdAt']],
  });

/** The tickets that were used, in all processes together. */
export const usedTicketCollection = (store: Store): Collection<UsedOnce> =>
  usedOnceCollection(store, 'usedTickets');

/** A change about which the user gets a mail: enqueued before the change, and sent once it has been made. */
export interface IdentityChange {
  kind: 'connected' | 'disconnected';
  /** The provider, as users know it. */
  provider: string;
  /** Identifies the mail. */
  key: string;
  versionField: string;
  version: number;
}

export const changeOf = (
  kind: IdentityChange['kind'],
  provider: string,
  { id, userId, createdAt }: Pick<IdentityDocument, 'id' | 'userId' | 'createdAt'>,
): IdentityChange => ({
  kind,
  provider,
  key: sha256(`${kind} ${userId} ${id} ${createdAt}`),
  versionField: `identity-${kind} ${id}`,
  version: kind === 'connected' ? createdAt : createdAt + 1,
});

/** The current value of the `versionField` of a change; undefined for any other field. */
export async function readIdentityVersion(
  identities: Pick<Identities, 'findOne'>,
  userId: string,
  field: string,
): Promise<number | undefined> {
  const [, kind, id] = /^identity-(connected|disconnected) ([\w-]+)$/.exec(field) ?? [];
  if (id === undefined) return undefined;
  const found = await identities.findOne({ id, userId });
  return found?.createdAt ?? (kind === 'connected' ? 0 : Number.MAX_SAFE_INTEGER);
}

/** Also without the option: an account that is deleted or has a new owner loses its connections. */
export function contributeIdentities({
  store,
  signInMethods,
  versions,
}: Pick<ModuleContext, 'store' | 'signInMethods' | 'versions'>): void {
  const identities = identityCollection(store);
  versions.add((userId, field) => readIdentityVersion(identities, userId, field));
  signInMethods.add('identity', { forget: (userId) => identities.deleteMany({ userId }) });
}
