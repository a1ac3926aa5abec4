import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { Session, User } from '../../../core/http/schemas.js';
import { httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import type { AuthDependencies, SessionDependencies } from '../dependencies.js';
import type { SignedIn } from '../sign-in/sign-in.js';
import { isDisabled, type SessionDocument, toSessionView, type UserDocument } from '../store.js';
import { demandRole, hasRole } from '../users/roles.js';
import { findUser, type UserKey, userNotFound } from '../users/users.js';
import type { SessionService } from './sessions.js';

/** Sessions in which an operator, who is a user with one of IMPERSONATION_ROLES, acts as another user. */
export type Impersonation = ReturnType<typeof createImpersonation>;

/** Whom an operator wants to act as, and why. */
export interface ImpersonationOrder {
  userId?: string | undefined;
  email?: string | undefined;
  reason: string;
}

/**
 * Whether a session may go on as far as its operator is concerned: of one who is suspended, has lost the role or has ended all or
 * all other sessions, it may not. Costs sessions of users nothing.
 */
export async function mayContinue(
  user: UserDocument,
  { impersonator }: SessionDocument,
  { users, impersonationRoles = [] }: Pick<SessionDependencies, 'users' | 'impersonationRoles'>,
): Promise<boolean> {
  if (!impersonator) return true;
  const operator = await users.findOne({ id: impersonator.userId });
  return (
    operator !== null &&
    !isDisabled(operator) &&
    operator.sessionEpoch === impersonator.epoch &&
    hasRole(operator, impersonationRoles) &&
    !hasRole(user, impersonationRoles)
  );
}

export interface ImpersonationDependencies extends AuthDependencies {
  impersonationRoles: readonly string[];
  newSession: SessionService['newSession'];
}

export function createImpersonation(deps: ImpersonationDependencies) {
  const { users, sessions, audit, commit, event, impersonationRoles } = deps;
  const refused = (message: string) => httpErrors.FORBIDDEN({ message });

  /** The operator of a session and whom they may act as. @throws FORBIDDEN, NOT_FOUND, UNAUTHENTICATED */
  const find = async (
    { user: { id } }: Identity,
    by: UserKey,
  ): Promise<{ operator: UserDocument; user: UserDocument }> => {
    const operator = await users.findOne({ id });
    if (!operator) throw httpErrors.UNAUTHENTICATED();
    demandRole(operator, impersonationRoles);
    const user = await findUser(users, by);
    if (!user || user.deletingAt !== undefined) throw userNotFound();
    if (user.id === id) throw refused('You cannot act as yourself.');
    if (hasRole(user, impersonationRoles)) throw refused('Nobody can act as another operator.');
    if (isDisabled(user)) throw refused('This account is suspended, so nobody can act as its user.');
    return { operator, user };
  };

  return {
    /** Whether a user may act as others. */
    isOperator: (user: User): boolean => hasRole(user, impersonationRoles),

    /** @throws as `start` */
    subjectOf: async (identity: Identity, by: UserKey): Promise<User> =>
      deps.presentUser((await find(identity, by)).user),

    /**
     * Starts a session in which the operator acts as the user. Nothing that counts sign-ins or tells the user about them notices it.
     * @param identity a recent session of the operator
     * @throws FORBIDDEN, NOT_FOUND, VALIDATION_ERROR
     */
    async start(
      identity: Identity,
      { userId: id, email, reason }: ImpersonationOrder,
      source: RequestSource,
    ): Promise<SignedIn & { session: Session }> {
      const [by, other] = [
        ...(id === undefined ? [] : [{ id }]),
        ...(email === undefined ? [] : [{ email }]),
      ];
      if (!by || other)
        throw invalidFields({ path: 'userId', message: 'or email is required, and not both' });
      const { operator, user } = await find(identity, by);
      const { id: userId, name = '', sessionEpoch: epoch } = operator;
      const impersonator = { userId, email: operator.email, name, reason, epoch };
      // Never a recent sign-in of the user.
      const { session, signedIn } = await deps.newSession(user, source, [], 0, impersonator);
      const told = { userId: user.id, operatorId: userId, sessionId: session.id, reason };
      await commit([
        sessions.inserting(session),
        audit.entry({
          ...{ event: 'impersonation.started', subject: user.id, by: userId },
          ...{ ip: source.ip, detail: reason },
        }),
        await event('user.impersonated', told),
      ]);
      return { ...signedIn, session: toSessionView(session) };
    },
  };
}
