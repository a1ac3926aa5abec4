import type { Clock } from '../core/kernel/clock.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { GroupDependencies, Groups } from './groups/service.js';
import type { Principal } from './oidc/directory.js';
import type { Revocations } from './oidc/revocations/service.js';
import { createPermissions, type Permissions } from './permissions/service.js';
import { EVERY_AGENT, groupIn, type PermissionDocument, subjectOfGroup } from './permissions/store.js';
import type { Agents } from './provisioning/agents.js';
import { findActive, type PrincipalCollection, type PrincipalDocument } from './provisioning/store.js';
import type { ResourceService } from './resources/service.js';

/** What decides about agents: who answers for them, and their permissions. */

/** Those that are compared with a token that names no agent. */
const MAX_AGENTS_WITH_RULES = 200;

export interface AgentDependencies {
  people: PrincipalCollection;
  groups: Groups;
  resources: Pick<ResourceService, 'find'>;
  /** They are created later, with what finds principals. */
  revocations(): Revocations;
}

export function openPermissions(
  context: Pick<ModuleContext, 'store' | 'commit' | 'audit' | 'clock' | 'backgroundTasks'>,
  { groups, resources, revocations }: Omit<AgentDependencies, 'people'>,
): Permissions {
  const endTokens = async ({ subject, resource }: Pick<PermissionDocument, 'subject' | 'resource'>) => {
    if (subject === EVERY_AGENT) {
      await context.commit([revocations().endingResource(resource)]);
      return;
    }
    const group = groupIn(subject);
    const agents = group === undefined ? [subject] : await groups.agentsOf(group);
    for (const agent of agents) await context.commit([revocations().endingAgent(agent, resource)]);
  };
  return createPermissions({ ...context, findResource: resources.find, endTokens });
}

/** What goes with a group: the agents for which it answers stop, and its permissions end. */
export const leavingWithGroup =
  (
    built: () => { permissions: Permissions; agents: Pick<Agents, 'stoppingOf'> },
  ): GroupDependencies<PrincipalDocument>['leaving'] =>
  async (group, source) => {
    const { permissions, agents } = built();
    return [
      ...(await agents.stoppingOf(group, source)),
      ...(await permissions.leaving({ subject: subjectOfGroup(group.name) })),
    ];
  };

/** Finds the active principal of a `sub`. An agent is active only as long as someone answers for it. */
export function createReadPrincipal(
  { people, groups, clock }: Pick<AgentDependencies, 'people' | 'groups'> & { clock: Clock },
  permissions: Pick<Permissions, 'of'>,
) {
  const findPerson = findActive(people, clock);

  /** What people call the owner; `null` if there is none any more. */
  const findOwner = async (owner: string): Promise<string | null> => {
    const group = groupIn(owner);
    if (group === undefined) return (await findPerson(owner))?.handle ?? null;
    return (await groups.has(group)) ? group : null;
  };

  /** Adds what decides about the principal; `null` unless it is active. */
  const complete = async (found: PrincipalDocument | null): Promise<Principal | null> => {
    const principal = await groups.withGroups(found);
    if (principal?.kind !== 'agent') return principal;
    const { owner } = principal;
    const [ownerName, granted] = await Promise.all([owner && findOwner(owner), permissions.of(principal)]);
    return ownerName === null ? null : { ...principal, ownerName, permissions: granted };
  };

  const findPrincipal = async (sub: string): Promise<Principal | null> => complete(await findPerson(sub));

  return {
    complete,
    findPrincipal,

    async agentsWithRules(): Promise<readonly PrincipalDocument[]> {
      const where = { workloadRules: { gt: 0 }, state: 'active' as const };
      return (await people.page({ where, sort: 'id', limit: MAX_AGENTS_WITH_RULES })).items;
    },

    /** Whether a permission may name it: an agent, a group, or every agent. */
    async isSubject(subject: string): Promise<boolean> {
      const group = groupIn(subject);
      if (group !== undefined) return groups.has(group);
      return subject === EVERY_AGENT || (await people.findOne({ id: subject, kind: 'agent' })) !== null;
    },
  };
}
