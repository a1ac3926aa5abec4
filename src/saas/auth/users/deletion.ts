import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { type AuditRecord, auditActor, type Operator } from '../../../core/ops/audit.js';
import type { Job } from '../../../core/ops/jobs.js';
import type { Where } from '../../../core/storage/collection.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import type { Credentials } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, type UserDocument } from '../store.js';
import { userNotFound } from './users.js';

/**
 * Deletion of accounts. `deletingAt` disables the account at once and permanently. The last step deletes it; those before it are
 * idempotent, so that the job can resume an interrupted deletion.
 */
export type AccountDeletion = ReturnType<typeof createAccountDeletion>;

/** Who deletes an account, for the audit. */
type Actor = Pick<AuditRecord, 'by' | 'ip'>;

const BATCH_SIZE = 50;

/** Disables an account that matches, permanently; the job deletes it. False if there is none. */
export const createCloseAccount =
  ({
    users,
    commit,
    event,
    audit,
    clock,
  }: Pick<AuthDependencies, 'users' | 'commit' | 'event' | 'audit' | 'clock'>) =>
  async (where: Where<UserDocument> & { id: string }, actor: Actor): Promise<boolean> => {
    const { id } = where;
    const now = clock.now();
    const { committed } = await commit([
      users.changing(where, {
        set: { suspendedAt: now, deletingAt: now },
        unset: [...ALL_LINK_FIELDS, 'usedLink', 'keptSession'],
        inc: { sessionEpoch: 1 },
      }),
      await event('session.revoked', { userId: id, scope: 'global' }),
      audit.entry({ event: 'user.closed', subject: id, ...actor }),
    ]);
    return committed;
  };

export function createAccountDeletion(deps: AuthDependencies & { credentials: Credentials }) {
  const { users, sessions, accountData, signInMethods, credentials, commit, event, audit } = deps;
  const close = createCloseAccount(deps);

  /** The steps that follow `deletingAt`. */
  const completeDeletion = async (id: string, actor: Actor): Promise<void> => {
    await accountData.close(id);
    // Nothing is stored about a closed account any more, but sessions of sign-ins that are under way: those are invalid, and purged.
    await Promise.all([accountData.delete(id), sessions.deleteMany({ userId: id })]);
    await commit([
      users.deleting({ id, deletingAt: { gt: 0 } }),
      ...(await signInMethods.removal(id)),
      await event('user.deleted', { userId: id }),
      audit.entry({ event: 'user.deleted', subject: id, ...actor }),
    ]);
  };

  return {
    /**
     * @param password required if the account has one
     * @throws INVALID_CREDENTIALS, REAUTHENTICATION_REQUIRED, RATE_LIMITED, OVERLOADED, LAST_OWNER; PAYMENT_PROVIDER_ERROR when the subscriptions could not
     *   be cancelled yet: the account is disabled, and the job deletes it after cancelling them
     */
    async deleteAccount(identity: Identity, password: string | undefined, source: RequestSource) {
      const user = await credentials.verifyOwner(identity, password, source, 'user.deletion-refused');
      await accountData.check(user.id);
      const actor = { ip: source.ip };
      const where = { id: user.id, passwordVersion: user.passwordVersion, suspendedAt: null };
      if (!(await close(where, actor))) throw authErrors.INVALID_CREDENTIALS();
      await completeDeletion(user.id, actor);
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
      await completeDeletion(id, actor);
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
          for (const { id } of page.items) {
            if (signal.aborted) return;
            await completeDeletion(id, { ip: 'background' }).catch((error: unknown) => failures.push(error));
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
