import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { Session, User } from '../../../core/http/schemas.js';
import { httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import type { AuthDependencies } from '../dependencies.js';
import type { SessionService } from '../sessions/sessions.js';
import { isDisabled, toSessionView } from '../store.js';
import { demandRole, hasRole, withRolesOf } from '../users/roles.js';
import { findUser, type UserKey, userNotFound } from '../users/users.js';
import type { SignedIn } from './sign-in.js';

/** Sessions in which an operator, who is a user with one of IMPERSONATION_ROLES, acts as another user. */
export type Impersonation = ReturnType<typeof createImpersonation>;

export function createImpersonation({
  impersonationRoles,
  newSession,
  ...deps
}: AuthDependencies & { impersonationRoles: readonly string[]; newSession: SessionService['newSession'] }) {
  const { users, sessions } = deps;

  /** The operator of a session and whom they may act as. @throws FORBIDDEN, NOT_FOUND, UNAUTHENTICATED */
  const find = async ({ user: { id } }: Identity, by: UserKey) => {
    const operator = await users.findOne({ id });
    if (!operator) throw httpErrors.UNAUTHENTICATED();
    demandRole(operator, impersonationRoles);
    const user = await findUser(users, by);
    if (!user || user.deletingAt !== undefined) throw userNotFound();
    const message =
      (user.id === id && 'You cannot act as yourself.') ||
      ((hasRole(user, impersonationRoles) || user.operatorRole !== undefined) &&
        'Nobody can act as another operator.') ||
      (isDisabled(user) && 'This account is suspended, so nobody can act as its user.');
    if (message) throw httpErrors.FORBIDDEN({ message });
    return { operator, user };
  };

  return {
    /** Whether a user may act as others. */
    isOperator: (user: User): boolean => hasRole(user, impersonationRoles),

    /** The address of a user whom the operator may impersonate. @throws as `start` */
    addressOf: async (identity: Identity, id: string): Promise<string> =>
      (await find(identity, { id })).user.email,

    /**
     * Starts a session in which the operator of a recent session acts as the user. Nothing that counts sign-ins or tells the user
     * about them notices it.
     * @throws FORBIDDEN, NOT_FOUND, VALIDATION_ERROR
     */
    async start(
      identity: Identity,
      { userId: id, email, reason }: { userId?: string; email?: string; reason: string },
      source: RequestSource,
    ): Promise<SignedIn & { session: Session }> {
      const by = id === undefined ? email !== undefined && { email } : email === undefined && { id };
      if (!by) throw invalidFields({ path: 'userId', message: 'or email is required, and not both' });
      const { operator, user } = await find(identity, by);
      const { id: operatorId, name = '', sessionEpoch: impersonatorEpoch } = operator;
      const impersonator = { userId: operatorId, email: operator.email, name, reason };
      // Never a recent sign-in of the user.
      const acting = { impersonator, impersonatorEpoch };
      const { session, signedIn } = await newSession(withRolesOf(user, operator), source, [], 0, acting);
      const { ip } = source;
      const subject = user.id;
      await deps.commit([
        sessions.inserting(session),
        deps.audit.entry({ event: 'impersonation.started', subject, by: operatorId, ip, detail: reason }),
        await deps.event('user.impersonated', { userId: subject, operatorId, sessionId: session.id, reason }),
      ]);
      return { ...signedIn, session: toSessionView(session) };
    },
  };
}
