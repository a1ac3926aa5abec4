/**
 * A collection as one SQLite table: id, the document as JSON, and a copy of each declared field. The copies are ordinary
 * columns: with generated columns, SQLite rewrites every index on each change of the document.
 */
import type { Shape } from '../checks.js';
import {
  type Change,
  type Collection,
  EXACT_COUNT_LIMIT,
  nullIfTaken,
  UniqueViolation,
  type Value,
  type Where,
} from '../collection.js';
import { applyChange, pageOf, positionOf } from '../semantics.js';
import {
  ALL,
  and,
  createClauses,
  indexesOf,
  memoize,
  quoteIdentifier,
  type Clause as SqlClause,
  textIndexOf,
} from '../sql.js';
import type { Connection } from './connection.js';
import { estimateRows } from './estimate.js';
import type { SqliteWrite } from './writes.js';

/** Documents per write step of `updateMany` and `deleteMany`, so that other calls run in between. */
const STEP_SIZE = 256;

/** With a bare `LIMIT ?`, SQLite prepares the statement again each time a value is bound. */
const LIMIT = 'LIMIT ? + 0';

type Clause = SqlClause<string | number>;

/** Converts booleans to 1 and 0, as `json_extract` does: SQLite has no booleans. */
function toSqlValue<V extends Value | null>(value: V): Exclude<V, boolean> | number {
  return typeof value === 'boolean' ? Number(value) : (value as Exclude<V, boolean>);
}

const { clauseOf, conditionsAfter } = createClauses<string | number>({
  toSqlValue,
  isOneOf: (column) => `${column} IN (SELECT value FROM json_each(?))`,
  toList: (values) => JSON.stringify(values),
});

/** A document and its rowid. */
interface Found<T> {
  doc: T;
  row: number;
}

