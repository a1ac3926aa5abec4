import { suggestion } from '../../core/kernel/text.js';

/** The roles of members, and what each of them permits. */

/** The role of those to whom an organization belongs, which has every permission. */
export const OWNER = 'owner';

/** The role of those who manage an organization and its members. */
export const ADMIN = 'admin';

/** The role that an invitation gives if it names none. */
export const MEMBER = 'member';

/** The permissions of our own routes. */
export const OWN_PERMISSIONS = [
  'organization:update',
  'members:manage',
  'keys:manage',
  'billing:manage',
] as const;

/** Permissions by role. */
export type OrganizationRoles = Readonly<Record<string, readonly string[]>>;

/** What these roles permit beside what the application adds. */
const BUILT_IN: OrganizationRoles = {
  [ADMIN]: ['organization:update', 'members:manage', 'keys:manage'],
  [MEMBER]: [],
};

export type Roles = ReturnType<typeof createRoles>;

/** @param given the roles of the application, and the permissions that it adds to the built-in ones */
export function createRoles(given: OrganizationRoles = {}) {
  const permissions = new Map<string, ReadonlySet<string>>();
  for (const name of new Set([...Object.keys(BUILT_IN), ...Object.keys(given)]))
    permissions.set(name, new Set([...(BUILT_IN[name] ?? []), ...(given[name] ?? [])]));
  const all: ReadonlySet<string> = new Set([
    ...OWN_PERMISSIONS,
    ...[...permissions.values()].flatMap((some) => [...some]),
  ]);
  permissions.set(OWNER, all);
  const names = [...permissions.keys()];

  /** A role that is not declared any more permits nothing. */
  const permissionsOf = (role: string): ReadonlySet<string> => permissions.get(role) ?? new Set();

  return {
    names,
    permissionsOf,
    permits: (role: string, permission: string): boolean => permissionsOf(role).has(permission),

    /** Whether a role permits all that another one does. Only owners cover owners. */
    covers(role: string, other: string): boolean {
      if (role === OWNER) return true;
      return other !== OWNER && [...permissionsOf(other)].every((one) => permissionsOf(role).has(one));
    },

    /**
     * @throws Error that lists the roles, because a misspelt one would reject every member; also for a role of the application without
     *   permissions, which would admit every member
     */
    requireRole(role: string): void {
      if (role !== MEMBER && permissions.get(role)?.size === 0)
        throw new Error(
          `requireMember: '${role}' permits nothing, so that every member would be admitted. Give it a permission in 'organizationRoles', and require that one.`,
        );
      if (permissions.has(role)) return;
      throw new Error(
        `requireMember: '${role}' is not a role. The roles are: ${names.join(', ')}.${suggestion(role, names)}`,
      );
    },

    /** @throws Error that lists the permissions */
    requirePermission(permission: string): void {
      if (all.has(permission)) return;
      throw new Error(
        `requirePermission: no role has '${permission}'. The permissions are: ${[...all].join(', ')}.${suggestion(permission, [...all])}`,
      );
    },
  };
}

/** The roles that guards may name. @throws Error without the option `organizations` */
export function knownRoles(isEnabled: boolean, given?: OrganizationRoles): Roles {
  if (!isEnabled) throw new Error("requireMember and requirePermission need the option 'organizations'.");
  return createRoles(given);
}

const ROLE = /^[a-z][a-z0-9_-]{0,31}$/;
const PERMISSION = /^[a-z][a-z0-9_-]{0,31}(:[a-z0-9_-]{1,32}){0,3}$/;

/** The problems of the option, each as a sentence. */
export function roleProblems(given: OrganizationRoles): string[] {
  return Object.entries(given).flatMap(([role, permissions]) => {
    const at = `'organizationRoles.${role}'`;
    if (role === OWNER) return [`${at} cannot be declared: owners have every permission.`];
    if (!ROLE.test(role)) return [`${at} must be a name like project_manager, of at most 32 characters.`];
    if (!Array.isArray(permissions)) return [`${at} must be a list of permissions like 'projects:write'.`];
    const wrong = permissions.filter((one) => typeof one !== 'string' || !PERMISSION.test(one));
    return wrong.map(
      (one) => `${at} has the permission ${JSON.stringify(one)}: write it like projects:write.`,
    );
  });
}
