import { mustBe } from '../../core/config/validation-messages.js';
import { canonicalEmail } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import { Email, matchesSchema, toTimestamp, type User } from '../../core/http/schemas.js';
import { DAY, MINUTE } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { isSecretOf, newToken, sha256 } from '../../core/kernel/secrets.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import { allOf, readPage } from '../../core/storage/pages.js';
import { fixedWindow } from '../../core/throttle/throttle.js';
import type { MemberOf } from './access.js';
import type { OrganizationDependencies } from './dependencies.js';
import { organizationErrors } from './errors.js';
import type { InvitationMail } from './mails.js';
import type { ActingSource, Members } from './members.js';
import { MEMBER } from './roles.js';
import type { Invitation, ReceivedInvitation } from './schemas.js';
import { type InvitationDocument, invitationId, type MembershipDocument, membershipId } from './store.js';

export const INVITATION_TTL_MS = 7 * DAY;

/** Mails with invitations that a user sends, in all organizations. */
const SENT = fixedWindow('organization.invite', 100, DAY);

/** Mails with invitations to one address. */
const RECEIVED = fixedWindow('mail.invitation', 3, 15 * MINUTE);

export type Invitations = ReturnType<typeof createInvitations>;

/** Invitations of people, with or without an account, by mail. */
export function createInvitations(
  deps: OrganizationDependencies & { members: Members; mail: InvitationMail },
) {
  const { organizations, memberships, invitations, users, roles, access, members, mail } = deps;
  const { throttle, commit, audit, clock, random } = deps;

  const view = ({ id, email, role, createdAt, expiresAt }: InvitationDocument): Invitation => ({
    id,
    email,
    role,
    createdAt: toTimestamp(createdAt),
    expiresAt: toTimestamp(expiresAt),
  });

  const isOpen = ({ acceptedBy, expiresAt }: InvitationDocument): boolean =>
    acceptedBy === undefined && expiresAt > clock.now();

  const maySend = ({ role: own }: MembershipDocument, role: string): boolean =>
    roles.permits(own, 'members:manage') && roles.covers(own, role);

  /** Whether who sent an invitation could still send it. */
  const isWorth = async ({ organizationId, invitedBy, role }: InvitationDocument): Promise<boolean> => {
    const inviter = await memberships.findOne({ id: membershipId(organizationId, invitedBy) });
    return inviter !== null && maySend(inviter, role);
  };

  const record = (event: string, subject: string, invitation: InvitationDocument, { ip }: ActingSource) =>
    audit.entry({
      event,
      subject,
      ip,
      detail: JSON.stringify({
        organization: invitation.organizationId,
        email: invitation.email,
        role: invitation.role,
      }),
    });

  /** The invitation that a user may accept. @throws INVITATION_INVALID, INVITATION_OF_OTHER */
  const findFor = async (
    user: User,
    { token, id }: { token?: string | undefined; id?: string | undefined },
  ): Promise<InvitationDocument> => {
    const invitation = await invitations.findOne({ id: token?.split('.')[0] || id || 'none' });
    if (!invitation || (token !== undefined && !isSecretOf(token, invitation.hash)))
      throw organizationErrors.INVITATION_INVALID();
    const isOwn = invitation.email === user.email;
    // Without the token, only the confirmation proves that the address belongs to the user.
    if (token === undefined && !(isOwn && user.emailVerified)) throw organizationErrors.INVITATION_INVALID();
    if (!isOwn) throw organizationErrors.INVITATION_OF_OTHER();
    if (invitation.acceptedBy !== user.id && !isOpen(invitation))
      throw organizationErrors.INVITATION_INVALID();
    return invitation;
  };

  return {
    /**
     * Invites an address, or sends an open invitation again: the link of the mail before is then invalid.
     * @throws ROLE_REQUIRED, ALREADY_MEMBER, RATE_LIMITED, VALIDATION_ERROR for an unknown role, FORBIDDEN while the address of the member
     *   is not confirmed
     */
    async send(
      by: MemberOf,
      given: { email: string; role?: string | undefined },
      source: ActingSource,
    ): Promise<Invitation> {
      const { role = MEMBER } = given;
      const { organization } = by;
      access.demand(by, 'members:manage');
      members.requireRole(role);
      access.demandRole(by, role);
      if (!matchesSchema(given.email, Email))
        throw invalidFields({ path: 'email', message: mustBe(Email, given.email) });
      const inviter = await users.require(by.membership.userId);
      // The mail contains the name of the organization, which anyone can choose.
      if (!inviter.emailVerified)
        throw httpErrors.FORBIDDEN({ message: 'Confirm your e-mail address before you invite others.' });
      const email = canonicalEmail(given.email);
      const account = await users.findByEmail(email);
      if (account && (await memberships.findOne({ id: membershipId(organization.id, account.id) })))
        throw organizationErrors.ALREADY_MEMBER();
      await throttle.countKey(SENT, inviter.id, source.ip);
      await throttle.countKey(RECEIVED, email, source.ip);
      const id = invitationId(organization.id, email);
      const token = `${id}.${newToken(random)}`;
      return decideAndCommit(commit, async () => {
        const [before] = await Promise.all([
          invitations.findOne({ id }),
          access.requireOpen(organization.id),
        ]);
        if (before && isOpen(before)) access.demandRole(by, before.role);
        const now = clock.now();
        const after: InvitationDocument = {
          id,
          organizationId: organization.id,
          email,
          role,
          hash: sha256(token),
          invitedBy: inviter.id,
          createdAt: now,
          expiresAt: now + INVITATION_TTL_MS,
        };
        const { id: _, ...set } = after;
        const parts = [
          before
            ? invitations.changing(
                { id, hash: before.hash, acceptedBy: before.acceptedBy ?? null },
                { set, unset: ['acceptedBy'] },
              )
            : invitations.inserting(after),
          // Unmet once the organization is being deleted.
          organizations.changing({ id: organization.id, deletingAt: null }, { inc: { members: 0 } }),
          mail(after, { token, organization: organization.name, locale: account?.locale }),
          record('organization.invited', inviter.id, after, source),
        ];
        return { parts, result: view(after), repeatIfTaken: true };
      });
    },

    /** Those that are open. */
    async list(organizationId: string, after: string | undefined) {
      const { items, next } = await readPage(invitations, {
        where: { organizationId, acceptedBy: null },
        sort: 'createdAt',
        after,
      });
      return { invitations: items.filter(isOpen).map(view), next };
    },

    /** @throws ROLE_REQUIRED; NOT_FOUND if there is none, or it was accepted */
    async withdraw(by: MemberOf, id: string, source: RequestSource): Promise<void> {
      access.demand(by, 'members:manage');
      const where = { id, organizationId: by.organization.id, acceptedBy: null };
      const found = await invitations.findOne(where);
      if (!found) throw httpErrors.NOT_FOUND({ message: 'There is no such invitation.' });
      access.demandRole(by, found.role);
      const { committed } = await commit([
        invitations.deleting(where),
        record('organization.invitation-withdrawn', by.membership.userId, found, source),
      ]);
      if (!committed) throw httpErrors.NOT_FOUND({ message: 'There is no such invitation.' });
    },

    /** Those to the confirmed address of a user. */
    async listFor({ email, emailVerified }: User): Promise<ReceivedInvitation[]> {
      if (!emailVerified) return [];
      const all = await allOf(invitations, { where: { email }, sort: 'createdAt' });
      const worth = await Promise.all(all.map(async (one) => isOpen(one) && (await isWorth(one))));
      const open = all.filter((_, index) => worth[index]);
      const found = await access.organizationsOf(open);
      return open.flatMap((invitation) => {
        const organization = found.get(invitation.organizationId);
        if (!organization) return [];
        const { id, name, logoUrl = null } = organization;
        return [{ ...view(invitation), organization: { id, name, logoUrl } }];
      });
    },

    /**
     * What the token of a mail invites a user to, which changes nothing.
     * @throws INVITATION_INVALID, INVITATION_OF_OTHER
     */
    async open(user: User, token: string) {
      const invitation = await findFor(user, { token });
      const { organizationId, role } = invitation;
      const isAccepted = invitation.acceptedBy !== undefined;
      const [organization, isValid] = await Promise.all([
        organizations.findOne({ id: organizationId, deletingAt: null }),
        isAccepted ? memberships.findOne({ id: membershipId(organizationId, user.id) }) : isWorth(invitation),
      ]);
      if (!organization || !isValid) throw organizationErrors.INVITATION_INVALID();
      return { organization: organization.name, role, isAccepted };
    },

    /**
     * Makes the user a member, as long as the sender could still send the invitation. The same request succeeds again until it expires.
     * @param given the token of the mail, or the ID of an invitation to the confirmed address of the user
     * @throws INVITATION_INVALID, INVITATION_OF_OTHER, TOO_MANY_MEMBERS, TOO_MANY_ORGANIZATIONS
     * @returns the ID of the organization
     */
    accept(
      user: User,
      given: { token?: string | undefined; id?: string | undefined },
      source: RequestSource,
    ): Promise<string> {
      return decideAndCommit(commit, async () => {
        const invitation = await findFor(user, given);
        const { id, organizationId, role, hash, acceptedBy } = invitation;
        const result = organizationId;
        const [organization, membership, isValid] = await Promise.all([
          organizations.findOne({ id: organizationId, deletingAt: null }),
          memberships.findOne({ id: membershipId(organizationId, user.id) }),
          isWorth(invitation),
        ]);
        if (!organization) throw organizationErrors.INVITATION_INVALID();
        if (membership && acceptedBy !== undefined) return { result };
        // A former member cannot return with the same invitation, and those that they sent are no longer valid.
        if (acceptedBy !== undefined || !isValid) throw organizationErrors.INVITATION_INVALID();
        const parts = [
          invitations.changing({ id, hash, acceptedBy: null }, { set: { acceptedBy: user.id } }),
          ...(membership ? [] : await members.adding(organization, user.id, role)),
          record('organization.joined', user.id, invitation, source),
        ];
        return { parts, result, repeatIfTaken: true };
      });
    },
  };
}