/** Implements the port on one table; `exists` resolves once the table exists. */
export function sqliteCollection<T extends { id: string }>(
  shape: Shape,
  connection: Connection,
  exists: () => Promise<void> | undefined,
): Collection<T> {
  const table = quoteIdentifier(shape.name);
  const copied = declaredColumns(shape);
  const copyOf = (doc: T, field: string): string | number | null =>
    toSqlValue((doc as Record<string, Value | null>)[field] ?? null);
  const columns = ['id', 'doc', ...copied].map(quoteIdentifier);
  const rowOf = (doc: T) => [doc.id, JSON.stringify(doc), ...copied.map((field) => copyOf(doc, field))];
  const insert = `INSERT INTO ${table} (${columns}) VALUES (${columns.map(() => '?')})`;
  const remove = `DELETE FROM ${table} WHERE id = ?`;

  // Synchronous once the table exists: a call made before `close` must be queued before it.
  const ready = <R>(call: () => Promise<R>): Promise<R> => exists()?.then(call) ?? call();
  const read = <R>(step: () => R): Promise<R> => ready(() => connection.read(step));
  const write = <R>(step: () => R): Promise<R> =>
    ready(() => connection.write(() => translateUniqueViolation(shape.name, step)));
  // Field names cannot begin with an underscore, so `_rowid_` never collides.
  const selectOne = memoize(
    (where: string) => `SELECT doc, _rowid_ AS row FROM ${table} WHERE ${where} LIMIT 1`,
  );
  const find = ({ text, values }: Clause): Found<T> | null => {
    const found = connection.sql<{ doc: string; row: number }>(selectOne(text)).get(...values);
    return found ? { doc: JSON.parse(found.doc), row: found.row } : null;
  };
  // Selecting a second column makes reading a row 20 % slower.
  const selectDoc = memoize((where) => `SELECT doc FROM ${table} WHERE ${where} LIMIT 1`);
  const first = ({ text, values }: Clause): T | null => {
    const found = connection.sql<{ doc: string }>(selectDoc(text)).get(...values);
    return found ? JSON.parse(found.doc) : null;
  };
  const update = memoize((assignments) => `UPDATE ${table} SET ${assignments} WHERE _rowid_ = ?`);
  const writeDocument = ({ doc, row }: Found<T>, after: T): void => {
    let assignments = 'doc = ?';
    const values: (string | number | null)[] = [JSON.stringify(after)];
    for (const field of copied) {
      const copy = copyOf(after, field);
      // Unchanged columns are left out, so that SQLite does not touch their indexes.
      if (copy === copyOf(doc, field)) continue;
      assignments += `, ${quoteIdentifier(field)} = ?`;
      values.push(copy);
    }
    connection.sql(update(assignments)).run(...values, row);
  };
  const changeFirst = (clause: Clause, change: Change<T>): T | null => {
    const found = find(clause);
    if (!found) return null;
    const after = applyChange(found.doc, change);
    writeDocument(found, after);
    return after;
  };
  const deleteFirst = (clause: Clause): T | null => {
    const doc = first(clause);
    if (doc) connection.sql(remove).run(doc.id);
    return doc;
  };
  const inserted = (doc: T, text = insert) => {
    const row = rowOf(doc);
    return () => void connection.sql(text).run(...row);
  };
  const changed = (where: Where<T>, change: Change<T>) => {
    const clause = clauseOf(where);
    return () => changeFirst(clause, change) !== null;
  };
  const writing = (step: () => unknown): SqliteWrite => ({
    collection: shape.name,
    exists,
    step: () => translateUniqueViolation(shape.name, step),
  });
  const idsOf = ({ text, values }: Clause, limit: number): string[] => {
    const rows = connection
      .sql<{ id: string }>(`SELECT id FROM ${table} WHERE ${text} ${LIMIT}`)
      .all(...values, limit);
    return rows.map((row) => row.id);
  };

  const countAll = ({ text, values }: Clause): number =>
    connection.sql<{ n: number }>(`SELECT count(*) AS n FROM ${table} WHERE ${text}`).get(...values)?.n ?? 0;
  const countUpTo = ({ text, values }: Clause, limit: number): number =>
    connection
      .sql<{ n: number }>(`SELECT count(*) AS n FROM (SELECT 1 FROM ${table} WHERE ${text} ${LIMIT})`)
      .get(...values, limit)?.n ?? 0;

  return {
    insert: (doc) => write(inserted(doc)),

    async insertMany(docs) {
      const rows = docs.map(rowOf);
      const inserted = await write(() => {
        for (const row of rows) connection.sql(insert).run(...row);
        return true;
      }).catch(nullIfTaken);
      return inserted ?? false;
    },

    findOne(where) {
      const clause = clauseOf(where);
      return read(() => first(clause));
    },

    updateOne(where, change) {
      const clause = clauseOf(where);
      return write(() => changeFirst(clause, change));
    },

    changeOne: (where, change) => write(changed(where, change)),

    deleteOne(where) {
      const clause = clauseOf(where);
      return write(() => deleteFirst(clause));
    },

    async updateMany(where, change) {
      const clause = clauseOf(where);
      // Collect the ids first: a changed document may match again, or move in the order.
      const ids = await write(() => idsOf(clause, -1));
      let changed = 0;
      for (let from = 0; from < ids.length; from += STEP_SIZE) {
        changed += await write(() => {
          const changes = ids.slice(from, from + STEP_SIZE).flatMap((id) => {
            const found = find(and(clause, { text: 'id = ?', values: [id] }));
            return found ? [{ found, after: applyChange(found.doc, change) }] : [];
          });
          for (const { found, after } of changes) writeDocument(found, after);
          return changes.length;
        });
      }
      return changed;
    },

    async deleteMany(where) {
      const clause = clauseOf(where);
      for (let removed = 0; ; ) {
        const ids = await write(() => {
          const some = idsOf(clause, STEP_SIZE);
          for (const id of some) connection.sql(remove).run(id);
          return some;
        });
        removed += ids.length;
        if (ids.length < STEP_SIZE) return removed;
      }
    },

    async page({ where, sort, desc = false, after, limit }) {
      const base = clauseOf(where ?? {});
      const conditions: Clause[] =
        after === undefined ? [ALL] : conditionsAfter(sort, desc, positionOf(shape, sort, desc, after));
      // Required fields are unique: a tie-breaker would keep SQLite from using their index.
      const order = shape.required.has(sort) ? [sort] : [sort, 'id'];
      const orderBy = order.map((field) => `${quoteIdentifier(field)} ${desc ? 'DESC' : 'ASC'}`).join(', ');
      const docs = await read(() => {
        const found: T[] = [];
        for (const condition of conditions) {
          const { text, values } = and(base, condition);
          const statement = connection.sql<{ doc: string }>(
            `SELECT doc FROM ${table} WHERE ${text} ORDER BY ${orderBy} ${LIMIT}`,
          );
          // One more row than requested shows whether there is a next page.
          const rows = statement.all(...values, limit + 1 - found.length);
          found.push(...rows.map((row) => JSON.parse(row.doc)));
        }
        return found;
      });
      return pageOf(docs, { sort, desc, limit });
    },

    search(text, limit) {
      const index = quoteIdentifier(textIndexOf(shape));
      const statement = `SELECT doc FROM ${table} WHERE _rowid_ IN (SELECT rowid FROM ${index} WHERE ${index} MATCH ? ${LIMIT})`;
      // In quotation marks it is text, whatever characters it has.
      const phrase = `"${text.replaceAll('"', '""')}"`;
      return read(() =>
        connection
          .sql<{ doc: string }>(statement)
          .all(phrase, limit)
          .map(({ doc }): T => JSON.parse(doc)),
      );
    },

    count(where = {}, limit) {
      const clause = clauseOf(where);
      return read(() => (limit === undefined ? countAll(clause) : countUpTo(clause, limit)));
    },

    estimate() {
      return read(() => {
        const some = countUpTo(ALL, EXACT_COUNT_LIMIT + 1);
        if (some <= EXACT_COUNT_LIMIT) return { count: some, isExact: true };
        return { count: Math.max(some, estimateRows(connection, table)), isExact: false };
      });
    },

    inserting: (doc) => writing(inserted(doc)),

    ensuring: (doc) => writing(inserted(doc, `${insert} ON CONFLICT DO NOTHING`)),

    changing: (where, change) => writing(changed(where, change)),

    deleting(where) {
      const clause = clauseOf(where);
      return writing(() => deleteFirst(clause) !== null);
    },
  };
}

