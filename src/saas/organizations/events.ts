import type { Organization } from './schemas.js';

/** The events about organizations that a host application can subscribe to. */
export interface OrganizationEvents {
  /** A user has created it, and is its owner. */
  'organization.created': { organizationId: string; organization: Organization; userId: string };
  /** The name, the slug or the logo has changed. */
  'organization.updated': { organizationId: string; organization: Organization };
  /** The organization and its data are deleted. */
  'organization.deleted': { organizationId: string };
  /** A user has accepted an invitation, or the host has added the user. */
  'organization.member_added': { organizationId: string; userId: string; role: string };
  /** The role of a member has changed. */
  'organization.member_updated': { organizationId: string; userId: string; role: string };
  /** A member has left or was removed. */
  'organization.member_removed': { organizationId: string; userId: string };
}

export const ORGANIZATION_EVENTS: Record<keyof OrganizationEvents, true> = {
  'organization.created': true,
  'organization.updated': true,
  'organization.deleted': true,
  'organization.member_added': true,
  'organization.member_updated': true,
  'organization.member_removed': true,
};
