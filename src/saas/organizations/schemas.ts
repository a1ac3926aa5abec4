import { type Static, Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { pathProblem } from '../../core/config/public-url.js';
import {
  After,
  Closed,
  DisplayName,
  Email,
  Envelope,
  Next,
  Nullable,
  SubscriptionSummary,
  Timestamp,
} from '../../core/http/schemas.js';

export const BODY_LIMIT = 8 * 1024;

export const organizationOptions = {
  organizations: option(Type.Boolean({ default: false }), {
    env: 'ORGANIZATIONS',
    doc: 'Let users create organizations, invite members and work in several of them: docs/saas/organizations.md.',
  }),
  organizationInvitationUrlRelative: option(Type.Optional(Type.String()), {
    env: 'ORGANIZATION_INVITATION_URL_RELATIVE',
    doc: 'Path of your page for invitations, relative to PUBLIC_URL. Links append ?token= to it.',
    shown: '/organization/invitation, or the built-in page with ACCOUNT_PAGES',
    check: (path) => pathProblem(path ?? '', '/join'),
  }),
  organizationMaxMembers: option(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1000 }), {
    env: 'ORGANIZATION_MAX_MEMBERS',
    doc: 'Maximum number of members of an organization.',
  }),
};

/** A part of addresses and paths. */
export const Slug = Type.String({
  accepts: '3 to 48 lower-case letters, digits and hyphens, with a letter or digit at both ends',
  examples: ['analytical-engines'],
  maxLength: 48,
  pattern: '^[a-z0-9][a-z0-9-]{1,46}[a-z0-9]$',
});

const LogoUrl = Type.String({
  accepts: 'an https address of at most 500 characters',
  examples: ['https://example.com/logo.svg'],
  maxLength: 500,
  pattern: '^https://[\\x21-\\x7e]+$',
});

const Role = Type.String({ accepts: 'the name of a role', maxLength: 32, pattern: '^[a-z][a-z0-9_-]*$' });

/** An organization, as its members see it. */
export const Organization = Type.Object({
  id: Type.String(),
  name: Type.String(),
  slug: Type.String(),
  logoUrl: Nullable(Type.String()),
  members: Type.Integer({ description: 'The number of members.' }),
  createdAt: Timestamp,
});
/** An organization. */
export type Organization = Static<typeof Organization>;

/** An organization of a user, with the role of the user in it. */
export const OwnOrganization = Type.Object({
  ...Organization.properties,
  subscription: SubscriptionSummary,
  billingEmail: Nullable(
    Type.String({ description: 'To which invoices are sent; null without the permission billing:manage.' }),
  ),
  role: Type.String(),
  permissions: Type.Array(Type.String()),
});
export type OwnOrganization = Static<typeof OwnOrganization>;

export const Member = Type.Object({
  userId: Type.String(),
  email: Type.String(),
  name: Type.String(),
  role: Type.String(),
  joinedAt: Timestamp,
});
/** A member of an organization. */
export type Member = Static<typeof Member>;

export const Invitation = Type.Object({
  id: Type.String(),
  email: Type.String(),
  role: Type.String(),
  createdAt: Timestamp,
  expiresAt: Timestamp,
});
/** An open invitation of an organization. */
export type Invitation = Static<typeof Invitation>;

/** An invitation, as the invited person sees it. */
export const ReceivedInvitation = Type.Object({
  ...Invitation.properties,
  organization: Type.Object({ id: Type.String(), name: Type.String(), logoUrl: Nullable(Type.String()) }),
});
export type ReceivedInvitation = Static<typeof ReceivedInvitation>;

const idOf = (what: string) => Type.String({ accepts: `the ID of ${what}`, pattern: '^[\\w-]{1,100}$' });
const Named = Type.String({ accepts: 'the ID or the slug of an organization', pattern: '^[\\w-]{1,100}$' });

export const OrganizationParams = Type.Object({ organization: Named });
export const MemberParams = Type.Object({ organization: Named, userId: idOf('a user') });
export const InvitationParams = Type.Object({ organization: Named, id: idOf('an invitation') });
export const PageQuery = Type.Object({ after: After });

export const NewOrganization = Closed({ name: DisplayName, slug: Type.Optional(Slug) });
export type NewOrganization = Static<typeof NewOrganization>;
export const OrganizationChange = Closed({
  name: Type.Optional(DisplayName),
  slug: Type.Optional(Slug),
  logoUrl: Type.Optional(Nullable(LogoUrl)),
  billingEmail: Type.Optional(Email),
});
export type OrganizationChange = Static<typeof OrganizationChange>;
export const ActiveBody = Closed({ organization: Nullable(Named) });
export const RoleBody = Closed({ role: Role });
export const TransferBody = Closed({ userId: idOf('a user') });
export const InvitationBody = Closed({ email: Email, role: Type.Optional(Role) });
/** The token of the mail, or the ID of an invitation to the confirmed address of the user. */
export const AcceptBody = Closed({
  token: Type.Optional(
    Type.String({ accepts: 'the token of an invitation', pattern: '^[\\w.-]{1,200}$', writeOnly: true }),
  ),
  id: Type.Optional(idOf('an invitation')),
});

export const OrganizationAnswer = Envelope(Type.Object({ organization: OwnOrganization }));
export const OrganizationsAnswer = Envelope(
  Type.Object({
    organizations: Type.Array(OwnOrganization),
    active: Nullable(Type.String({ description: 'The ID of the one that is active in this session.' })),
  }),
);
export const MembersAnswer = Envelope(Type.Object({ members: Type.Array(Member), next: Next }));
export const MemberAnswer = Envelope(Type.Object({ member: Member }));
export const InvitationAnswer = Envelope(Type.Object({ invitation: Invitation }));
export const InvitationsAnswer = Envelope(Type.Object({ invitations: Type.Array(Invitation), next: Next }));
export const ReceivedInvitationsAnswer = Envelope(
  Type.Object({ invitations: Type.Array(ReceivedInvitation) }),
);
