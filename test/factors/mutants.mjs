/** @type {import('../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a code is accepted as often as it is presented', file: 'factors/service.ts', in: 'use',
    replace: 'rev, lastStep: { lt: step }', by: 'rev',
    tests: [['factors/explore', 'two uses of one code: in every order and with a crash, at most one']],
  },
  {
    name: 'a recovery code stays valid', file: 'factors/service.ts', in: 'use',
    replace: 'found.recovery.filter((other) => other !== hash)', by: 'found.recovery',
    tests: [['factors/explore', 'two uses of one code: in every order and with a crash, at most one']],
  },
];
