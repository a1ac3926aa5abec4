/** The tables of a schema: what is there, and the statements that create what is missing. */
import type { Shape, ShapeView } from '../checks.js';
import { StoreUnavailable } from '../collection.js';
import { indexesOf, quoteIdentifier, textIndexOf } from '../sql.js';
import type { Connection, Send } from './connection.js';
import { isServerError } from './errors.js';
import type { Statement } from './pipeline.js';
import { COLUMN_TYPES } from './query.js';

/** Names of collections cannot begin with an underscore. */
export const LAYOUT_TABLE = '_layout';
export const MARKER_TABLE = '_commits';

/** PostgreSQL cuts longer names. */
const MAX_NAME_BYTES = 63;

const INSUFFICIENT_PRIVILEGE = '42501';

/** Tables of this engine itself. */
const OWN_TABLES: Record<string, string> = {
  [LAYOUT_TABLE]: 'id text PRIMARY KEY, version integer NOT NULL',
  [MARKER_TABLE]: 'lane text PRIMARY KEY, marker text NOT NULL, at timestamptz NOT NULL DEFAULT now()',
};

/** A table or a view. */
interface Relation {
  isView: boolean;
  columns: ReadonlySet<string>;
  indexes: ReadonlySet<string>;
}

/** The tables and views of a schema by name; `null` if there is no such schema. */
export type Tables = ReadonlyMap<string, Relation>;

/** The quoted name of a table. */
export function tableName(schema: string, name: string): string {
  return `${quoteIdentifier(schema)}.${quoteIdentifier(name)}`;
}

/** Reads the catalog. */
export async function readTables(send: Send, schema: string): Promise<Tables | null> {
  const text = `SELECT coalesce(c.relname, ''), c.relkind = 'v',
      (SELECT json_agg(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
      (SELECT json_agg(i.relname) FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid WHERE indrelid = c.oid AND indisvalid)
    FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v')
    WHERE nspname = $1`;
  const [rows = []] = await send({ text, values: [schema] });
  if (rows.length === 0) return null;
  const namesOf = (list: string | null | undefined) => new Set<string>(JSON.parse(list ?? '[]'));
  return new Map(
    rows.map(([name, isView, columns, indexes]) => [
      name as string,
      { isView: isView === 't', columns: namesOf(columns), indexes: namesOf(indexes) },
    ]),
  );
}

/** Whether the table exists and has a column for every declared field. */
export function hasColumns(tables: Tables | null, { name, declared }: Shape): boolean {
  const columns = tables?.get(name)?.columns;
  return columns !== undefined && ['doc', ...declared.keys()].every((field) => columns.has(field));
}

/** The statements that create what the catalog does not show. Each can be repeated. */
export function missingDefinitions(
  schema: string,
  tables: Tables | null,
  shapes: readonly Shape[],
): string[] {
  return [
    ...(tables ? [] : [`CREATE SCHEMA IF NOT EXISTS ${quoteIdentifier(schema)}`]),
    ...Object.entries(OWN_TABLES)
      .filter(([name]) => !tables?.has(name))
      .map(([name, columns]) => `CREATE TABLE IF NOT EXISTS ${tableName(schema, name)} (${columns})`),
    ...shapes.flatMap((shape) => definitionsOf(schema, tables, shape)),
  ];
}

