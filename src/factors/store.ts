import type { Origin } from '../http/scope.js';
import type { Audit } from '../ops/audit.js';
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
  /** Their key, encrypted: codes are too short for a hash alone. */
  recoveryKey?: string;
  /** Incremented by every change except that of `lastStep`. */
  rev: number;
  updatedAt: number;
}

export type Factors = Collection<FactorDocument>;

export const factorCollection = (store: Store): Factors =>
  store.collection<FactorDocument>('factors', { fields: ['lastStep', 'rev'] });

/**
 * Removes the factor of an account; false if it has none. It needs neither the key nor the libraries of the service, so that
 * it also helps if the key was lost.
 */
export async function removeFactor(
  account: string,
  { ip }: Pick<Origin, 'ip'>,
  { factors, audit }: { factors: Factors; audit: Pick<Audit, 'record'> },
): Promise<boolean> {
  const removed = await factors.deleteOne({ id: account });
  if (removed?.secret === undefined) return false;
  await audit.record({ event: 'factor.removed', subject: account, ip });
  return true;
}
