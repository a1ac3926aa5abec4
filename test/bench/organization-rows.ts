/** The organizations that `npm run bench:scale -- --organizations` adds, and the requests of their members. */
import { createHash } from 'node:crypto';
import { newId } from '../../src/core/kernel/secrets.js';
import type { Collection, Store } from '../../src/core/storage/collection.js';
import {
  type MembershipDocument,
  membershipId,
  type OrganizationDocument,
  organizationCollections,
} from '../../src/saas/organizations/store.js';
import { drive, repeating, request } from './load.js';
import type { Measure } from './rounds.js';
import { bearer } from './saas-rows.js';

/** Members of each. With as many organizations as users, each user is in so many of them. */
export const MEMBERS = 10;

export const ORGANIZATIONS = { ORGANIZATIONS: 'true' };

/** The same ones in each run. */
function organizationIdAt(index: number): string {
  const digest = createHash('sha256').update(`organization ${index}`).digest();
  return newId('org_', { now: () => index }, { bytes: (size) => digest.subarray(0, size) });
}

export const organizationsIn = (store: Store): Collection<OrganizationDocument> =>
  organizationCollections(store).organizations;

export const membershipsIn = (store: Store): Collection<MembershipDocument> =>
  organizationCollections(store).memberships;

export const organizationAt = (index: number): OrganizationDocument => ({
  id: organizationIdAt(index),
  name: `Organization ${index}`,
  slug: `organization-${index}`,
  owners: 1,
  members: MEMBERS,
  billingEmail: 'invoices@example.com',
  subscriptionStatus: 'none',
  subscriptionPlan: 'free',
  createdAt: index + 1,
});

export function membershipAt(index: number, userId: string): MembershipDocument {
  const organizationId = organizationIdAt(Math.floor(index / MEMBERS));
  return {
    id: membershipId(organizationId, userId),
    organizationId,
    userId,
    role: index % MEMBERS === 0 ? 'owner' : 'member',
    createdAt: index + 1,
  };
}

/** Of people, each a member of the organization at the tenth of the number of the user. */
export function organizationRequests(
  url: string,
  people: readonly { number: number; accessToken: string }[],
): Record<string, Measure> {
  const get = (pathOf: (organization: string) => string): Measure => {
    const clients = people.map(({ number, accessToken }) => {
      const path = pathOf(organizationIdAt(Math.floor(number / MEMBERS)));
      return request('GET', `/api/organizations${path}`, bearer(accessToken));
    });
    return (seconds) =>
      drive(
        url,
        clients.map((text) => repeating(text, 200)),
        seconds,
      );
  };
  return {
    'membership: GET /api/organizations/:id': get((id) => `/${id}`),
    'GET /api/organizations': get(() => ''),
    'GET /api/organizations/:id/members': get((id) => `/${id}/members`),
  };
}
