/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'each process tells a problem', file: 'shared/console-kit/attention.ts', in: 'createAttentionJob',
    replace: 'states.inserting(', by: 'states.ensuring(',
    tests: [['shared/console-kit/attention', 'of several processes that notice a problem or its end at once, one tells it']],
  },
  {
    name: 'the end of a problem is told each hour', file: 'shared/console-kit/attention.ts', in: 'createAttentionJob',
    replace: 'states.deleting({ id, since }), ', by: '',
    tests: [['shared/console-kit/attention', 'operators get one mail when a problem begins and one when it ends, and so do webhooks']],
  },
];
