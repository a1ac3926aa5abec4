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
    replace: 'isPerson ? await userOf(token.subject) : null', by: 'await userOf(token.subject)',
    tests: [['saas/agents/tokens', 'a token that is wrong in any way is refused']],
  },
];
