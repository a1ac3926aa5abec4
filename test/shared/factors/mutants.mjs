/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a code is accepted as often as it is presented', file: 'shared/factors/service.ts', in: 'use',
    replace: 'rev, lastStep: { lt: step }', by: 'rev',
    tests: [['shared/factors/explore', 'two uses of one code: in every order and with a crash, at most one']],
  },
  {
    name: 'a recovery code stays valid', file: 'shared/factors/service.ts', in: 'use',
    replace: 'found.recovery.filter((other) => other !== hash)', by: 'found.recovery',
    tests: [['shared/factors/explore', 'two uses of one code: in every order and with a crash, at most one']],
  },
  {
    name: 'a confirmation replaces a factor', file: 'shared/factors/service.ts', in: 'confirm',
    replace: 'secret === null || found.confirmedAt !== undefined', by: 'secret === null',
    tests: [['shared/factors/factors', 'an app that was begun before the factor was set up cannot replace it']],
  },
];
