import type { Origin } from '../http/scope.js';
import type { Audit } from '../ops/audit.js';
import type { Job } from '../ops/jobs.js';
import type { Credentials } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import type { Identity } from './sessions.js';
import { ALL_LINKS, type UserDocument } from './store.js';

/**
 * The end of an account. The mark closes it at once and for ever; each step after it may be done twice, so whatever
 * is interrupted is resumed by the job.
 */
export interface Deletion {
  /**
   * @throws INVALID_CREDENTIALS, RATE_LIMITED, OVERLOADED; PAYMENT_PROVIDER_ERROR when the subscriptions could not
   *   be cancelled yet: the account is closed, and gone as soon as they are
   */
  deleteAccount(identity: Identity, password: string, origin: Origin): Promise<void>;
  /** Finishes what was interrupted. */
  deletionJob: Job;
}

/** What other domains do when somebody leaves. Done again it changes nothing. */
export interface Farewell {
  /** Nothing is charged any more. */
  cancelSubscriptions(userId: string): Promise<void>;
  /** Removes what is kept of the user. */
  forget(userId: string): Promise<void>;
  /** Removes what came in since, of a user who is gone. */
  sweep(userId: string): Promise<void>;
}

export interface DeletionDependencies
  extends Pick<AuthDependencies, 'users' | 'sessions' | 'foreignHashes' | 'emit' | 'clock' | 'farewell'> {
  credentials: Credentials;
  audit: Audit;
}

const BATCH = 50;

export function createDeletion(deps: DeletionDependencies): Deletion {
  const { users, sessions, farewell, credentials, audit, clock } = deps;

  /** Everything after the mark. */
  const finish = async ({ id }: UserDocument, ip: string): Promise<void> => {
    await farewell.cancelSubscriptions(id);
    await farewell.forget(id);
    const gone = await users.deleteOne({ id, deletingAt: { gt: 0 } });
    await farewell.sweep(id);
    // Of a user who is gone they are dead; what a crash leaves of them ends with their time.
    await sessions.deleteMany({ userId: id });
    if (!gone) return;
    await deps.foreignHashes.remove(gone);
    await audit.record({ event: 'user.deleted', subject: id, ip });
    deps.emit('user.deleted', { userId: id });
  };

  return {
    async deleteAccount({ user: { id, email } }, password, origin) {
      const { user } = await credentials.prove({ id, email, password }, origin, 'user.deletion-refused');
      const now = clock.now();
      const marked = await users.updateOne(
        { id, passwordVersion: user.passwordVersion, suspendedAt: null },
        {
          set: { suspendedAt: now, deletingAt: now },
          unset: [...ALL_LINKS, 'keptSession'],
          inc: { sessionEpoch: 1 },
        },
      );
      if (!marked) throw authErrors.INVALID_CREDENTIALS();
      await audit.record({ event: 'user.closed', subject: id, ip: origin.ip });
      deps.emit('session.revoked', { userId: id, scope: 'global' });
      await finish(marked, origin.ip);
    },

    deletionJob: {
      everySeconds: 60,
      async run({ signal }) {
        const failures: unknown[] = [];
        const where = { deletingAt: { gt: 0 } };
        let after: string | undefined;
        do {
          const page = await users.page({
            where,
            sort: 'deletingAt',
            limit: BATCH,
            ...(after && { after }),
          });
          for (const user of page.items) {
            if (signal.aborted) return;
            await finish(user, 'background').catch((error: unknown) => failures.push(error));
          }
          after = page.next ?? undefined;
        } while (after !== undefined);
        if (failures.length > 0) {
          throw new AggregateError(failures, `${failures.length} accounts could not be deleted yet.`);
        }
      },
    },
  };
}
