/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'a stream does not wait for its connection', file: 'core/http/streams.ts', in: 'text',
    replace: 'yield chunk; await drained(socket);', by: 'yield chunk;',
    tests: [['core/http/streams', 'requests that are pipelined after an unread stream do not cause it to be']],
  },
];