function definitionsOf(schema: string, tables: Tables | null, shape: Shape): string[] {
  const table = tableName(schema, shape.name);
  const present = tables?.get(shape.name);
  const columns = [...shape.declared]
    .filter(([field]) => field !== 'id' && !present?.columns.has(field))
    .map(
      ([field, type]) =>
        `${quoteIdentifier(field)} ${COLUMN_TYPES[type]} GENERATED ALWAYS AS ((doc->>'${field}')${type === 'string' ? '' : `::${COLUMN_TYPES[type]}`}) STORED`,
    );
  const definitions: string[] = [];
  const [added, wanted] = shape.text.length > 0 ? textDefinitions(schema, tables, shape) : [[], []];
  columns.push(...added);
  if (!present) {
    // The key is named like an index, so that a violation tells the collection and the field.
    const key = checkedName(`${shape.name}.id`);
    const all = ['id text COLLATE "C" NOT NULL', 'doc jsonb NOT NULL', ...columns];
    definitions.push(
      `CREATE TABLE IF NOT EXISTS ${table} (${all.join(', ')}, CONSTRAINT ${key} PRIMARY KEY (id))`,
    );
  } else if (columns.length > 0) {
    // In one statement, because PostgreSQL rewrites the table.
    definitions.push(
      `ALTER TABLE ${table} ${columns.map((column) => `ADD COLUMN IF NOT EXISTS ${column}`).join(', ')}`,
    );
  }
  for (const { name, isUnique, fields, where } of indexesOf(shape)) {
    if (present?.indexes.has(name)) continue;
    // In the order of `page`. Required fields are never null, and their order is the default.
    const keys = fields.map((field) =>
      shape.required.has(field) ? quoteIdentifier(field) : `${quoteIdentifier(field)} NULLS FIRST`,
    );
    definitions.push(
      `CREATE ${isUnique ? 'UNIQUE INDEX' : 'INDEX'} IF NOT EXISTS ${checkedName(name)} ON ${table} (${keys.join(', ')})${where}`,
    );
  }
  definitions.push(...wanted);
  if (shape.view) definitions.push(...viewOf(schema, tables, shape, shape.view));
  return definitions;
}

/** Whether a row is in the index of texts: those from before the index are added in steps, because it takes long. */
export const INDEXED = '_indexed';

/** Fewer than a call takes a second for. */
const INDEXED_AT_ONCE = 250;

/** The column and the other definitions of an index of texts. The index is empty at first, and new rows are in it. */
function textDefinitions(schema: string, tables: Tables | null, shape: Shape): [columns: string[], string[]] {
  const table = tableName(schema, shape.name);
  const present = tables?.get(shape.name);
  const name = textIndexOf(shape);
  if (present?.indexes.has(name) && present.indexes.has(`${name} rest`)) return [[], []];
  return [
    present?.columns.has(INDEXED) ? [] : [`${INDEXED} boolean NOT NULL DEFAULT ${!present}`],
    [
      `ALTER TABLE ${table} ALTER COLUMN ${INDEXED} SET DEFAULT true`,
      ...functionDefinitions(schema),
      `CREATE INDEX IF NOT EXISTS ${checkedName(name)} ON ${table} USING gin (${textExpression(schema, shape)}) WHERE ${INDEXED}`,
      `CREATE INDEX IF NOT EXISTS ${checkedName(`${name} rest`)} ON ${table} (id) WHERE NOT ${INDEXED}`,
    ],
  ];
}

/** Adds some rows to the index of texts, unless they are locked. Returns how many. */
export const indexing = (schema: string, { name }: Shape): Statement => {
  const table = tableName(schema, name);
  const some = `SELECT id FROM ${table} WHERE NOT ${INDEXED} LIMIT ${INDEXED_AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED`;
  return {
    text: `UPDATE ${table} SET ${INDEXED} = true WHERE id = ANY(ARRAY(${some})) RETURNING 1`,
    values: [],
  };
};

/** The names of the functions of an index of texts: the lower case of a text, and its parts of three characters. */
export const textFunctions = (schema: string) => ({
  folded: tableName(schema, '_folded'),
  trigrams: tableName(schema, '_trigrams'),
});

/** The fields of `text`: most of them need no column. */
export const textColumns = ({ text, declared }: Shape): string[] =>
  text.map((field) => (declared.has(field) ? quoteIdentifier(field) : `(doc->>'${field}')`));

/** Their trigrams. */
export function textExpression(schema: string, shape: Shape): string {
  const values = textColumns(shape).map((column) => `coalesce(${column}, '')`);
  return `${textFunctions(schema).trigrams}(${values.join(' || chr(10) || ')})`;
}

/** Capital letters of European alphabets beyond ASCII: how `lower` treats them depends on the locale of the database. */
const CAPITALS = Array.from({ length: 0x530 - 0xc0 }, (_, index) => String.fromCodePoint(0xc0 + index))
  .filter((letter) => letter.toLowerCase() !== letter && letter.toLowerCase().length === 1)
  .join('');

