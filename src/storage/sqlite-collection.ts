/** A collection as one SQLite table: id, the document as JSON, declared fields as generated columns. */
import type { Shape } from './checks.js';
import { type Collection, UniqueViolation, type Value, type Where } from './collection.js';
import { applyChange, conditionsOf, cursorAfter, type Position, positionOf } from './semantics.js';
import type { Connection } from './sqlite-connection.js';

interface Clause {
  text: string;
  values: (string | number)[];
}

/** Documents that one write step of a `Many` handles, so that other calls get their turn between. */
const MANY = 256;

const COMPARISON = { lt: '<', lte: '<=', gt: '>', gte: '>=' } as const;

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
          const pairs = ids.slice(from, from + MANY).flatMap((id) => {
            const doc = first(and(clause, { text: 'id = ?', values: [id] }));
            return doc ? [applyChange(doc, change)] : [];
          });
          for (const after of pairs) connection.sql(replace).run(JSON.stringify(after), after.id);
          return pairs.length;
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
      const order = `${quoted(sort)} ${desc ? 'DESC' : 'ASC'}, id ${desc ? 'DESC' : 'ASC'}`;
      const docs = await read(() => {
        const found: T[] = [];
        for (const span of spans) {
          const { text, values } = and(base, span);
          const statement = connection.sql<{ doc: string }>(
            `SELECT doc FROM ${table} WHERE ${text} ORDER BY ${order} LIMIT ?`,
          );
          // One more than asked for tells whether there is a next page.
          for (const row of statement.all(...values, limit + 1 - found.length))
            found.push(JSON.parse(row.doc));
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
  // Names with a dot and a space cannot meet: no field or collection has either.
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

const ALL: Clause = { text: 'TRUE', values: [] };

function clauseOf<T>(where: Where<T>): Clause {
  return conditionsOf(where).map(conditionClause).reduce(and, ALL);
}

function conditionClause([field, condition]: ReturnType<typeof conditionsOf>[number]): Clause {
  const column = quoted(field);
  if (condition === null) return { text: `${column} IS NULL`, values: [] };
  if (typeof condition !== 'object') return { text: `${column} = ?`, values: [bound(condition)] };
  if (condition.in) {
    // One parameter for any number of values, so that the statement stays the same.
    return { text: `${column} IN (SELECT value FROM json_each(?))`, values: [JSON.stringify(condition.in)] };
  }
  return Object.entries(condition)
    .map(([operator, value]) => comparison(column, COMPARISON[operator as keyof typeof COMPARISON], value))
    .reduce(and);
}

function comparison(column: string, operator: string, value: Value): Clause {
  return { text: `${column} ${operator} ?`, values: [bound(value)] };
}

/** What follows a position, in order. NULL stands before every value and compares with none. */
function spansAfter(sort: string, desc: boolean, { value, id }: Position): Clause[] {
  const column = quoted(sort);
  const than = desc ? '<' : '>';
  const nulls = { text: `${column} IS NULL`, values: [] };
  const rest = desc ? [] : [{ text: `${column} IS NOT NULL`, values: [] }];
  if (value === null) return [and(nulls, { text: `id ${than} ?`, values: [id] }), ...rest];
  const values = { text: `(${column}, id) ${than} (?, ?)`, values: [bound(value), id] };
  return desc ? [values, nulls] : [values];
}

function and(a: Clause, b: Clause): Clause {
  return { text: `${a.text} AND ${b.text}`, values: [...a.values, ...b.values] };
}

/** `json_extract` gives booleans as 1 and 0. */
function bound(value: Value): string | number {
  return typeof value === 'boolean' ? Number(value) : value;
}

function quoted(name: string): string {
  return `"${name}"`;
}

function namingTheField<R>(collection: string, step: () => R): R {
  try {
    return step();
  } catch (error) {
    const field = /^UNIQUE constraint failed: \w+\.(\w+)$/.exec((error as Error).message)?.[1];
    throw field ? new UniqueViolation(collection, field, { cause: error }) : error;
  }
}
