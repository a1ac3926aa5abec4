import { ConfigurationError } from '../../core/config/configuration-error.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { type CommitPart, type CommitParts, decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { ReadAccount } from '../../core/server/contributions.js';
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

/** Who changes a factor: the person, or the operator named by `by`. */
export type ChangeSource = Pick<RequestSource, 'ip' | 'by' | 'browser' | 'acceptLanguage'>;

/** The account of a factor. */
export interface FactorAccount extends ReadAccount {
  /** The mail about a change, to its owner. */
  factorMail(change: 'added' | 'removed', source: ChangeSource): Effect | undefined;
}

export interface RemovalDependencies {
  factors: Factors;
  /** Null if there is no such account. */
  readAccount(account: string): Promise<FactorAccount | null>;
  commit: CommitParts;
  audit: Pick<Audit, 'entry'>;
  clock: Clock;
}

/**
 * Removes the factor of an account; false if it has none. It needs neither the key nor the libraries of the service, so that
 * it also helps if the key was lost.
 */
export const removeFactor = (
  id: string,
  source: ChangeSource,
  { factors, readAccount, commit, audit, clock }: RemovalDependencies,
): Promise<boolean> =>
  decideAndCommit<boolean>(commit, async () => {
    const [account, found] = await Promise.all([readAccount(id), factors.findOne({ id })]);
    if (!account || found?.confirmedAt === undefined) return { result: false };
    const removal: Change<FactorDocument> = {
      set: { recovery: [], updatedAt: clock.now() },
      unset: ['secret', 'confirmedAt', 'pending', 'pendingUntil', 'recoveryKey'],
      inc: { rev: 1 },
    };
    const parts = [
      account.nextRevision,
      factors.changing({ id, rev: found.rev }, removal),
      account.factorMail('removed', source),
      audit.entry({ event: 'factor.removed', subject: id, ...actorOf(source) }),
    ];
    return { parts, result: true };
  });

/** What removes the factor of an account that is deleted or, with a `source`, has a new owner. */
export async function factorRemoval(
  id: string,
  source: ChangeSource | undefined,
  { factors, audit }: Pick<RemovalDependencies, 'factors' | 'audit'>,
): Promise<readonly CommitPart[]> {
  const found = await factors.findOne({ id });
  if (!found) return [];
  const isRecorded = source !== undefined && found.confirmedAt !== undefined;
  return [
    factors.deleting({ id, rev: found.rev }),
    isRecorded ? audit.entry({ event: 'factor.removed', subject: id, ...actorOf(source) }) : undefined,
  ];
}
