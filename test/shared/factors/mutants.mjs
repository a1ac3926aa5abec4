/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a code is accepted as often as it is presented', file: 'shared/factors/service.ts', in: 'use',
    replace: 'rev, lastStep: { lt: step }', by: 'rev',
    tests: [['shared/factors/factors', 'of 50 concurrent uses of one code one succeeds']],
  },
  {
    name: 'a recovery code stays valid', file: 'shared/factors/service.ts', in: 'use',
    replace: 'found.recovery.filter((other) => other !== hash)', by: 'found.recovery',
    tests: [['shared/factors/factors', 'of concurrent uses of each recovery code one succeeds, and none is lost']],
  },
];
