/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'other sites change settings with the credentials that the browser sends', file: 'saas/admin/guard.ts',
    in: 'createAdminGuard',
    replace: "request.method !== 'GET' && request.method !== 'HEAD'", by: 'false',
    tests: [['saas/admin/admin', 'credentials that a browser sends by itself are not enough for a change']],
  },
  {
    name: 'two operators refund different amounts of the same payment', file: 'saas/billing/refunds.ts',
    in: 'createRefunds',
    replace: 'if (claimed && !claimed.isRecorded && claimed.change.from === from)', by: 'if (false)',
    tests: [['saas/admin/customer-billing', 'two operators who refund different amounts at once: one is made, the other one is refused']],
  },
  {
    name: 'a refund that has failed is answered from the earlier one', file: 'saas/billing/refunds.ts',
    in: 'createRefunds',
    replace: '(result.isMade || !claimed.isRecorded)', by: 'true',
    tests: [['saas/admin/customer-billing', 'a refund that has failed at the bank can be made again']],
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
  {
    name: 'a part of an address leads to a page', file: 'saas/admin/users.ts', in: 'usersPlugin',
    replace: '[id, email].includes(text.toLowerCase())', by: 'email.includes(text.toLowerCase())',
    tests: [['saas/admin/search', 'one field finds users and what belongs to them, and leads to what an identifier names']],
  },
  {
    name: 'a bulk change does not see what a search by any part shows', file: 'shared/console-kit/bulk.ts',
    in: 'registerBulkList',
    replace: 'readOrFind(list, one)', by: 'list.read(one)',
    tests: [['saas/admin/users', 'what a search by any part of a name shows is changed, and nobody else']],
  },
];
