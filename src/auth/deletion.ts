import type { Origin } from '../http/scope.js';
import type { Audit } from '../ops/audit.js';
import type { Job } from '../ops/jobs.js';
import { UNANSWERED_LINK_FIELDS } from '../ops/used-links.js';
import type { Credentials } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import type { Identity } from './sessions.js';
import { ALL_LINK_FIELDS, type UserDocument } from './store.js';

/**
 * Deletion of accounts. `deletingAt` disables the account at once and permanently. Every later step is idempotent, so
 * the job can resume an interrupted deletion.
 */
export interface AccountDeletion {
  /**
   * @throws INVALID_CREDENTIALS, RATE_LIMITED, OVERLOADED; PAYMENT_PROVIDER_ERROR when the subscriptions could not
   *   be cancelled yet: the account is disabled, and the job deletes it after cancelling them
   */
  deleteAccount(identity: Identity, password: string, origin: Origin): Promise<void>;
  /** Resumes interrupted deletions. */
  deletionJob: Job;
}

export interface AccountDeletionDependencies
  extends Pick<
    AuthDependencies,
    'users' | 'sessions' | 'foreignHashes' | 'emit' | 'clock' | 'deletionHooks'
  > {
  credentials: Credentials;
  audit: Audit;
}

const BATCH_SIZE = 50;

export function createAccountDeletion(deps: AccountDeletionDependencies): AccountDeletion {
  const { users, sessions, deletionHooks, credentials, audit, clock } = deps;

  /** The steps that follow `deletingAt`. */
  const completeDeletion = async ({ id }: UserDocument, ip: string): Promise<void> => {
    await deletionHooks.cancelSubscriptions(id);
    await deletionHooks.deleteData(id);
    const deleted = await users.deleteOne({ id, deletingAt: { gt: 0 } });
    await deletionHooks.deleteLateData(id);
    // Sessions of a deleted user are invalid, and the purge removes those that a crash leaves behind.
    await sessions.deleteMany({ userId: id });
    if (!deleted) return;
    await deps.foreignHashes.remove(deleted);
    await audit.record({ event: 'user.deleted', subject: id, ip });
    deps.emit('user.deleted', { userId: id });
  };

  return {
    async deleteAccount({ user: { id, email } }, password, origin) {
      const { user } = await credentials.verify({ id, email, password }, origin, 'user.deletion-refused');
      const now = clock.now();
      const disabled = await users.updateOne(
        { id, passwordVersion: user.passwordVersion, suspendedAt: null },
        {
          set: { suspendedAt: now, deletingAt: now },
          unset: [...ALL_LINK_FIELDS, ...UNANSWERED_LINK_FIELDS, 'keptSession'],
          inc: { sessionEpoch: 1 },
        },
      );
      if (!disabled) throw authErrors.INVALID_CREDENTIALS();
      await audit.record({ event: 'user.closed', subject: id, ip: origin.ip });
      deps.emit('session.revoked', { userId: id, scope: 'global' });
      await completeDeletion(disabled, origin.ip);
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
            limit: BATCH_SIZE,
            ...(after && { after }),
          });
          for (const user of page.items) {
            if (signal.aborted) return;
            await completeDeletion(user, 'background').catch((error: unknown) => failures.push(error));
          }
          after = page.next ?? undefined;
        } while (after !== undefined);
        if (failures.length > 0) {
          throw new AggregateError(failures, `${failures.length} accounts could not be deleted.`);
        }
      },
    },
  };
}
