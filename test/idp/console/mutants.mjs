/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'each process counts each sign-in', file: 'idp/console/sign-in-days.ts', in: 'createSignInDays',
    replace: "progress.changing({ id: 'sign-ins', after }, ", by: "progress.changing({ id: 'sign-ins' }, ",
    tests: [['idp/console/sign-in-days', 'each sign-in is counted once by several processes, and nothing before the first record']],
  },
];
