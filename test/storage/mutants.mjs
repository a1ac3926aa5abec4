import { runMutants } from '../mutants.mjs';

// Breaks the engines, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

/** Test file and the beginning of a test's name. */
const SQLITE = {
  races: ['sqlite', 'sqlite: races'],
  refusals: ['sqlite', 'sqlite: refusals'],
  series: ['sqlite', 'sqlite: series'],
};
const MONGODB = {
  documents: ['mongodb', 'mongodb: documents'],
  lists: ['mongodb', 'mongodb: lists'],
  races: ['mongodb', 'mongodb: races'],
  refusals: ['mongodb', 'mongodb: refusals'],
  series: ['mongodb', 'mongodb: series'],
};

const mutants = [
  {
    name: 'SQLite: updateOne reads, and then writes under the lock what it has read',
    file: 'sqlite/collection.js',
    text: `updateOne(where, change) {
            const clause = clauseOf(where);
            return write(() => changeFirst(clause, change));`,
    replacement: `async updateOne(where, change) {
            const clause = clauseOf(where);
            const found = await read(() => find(clause));
            const after = found && applyChange(found.doc, change);
            return write(() => {
                if (found) writeDocument(found, after);
                return after;
            });`,
    tests: [SQLITE.races],
  },
  {
    name: 'SQLite: a transaction takes the write lock only when it writes',
    file: 'sqlite/connection.js',
    text: "'BEGIN IMMEDIATE'",
    replacement: "'BEGIN'",
    tests: [SQLITE.races],
  },
  {
    name: 'SQLite: commits are not synced',
    file: 'sqlite/store.js',
    text: 'synchronous = FULL',
    replacement: 'synchronous = OFF',
    tests: [['sqlite', 'the file is intact after a kill, and commits are synced']],
  },
  {
    name: 'SQLite: writes are acknowledged before their commit',
    file: 'sqlite/connection.js',
    text: `this.sql('COMMIT').run();
            commits++;
            for (const resolveWrite of settle)
                resolveWrite();`,
    replacement: `for (const resolveWrite of settle)
                resolveWrite();
            this.sql('COMMIT').run();`,
    tests: [['sqlite', 'when a commit fails, every write in it is refused']],
  },
  {
    name: 'SQLite: work begins without a document to change',
    file: 'sqlite/collection.js',
    text: 'if (isChanged && meanwhile)',
    replacement: 'if (meanwhile)',
    tests: [['sqlite', 'work of a change begins once, before the commit, and not without a document']],
  },
  {
    name: 'SQLite: work begins again when a transaction is repeated',
    file: 'sqlite/connection.js',
    text: `        this.#meanwhile = [];
        try`,
    replacement: '        try',
    tests: [['sqlite', 'work of a change begins once, before the commit, and not without a document']],
  },
  {
    name: 'SQLite: a series of writes that fails leaves those before it',
    file: 'sqlite/writes.js',
    text: `run('ROLLBACK TO "all writes"');`,
    replacement: '',
    tests: [SQLITE.series],
  },
  {
    name: 'SQLite: a series of writes that fails is not repeated with a savepoint',
    file: 'sqlite/writes.js',
    text: 'throw new UndoRequired();',
    replacement: 'return false;',
    tests: [SQLITE.series],
  },
  {
    name: 'SQLite: a document that was changed since is replaced',
    file: 'sqlite/collection.js',
    text: 'replace(before, after, clause) > 0',
    replacement: "replace(before, after, { text: 'id = ?', values: [before.id] }) > 0",
    tests: [SQLITE.series],
  },
  {
    name: 'SQLite: a replaced document is still found by its earlier values',
    file: 'sqlite/collection.js',
    text: 'if (copy === copyOf(doc, field))',
    replacement: 'if (copy === null || copy === copyOf(doc, field))',
    tests: [SQLITE.series],
  },
  {
    name: 'SQLite: a series of writes is one transaction for each',
    file: 'sqlite/writes.js',
    text: 'connection.write((isUndoable) => (isUndoable ? makeOrUndo(connection, writes) : makeAll(writes)))',
    replacement: `(async () => {
        for (const write of writes) if (!(await connection.write(() => makeOrUndo(connection, [write])))) return false;
        return true;
    })()`,
    tests: [SQLITE.series],
  },
  {
    name: 'SQLite: an insertion follows a change that matched no document',
    file: 'sqlite/writes.js',
    text: 'writes.every(({ step }) => step())',
    replacement: 'writes.map(({ step }) => step()).includes(true)',
    tests: [SQLITE.series],
  },
  {
    name: 'MongoDB: the writes of a series are sent at the same time',
    file: 'mongodb/writes.js',
    text: `for (const write of writes)
        if (!(await write.make()))
            return false;
    return true;`,
    replacement: 'return (await Promise.all(writes.map((write) => write.make()))).every((isMade) => isMade);',
    tests: [MONGODB.series],
  },
  {
    name: 'both: a filter may ask for undefined',
    file: 'checks.js',
    text: `export function valueProblem(value) {
    if (typeof value === 'boolean')`,
    replacement: `export function valueProblem(value) {
    if (typeof value === 'boolean' || value === undefined)`,
    tests: [SQLITE.refusals, MONGODB.refusals],
  },
  {
    name: 'MongoDB: updateOne reads, and then writes what it has read',
    file: 'mongodb/collection.js',
    text: 'await collection.findOneAndUpdate(and(filter, ...guards), ',
    replacement: `await collection.findOneAndUpdate(
                        { _id: (await collection.findOne(and(filter, ...guards)))?._id ?? '' }, `,
    tests: [MONGODB.races],
  },
  {
    name: 'MongoDB: a change without a match is not rejected',
    file: 'mongodb/updates.js',
    text: 'updateOne: { ...update, upsert: true }',
    replacement: 'updateOne: update',
    tests: [MONGODB.documents],
  },
  {
    name: 'MongoDB: a change without a match inserts a document',
    file: 'mongodb/query.js',
    text: '...(matchesWithoutFields ? [IS_STORED] : []),',
    replacement: '',
    tests: [MONGODB.documents],
  },
  {
    name: 'MongoDB: a change is made whatever the conditions are',
    file: 'mongodb/query.js',
    text: '{ $cond: [{ $and: comparisons }, result, NO_MATCH] }',
    replacement: 'result',
    tests: [MONGODB.races, MONGODB.lists],
  },
  {
    name: 'MongoDB: a change compares null with values',
    file: 'mongodb/query.js',
    text: 'excludesNull ? comparisons : [{ $gt: [field, null] }, ...comparisons]',
    replacement: 'comparisons',
    tests: [MONGODB.lists],
  },
  {
    name: 'MongoDB: a change counts beyond safe integers',
    file: 'mongodb/query.js',
    text: '...counted.map(([field, amount]) => isCountable(`$${field}`, amount)),',
    replacement: '',
    tests: [MONGODB.documents],
  },
  {
    name: 'MongoDB: text of a change is evaluated',
    file: 'mongodb/query.js',
    text: '{ $literal: encoded(set) }',
    replacement: 'encoded(set)',
    tests: [MONGODB.documents],
  },
  {
    name: 'MongoDB: text of a condition is evaluated',
    file: 'mongodb/query.js',
    text: '[{ $eq: [field, { $literal: condition }] }]',
    replacement: '[{ $eq: [field, condition] }]',
    tests: [MONGODB.documents],
  },
  {
    name: 'MongoDB: every rejected change counts as one without a match',
    file: 'mongodb/updates.js',
    text: "code === CONVERSION_FAILURE ? 'unmatched' : 'rejected'",
    replacement: "'unmatched'",
    tests: [MONGODB.documents],
  },
  {
    name: 'MongoDB: an error of a command is attributed to its first write',
    file: 'mongodb/connection.js',
    text: 'writes[index], code',
    replacement: 'writes[0], code',
    tests: [MONGODB.documents],
  },
  {
    name: 'MongoDB: a command is sent at the end of the turn, however few calls share it',
    file: 'mongodb/batches.js',
    text: 'while (!batcher.shouldSend(batch.calls.length))',
    replacement: 'while (false)',
    tests: [['mongodb-batches', 'after many calls, a call waits some turns']],
  },
  {
    name: 'a batch waits for more calls without a limit of time',
    file: 'call-batcher.js',
    text: ' && this.#now() - this.#since < MAX_WAIT_MS',
    replacement: '',
    tests: [['mongodb-batches', 'a batch waits for more calls only as long']],
  },
  {
    name: 'MongoDB: writes of a command are acknowledged without the write concern',
    file: 'mongodb/connection.js',
    text: 'errors.length === 0 || result?.getWriteConcernError()',
    replacement: 'errors.length === 0',
    tests: [['mongodb-batches', 'without the write concern, no write of a command']],
  },
  {
    name: 'MongoDB: writes are acknowledged before a majority has journalled them',
    file: 'mongodb/store.js',
    text: "w: 'majority', j: true,",
    replacement: 'w: 1, j: false,',
    tests: [['mongodb', "a host's client is used and left open"]],
  },
];

runMutants('storage', mutants);
