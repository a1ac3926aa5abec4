/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'values are not escaped in HTML', file: 'shared/email/templates.ts', in: 'render',
    replace: "part === 'html' ? {} :", by: '',
    tests: [['shared/email/outbox', 'template values cannot run code, break out of HTML or add a header']],
  },
  {
    name: 'two processes make one attempt', file: 'core/ops/outbox.ts', in: 'lease',
    replace: '{ id, attempts, dueAt }', by: '{ id }',
    tests: [
      ['shared/email/outbox', 'four processes send each e-mail of one outbox once'],
      ['saas/webhooks/delivery', 'four processes make one attempt at a time for each delivery'],
    ],
  },
];
