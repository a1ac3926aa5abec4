import type { EventOf } from '../../core/ops/events.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Write } from '../../core/storage/collection.js';
import type { OrganizationAccess } from './access.js';
import type { OrganizationBilling } from './billing.js';
import type { OrganizationEvents } from './events.js';
import type { Roles } from './roles.js';
import type { OrganizationCollections } from './store.js';

/** Access to the users' records, which belong to another domain. */
export interface OrganizationUsers {
  find(userId: string): Promise<OrganizationUser | null>;
  /** By ID; those that do not exist are missing. */
  findAll(userIds: readonly string[]): Promise<Map<string, OrganizationUser>>;
  /** @throws NOT_FOUND if there is no such user, or the account is being deleted */
  require(userId: string): Promise<OrganizationUser>;
  /** Whether the account with an address is a member is not disclosed before it is confirmed. */
  findByEmail(email: string): Promise<OrganizationUser | null>;
  /** For a commit that makes a user a member: unmet once the deletion of the account has begun. */
  joining(userId: string): Write;
}

export interface OrganizationUser {
  id: string;
  email: string;
  emailVerified: boolean;
  /** Empty if not provided. */
  name: string;
  locale?: string | undefined;
  isSuspended: boolean;
}

/** What the services of this domain depend on. */
export interface OrganizationDependencies
  extends OrganizationCollections,
    Pick<ModuleContext, 'commit' | 'audit' | 'accountData' | 'throttle' | 'clock' | 'random'> {
  users: OrganizationUsers;
  billing: OrganizationBilling;
  roles: Roles;
  access: OrganizationAccess;
  event: EventOf<OrganizationEvents>;
  /** Of an organization. */
  maxMembers: number;
}
