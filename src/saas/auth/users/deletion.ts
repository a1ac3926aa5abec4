import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import { type AuditRecord, auditActor, type Operator } from '../../../core/ops/audit.js';
import type { Job } from '../../../core/ops/jobs.js';
import { UNANSWERED_LINK_FIELDS } from '../../../core/ops/used-links.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { proofOfClosure } from '../events.js';
import type { Credentials } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, type UserDocument, type Users } from '../store.js';
import { userNotFound } from './users.js';

/**
 * Deletion of accounts. `deletingAt` disables the account at once and permanently. Every later step is idempotent, so
 * the job can resume an interrupted deletion.
 */
export type AccountDeletion = ReturnType<typeof createAccountDeletion>;

/** Who deletes an account, for the audit. */
type Actor = Pick<AuditRecord, 'by' | 'ip'>;

const BATCH_SIZE = 50;

export function createAccountDeletion(deps: AuthDependencies & { credentials: Credentials }) {
  const { users, sessions, accountData, signInMethods, credentials, audit, clock } = deps;

  const deleteData = (id: string) => Promise.all([accountData.delete(id), signInMethods.forget(id)]);

  /** The steps that follow `deletingAt`. */
  const completeDeletion = async ({ id }: UserDocument, actor: Actor): Promise<void> => {
    await accountData.close(id);
    await deleteData(id);
    // A user is deleted once, by this request or by the job that resumes it.
    const event = { id: `evt_${sha256(`deleted ${id}`)}`, userId: id };
    const announced = await deps.announceEvent('user.deleted', event, { of: 'user', id });
    const deleted = await users.deleteOne({ id, deletingAt: { gt: 0 } });
    // Again, because requests may have been under way.
    await deleteData(id);
    // Sessions of a deleted user are invalid, and the purge removes those that a crash leaves behind.
    await sessions.deleteMany({ userId: id });
    if (!deleted) return;
    await deps.foreignHashes.remove(deleted);
    await audit.record({ event: 'user.deleted', subject: id, ...actor });
    await announced.emit();
  };

  /** Disables an account that matches. Returns `null` if there is none. */
  const close = async (where: Parameters<Users['updateOne']>[0] & { id: string }, actor: Actor) => {
    const now = clock.now();
    const { id } = where;
    // An account is closed once, so that every request that tries announces the same event.
    const event = { id: `evt_${sha256(`closed ${id}`)}`, userId: id, scope: 'global' } as const;
    const announced = await deps.announceEvent('session.revoked', event, proofOfClosure(id));
    const disabled = await users.updateOne(where, {
      set: { suspendedAt: now, deletingAt: now },
      unset: [...ALL_LINK_FIELDS, ...UNANSWERED_LINK_FIELDS, 'keptSession'],
      inc: { sessionEpoch: 1 },
    });
    // What was announced is the same for a concurrent request, which may need it: it is not withdrawn.
    if (!disabled) return null;
    await audit.record({ event: 'user.closed', subject: disabled.id, ...actor });
    await announced.emit();
    return disabled;
  };

  return {
    /**
     * @param password required if the account has one
     * @throws INVALID_CREDENTIALS, REAUTHENTICATION_REQUIRED, RATE_LIMITED, OVERLOADED; PAYMENT_PROVIDER_ERROR when the subscriptions could not
     *   be cancelled yet: the account is disabled, and the job deletes it after cancelling them
     */
    async deleteAccount(identity: Identity, password: string | undefined, source: RequestSource) {
      const user = await credentials.verifyOwner(identity, password, source, 'user.deletion-refused');
      const actor = { ip: source.ip };
      const where = { id: user.id, passwordVersion: user.passwordVersion, suspendedAt: null };
      const closed = await close(where, actor);
      if (!closed) throw authErrors.INVALID_CREDENTIALS();
      await completeDeletion(closed, actor);
    },

    /**
     * The same on behalf of the operator, by default the host, also for a suspended account.
     * @throws NOT_FOUND; PAYMENT_PROVIDER_ERROR as above
     */
    async deleteByOperator(id: string, operator?: Operator) {
      const actor = auditActor(operator);
      const user = await users.findOne({ id });
      if (!user) throw userNotFound();
      // Completes a deletion that has begun already.
      if (user.deletingAt === undefined) await close({ id, deletingAt: null }, actor);
      await completeDeletion(user, actor);
    },

    /** Resumes interrupted deletions. */
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
            await completeDeletion(user, { ip: 'background' }).catch((error: unknown) =>
              failures.push(error),
            );
          }
          after = page.next ?? undefined;
        } while (after !== undefined);
        if (failures.length > 0) {
          throw new AggregateError(failures, `${failures.length} accounts could not be deleted.`);
        }
      },
    } satisfies Job,
  };
}
