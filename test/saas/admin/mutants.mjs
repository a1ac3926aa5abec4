/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'other sites change settings with the credentials that the browser sends', file: 'saas/admin/guard.ts',
    in: 'createAdminGuard',
    replace: "if (request.method !== 'GET' && request.method !== 'HEAD')", by: 'if (false)',
    tests: [['saas/admin/admin', 'credentials that a browser sends by itself are not enough for a change']],
  },
  {
    name: 'two requests for one refund have keys of their own', file: 'saas/billing/refunds.ts',
    in: 'createRefunds',
    replace: 'charge.id}-', by: 'Math.random()}-',
    tests: [['saas/admin/customer-billing', 'a refund that is sent again, and the same refund by two processes, are made once']],
  },
  {
    name: 'a refund that is sent again is made again', file: 'saas/billing/refunds.ts',
    in: 'createRefunds',
    replace: 'if (charge.refundedAmount !== before)', by: 'if (false)',
    tests: [['saas/admin/customer-billing', 'a refund that is sent again, and the same refund by two processes, are made once']],
  },
  {
    name: 'an operator overwrites the note of another one', file: 'saas/auth/users/note.ts',
    in: 'createSetNote',
    replace: 'if ((before && toTimestamp(before.at)) !== replaces)', by: 'if (false)',
    tests: [['saas/admin/customer', 'of two operators who edit the note at once, one is told so and loses nothing']],
  },
  {
    name: 'operators change what belongs to no owner here', file: 'saas/admin/billing-actions.ts',
    in: 'found',
    replace: 'record === undefined || record.email === null', by: 'record === undefined',
    tests: [['saas/admin/customer-billing', 'what belongs to no customer of this product cannot be reached by its ID']],
  },
];
