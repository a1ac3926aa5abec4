/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'members without the permission change roles', file: 'saas/organizations/members.ts', in: 'changeRole',
    replace: "access.demand(by, 'members:manage');", by: '',
    tests: [['saas/organizations/matrix', 'nobody gives or takes a role that permits more than their own']],
  },
  {
    name: 'members give more than they have', file: 'saas/organizations/members.ts', in: 'changeRole',
    replace: 'access.demandRole(by, role);', by: '',
    tests: [['saas/organizations/matrix', 'nobody gives or takes a role that permits more than their own']],
  },
  {
    name: 'a role without a common permission covers others', file: 'saas/organizations/roles.ts', in: 'covers',
    replace: 'other !== OWNER &&', by: '',
    tests: [['saas/organizations/matrix', 'nobody gives or takes a role that permits more than their own']],
  },
  {
    name: 'two owners leave at once', file: 'saas/organizations/members.ts', in: 'counting',
    replace: '...(owners < 0 && { owners: { gt: -owners } }),', by: '',
    tests: [['saas/organizations/organizations', 'simultaneous changes leave exactly one owner']],
  },
  {
    name: 'an invitation outlives its sender', file: 'saas/organizations/invitations.ts', in: 'accept',
    replace: 'acceptedBy !== undefined || !isValid', by: 'acceptedBy !== undefined',
    tests: [['saas/organizations/organizations', 'an invitation is worth as much as its sender']],
  },
  {
    name: 'the address of an account need not be confirmed', file: 'saas/organizations/invitations.ts', in: 'findFor',
    replace: '!(isOwn && user.emailVerified)', by: '!isOwn',
    tests: [['saas/organizations/organizations', 'an invitation reaches people with and without an account, once']],
  },
  {
    name: 'a token of an earlier mail is accepted', file: 'saas/organizations/invitations.ts', in: 'findFor',
    replace: '(token !== undefined && !isSecretOf(token, invitation.hash))', by: 'false',
    tests: [['saas/organizations/organizations', 'an invitation reaches people with and without an account, once']],
  },
  {
    name: 'the session names an organization without membership', file: 'saas/organizations/access.ts', in: 'find',
    replace: 'return membership && { organization, membership };',
    by: "return { organization, membership: membership ?? { id: 'x', organizationId: organization.id, userId, role: 'owner', createdAt: 1 } };",
    tests: [['saas/organizations/organizations', 'the active organization belongs to a session, and guards read']],
  },
  {
    name: 'withdrawing needs no role', file: 'saas/organizations/invitations.ts', in: 'withdraw',
    replace: 'access.demandRole(by, found.role);', by: '',
    tests: [['saas/organizations/matrix', 'nobody invites with, or replaces or withdraws an invitation for']],
  },
  {
    name: 'people are offered what they cannot accept', file: 'saas/organizations/invitations.ts', in: 'listFor',
    replace: 'isOpen(one) && (await isWorth(one))', by: 'isOpen(one)',
    tests: [['saas/organizations/organizations', 'an invitation is worth as much as its sender']],
  },
  {
    name: 'the minimum of a plan does not count for its seats', file: 'saas/billing/seats.ts', in: 'quantityOf',
    replace: 'Math.max(members, min)', by: 'members',
    tests: [['saas/organizations/billing', 'without a quantity, a seat for each member']],
  },
  {
    name: 'who pays for an organization returns to the own plan', file: 'saas/options.ts', in: 'returnPathOf',
    replace: 'isBuiltIn && isOrganizationId(ownerId)', by: 'false',
    tests: [['saas/organizations/billing', 'who pays for an organization returns to its page']],
  },
];
