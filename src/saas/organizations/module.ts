import type { FastifyTypebox } from '../../core/http/routes.js';
import type { EventOf } from '../../core/ops/events.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createOrganizationAccess } from './access.js';
import { createOrganizationAdministration } from './administration.js';
import type { OrganizationBilling } from './billing.js';
import type { OrganizationUsers } from './dependencies.js';
import type { OrganizationEvents } from './events.js';
import { createOrganizationApi } from './host-api.js';
import { createInvitations } from './invitations.js';
import type { InvitationMail } from './mails.js';
import { createMembers } from './members.js';
import { createOrganizations } from './organizations.js';
import { type OrganizationPluginOptions, organizationPlugin } from './plugin.js';
import { createRoles, type OrganizationRoles } from './roles.js';
import { organizationCollections } from './store.js';

/** Organizations, with their members and invitations. */
export type OrganizationsModule = ReturnType<typeof createOrganizationsModule>;

export interface OrganizationsModuleOptions extends Pick<OrganizationPluginOptions, 'chooseOrganization'> {
  users: OrganizationUsers;
  billing: OrganizationBilling;
  roles: OrganizationRoles | undefined;
  mail: InvitationMail;
  event: EventOf<OrganizationEvents>;
  maxMembers: number;
}

export function createOrganizationsModule(
  context: ModuleContext,
  { users, billing, roles: given, mail, event, maxMembers, chooseOrganization }: OrganizationsModuleOptions,
) {
  const { store, jobs, clock } = context;
  const roles = createRoles(given);
  const collections = organizationCollections(store);
  const access = createOrganizationAccess(collections, roles, billing);
  const deps = { ...context, ...collections, users, billing, roles, access, event, maxMembers };
  const members = createMembers(deps);
  const invitations = createInvitations({ ...deps, members, mail });
  const organizations = createOrganizations({ ...deps, members });
  jobs.add('organization-deletion', organizations.deletionJob);
  jobs.add('invitation-purge', createExpiryPurge(collections.invitations, clock));
  return {
    /** Removes a user whose account is deleted, with the organizations that have no other member. */
    async leaveAll(userId: string): Promise<void> {
      for (const id of await members.leaveAll(userId)) await organizations.completeDeletion(id);
    },
    roles,
    access,
    organizations,
    /** For operators. */
    administration: createOrganizationAdministration(deps),
    /** For the host. */
    api: createOrganizationApi(organizations, members, invitations, access),
    members,
    invitations,
    plugin: (fastify: FastifyTypebox) =>
      organizationPlugin(fastify, { access, organizations, members, invitations, chooseOrganization }),
  };
}
