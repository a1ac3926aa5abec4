/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a route without a scope admits keys', file: 'saas/keys/access.ts', in: 'admit',
    replace: 'if (scope === undefined) throw peopleOnly();', by: "if (scope === undefined) scope = scopes[0] ?? '';",
    tests: [['saas/keys/matrix', 'each kind of key calls the routes that its scope, its owner and the role permit, and no other']],
  },
  {
    name: 'a key of an organization acts for the person', file: 'saas/callers.ts', in: 'requireUser',
    replace: 'if (request.saas.key?.organizationId === undefined) return;', by: 'return;',
    tests: [['saas/keys/matrix', 'each kind of key calls the routes that its scope, its owner and the role permit, and no other']],
  },
  {
    name: 'a key of an organization acts in another one', file: 'saas/organizations.ts', in: 'namedMember',
    replace: 'own !== undefined && member.organization.id !== own', by: 'false',
    tests: [['saas/keys/matrix', 'each kind of key calls the routes that its scope, its owner and the role permit, and no other']],
  },
  {
    name: 'an expired key is accepted', file: 'saas/keys/access.ts', in: 'admit',
    replace: 'if (expiresAt <= clock.now())', by: 'if (expiresAt < 0)',
    tests: [['saas/keys/keys', 'a rotation replaces a key, which remains valid for the overlap']],
  },
  {
    name: 'the networks of a key are ignored', file: 'saas/keys/access.ts', in: 'admit',
    replace: 'networks && !isInNetworks(ip, networks)', by: 'false',
    tests: [['saas/keys/keys', 'a key is accepted from its networks only, and a refusal is in the audit']],
  },
  {
    name: 'members without the permission manage keys', file: 'saas/keys.ts', in: 'openKeys',
    replace: "access.demand(member, 'keys:manage');", by: '',
    tests: [['saas/keys/keys', 'nobody reaches a key of another user or organization']],
  },
  {
    name: 'an overlap prolongs a key', file: 'saas/keys/service.ts', in: 'rotate',
    replace: 'Math.min(now + overlapSeconds * SECOND, expiresAt)', by: 'now + overlapSeconds * SECOND',
    tests: [['saas/keys/keys', 'an overlap never prolongs a key']],
  },
];
