import { Type } from 'typebox';
import type { Report } from '../../../core/config/configuration-error.js';
import { option } from '../../../core/config/options.js';
import { formatValue } from '../../../core/config/validation-messages.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { suggestion } from '../../../core/kernel/text.js';

/** The roles of users in the application: names that its code knows. Only the host and the operator give them. */

const ROLE = /^[a-z][a-z0-9_-]{0,31}$/;

const rolesProblem = (roles: readonly string[] | undefined): string | undefined => {
  const wrong = roles?.find((role) => !ROLE.test(role));
  return wrong === undefined
    ? undefined
    : `must list names like content_editor, of at most 32 characters; given: ${formatValue(wrong)}.`;
};

export const roleOptions = {
  userRoles: option(Type.Optional(Type.Array(Type.String())), {
    env: 'USER_ROLES',
    doc: 'Roles that users can have in your application, separated by commas, such as editor,support: docs/user-roles.md.',
    check: rolesProblem,
  }),
  impersonationRoles: option(Type.Optional(Type.Array(Type.String())), {
    env: 'IMPERSONATION_ROLES',
    doc: 'Those of USER_ROLES whose users may act as other users, to help them: docs/impersonation.md.',
    check: rolesProblem,
  }),
};

/** Refuses a role for impersonation that nobody can have. */
export function refuseUnknownRoles(
  {
    userRoles = [],
    impersonationRoles = [],
  }: { userRoles?: string[] | undefined; impersonationRoles?: string[] | undefined },
  report: Report,
): void {
  const unknown = impersonationRoles.find((role) => !userRoles.includes(role));
  if (unknown !== undefined)
    report.refuse(
      `IMPERSONATION_ROLES has the role ${unknown}, which is not one of USER_ROLES.`,
      'Add it to USER_ROLES, or remove it from IMPERSONATION_ROLES.',
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

/** @throws FORBIDDEN unless the user has one of these roles */
export function demandRole(user: { roles?: readonly string[] }, any: readonly string[]): void {
  if (!hasRole(user, any))
    throw httpErrors.FORBIDDEN({ message: `This requires the role ${any.join(' or ')}.` });
}
