/**
 * A collection as one SQLite table: id, the document as JSON, and a copy of each declared field. The copies are
 * ours to write, not generated: of a generated column SQLite rewrites every index with each change of the document.
 */
import type { Shape } from './checks.js';
import { type Collection, UniqueViolation, type Value } from './collection.js';
import { applyChange, cursorAfter, positionOf } from './semantics.js';
import type { Connection } from './sqlite-connection.js';
import { ALL, and, bound, type Clause, clauseOf, once, quoted, spansAfter } from './sqlite-query.js';

/** Documents that one write step of a `Many` handles, so that other calls get their turn between. */
const MANY = 256;

/** A document and the number by which SQLite finds it again at once. */
interface Found<T> {
  doc: T;
  row: number;
}

/** The calls of the port on one table; `exists` resolves once the table is there. */
export function sqliteCollection<T extends { id: string }>(
  shape: Shape,
  connection: Connection,
  exists: () => Promise<void> | undefined,
): Collection<T> {
  const table = quoted(shape.name);
  const copied = copiedFields(shape);
  const copyOf = (doc: T, field: string): string | number | null =>
    bound((doc as Record<string, Value | null>)[field] ?? null);
  const columns = ['id', 'doc', ...copied].map(quoted);
  const insert = `INSERT INTO ${table} (${columns}) VALUES (${columns.map(() => '?')})`;
  const remove = `DELETE FROM ${table} WHERE id = ?`;

  // Without a pause once the table is there: a call begun before `close` must be in the queue by then.
  const ready = <R>(call: () => Promise<R>): Promise<R> => exists()?.then(call) ?? call();
  const read = <R>(step: () => R): Promise<R> => ready(() => connection.read(step));
  const write = <R>(step: () => R): Promise<R> =>
    ready(() => connection.write(() => namingTheField(shape.name, step)));
  // No field can be called `_rowid_`.
  const selectOne = once(
    (where: string) => `SELECT doc, _rowid_ AS row FROM ${table} WHERE ${where} LIMIT 1`,
  );
  const find = ({ text, values }: Clause): Found<T> | null => {
    const found = connection.sql<{ doc: string; row: number }>(selectOne(text)).get(...values);
    return found ? { doc: JSON.parse(found.doc), row: found.row } : null;
  };
  // A second column makes reading a row a fifth dearer.
  const selectDoc = once((where) => `SELECT doc FROM ${table} WHERE ${where} LIMIT 1`);
  const first = ({ text, values }: Clause): T | null => {
    const found = connection.sql<{ doc: string }>(selectDoc(text)).get(...values);
    return found ? JSON.parse(found.doc) : null;
  };
  const update = once((assignments) => `UPDATE ${table} SET ${assignments} WHERE _rowid_ = ?`);
  const put = ({ doc, row }: Found<T>, after: T): void => {
    let assignments = 'doc = ?';
    const values: (string | number | null)[] = [JSON.stringify(after)];
    for (const field of copied) {
      const copy = copyOf(after, field);
      // What stays the same is left out, and so SQLite leaves its indexes alone.
      if (copy === copyOf(doc, field)) continue;
      assignments += `, ${quoted(field)} = ?`;
      values.push(copy);
    }
    connection.sql(update(assignments)).run(...values, row);
  };
  const idsOf = ({ text, values }: Clause, limit: number): string[] => {
    const rows = connection
      .sql<{ id: string }>(`SELECT id FROM ${table} WHERE ${text} LIMIT ?`)
      .all(...values, limit);
    return rows.map((row) => row.id);
  };

  return {
    insert(doc) {
      const json = JSON.stringify(doc);
      return write(
        () => void connection.sql(insert).run(doc.id, json, ...copied.map((field) => copyOf(doc, field))),
      );
    },

    findOne(where) {
      const clause = clauseOf(where);
      return read(() => first(clause));
    },

    updateOne(where, change) {
      const clause = clauseOf(where);
      return write(() => {
        const found = find(clause);
        if (!found) return null;
        const after = applyChange(found.doc, change);
        put(found, after);
        return after;
      });
    },

    deleteOne(where) {
      const clause = clauseOf(where);
      return write(() => {
        const doc = first(clause);
        if (doc) connection.sql(remove).run(doc.id);
        return doc;
      });
    },

    async updateMany(where, change) {
      const clause = clauseOf(where);
      // The ids first: a changed document may match again, or appear elsewhere in the order.
      const ids = await write(() => idsOf(clause, -1));
      let changed = 0;
      for (let from = 0; from < ids.length; from += MANY) {
        changed += await write(() => {
          const changes = ids.slice(from, from + MANY).flatMap((id) => {
            const found = find(and(clause, { text: 'id = ?', values: [id] }));
            return found ? [{ found, after: applyChange(found.doc, change) }] : [];
          });
          for (const { found, after } of changes) put(found, after);
          return changes.length;
        });
      }
      return changed;
    },

    async deleteMany(where) {
      const clause = clauseOf(where);
      for (let removed = 0; ; ) {
        const ids = await write(() => {
          const some = idsOf(clause, MANY);
          for (const id of some) connection.sql(remove).run(id);
          return some;
        });
        removed += ids.length;
        if (ids.length < MANY) return removed;
      }
    },

    async page({ where, sort, desc = false, after, limit }) {
      const base = clauseOf(where ?? {});
      const spans =
        after === undefined ? [ALL] : spansAfter(sort, desc, positionOf(shape, sort, desc, after));
      // Required fields are unique: a tie-breaker would only keep SQLite from their index.
      const order = shape.required.has(sort) ? [sort] : [sort, 'id'];
      const orderBy = order.map((field) => `${quoted(field)} ${desc ? 'DESC' : 'ASC'}`).join(', ');
      const docs = await read(() => {
        const found: T[] = [];
        for (const span of spans) {
          const { text, values } = and(base, span);
          const statement = connection.sql<{ doc: string }>(
            `SELECT doc FROM ${table} WHERE ${text} ORDER BY ${orderBy} LIMIT ?`,
          );
          // One more than asked for tells whether there is a next page.
          const rows = statement.all(...values, limit + 1 - found.length);
          found.push(...rows.map((row) => JSON.parse(row.doc)));
        }
        return found;
      });
      const items = docs.slice(0, limit);
      const last = items.at(-1);
      return { items, next: last && docs.length > limit ? cursorAfter(sort, desc, last) : null };
    },

    count(where = {}) {
      const { text, values } = clauseOf(where);
      return read(() => {
        const row = connection
          .sql<{ n: number }>(`SELECT count(*) AS n FROM ${table} WHERE ${text}`)
          .get(...values);
        return row?.n ?? 0;
      });
    },
  };
}

