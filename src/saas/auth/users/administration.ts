import { toTimestamp } from '../../../core/http/schemas.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { auditActor, type Operator } from '../../../core/ops/audit.js';
import type { Page } from '../../../core/storage/collection.js';
import { readPage } from '../../../core/storage/pages.js';
import type { AuthDependencies } from '../dependencies.js';
import { lastUseOf } from '../sessions/activity.js';
import type { SessionService } from '../sessions/sessions.js';
import {
  isDisabled,
  isSessionValid,
  type SessionDocument,
  toSessionView,
  type UserDocument,
} from '../store.js';
import { userNotFound } from './users.js';

/**
 * What the operator, or the host by default, sees and does beside suspension, deletion and grants.
 */
export type AccountAdministration = ReturnType<typeof createAccountAdministration>;

/** A session of a user, also one that has ended. */
export interface OperatedSession {
  /** `ses_…` */
  id: string;
  /** When it started, ISO 8601. */
  createdAt: string;
  /** When its refresh token was last exchanged, ISO 8601. */
  refreshedAt: string;
  /** When its refresh token expires, ISO 8601. */
  expiresAt: string;
  /** `active` sessions can be used. */
  state: 'active' | 'ended' | 'expired';
}

export interface AccountAdministrationDependencies extends AuthDependencies {
  revokeSession: SessionService['revokeSession'];
  sendReset(user: UserDocument): Promise<void>;
  sendVerification(user: UserDocument): Promise<void>;
}

export function createAccountAdministration(deps: AccountAdministrationDependencies) {
  const { users, sessions, audit, clock } = deps;

  const find = async (id: string): Promise<UserDocument> => {
    const user = await users.findOne({ id });
    if (!user) throw userNotFound();
    return user;
  };

  /** The user of a mail with a link. */
  const findRecipient = async (id: string): Promise<UserDocument> => {
    const user = await find(id);
    if (isDisabled(user)) {
      const message = 'The account is suspended or being deleted, so its links do not work.';
      throw httpErrors.VALIDATION_ERROR({ message });
    }
    return user;
  };

  const stateOf = (user: UserDocument, session: SessionDocument): OperatedSession['state'] => {
    const now = clock.now();
    if (isSessionValid(user, session, now)) return 'active';
    return session.revokedAt === undefined && session.expiresAt <= now ? 'expired' : 'ended';
  };

  const view = (user: UserDocument, session: SessionDocument): OperatedSession => ({
    ...toSessionView(session),
    refreshedAt: toTimestamp(lastUseOf(session)),
    state: stateOf(user, session),
  });

  return {
    /** Every session that is still stored, the newest first. @throws VALIDATION_ERROR for an invalid `after` */
    async listSessions(
      userId: string,
      page: { after: string | undefined; limit: number },
    ): Promise<Page<OperatedSession>> {
      const query = { where: { userId }, sort: 'createdAt', desc: true, ...page } as const;
      const [user, { items, next }] = await Promise.all([find(userId), readPage(sessions, query)]);
      return { items: items.map((session) => view(user, session)), next };
    },

    /** @throws NOT_FOUND if the user has no such session, or it has ended */
    async findSession(userId: string, id: string): Promise<OperatedSession> {
      const [user, session] = await Promise.all([find(userId), sessions.findOne({ id, userId })]);
      if (!session || !isSessionValid(user, session, clock.now())) throw httpErrors.NOT_FOUND();
      return view(user, session);
    },

    /** @throws NOT_FOUND if the user has no such session, or it has ended */
    endSession: (userId: string, id: string, operator?: Operator) =>
      deps.revokeSession(userId, id, { ...auditActor(operator), detail: id }),

    /** @throws NOT_FOUND */
    async endSessions(userId: string, operator?: Operator) {
      const { committed } = await deps.commit([
        users.changing({ id: userId }, { inc: { sessionEpoch: 1 }, unset: ['keptSession'] }),
        await deps.event('session.revoked', { userId, scope: 'global' }),
        audit.entry({ event: 'session.revoked', subject: userId, ...auditActor(operator), detail: 'all' }),
      ]);
      if (!committed) throw userNotFound();
    },

    /** Sends a link that sets a new password. @throws NOT_FOUND, VALIDATION_ERROR for a disabled account */
    async sendReset(userId: string, operator?: Operator) {
      await deps.sendReset(await findRecipient(userId));
      await audit.record({ event: 'password.reset-sent', subject: userId, ...auditActor(operator) });
    },

    /** @throws NOT_FOUND, VALIDATION_ERROR for a disabled account or a verified address */
    async sendVerification(userId: string, operator?: Operator) {
      const user = await findRecipient(userId);
      if (user.emailVerified)
        throw httpErrors.VALIDATION_ERROR({ message: 'The address is verified already.' });
      await deps.sendVerification(user);
      await audit.record({ event: 'email.verification-sent', subject: userId, ...auditActor(operator) });
    },
  };
}
