/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'an agent for itself uses what is for people only', file: 'idp/oidc/permits.ts', in: 'permitAt',
    replace: '(isDelegated || !one.delegatedOnly) &&', by: '',
    tests: [['idp/permissions/permissions', 'a permission has conditions']],
  },
  {
    name: 'a permission works from any network', file: 'idp/oidc/permits.ts', in: 'permitAt',
    replace: 'ip === undefined || !one.networks ||', by: 'true ||',
    tests: [['idp/permissions/permissions', 'a permission has conditions']],
  },
  {
    name: 'a permission that was narrowed leaves its tokens', file: 'idp/permissions/service.ts', in: 'allow',
    replace: 'isWider(before, granted) ? undefined : ending(granted)', by: 'undefined',
    tests: [['idp/permissions/permissions', 'tokens end with the permission']],
  },
  {
    name: 'an agent works without its owner', file: 'idp/agents.ts', in: 'complete',
    replace: 'ownerName === null ?', by: 'false ?',
    tests: [['idp/permissions/owners', 'an agent stops with the person who answers for it']],
  },
  {
    name: 'a new group has the permissions of a removed one of its name', file: 'idp/agents.ts', in: 'leavingWithGroup',
    replace: '...(await permissions.leaving({ subject: subjectOfGroup(group.name) })),', by: '',
    tests: [['idp/permissions/owners', 'the permissions of a removed group are not those of the next one']],
  },
  {
    name: 'the agents of a removed group are those of the next one', file: 'idp/groups/service.ts', in: 'remove',
    replace: '...(await leaving(group, source)),', by: '',
    tests: [['idp/permissions/owners', 'an agent of a group stops with the group, and not with its members']],
  },
  {
    name: 'any person stops any agent', file: 'idp/account.ts', in: 'stop',
    replace: 'if (isOwned)', by: 'if (person)',
    tests: [['idp/permissions/owners', 'the person stops the agent on the account page']],
  },
  {
    name: 'anyone gets any receipt', file: 'idp/account.ts', in: 'of',
    replace: 'action.person === id ||', by: 'true ||',
    tests: [['idp/permissions/receipts', 'a person gets receipts of what was done in their name']],
  },
  {
    name: 'an API is not told that the permission is gone', file: 'idp/oidc/tokens/introspection.ts', in: 'findAccessTokenFor',
    replace: 'if (permit) {', by: 'if (permit || true) {',
    tests: [['idp/permissions/receipts', 'an API learns that an agent may no longer do']],
  },
  {
    name: 'permissions of a removed API stay', file: 'idp/resources/administration.ts', in: 'remove',
    replace: '...(await permissions.leaving({ resourceId: found.id })),', by: '',
    tests: [['idp/permissions/permissions', 'a resource that is registered again']],
  },
  {
    name: 'the administrator puts an agent into a group with permissions', file: 'idp/modules.ts', in: 'openModules',
    replace: "kind !== 'agent' || hasOwnInviter ||", by: 'true ||',
    tests: [['idp/permissions/permissions', 'the administrator token reads permissions']],
  },
];
