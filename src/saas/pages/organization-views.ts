import { type Localized, longDate, message } from '../../core/http/messages.js';
import { AppError } from '../../core/kernel/errors.js';
import type { Roles } from '../organizations/roles.js';
import type { Invitation, Member } from '../organizations/schemas.js';

/** Organizations, their members and invitations, in sentences. */

/** What a page says about a refusal, by the field that is wrong or the code of the error. */
const PROBLEMS: Readonly<Record<string, Localized>> = {
  name: message('user-organization.problems.name'),
  slug: message('user-organization.problems.slug'),
  logoUrl: message('user-organization.problems.logo'),
  billingEmail: message('user-sign-up.email-invalid'),
  email: message('user-sign-up.email-invalid'),
  role: message('user-organization.problems.role'),
  userId: message('user-organization.problems.member'),
  confirm: message('user-organization.problems.confirm'),
  ALREADY_MEMBER: message('user-organization.problems.already-member'),
  FORBIDDEN: message('user-organization.problems.unconfirmed'),
  INVITATION_INVALID: message('user-invitation.invalid'),
  INVITATION_OF_OTHER: message('user-invitation.other'),
  LAST_OWNER: message('user-organization.problems.last-owner'),
  NOT_FOUND: message('user-organization.problems.gone'),
  ORGANIZATION_NOT_FOUND: message('user-organization.problems.no-member'),
  PAYMENT_PROVIDER_ERROR: message('user-organization.problems.provider'),
  ROLE_REQUIRED: message('user-organization.problems.role-required'),
  SEATS_TAKEN: message('user-organization.problems.seats'),
  SLUG_TAKEN: message('user-organization.problems.slug-taken'),
  TOO_MANY_MEMBERS: message('user-organization.problems.members'),
  TOO_MANY_ORGANIZATIONS: message('user-organization.problems.organizations'),
};

/** A refusal of the services, for the page on which the user tried it. */
export type Refusal = ReturnType<typeof refusalOf>;

/** With the field that is wrong, if it is one. @throws the error unless it has a sentence */
export function refusalOf(error: unknown) {
  if (!(error instanceof AppError)) throw error;
  const { code, statusCode, details } = error;
  const field = details?.[0]?.path ?? (code === 'SLUG_TAKEN' ? 'slug' : undefined);
  const isInvalid = code === 'VALIDATION_ERROR';
  const problem = PROBLEMS[(isInvalid ? field : code) ?? ''];
  if (!problem) throw error;
  return { problem, statusCode: isInvalid ? 422 : statusCode, code, field };
}

const ROLES: Readonly<Record<string, Localized>> = {
  owner: message('user-organization.roles.owner'),
  admin: message('user-organization.roles.admin'),
  member: message('user-organization.roles.member'),
};

/** The name of a role; those of the application have none but their own. */
export const roleText = (role: string): Localized => ROLES[role] ?? (() => role);

/** The roles that a member may give. */
export const choicesOf = ({ names, covers }: Roles, own: string, chosen: string) =>
  names
    .filter((role) => covers(own, role))
    .map((role) => ({ role, label: roleText(role), isChosen: role === chosen }));

export const viewOfMember = ({ userId, email, name, role, joinedAt }: Member) => ({
  userId,
  email,
  shown: name || email,
  address: name !== '' && email,
  role: roleText(role),
  since: message('user-organization.since', { when: longDate(Date.parse(joinedAt)) }),
});

export const viewOfInvitation = ({ id, email, role, expiresAt }: Invitation) => ({
  id,
  email,
  role,
  roleText: roleText(role),
  until: message('user-organization.until', { when: longDate(Date.parse(expiresAt)) }),
});
