/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'values are not escaped in HTML', file: 'shared/email/templates.ts', in: 'render',
    replace: "part === 'html' ? {} :", by: '',
    tests: [['shared/email/outbox', 'template values cannot run code, break out of HTML or add a header']],
  },
  {
    name: 'two processes send one e-mail', file: 'shared/email/relay.ts', in: 'deliver',
    replace: '{ id, attempts, dueAt }', by: '{ id }',
    tests: [['shared/email/outbox', 'four processes send each e-mail of one outbox once']],
  },
];