/** The fields that the table copies beside the document. */
function declaredColumns({ declared, text }: Shape): string[] {
  return [...new Set([...declared.keys(), ...text])].filter((field) => field !== 'id');
}

/** Creates the table, or adds newly declared columns and indexes. Runs under the write lock. */
export function createTable(connection: Connection, shape: Shape): void {
  const table = quoteIdentifier(shape.name);
  const run = (text: string): void => void connection.sql(text).run();
  const present = namesIn(connection, 'table_info', shape);
  // Untyped columns: with a type, SQLite would convert numeric text to a number.
  const columns = declaredColumns(shape)
    .filter((field) => !present.has(field))
    .map(quoteIdentifier);
  if (present.size === 0) {
    run(
      `CREATE TABLE ${table} (${['id TEXT PRIMARY KEY NOT NULL', 'doc TEXT NOT NULL', ...columns].join(', ')})`,
    );
  } else if (columns.length > 0) {
    for (const column of columns) run(`ALTER TABLE ${table} ADD COLUMN ${column}`);
    fillCopies(run, shape);
  }
  for (const { name, isUnique, fields, where } of indexesOf(shape)) {
    const kind = isUnique ? 'UNIQUE INDEX' : 'INDEX';
    run(
      `CREATE ${kind} IF NOT EXISTS ${quoteIdentifier(name)} ON ${table} (${fields.map(quoteIdentifier).join(', ')})${where}`,
    );
  }
  if (!hasTextIndex(connection, shape)) createTextIndex(run, shape);
}

