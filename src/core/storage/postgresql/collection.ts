/**
 * A collection as one PostgreSQL table: id, the document, and a generated column for each declared field, which the database
 * computes itself. Every call is one round trip.
 */
import { createBatches } from '../batches.js';
import type { Shape } from '../checks.js';
import {
  type Change,
  type Collection,
  EXACT_COUNT_LIMIT,
  nullIfTaken,
  StoreUnavailable,
  type Where,
} from '../collection.js';
import { createLookups } from '../lookups.js';
import { compare, pageOf, positionOf } from '../semantics.js';
import { ALL, and, quoteIdentifier } from '../sql.js';
import type { PostgresqlWrite } from './commits.js';
import type { Connection, Send } from './connection.js';
import type { Row, Statement } from './pipeline.js';
import {
  arrayLiteral,
  type Clause,
  changedDocument,
  clauseOf,
  conditionsAfter,
  expectingOne,
  statement,
  toDocument,
  toStored,
  verified,
} from './query.js';
import { INDEXED, tableName, textColumns, textExpression, textFunctions } from './schema.js';

/** Documents per step of `updateMany` and `deleteMany`, so that none of them holds locks for long. */
const STEP_SIZE = 256;

/** Documents that a search reads first. */
const SAMPLE_SIZE = 2000;

/**
 * Implements the port on one table.
 *
 * @param schema that of the table
 * @param exists resolves once the table exists
 */
