import { Type } from 'typebox';
import type { Report } from '../../../core/config/configuration-error.js';
import { option } from '../../../core/config/options.js';
import { formatValue } from '../../../core/config/validation-messages.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { suggestion } from '../../../core/kernel/text.js';

/** The roles of users in the application: names that its code knows. Only the host and the operator give them. */

const ROLE = /^[a-z][a-z0-9_-]{0,31}$/;

export const roleOptions = {
  userRoles: option(Type.Optional(Type.Array(Type.String())), {
    env: 'USER_ROLES',
    doc: 'Roles that users can have in your application, separated by commas, such as editor,support: docs/saas/user-roles.md.',
    check(roles) {
      const wrong = roles?.find((role) => !ROLE.test(role));
      if (wrong === undefined) return undefined;
      return `must list names like content_editor, of at most 32 characters; given: ${formatValue(wrong)}.`;
    },
  }),
  impersonationRoles: option(Type.Optional(Type.Array(Type.String())), {
    env: 'IMPERSONATION_ROLES',
    doc: 'Those of USER_ROLES whose users may act as other users, to help them: docs/saas/impersonation.md.',
  }),
};

/** Refuses a role for operators that nobody can have. */
export function refuseUnknownRoles(known: string[] = [], ofOperators: string[] = [], report: Report): void {
  const unknown = ofOperators.find((role) => !known.includes(role));
  if (unknown !== undefined)
    report.refuse(
      `IMPERSONATION_ROLES has ${unknown}, which USER_ROLES does not have.`,
      'Set IMPERSONATION_ROLES to some of USER_ROLES.',
    );
}

/** @throws Error that lists the roles, because a misspelt one would refuse every user */
export function requireKnownRole(role: string, roles: readonly string[] | undefined): void {
  if (!roles) throw new Error("requireRole needs the option 'userRoles' (USER_ROLES).");
  if (roles.includes(role)) return;
  throw new Error(
    `requireRole: '${role}' is not one of the option 'userRoles', which are: ${roles.join(', ')}.${suggestion(role, roles)}`,
  );
}

/** Whether a user has one of these roles. */
export const hasRole = ({ roles = [] }: { roles?: readonly string[] }, any: readonly string[]): boolean =>
  any.some((role) => roles.includes(role));

/** An impersonated user with the roles that the operator has, too: impersonation gives an operator no further ones. */
export const withRolesOf = <User extends { roles?: readonly string[] }>(
  user: User,
  operator: { roles?: readonly string[] },
): User => ({ ...user, roles: operator.roles?.filter((role) => user.roles?.includes(role)) ?? [] });

/** @throws FORBIDDEN unless the user has one of these roles */
export function demandRole(user: { roles?: readonly string[] }, any: readonly string[]): void {
  if (!hasRole(user, any))
    throw httpErrors.FORBIDDEN({ message: `This requires the role ${any.join(' or ')}.` });
}
