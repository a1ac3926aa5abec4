/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a password alone opens the admin area', file: 'saas/operators/guard.ts',
    in: 'createOperatorSessions',
    replace: "hasFactor: session.amr.includes('mfa')", by: 'hasFactor: true',
    tests: [['saas/operators/operators', 'without a role or a second factor, a page says what is missing']],
  },
  {
    name: 'who acts as an operator has the role', file: 'saas/auth/sessions/sessions.ts',
    in: 'createSessionService',
    replace: 'user.operatorRole === undefined', by: 'true',
    tests: [['saas/operators/operators', 'no token of an operator opens the area, and nobody who acts as one']],
  },
  {
    name: 'an operator adds a factor after a password alone', file: 'saas/operators/guard.ts',
    in: 'createOperatorSessions',
    replace: '?.operatorRole === undefined) return;', by: '?.operatorRole !== null) return;',
    tests: [['saas/operators/operators', 'a factor that is added after a password alone does not open the area']],
  },
  {
    name: 'support changes the account of an owner', file: 'saas/admin/user-actions.ts',
    replace: "operatorRole && ('owner' as const)", by: 'operatorRole && undefined',
    tests: [['saas/operators/operators', 'each role sees and does what it may, and what nobody has thought of needs an owner']],
  },
  {
    name: 'a new owner of an account has its role', file: 'saas/auth/links/confirm-address.ts',
    replace: "(['keptSession', 'operatorRole'] as const)", by: "(['keptSession'] as const)",
    tests: [['saas/operators/operators', 'an account that has a new owner has no role']],
  },
];
