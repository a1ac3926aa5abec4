/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'other sites change settings with the credentials that the browser sends', file: 'saas/admin/guard.ts',
    in: 'createAdminGuard',
    replace: "if (request.method !== 'GET' && request.method !== 'HEAD')", by: 'if (false)',
    tests: [['saas/admin/admin', 'credentials that a browser sends by itself are not enough for a change']],
  },
];
