import { type UsedOnce, usedOnceCollection } from '../../core/ops/single-use.js';
import { createStoredChanges } from '../../core/ops/stored-changes.js';
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
    numbers: ['createdAt'],
    indexes: [['userId', 'createdAt']],
  });

/** The tickets that were used, in all processes together. */
export const usedTicketCollection = (store: Store): Collection<UsedOnce> =>
  usedOnceCollection(store, 'usedTickets');

/** The changes about which the user gets a mail. */
export const identityChanges = createStoredChanges('identity', 'connected', 'disconnected');

/** Also without the option: an account that is deleted or has a new owner loses its connections. */
export function contributeIdentities({ store, signInMethods, versions }: ModuleContext): void {
  const identities = identityCollection(store);
  versions.add((userId, field) =>
    identityChanges.readVersion(field, (id) => identities.findOne({ id, userId })),
  );
  signInMethods.add('identity', { forget: (userId) => identities.deleteMany({ userId }) });
}
