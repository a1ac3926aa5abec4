import { defineErrors } from '../../core/kernel/errors.js';

export const organizationErrors = defineErrors({
  ORGANIZATION_REQUIRED: [
    400,
    'Name the organization: in the header X-Organization, in the path, or once for the session with POST /organizations/active.',
  ],
  INVITATION_INVALID: [400, 'This invitation is invalid, has expired or was withdrawn. Ask for a new one.'],
  ROLE_REQUIRED: [403, 'Your role in this organization does not permit this.'],
  INVITATION_OF_OTHER: [403, 'This invitation was sent to another address. Sign in with that address.'],
  // Also for an organization that exists: who is no member does not learn that it does.
  ORGANIZATION_NOT_FOUND: [404, 'You are not a member of such an organization.'],
  SLUG_TAKEN: [409, 'This slug is taken or reserved. Choose another one.'],
  LAST_OWNER: [409, 'An organization needs an owner. Make another member the owner first.'],
  ALREADY_MEMBER: [409, 'This person is a member already.'],
  TOO_MANY_MEMBERS: [409, 'This organization has as many members as possible.'],
  SEATS_TAKEN: [409, 'All seats of this organization are taken. Who manages its payments can buy more.'],
  TOO_MANY_ORGANIZATIONS: [
    409,
    'This account belongs to as many organizations as possible. Leave one first.',
  ],
});