export function postgresqlCollection<T extends { id: string }>(
  shape: Shape,
  schema: string,
  connection: Pick<Connection, 'read' | 'write'>,
  exists: () => Promise<void> | undefined,
): Collection<T> {
  const table = tableName(schema, shape.name);
  const read = <R>(step: (send: Send) => Promise<R>): Promise<R> =>
    connection.read(async (send) => {
      await exists();
      return step(send);
    });
  const write = (made: Statement): Promise<Row[]> =>
    connection.write(async (send) => {
      await exists();
      const [rows = []] = await send(made);
      return rows;
    });
  const query = (made: Statement): Promise<Row[]> => read(async (send) => (await send(made))[0] ?? []);
  const lookUp = createLookups<T, Row>(
    'PostgreSQL',
    shape,
    (field, collect) =>
      read(async (send) => {
        const column = quoteIdentifier(field);
        const [rows = []] = await send({
          text: `SELECT id, doc, ${column} FROM ${table} WHERE ${column} = ANY($1)`,
          values: [arrayLiteral(await collect())],
        });
        return new Map(rows.map((row) => [row[2] as string, row]));
      }),
    toDocument,
  );
  const changeTogether = createBatches<Update, Map<Update, boolean> | null, boolean | null>(
    'PostgreSQL',
    (collect) =>
      connection
        .write(async (send) => {
          await exists();
          // Two calls that lock the same documents in the same order do not block each other.
          const updates = (await collect()).sort((one, other) => compare(one.id, other.id));
          const results = await send(...updates.map(({ statement }) => statement));
          return new Map(updates.map((update, index) => [update, (results[index] ?? []).length > 0]));
        })
        .catch(nullIfRefused),
    (changed, update) => changed?.get(update) ?? null,
  );
  const writing = (made: Statement): PostgresqlWrite => ({ collection: shape.name, exists, statement: made });
  /** A write of an existing document. */
  const writingOne = (where: Where<T>, made: Statement): PostgresqlWrite => {
    const { id } = where as { id?: unknown };
    return {
      ...writing(expectingOne(made, shape.name)),
      ...(typeof id === 'string' && { document: { table, id } }),
    };
  };

  /** Selects one matching document, which is locked, and whose conditions are checked again if another transaction had locked it. */
  const oneOf = (where: Where<T>): Clause => {
    const clause = clauseOf(where);
    const isKnown = [...shape.required].some(
      (field) => typeof (where as Record<string, unknown>)[field] === 'string',
    );
    if (isKnown) return clause;
    const { text, values } = clause;
    return and(
      { text: `id = (SELECT id FROM ${table} WHERE ${text} LIMIT 1 FOR NO KEY UPDATE)`, values },
      clause,
    );
  };
  const inserted = (doc: T): Statement =>
    statement(`INSERT INTO ${table} (id, doc) VALUES ({})`, { text: '?, ?', values: toStored(doc) });
  const changed = (clause: Clause, change: Change<T>, returning: string): Statement =>
    statement(
      `UPDATE ${table} SET doc = {} WHERE {} RETURNING ${returning}`,
      changedDocument(change),
      clause,
    );
  const deleted = (where: Where<T>, returning: string): Statement =>
    statement(`DELETE FROM ${table} WHERE {} RETURNING ${returning}`, oneOf(where));
  const firstOf = ([row]: Row[]): T | null => (row ? toDocument<T>(row) : null);

  return {
    async insert(doc) {
      await write(inserted(doc));
    },

    async insertMany(docs) {
      const stored = docs.map(toStored);
      const values = [stored.map(([id]) => id), stored.map(([, doc]) => doc)].map(arrayLiteral);
      const made = statement(`INSERT INTO ${table} (id, doc) SELECT * FROM unnest({})`, {
        text: '?::text[], ?::jsonb[]',
        values,
      });
      return (await write(made).catch(nullIfTaken)) !== null;
    },

    async findOne(where) {
      return (
        lookUp(where) ??
        firstOf(await query(statement(`SELECT id, doc FROM ${table} WHERE {} LIMIT 1`, clauseOf(where))))
      );
    },

    async updateOne(where, change) {
      return firstOf(await write(changed(oneOf(where), change, 'id, doc')));
    },

    async changeOne(where, change) {
      const made = changed(oneOf(where), change, '1');
      const { id } = where as { id?: unknown };
      const isChanged = typeof id === 'string' ? await changeTogether({ id, statement: made }) : null;
      return isChanged ?? (await write(made)).length > 0;
    },

    async deleteOne(where) {
      return firstOf(await write(deleted(where, 'id, doc')));
    },

    async updateMany(where, change) {
      const clause = clauseOf(where);
      // Collect the ids first: a changed document may match again.
      const found = await query(statement(`SELECT id FROM ${table} WHERE {}`, clause));
      // Two calls that lock the same documents in the same order do not block each other.
      const ids = found.map(([id]) => id as string).sort();
      let count = 0;
      for (let from = 0; from < ids.length; from += STEP_SIZE) {
        const some = { text: 'id = ANY(?)', values: [arrayLiteral(ids.slice(from, from + STEP_SIZE))] };
        count += (await write(changed(and(some, verified(clause)), change, '1'))).length;
      }
      return count;
    },

    async deleteMany(where) {
      const { id, ...others } = where as Where<{ id: string }>;
      const clause =
        id === undefined
          ? clauseOf(where)
          : and(clauseOf<{ id: string }>({ id }), verified(clauseOf(others)));
      const step = statement(
        `WITH found AS MATERIALIZED (SELECT id FROM ${table} WHERE {} LIMIT ${STEP_SIZE}),
          gone AS (DELETE FROM ${table} WHERE id = ANY(ARRAY(SELECT id FROM found)) AND {} RETURNING 1)
        SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM gone)`,
        clause,
        verified(clause),
      );
      for (let count = 0; ; ) {
        const [[found, removed] = []] = await write(step);
        count += Number(removed);
        // Others may have deleted some of those that were found.
        if (Number(found) < STEP_SIZE) return count;
      }
    },

    async page({ where, sort, desc = false, after, limit }) {
      const base = clauseOf(where ?? {});
      const conditions: Clause[] =
        after === undefined ? [ALL] : conditionsAfter(sort, desc, positionOf(shape, sort, desc, after));
      // The orders of the indexes. Required fields are unique and never null.
      const column = `${quoteIdentifier(sort)} ${desc ? 'DESC' : 'ASC'}`;
      const order = shape.required.has(sort)
        ? column
        : `${column} ${desc ? 'NULLS LAST' : 'NULLS FIRST'}, id ${desc ? 'DESC' : 'ASC'}`;
      // One more row than requested shows whether there is a next page. Each part is read from an index, up to the limit.
      const columns = [...new Set(['id', 'doc', sort])].map(quoteIdentifier).join(', ');
      const part = `(SELECT ${columns} FROM ${table} WHERE {} ORDER BY ${order} LIMIT ${limit + 1})`;
      const parts = conditions.map(() => part).join(' UNION ALL ');
      const rows = await query(
        statement(
          conditions.length === 1
            ? part
            : `SELECT * FROM (${parts}) AS parts ORDER BY ${order} LIMIT ${limit + 1}`,
          ...conditions.map((condition) => and(base, condition)),
        ),
      );
      return pageOf(rows.map(toDocument<T>), { sort, desc, limit });
    },

    async search(text, limit) {
      const { folded } = textFunctions(schema);
      const columns = textColumns(shape);
      const isWithin: Clause = {
        text: `(${columns.map((column) => `position(${folded}(?) in ${folded}(${column})) > 0`).join(' OR ')})`,
        values: columns.map(() => text),
      };
      const first = (from: string) => `SELECT id, doc FROM ${from} WHERE {} LIMIT ${limit}`;
      // A frequent text is in some of any documents, and the index would read all that have it.
      const sample = `(SELECT * FROM ${table} ORDER BY id LIMIT ${SAMPLE_SIZE}) AS sample`;
      const frequent = await query(statement(first(sample), isWithin));
      if (frequent.length === limit) return frequent.map(toDocument<T>);
      // The trigrams, which the index has, may be apart from each other, or in several fields.
      const isIndexed = {
        text: `${INDEXED} AND ${textExpression(schema, shape)} @> ${folded}(?)::text[]`,
        values: [arrayLiteral(trigramsIn(text))],
      };
      const found = statement(
        `(${first(table)}) UNION ALL (${first(table)}) LIMIT ${limit}`,
        and(isIndexed, isWithin),
        and({ text: `NOT ${INDEXED}`, values: [] }, isWithin),
      );
      const byIndex = { text: "SELECT set_config('enable_seqscan', 'off', true)", values: [] };
      const [, rows = []] = await read((send) => send(byIndex, found));
      return rows.map(toDocument<T>);
    },

    async count(where = {}, limit) {
      const clause = clauseOf(where);
      const made =
        limit === undefined
          ? statement(`SELECT count(*) FROM ${table} WHERE {}`, clause)
          : statement(
              `SELECT count(*) FROM (SELECT 1 FROM ${table} WHERE {} LIMIT ${limit}) AS found`,
              clause,
            );
      const [[count] = []] = await query(made);
      return Number(count);
    },

    async estimate() {
      const [[some, estimated] = []] = await query(estimateOf(table));
      const count = Number(some);
      if (count <= EXACT_COUNT_LIMIT) return { count, isExact: true };
      return { count: Math.max(count, Number(estimated)), isExact: false };
    },

    inserting: (doc) => writing(inserted(doc)),

    ensuring(doc) {
      const { text, values } = inserted(doc);
      return writing({ text: `${text} ON CONFLICT DO NOTHING`, values });
    },

    changing: (where, change) => writingOne(where, changed(oneOf(where), change, '1')),

    deleting: (where) => writingOne(where, deleted(where, '1')),
  };
}

