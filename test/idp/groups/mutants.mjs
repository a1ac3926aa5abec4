/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'an unverified address joins by its domain', file: 'idp/groups/service.ts', in: 'domainOf',
    replace: '|| !isVerified(principal)', by: '',
    tests: [['idp/groups/groups', 'people join by the domain of a verified address']],
  },
  {
    name: 'an agent joins by domain', file: 'idp/groups/service.ts', in: 'domainOf',
    replace: "principal.kind !== 'human' ||", by: '',
    tests: [['idp/groups/groups', 'people join by the domain of a verified address']],
  },
  {
    name: 'members of other groups are admitted', file: 'idp/oidc/admission.ts', in: 'isInAdmittedGroup',
    replace: 'admittedGroups.some((name) => groups.includes(name))', by: 'groups.length > 0',
    tests: [['idp/groups/admission', 'only members of an admitted group get a code']],
  },
  {
    name: 'a person who has left the group refreshes', file: 'idp/oidc/tokens/issuance.ts', in: 'findAllowedOwner',
    replace: '!findRefusal({ client }, principal)', by: 'true',
    tests: [['idp/groups/admission', 'only members of an admitted group get a code']],
  },
  {
    name: 'an application that registered itself sees groups', file: 'idp/oidc/claims.ts', in: 'groupsFor',
    replace: "origin === undefined ? 'all' : 'none'", by: "'all'",
    tests: [['idp/groups/claims', 'an application that registered itself sees no group']],
  },
];