/** Whether `createTable` would have nothing to add. */
export function hasTable(connection: Connection, shape: Shape): boolean {
  const indexes = namesIn(connection, 'index_list', shape);
  return (
    hasColumns(connection, shape) &&
    indexesOf(shape).every(({ name }) => indexes.has(name)) &&
    hasTextIndex(connection, shape)
  );
}

function hasTextIndex(connection: Connection, shape: Shape): boolean {
  const tables = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?";
  return shape.text.length === 0 || connection.sql(tables).get(textIndexOf(shape)) !== undefined;
}

/**
 * Creates the index of the trigrams of texts, with what a table contains already. Triggers maintain it, so that processes of an older
 * version do as well. They read the current row, because the columns may be filled by triggers, too.
 */
function createTextIndex(run: (text: string) => void, shape: Shape): void {
  const name = textIndexOf(shape);
  const table = quoteIdentifier(shape.name);
  const index = quoteIdentifier(name);
  const columns = shape.text.map(quoteIdentifier).join(', ');
  const fill = `INSERT INTO ${index} (rowid, ${columns}) SELECT _rowid_, ${columns} FROM ${table}`;
  run(
    `CREATE VIRTUAL TABLE ${index} USING fts5(${columns}, content='', contentless_delete=1, tokenize='trigram')`,
  );
  run(fill);
  // Deleted personal data leaves the file soon: by default, only when a tenth of a segment is deleted.
  run(`INSERT INTO ${index} (${index}, rank) VALUES ('deletemerge', 1)`);
  const remove = (row: string) => `DELETE FROM ${index} WHERE rowid = ${row}._rowid_`;
  const add = `${fill} WHERE _rowid_ = new._rowid_`;
  for (const [event, steps] of [
    ['INSERT', [remove('new'), add]],
    [`UPDATE OF ${columns}`, [remove('new'), add]],
    ['DELETE', [remove('old')]],
  ] as const) {
    const trigger = quoteIdentifier(`${name} ${event.split(' ')[0]}`);
    run(`CREATE TRIGGER ${trigger} AFTER ${event} ON ${table} BEGIN ${steps.join('; ')}; END`);
  }
}

/** Whether the table exists and has a column for every declared field. */
export function hasColumns(connection: Connection, shape: Shape): boolean {
  const columns = namesIn(connection, 'table_info', shape);
  return ['id', 'doc', ...declaredColumns(shape)].every((field) => columns.has(field));
}

function namesIn(connection: Connection, list: 'table_info' | 'index_list', shape: Shape): Set<string> {
  const rows = connection.sql<{ name: string }>(`SELECT name FROM pragma_${list}(?)`).all(shape.name);
  return new Set(rows.map(({ name }) => name));
}

/**
 * Fills new columns from existing documents, and adds triggers that fill them for processes of an older version, which
 * opened the file before the columns were declared (rolling upgrades).
 */
function fillCopies(run: (text: string) => void, shape: Shape): void {
  const table = quoteIdentifier(shape.name);
  const copied = declaredColumns(shape);
  const copies = copied.map((field) => `${quoteIdentifier(field)} = json_extract(doc, '$.${field}')`);
  run(`UPDATE ${table} SET ${copies}`);
  const differ = copied.map(
    (field) => `new.${quoteIdentifier(field)} IS NOT json_extract(new.doc, '$.${field}')`,
  );
  for (const event of ['INSERT', 'UPDATE OF doc']) {
    const trigger = quoteIdentifier(`${shape.name} ${event}`);
    run(`DROP TRIGGER IF EXISTS ${trigger}`);
    run(
      `CREATE TRIGGER ${trigger} AFTER ${event} ON ${table} WHEN ${differ.join(' OR ')} ` +
        `BEGIN UPDATE ${table} SET ${copies} WHERE _rowid_ = new._rowid_; END`,
    );
  }
}

function translateUniqueViolation<R>(collection: string, step: () => R): R {
  try {
    return step();
  } catch (error) {
    const field = /^UNIQUE constraint failed: \w+\.(\w+)$/.exec((error as Error).message)?.[1];
    throw field ? new UniqueViolation(collection, field, { cause: error }) : error;
  }
}