/** So many that they contain each character of the text: the index reads the entries of each. */
function trigramsIn(text: string): string[] {
  const characters = [...text];
  const last = characters.length - 3;
  const places = characters.flatMap((_, place) =>
    (place % 3 === 0 && place < last) || place === last ? [place] : [],
  );
  return places.map((place) => characters.slice(place, place + 3).join(''));
}

/** A change of one document by its ID. Those that arrive together share a transaction, with its sync. */
interface Update {
  id: string;
  statement: Statement;
}

/** One of several changes was refused, which has undone all: the callers make them again, each alone. */
function nullIfRefused(error: unknown): null {
  if (error instanceof StoreUnavailable) throw error;
  return null;
}

/** The documents up to the limit, and beyond it the estimate of the planner: the density at the last analysis times the size. */
function estimateOf(table: string): Statement {
  return {
    text: `WITH found AS (SELECT count(*) AS n FROM (SELECT 1 FROM ${table} LIMIT ${EXACT_COUNT_LIMIT + 1}) AS first)
      SELECT n, CASE
        WHEN n <= ${EXACT_COUNT_LIMIT} THEN n
        WHEN reltuples <= 0 OR relpages = 0 THEN (SELECT count(*) FROM ${table})
        ELSE (reltuples / relpages * (pg_relation_size(oid) / current_setting('block_size')::int))::bigint
      END FROM found, pg_class WHERE oid = '${table}'::regclass`,
    values: [],
  };
}
