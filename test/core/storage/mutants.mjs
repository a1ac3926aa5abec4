/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'SQLite: updateOne reads, and then writes under the lock what it has read',
    file: 'core/storage/sqlite/collection.ts', in: 'updateOne',
    replace: 'updateOne(where, change) { const clause = clauseOf(where); return write(() => changeFirst(clause, change));',
    by: 'async updateOne(where, change) { const clause = clauseOf(where); const found = await read(() => find(clause)); const after = found && applyChange(found.doc, change); return write(() => { if (found) writeDocument(found, after); return after; });',
    tests: [['core/storage/sqlite', 'sqlite: races']],
  },
  {
    name: 'SQLite: a transaction takes the write lock only when it writes',
    file: 'core/storage/sqlite/connection.ts', in: 'commitBatch',
    replace: "'BEGIN IMMEDIATE'", by: "'BEGIN'",
    tests: [['core/storage/sqlite', 'sqlite: races']],
  },
  {
    name: 'SQLite: commits are not synced', file: 'core/storage/sqlite/store.ts', in: 'PRAGMAS',
    replace: 'synchronous = FULL', by: 'synchronous = OFF',
    tests: [['core/storage/sqlite', 'the file is intact after a kill, and commits are synced']],
  },
  {
    name: 'SQLite: writes are acknowledged before their commit', file: 'core/storage/sqlite/connection.ts',
    in: 'commitBatch',
    replace: "this.sql('COMMIT').run(); for (const resolveWrite of settle) resolveWrite();",
    by: "for (const resolveWrite of settle) resolveWrite(); this.sql('COMMIT').run();",
    tests: [['core/storage/sqlite', 'when a commit fails, every write in it is refused']],
  },
  {
    name: 'both: a filter may ask for undefined', file: 'core/storage/checks.ts', in: 'valueProblem',
    replace: 'if (typeof value !== type)', by: 'if (value !== undefined && typeof value !== type)',
    tests: [['core/storage/sqlite', 'sqlite: refusals'], ['core/storage/mongodb', 'mongodb: refusals']],
  },
  {
    name: 'MongoDB: updateOne reads, and then writes what it has read',
    file: 'core/storage/mongodb/collection.ts', in: 'updateOne',
    replace: 'await collection.findOneAndUpdate(filter,',
    by: "await collection.findOneAndUpdate( { _id: (await collection.findOne(filter))?._id ?? '' }, ",
    tests: [['core/storage/mongodb', 'mongodb: races']],
  },
  {
    name: 'MongoDB: a change is made whatever the conditions are', file: 'core/storage/mongodb/query.ts',
    in: 'toStages',
    replace: '{ $cond: [{ $and: comparisons }, result, NO_MATCH] }', by: 'result',
    tests: [['core/storage/mongodb', 'mongodb: races']],
  },
  {
    name: 'MongoDB: text of a condition is evaluated', file: 'core/storage/mongodb/query.ts',
    in: 'comparisonsOf',
    replace: '[{ $eq: [field, { $literal: condition }] }]', by: '[{ $eq: [field, condition] }]',
    tests: [['core/storage/mongodb', 'mongodb: documents']],
  },
  {
    name: 'MongoDB: writes are acknowledged before a majority has journalled them',
    file: 'core/storage/mongodb/store.ts', in: 'COLLECTION_OPTIONS',
    replace: "w: 'majority', j: true,", by: 'w: 1, j: false,',
    tests: [['core/storage/mongodb', "a host's client is used and left open"]],
  },
  {
    name: 'PostgreSQL: a commit does not depend on the marker of the one before',
    file: 'core/storage/postgresql/commits.ts', in: 'createCommits',
    replace: 'WHERE held.marker = $2 RETURNING 1', by: 'WHERE $2::text IS NOT NULL RETURNING 1',
    tests: [['core/storage/postgresql', 'a commit is made once, whenever its connection is lost']],
  },
  {
    name: 'PostgreSQL: conditions are checked before the lock only', file: 'core/storage/postgresql/collection.ts',
    in: 'postgresqlCollection',
    replace: 'if (isKnown) return clause;',
    by: "return { text: 'id = (SELECT id FROM ' + table + ' WHERE ' + clause.text + ' LIMIT 1)', values: clause.values };",
    tests: [['core/storage/postgresql', 'postgresql: races']],
  },
  {
    name: 'PostgreSQL: the server waits for a lock after the end of the call',
    file: 'core/storage/postgresql/connection.ts', in: 'PRELUDE',
    replace: "set_config('statement_timeout', $1, true)", by: '$1::text',
    tests: [['core/storage/postgresql', 'what waits for a lock ends with its call and has no effect afterwards']],
  },
  {
    name: 'PostgreSQL: sslmode=require checks no certificate', file: 'core/storage/postgresql/pool.ts', in: 'openSource',
    replace: "set('sslmode', 'verify-full')", by: "set('sslmode', 'no-verify')",
    tests: [['core/storage/postgresql-connections', 'each sslmode that encrypts checks the certificate and the name of the server']],
  },
  {
    name: 'PostgreSQL: trigrams that are apart count as a text', file: 'core/storage/postgresql/collection.ts', in: 'search',
    replace: 'and(isIndexed, isWithin)', by: 'isIndexed',
    tests: [['core/storage/postgresql', 'postgresql: searches']],
  },
  {
    name: 'MongoDB: a change leaves the parts of the text before', file: 'core/storage/mongodb/query.ts', in: 'settingOf',
    replace: 'partsOf(touched, set)', by: 'partsOf([], set)',
    tests: [['core/storage/mongodb', 'mongodb: searches']],
  },
  {
    name: 'SQLite: a deleted text is still in the index', file: 'core/storage/sqlite/collection.ts', in: 'createTextIndex',
    replace: "['DELETE', [remove('old')]],", by: '',
    tests: [['core/storage/sqlite', 'sqlite: searches']],
  },
  {
    name: 'PostgreSQL: rows that are not in the index yet are not found', file: 'core/storage/postgresql/collection.ts', in: 'search',
    replace: 'and({ text: `NOT ', by: 'and({ text: `false AND NOT ',
    tests: [['core/storage/postgresql', 'postgresql: searches']],
  },
  {
    name: 'MongoDB: documents without parts are not found', file: 'core/storage/mongodb/query.ts', in: 'textFilter',
    replace: '[isPart, null]', by: '[isPart]',
    tests: [['core/storage/mongodb', 'mongodb: searches']],
  },
];
