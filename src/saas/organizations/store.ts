import { sha256 } from '../../core/kernel/secrets.js';
import type { Collection, Store } from '../../core/storage/collection.js';
import type { BilledRecord } from '../billing/owners.js';

export type Organizations = Collection<OrganizationDocument>;

export interface OrganizationDocument extends BilledRecord {
  name: string;
  /** Unique. */
  slug: string;
  logoUrl?: string;
  /** To which the payment provider and we send what concerns payments. */
  billingEmail: string;
  /** How many members are owners: never 0 before a deletion. */
  owners: number;
  /** How many members there are. */
  members: number;
  /** Incremented by every new API key; absent before the first. */
  keysRev?: number;
}

export interface MembershipDocument {
  /** Organization and user, so that a user is a member once. */
  id: string;
  organizationId: string;
  userId: string;
  role: string;
  createdAt: number;
}

/** The invitation of an address to an organization: a later one replaces it. */
export interface InvitationDocument {
  /** Of organization and address. */
  id: string;
  organizationId: string;
  /** The invited address, in lower case. */
  email: string;
  role: string;
  /** SHA-256 of the token in the newest mail. */
  hash: string;
  /** The user who accepted it; absent while it is open. */
  acceptedBy?: string;
  invitedBy: string;
  createdAt: number;
  expiresAt: number;
}

export const membershipId = (organizationId: string, userId: string): string => `${organizationId}:${userId}`;
export const invitationId = (organizationId: string, email: string): string =>
  `inv_${sha256(JSON.stringify([organizationId, email]))}`;

export type OrganizationCollections = ReturnType<typeof organizationCollections>;

export function organizationCollections(store: Store) {
  const organizations: Organizations = store.collection('organizations', {
    unique: ['slug'],
    indexes: [['createdAt'], ['deletingAt'], ['profileChangedAt'], ['seatsDueAt']],
    text: ['name', 'slug'],
    numbers: [
      'owners',
      'members',
      'createdAt',
      'deletingAt',
      'profileChangedAt',
      'seatsDueAt',
      'subscriptionRev',
      'keysRev',
    ],
    view: {
      name: 'organization_view',
      columns: {
        id: ['text', 'id'],
        name: ['text', 'name'],
        slug: ['text', 'slug'],
        created_at: ['time', 'createdAt'],
        members: ['number', 'members'],
        subscription_plan: ['text', 'subscriptionPlan'],
        subscription_status: ['text', 'subscriptionStatus'],
        granted_plan: ['text', 'grant', 'plan'],
        granted_until: ['time', 'grant', 'until'],
      },
    },
  });
  const memberships: Collection<MembershipDocument> = store.collection('organization_members', {
    indexes: [
      ['organizationId', 'createdAt'],
      ['userId', 'createdAt'],
    ],
    fields: ['role'],
    numbers: ['createdAt'],
    view: {
      name: 'organization_member_view',
      columns: {
        organization_id: ['text', 'organizationId'],
        user_id: ['text', 'userId'],
        role: ['text', 'role'],
        created_at: ['time', 'createdAt'],
      },
    },
  });
  const invitations: Collection<InvitationDocument> = store.collection('organization_invitations', {
    indexes: [['organizationId', 'createdAt'], ['email', 'createdAt'], ['expiresAt']],
    fields: ['hash', 'acceptedBy'],
    numbers: ['createdAt', 'expiresAt'],
  });
  return { organizations, memberships, invitations };
}
