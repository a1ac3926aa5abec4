import type { Collection, Store } from '../../core/storage/collection.js';

/** An initial access token (RFC 7591 §1.2), which lets applications register themselves. */
export interface RegistrationTokenDocument {
  id: string;
  /** SHA-256 */
  tokenHash: string;
  /** Registrations that it allows in all, and those that are left. */
  uses: number;
  usesLeft: number;
  createdAt: number;
  expiresAt: number;
}

export type RegistrationTokenCollection = Collection<RegistrationTokenDocument>;

export const registrationTokenCollection = (store: Store): RegistrationTokenCollection =>
  store.collection<RegistrationTokenDocument>('registrationTokens', {
    unique: ['tokenHash'],
    indexes: [['expiresAt'], ['createdAt']],
    numbers: ['expiresAt', 'createdAt', 'usesLeft'],
  });
