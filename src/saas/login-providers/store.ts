import { sha256 } from '../../core/kernel/secrets.js';
import { type UsedOnce, usedOnceCollection } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Collection, Store } from '../../core/storage/collection.js';
import { allOf } from '../../core/storage/pages.js';

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
}

export const identityId = ({ issuer, subject }: Pick<IdentityDocument, 'issuer' | 'subject'>): string =>
  sha256(JSON.stringify([issuer, subject]));

export type Identities = Collection<IdentityDocument>;

export const identityCollection = (store: Store): Identities =>
  store.collection<IdentityDocument>('identities', {
    numbers: ['createdAt'],
    indexes: [['userId', 'createdAt']],
  });

/** The tickets that were used, in all processes together. */
export const usedTicketCollection = (store: Store): Collection<UsedOnce> =>
  usedOnceCollection(store, 'usedTickets');

/** Also without the option: an account that is deleted or has a new owner loses its connections. */
export function contributeIdentities({ store, signInMethods }: ModuleContext): void {
  const identities = identityCollection(store);
  signInMethods.add('identity', {
    async removal(userId) {
      const removed = await allOf(identities, { where: { userId }, sort: 'createdAt' });
      return removed.map(({ id }) => identities.deleting({ id, userId }));
    },
  });
}
