/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'two processes count one guess', file: 'core/throttle/counters.ts', in: 'add',
    replace: 'updateOne(unchanged(stored), { set: after })', by: 'updateOne({ id }, { set: after })',
    tests: [['core/throttle/throttle', 'concurrent guesses are counted before any is evaluated']],
  },
  {
    name: 'the account has no budget', file: 'core/throttle/guesses.ts', in: 'attempt',
    replace: 'const budgets = until > 0 ? [] : budgetsOf(account, ip);', by: 'const budgets = [];',
    tests: [['core/throttle/throttle', 'at most 100 guesses in any 24 hours are evaluated, from any number']],
  },
  {
    name: 'the delay of one address does not grow', file: 'core/throttle/limits.ts', in: 'next',
    replace: 'first * 2 ** (count - free)', by: 'first',
    tests: [['core/throttle/throttle', 'guesses from one address block never block the owner elsewhere']],
  },
  {
    name: 'all addresses share one counter', file: 'core/throttle/guesses.ts', in: 'attempt',
    replace: '{addressBlock(ip)}`, ip }', by: '{0}`, ip }',
    tests: [['core/throttle/throttle', 'guesses from one address block never block the owner elsewhere']],
  },
];
