import { ConfigurationError } from '../../core/config/configuration-error.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import type { Change, Collection, Store } from '../../core/storage/collection.js';

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
  /** By when the account must have a factor, if the operator requires one. */
  requiredFrom?: number;
  /** Incremented when a factor is set up or removed; for the mail about it. */
  version: number;
  /** Incremented by every change except that of `lastStep`. */
  rev: number;
  updatedAt: number;
}

export type Factors = Collection<FactorDocument>;

export const factorCollection = (store: Store): Factors =>
  store.collection<FactorDocument>('factors', { numbers: ['lastStep', 'rev', 'confirmedAt'] });

/**
 * Prevents a start without the encryption key, after which a password alone would open accounts that have a second factor.
 * @throws ConfigurationError
 */
export async function refuseMissingKey(
  store: Store,
  { program, variable }: { program: string; variable: string },
): Promise<void> {
  const enrolled = await factorCollection(store).count({ confirmedAt: { gt: 0 } }, 1);
  if (enrolled === 0) return;
  const message = `${variable} is not set, but accounts have a second factor, which sign-in would not ask for.`;
  const remedy =
    'Set it to the key that they were set up with. If that is lost, set a new one and remove the factors.';
  throw new ConfigurationError(program, [{ message, remedy }]);
}

/** The version field of the mails about changes of factors, for their send condition. */
export const FACTOR_VERSION = 'factorVersion';

/** The current value of `FACTOR_VERSION`. */
export const readFactorVersion = async (factors: Factors, account: string): Promise<number> =>
  (await factors.findOne({ id: account }))?.version ?? 0;

/**
 * Enqueues the mail about a change of the factor of an account, after the change.
 *
 * @param version of the factor after the change
 * @param from absent if the operator makes the change
 */
export type AnnounceFactor = (
  change: 'added' | 'removed',
  account: string,
  version: number,
  source: ChangeSource | undefined,
) => Promise<void>;

/** Who changes a factor: the person, or the operator named by `by`. */
export type ChangeSource = Pick<RequestSource, 'ip' | 'by' | 'browser' | 'acceptLanguage'>;

export interface RemovalDependencies {
  factors: Factors;
  audit: Pick<Audit, 'record'>;
  clock: Clock;
  announce?: AnnounceFactor | undefined;
}

/**
 * Removes the factor of an account; false if it has none. It needs neither the key nor the libraries of the service, so that
 * it also helps if the key was lost.
 */
export async function removeFactor(
  account: string,
  source: ChangeSource,
  { factors, audit, clock, announce }: RemovalDependencies,
): Promise<boolean> {
  for (;;) {
    const found = await factors.findOne({ id: account });
    if (found?.confirmedAt === undefined) return false;
    const { id, rev, version } = found;
    const removal: Change<FactorDocument> = {
      set: { recovery: [], version: version + 1, updatedAt: clock.now() },
      unset: ['secret', 'confirmedAt', 'pending', 'pendingUntil', 'recoveryKey'],
      inc: { rev: 1 },
    };
    if (!(await factors.updateOne({ id, rev }, removal))) continue;
    await announce?.('removed', account, version + 1, source.by === undefined ? source : undefined);
    break;
  }
  await audit.record({ event: 'factor.removed', subject: account, ...actorOf(source) });
  return true;
}
