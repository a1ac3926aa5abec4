import type { Collection, Store } from '../storage/collection.js';

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
