import { type Client, isSelfRegistered, type Principal } from './directory.js';
import { type Circumstances, type Permission, type Permit, permitAt } from './permits.js';
import type { Target } from './resources.js';

/** Who may use an application and an API: every sign-in and every grant asks `findRefusal`, or `admit` for one API. */

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
  if (client && !client.principalKinds.includes(principal.kind))
    return refuse('This kind of principal is not allowed to sign in to this client.');
  if (client && !isInAdmittedGroup(client, principal))
    return refuse('The principal is in none of the groups that may use this client.', { isByGroup: true });
  for (const target of targets) {
    const { refusal } = admit(target, principal, circumstances);
    if (refusal) return refusal;
  }
  return null;
}

/** Why this principal gets no token for an API, or what an agent may do there. */
export function admit(
  { resource, scopes = [], isDefault }: Pick<Target, 'resource'> & Partial<Target>,
  principal: Applicant,
  circumstances: Circumstances,
): { refusal: Refusal; permit?: never } | { refusal?: never; permit?: Permit } {
  const { identifier, principalKinds, admitsSelfRegistered } = resource;
  const refused = (...why: Parameters<typeof refuse>) => ({ refusal: refuse(...why) });
  const isPerson = principal.kind === 'human';
  if (!principalKinds.includes(principal.kind))
    return refused(`The resource ${identifier} does not admit ${isPerson ? 'people' : 'agents'}.`);
  if (!isInAdmittedGroup(resource, principal))
    return refused(`The principal is in none of the groups that may use the resource ${identifier}.`, {
      isByGroup: true,
    });
  if (isPerson)
    return isSelfRegistered(principal) && !admitsSelfRegistered
      ? refused(
          `The resource ${identifier} does not admit people who registered themselves (idp resource update --self-registered yes).`,
        )
      : {};
  const permit = permitOf(principal, resource, circumstances);
  if (!permit)
    return refused(`The agent has no permission for the resource ${identifier} (idp agent allow).`);
  const missing = scopes.filter((name) => !permit.scopes.has(name));
  return missing.length > 0 && !(isDefault && missing.length < scopes.length)
    ? refused(`The agent has no permission for ${missing.join(' ')} at the resource ${identifier}.`, {
        isByScope: true,
      })
    : { permit };
}

/** What an agent may do at a resource. What every agent may do there is not for those that registered themselves, unless it admits them. */
export function permitOf(
  agent: Pick<Applicant, 'permissions' | 'invitedAt' | 'mintedAt' | 'operatorSince'>,
  resource: Pick<Target['resource'], 'id' | 'admitsSelfRegistered'>,
  circumstances: Circumstances,
): Permit | null {
  const { permissions = [] } = agent;
  const isStranger = isSelfRegistered(agent) && resource.admitsSelfRegistered !== true;
  const own = isStranger ? permissions.filter(({ isForEveryone }) => !isForEveryone) : permissions;
  return permitAt(resource, own, circumstances);
}

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
