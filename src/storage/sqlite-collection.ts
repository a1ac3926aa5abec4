/** A collection as one SQLite table: id, the document as JSON, declared fields as generated columns. */
import type { Shape } from './checks.js';
import { type Collection, UniqueViolation } from './collection.js';
import { applyChange, cursorAfter, positionOf } from './semantics.js';
import type { Connection } from './sqlite-connection.js';
import { ALL, and, type Clause, clauseOf, quoted, spansAfter } from './sqlite-query.js';

/** Documents that one write step of a `Many` handles, so that other calls get their turn between. */
const MANY = 256;

/** The calls of the port on one table; `exists` resolves once the table is there. */
export function sqliteCollection<T extends { id: string }>(
  shape: Shape,
  connection: Connection,
  exists: () => Promise<void> | undefined,
): Collection<T> {
  const table = quoted(shape.name);
  const insert = `INSERT INTO ${table} (id, doc) VALUES (?, ?)`;
  const replace = `UPDATE ${table} SET doc = ? WHERE id = ?`;
  const remove = `DELETE FROM ${table} WHERE id = ?`;

  // Without a pause once the table is there: a call begun before `close` must be in the queue by then.
  const ready = <R>(call: () => Promise<R>): Promise<R> => exists()?.then(call) ?? call();
  const read = <R>(step: () => R): Promise<R> => ready(() => connection.read(step));
  const write = <R>(step: () => R): Promise<R> =>
    ready(() => connection.write(() => namingTheField(shape.name, step)));
  const first = ({ text, values }: Clause): T | null => {
    const row = connection
      .sql<{ doc: string }>(`SELECT doc FROM ${table} WHERE ${text} LIMIT 1`)
      .get(...values);
    return row ? JSON.parse(row.doc) : null;
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
      return write(() => void connection.sql(insert).run(doc.id, json));
    },

    findOne(where) {
      const clause = clauseOf(where);
      return read(() => first(clause));
    },

    updateOne(where, change) {
      const clause = clauseOf(where);
      return write(() => {
        const doc = first(clause);
        if (!doc) return null;
        const after = applyChange(doc, change);
        connection.sql(replace).run(JSON.stringify(after), doc.id);
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
          const docs = ids.slice(from, from + MANY).flatMap((id) => {
            const doc = first(and(clause, { text: 'id = ?', values: [id] }));
            return doc ? [applyChange(doc, change)] : [];
          });
          for (const after of docs) connection.sql(replace).run(JSON.stringify(after), after.id);
          return docs.length;
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

/** Creates the table, or adds to it what has been declared since. Runs under the write lock. */
export function createTable(connection: Connection, { name, unique, indexes, declared }: Shape): void {
  const table = quoted(name);
  const run = (text: string): void => void connection.sql(text).run();
  run(`CREATE TABLE IF NOT EXISTS ${table} (id TEXT PRIMARY KEY NOT NULL, doc TEXT NOT NULL)`);
  const columns = connection.sql<{ name: string }>('SELECT name FROM pragma_table_xinfo(?)').all(name);
  const present = new Set(columns.map((column) => column.name));
  for (const field of declared) {
    if (present.has(field)) continue;
    run(
      `ALTER TABLE ${table} ADD COLUMN ${quoted(field)} GENERATED ALWAYS AS (json_extract(doc, '$.${field}')) VIRTUAL`,
    );
  }
  // Neither fields nor collections have a dot or a space in their names, so these are unambiguous.
  for (const field of unique) {
    run(
      `CREATE UNIQUE INDEX IF NOT EXISTS ${quoted(`${name}.${field} unique`)} ON ${table} (${quoted(field)})`,
    );
  }
  for (const fields of indexes) {
    // The id at the end makes the order of `page` the order of the index.
    const list = [...new Set([...fields, 'id'])].map(quoted).join(', ');
    run(`CREATE INDEX IF NOT EXISTS ${quoted(`${name}.${fields.join('.')}`)} ON ${table} (${list})`);
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
