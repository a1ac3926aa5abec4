import type { Collection, Store } from '../storage/collection.js';

/** The second factor of an account. */
export interface FactorDocument {
  /** The ID of the account. */
  id: string;
  /** The secret of the authenticator app, encrypted; absent until the enrolment is confirmed. */
  secret?: string;
  confirmedAt?: number;
  /** The time step of the latest code that was accepted: none is accepted twice. */
  lastStep: number;
  /** A secret that was shown but not confirmed, encrypted. */
  pending?: string;
  /** Until when it can be confirmed. */
  pendingUntil?: number;
  /** HMACs of the recovery codes that are left. */
  recovery: string[];
  /** Incremented by every change except that of `lastStep`. */
  rev: number;
  updatedAt: number;
}

export type Factors = Collection<FactorDocument>;

export const factorCollection = (store: Store): Factors =>
  store.collection<FactorDocument>('factors', { fields: ['lastStep', 'rev'] });
