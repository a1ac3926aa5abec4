/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a sign-in continues at any origin', file: 'saas/pages/session.ts', in: 'destinationOf',
    replace: 'origins.includes(url.origin)', by: 'true',
    tests: [['saas/pages/user-pages', 'sign-in leads to where the visitor wanted to go, and nowhere else']],
  },
  {
    name: 'forms of other sites are accepted', file: 'saas/pages/session.ts', in: 'rejectForeignForm',
    replace: 'if (!isTrustedOrigin(headers, [new URL(publicUrl).origin]))', by: 'if (false)',
    tests: [['saas/pages/user-pages', 'a form of another site cannot sign a user in, up or out']],
  },
  {
    name: 'a link with a code shows the field in any browser', file: 'saas/pages/code.ts', in: 'codePlugin',
    replace: 'if (!codeCookie.read(request))', by: 'if (false)',
    tests: [['saas/pages/user-pages', 'a mailed code signs in, in the browser that asked for it']],
  },
  {
    name: 'a connection is completed in any session', file: 'saas/pages/connections.ts', in: 'registerConnectionPage',
    replace: 'begun?.session !== session.id', by: '!begun?.session',
    tests: [['saas/pages/providers', 'a connection is completed in the session that has begun it']],
  },
  {
    name: 'a sign-in forgets the token of an invitation', file: 'saas/account-pages.ts', in: 'signInOf',
    replace: "url.replace(/^[^?]*/, '')", by: "''",
    tests: [['saas/pages/invitation', 'who is not signed in comes back to the link']],
  },
  {
    name: 'a page offers roles that permit more than their own', file: 'saas/pages/organization-views.ts', in: 'choicesOf',
    replace: 'covers(own, role)', by: 'true',
    tests: [['saas/pages/organizations', 'each member is offered what the role permits']],
  },
  {
    name: 'an organization is deleted with any text', file: 'saas/pages/organization.ts', in: 'organizationPlugin',
    replace: 'confirm.trim() !== name', by: 'false',
    tests: [['saas/pages/organizations', 'a member leaves; an owner transfers and deletes with a recent sign-in']],
  },
  {
    name: 'a link offers what cannot be accepted', file: 'saas/organizations/invitations.ts', in: 'open',
    replace: 'isWorth(invitation)', by: 'true',
    tests: [['saas/pages/invitation', 'an invitation whose sender has left is not offered']],
  },
  {
    name: 'users are offered plans with seats', file: 'saas/pages/billing.ts', in: 'pageOf',
    replace: "(organization || billing.plans.seatsOf(priceId) === undefined)", by: 'true',
    tests: [['saas/pages/user-pages', 'a plan with seats is not offered to a user']],
  },
];
