/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'requests of a closed connection count as waiting', file: 'core/server/connections.ts', in: 'drop',
    replace: 'this.#waiting -= connection.waiting.length;', by: '',
    tests: [['core/server/connections', 'a client that pipelines thousands of requests and reads nothing']],
  },
];