/** The fields of which the table has a copy beside the document. */
function copiedFields({ declared }: Shape): string[] {
  return [...declared].filter((field) => field !== 'id');
}

/** Creates the table, or adds to it what has been declared since. Runs under the write lock. */
export function createTable(connection: Connection, shape: Shape): void {
  const { name } = shape;
  const table = quoted(name);
  const run = (text: string): void => void connection.sql(text).run();
  const columns = connection.sql<{ name: string }>('SELECT name FROM pragma_table_info(?)').all(name);
  run(`CREATE TABLE IF NOT EXISTS ${table} (id TEXT PRIMARY KEY NOT NULL, doc TEXT NOT NULL)`);
  const present = new Set(columns.map((column) => column.name));
  const added = copiedFields(shape).filter((field) => !present.has(field));
  // Without a type, or SQLite would take the text of a number for the number.
  for (const field of added) run(`ALTER TABLE ${table} ADD COLUMN ${quoted(field)}`);
  // Where the table is new, nobody can have begun to use it with fewer fields.
  if (added.length > 0 && columns.length > 0) copyInto(run, shape);
  for (const { name, kind, fields } of indexesOf(shape)) {
    run(`CREATE ${kind} IF NOT EXISTS ${quoted(name)} ON ${table} (${fields.map(quoted).join(', ')})`);
  }
}

/** Whether there is nothing that `createTable` would add. */
export function hasTable(connection: Connection, shape: Shape): boolean {
  const namesIn = (list: string) => {
    const rows = connection.sql<{ name: string }>(`SELECT name FROM pragma_${list}(?)`).all(shape.name);
    return new Set(rows.map(({ name }) => name));
  };
  const [columns, indexes] = [namesIn('table_info'), namesIn('index_list')];
  return (
    ['id', 'doc', ...shape.declared].every((field) => columns.has(field)) &&
    indexesOf(shape).every(({ name }) => indexes.has(name))
  );
}

/** Neither fields nor collections have a dot or a space in their names, so these are unambiguous. */
function indexesOf({ name, unique, indexes }: Shape) {
  return [
    ...unique.map((field) => ({ name: `${name}.${field} unique`, kind: 'UNIQUE INDEX', fields: [field] })),
    // The id at the end makes the order of `page` the order of the index.
    ...indexes.map((fields) => ({
      name: `${name}.${fields.join('.')}`,
      kind: 'INDEX',
      fields: [...new Set([...fields, 'id'])],
    })),
  ];
}

/**
 * Fills the copies of what is there already, and has SQLite correct those that a process has left out which opened
 * the file before they were declared: of an older version, while its machines are brought up to date one by one.
 */
function copyInto(run: (text: string) => void, shape: Shape): void {
  const table = quoted(shape.name);
  const copied = copiedFields(shape);
  const copies = copied.map((field) => `${quoted(field)} = json_extract(doc, '$.${field}')`);
  run(`UPDATE ${table} SET ${copies}`);
  const differ = copied.map((field) => `new.${quoted(field)} IS NOT json_extract(new.doc, '$.${field}')`);
  for (const event of ['INSERT', 'UPDATE OF doc']) {
    const trigger = quoted(`${shape.name} ${event}`);
    run(`DROP TRIGGER IF EXISTS ${trigger}`);
    run(
      `CREATE TRIGGER ${trigger} AFTER ${event} ON ${table} WHEN ${differ.join(' OR ')} ` +
        `BEGIN UPDATE ${table} SET ${copies} WHERE _rowid_ = new._rowid_; END`,
    );
  }
}

function namingTheField<R>(collection: string, step: () => R): R {
  try {
    return step();
  } catch (error) {
    const field = /^UNIQUE constraint failed: \w+\.(\w+)$/.exec((error as Error).message)?.[1];
    throw field ? new UniqueViolation(collection, field, { cause: error }) : error;
  }
}
