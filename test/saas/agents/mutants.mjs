/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a route without a scope admits agents', file: 'saas/agents/access.ts', in: 'admit',
    replace: 'if (scope === undefined) throw peopleOnly();', by: '',
    tests: [['saas/agents/agents', 'a route admits an agent for its scope only, and says which one it needs']],
  },
  {
    name: 'an agent acts as a person', file: 'saas/agents/access.ts', in: 'identify',
    replace: 'isPerson ? await userOf(token, ip) : null', by: 'await userOf(token, ip)',
    tests: [['saas/agents/tokens', 'a token that is wrong in any way is refused']],
  },
  {
    name: 'an agent creates a user again who was deleted', file: 'idp/directory.ts', in: 'findPerson',
    replace: 'if (delegation !== undefined && (await granted.delegations.find(delegation))?.person.id !== sub) return null;', by: '',
    tests: [['saas/agents/directory', 'who has deleted the account is not created again by an agent']],
  },
  {
    name: 'sessions of a disabled person continue', file: 'saas/auth/sessions/sessions.ts', in: 'findValidSession',
    replace: 'if ((await deps.admits?.(stored.id)) === false) return null;', by: '',
    tests: [['saas/agents/directory', 'a person who is disabled at the provider is refused with the next request']],
  },
  {
    name: 'agents that registered themselves may do what every agent may', file: 'idp/oidc/admission.ts', in: 'permitOf',
    replace: 'resource.admitsSelfRegistered !== true', by: '!resource.admitsSelfRegistered',
    tests: [['saas/agents/directory', 'an agent that registered itself gets nothing that every agent may do']],
  },
];
