import { type Client, isSelfRegistered, type Principal } from './directory.js';
import { type Circumstances, type Permission, type Permit, permitAt } from './permits.js';
import type { Target } from './resources.js';

/** Who may use an application and an API: every sign-in and every grant asks `findRefusal`. */

type Applicant = Pick<Principal, 'kind' | 'invitedAt' | 'mintedAt' | 'operatorSince'> & {
  /** `any`: not known yet. */
  groups: readonly string[] | 'any';
  /** Of an agent. */
  permissions?: readonly Permission[];
};

/** A person who is not known yet. */
export const ANY_PERSON: Applicant = { kind: 'human', invitedAt: 0, groups: 'any' };

/** A person who would sign up. */
export const NEW_PERSON: Applicant = { kind: 'human', groups: [] };

/** What is used: an application, APIs, or both. */
export interface Use extends Circumstances {
  client?: Pick<Client, 'principalKinds' | 'admittedGroups'>;
  targets?: readonly (Pick<Target, 'resource'> & Partial<Target>)[];
}

export interface Refusal {
  /** For the application, as a sentence. */
  description: string;
  /** Whether it is a matter of groups, in which the operator could put the principal. */
  isByGroup: boolean;
  /** Whether the agent may use the API with other scopes. */
  isByScope: boolean;
}

/** Why this principal may not sign in to the application, or gets no token for one of the APIs; `null` if it may. */
export function findRefusal(
  { client, targets = [], ...circumstances }: Use,
  principal: Applicant,
): Refusal | null {
  const { kind } = principal;
  const who = kind === 'agent' ? 'agents' : 'people';
  if (client && !client.principalKinds.includes(kind))
    return refuse('This kind of principal is not allowed to sign in to this client.');
  if (client && !isInAdmittedGroup(client, principal))
    return refuse('The principal is in none of the groups that may use this client.', { isByGroup: true });
  for (const { resource, scopes = [], isDefault } of targets) {
    const { identifier, principalKinds, admitsSelfRegistered } = resource;
    if (!principalKinds.includes(kind)) return refuse(`The resource ${identifier} does not admit ${who}.`);
    if (!isInAdmittedGroup(resource, principal))
      return refuse(`The principal is in none of the groups that may use the resource ${identifier}.`, {
        isByGroup: true,
      });
    if (kind === 'human') {
      if (isSelfRegistered(principal) && !admitsSelfRegistered)
        return refuse(
          `The resource ${identifier} does not admit people who registered themselves (idp resource update --self-registered yes).`,
        );
      continue;
    }
    const permit = permitOf(principal, resource, circumstances);
    if (!permit) return refuse(noPermission(resource));
    const missing = scopes.filter((name) => !permit.scopes.has(name));
    if (missing.length > 0 && !(isDefault && missing.length < scopes.length))
      return refuse(`The agent has no permission for ${missing.join(' ')} at the resource ${identifier}.`, {
        isByScope: true,
      });
  }
  return null;
}

/** What an agent may do at a resource. What every agent may do there is not for those that registered themselves. */
export function permitOf(
  agent: Pick<Applicant, 'permissions' | 'invitedAt' | 'mintedAt' | 'operatorSince'>,
  resource: Pick<Target['resource'], 'id' | 'admitsSelfRegistered'>,
  circumstances: Circumstances,
): Permit | null {
  const { permissions = [] } = agent;
  const isStranger = isSelfRegistered(agent) && !resource.admitsSelfRegistered;
  const own = isStranger ? permissions.filter(({ isForEveryone }) => !isForEveryone) : permissions;
  return permitAt(resource, own, circumstances);
}

export const noPermission = ({ identifier }: Pick<Target['resource'], 'identifier'>): string =>
  `The agent has no permission for the resource ${identifier} (idp agent allow).`;

const isInAdmittedGroup = (
  { admittedGroups }: { admittedGroups?: readonly string[] },
  { groups }: Pick<Applicant, 'groups'>,
): boolean =>
  admittedGroups === undefined || groups === 'any' || admittedGroups.some((name) => groups.includes(name));

const refuse = (description: string, reason: Partial<Refusal> = {}): Refusal => ({
  description,
  isByGroup: false,
  isByScope: false,
  ...reason,
});