/** No extension is needed, which not every user may install. */
function functionDefinitions(schema: string): string[] {
  const { folded, trigrams } = textFunctions(schema);
  const define = (name: string, result: string, body: string) =>
    `CREATE OR REPLACE FUNCTION ${name}(value text) RETURNS ${result} LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$${body}$$`;
  const lower = 'lower(value COLLATE "C")';
  return [
    define(
      folded,
      'text',
      `SELECT CASE octet_length(value) WHEN length(value) THEN ${lower} ELSE translate(${lower}, '${CAPITALS}', '${CAPITALS.toLowerCase()}') END`,
    ),
    define(
      trigrams,
      'text[]',
      `SELECT coalesce(array_agg(substr(text, place, 3)), '{}') FROM (SELECT ${folded}(value) AS text OFFSET 0) AS one, generate_series(1, length(text) - 2) AS place`,
    ),
  ];
}

/** The statement that creates a view or adds columns at its end. An older version leaves the view of a newer one as it is. */
function viewOf(
  schema: string,
  tables: Tables | null,
  { name: table, declared }: Shape,
  { name, columns }: ShapeView,
): string[] {
  const present = tables?.get(name)?.columns;
  if (Object.keys(columns).every((column) => present?.has(column))) return [];
  const selected = Object.entries(columns).map(([column, [content, field, part]]) => {
    const own = declared.has(field) ? quoteIdentifier(field) : `(doc->>'${field}')`;
    // Nested values are kept as JSON text.
    const value = part === undefined ? own : `((doc->'${field}'->>'json')::json->>'${part}')`;
    return `${CONTENTS[content](value)} AS ${quoteIdentifier(column)}`;
  });
  return [
    `CREATE OR REPLACE VIEW ${tableName(schema, name)} AS SELECT ${selected.join(', ')} FROM ${tableName(schema, table)}`,
  ];
}

/** The expression for a column of a view. Times are milliseconds. */
const CONTENTS: Record<ShapeView['columns'][string][0], (value: string) => string> = {
  text: (value) => value,
  boolean: (value) => `${value}::boolean`,
  number: (value) => `${value}::bigint`,
  time: (value) => `to_timestamp(${value}::double precision / 1000)`,
  presence: (value) => `${value} IS NOT NULL`,
};

function checkedName(name: string): string {
  if (Buffer.byteLength(name) <= MAX_NAME_BYTES) return quoteIdentifier(name);
  throw new TypeError(`${name} is longer than ${MAX_NAME_BYTES} bytes, which PostgreSQL would cut`);
}

/**
 * Creates what is missing in one transaction, while no other process of this schema does. Nothing is executed if all is there, so
 * that the user of a program need not be allowed to create tables.
 *
 * @throws StoreUnavailable with the SQL to run if the user may not create them
 */
export async function createMissing(
  connection: Connection,
  schema: string,
  shapes: readonly Shape[],
): Promise<void> {
  await connection.migrate(async (read, send) => {
    const tables = await read((limited) => readTables(limited, schema));
    const definitions = missingDefinitions(schema, tables, shapes);
    if (definitions.length === 0) return;
    const lock = 'SELECT pg_advisory_xact_lock(hashtextextended($1, 0))';
    try {
      await send(
        { text: lock, values: [`schema ${schema}`] },
        ...definitions.map((text) => ({ text, values: [] })),
      );
    } catch (error) {
      throw isForbidden(error) ? forbidden(error, definitions) : error;
    }
  });
}

function isForbidden(error: unknown): error is StoreUnavailable {
  const { cause } = error as Error;
  return isServerError(cause) && cause.code === INSUFFICIENT_PRIVILEGE;
}

function forbidden({ message, cause }: StoreUnavailable, definitions: readonly string[]): StoreUnavailable {
  const sql = definitions.map((text) => `${text};`).join('\n');
  const remedy = `Let a user who may create tables run this SQL, and grant the user of the URI access to them:\n${sql}`;
  return new StoreUnavailable(message, { cause, remedy });
}
