/** Translates documents, filters, changes and page positions to SQL. */
import type { FieldType } from '../checks.js';
import type { Change, Value } from '../collection.js';
import { createClauses, type Clause as SqlClause } from '../sql.js';
import { UNCOUNTABLE, UNMET } from './errors.js';
import type { Row, Statement } from './pipeline.js';

/** A part of an SQL text. */
export type Clause = SqlClause<string | null>;

/** The type of the column of a declared field. Strings are compared by their bytes, whatever the collation of the database is. */
export const COLUMN_TYPES: Record<FieldType, string> = {
  string: 'text COLLATE "C"',
  number: 'bigint',
  boolean: 'boolean',
};

/** Joins clauses and other text to a statement with numbered values. */
export function statement(text: string, ...parts: Clause[]): Statement {
  let number = 0;
  let part = 0;
  const joined = text.replace(/\{\}/g, () => parts[part++]?.text ?? '');
  return {
    text: joined.replace(/\?/g, () => `$${++number}`),
    values: parts.flatMap(({ values }) => values),
  };
}

/** A statement that ends its transaction unless the given one, which returns its rows, affects one. */
export function expectingOne({ text, values }: Statement, subject: string): Statement {
  // The conversion depends on the count: PostgreSQL would otherwise evaluate it in advance.
  return {
    text: `WITH made AS (${text}) SELECT CASE count(*) WHEN 1 THEN 1 ELSE ('${UNMET} ${subject}: ' || count(*))::int END FROM made`,
    values,
  };
}

export const { clauseOf, conditionsAfter } = createClauses<string | null>({
  toSqlValue: String,
  isOneOf: (column) => `${column} = ANY(?)`,
  toList: arrayLiteral,
});

/**
 * The same condition for documents whose ids are known. PostgreSQL, which would otherwise read all documents that match if it expects
 * few of them, then uses no index for it.
 */
export function verified({ text, values }: Clause): Clause {
  return { text: `(${text}) IS TRUE`, values };
}

/** An array of values as text. */
export function arrayLiteral(values: readonly Value[]): string {
  return `{${values.map((value) => `"${String(value).replace(/["\\]/g, '\\$&')}"`).join(',')}}`;
}

/** The document after a checked change, computed from its current state, so that concurrent changes are not lost. */
export function changedDocument<T>({ set = {}, unset = [], inc = {} }: Change<T>): Clause {
  let text = 'doc';
  const values: string[] = [];
  if (Object.keys(set).length > 0) {
    text = `${text} || ?::jsonb`;
    values.push(JSON.stringify(encoded(set)));
  }
  if (unset.length > 0) {
    text = `(${text}) - ?::text[]`;
    values.push(arrayLiteral(unset));
  }
  for (const [field, amount] of Object.entries(inc as Record<string, number>)) {
    text = `(${text}) || jsonb_build_object('${field}', ${sumOf(field)})`;
    values.push(String(amount));
  }
  return { text, values };
}

/** Like `applyChange`: an absent field counts as 0, and what is no number or leads to no safe integer is refused. */
function sumOf(field: string): string {
  const before = `CASE coalesce(jsonb_typeof(doc->'${field}'), 'absent') WHEN 'absent' THEN 0 WHEN 'number' THEN (doc->>'${field}')::numeric END`;
  // The conversion depends on the sum: PostgreSQL would otherwise evaluate it in advance.
  const refusal = `('${UNCOUNTABLE} ${field}: ' || coalesce(sum::text, 'no number'))::bigint`;
  return (
    `(SELECT CASE WHEN sum = trunc(sum) AND abs(sum) <= ${Number.MAX_SAFE_INTEGER} THEN sum ELSE ${refusal} END ` +
    `FROM (SELECT ${before} + ?::numeric AS sum) AS sums)`
  );
}

/** The id and the rest of a document, as it is stored. */
export function toStored<T extends { id: string }>({ id, ...fields }: T): [id: string, doc: string] {
  return [id, JSON.stringify(encoded(fields))];
}

/** Decodes the columns `id` and `doc`. */
export function toDocument<T>([id, doc]: Row): T {
  const document: Record<string, unknown> = { id, ...JSON.parse(doc as string) };
  for (const [field, value] of Object.entries(document)) {
    if (typeof value === 'object' && value !== null) {
      document[field] = JSON.parse((value as { json: string }).json);
    }
  }
  return document as T;
}

/**
 * Keeps nested values as JSON text within the document: jsonb would sort their keys, and it cannot store U+0000. They are
 * never queried, except by a view.
 */
function encoded(fields: object): Record<string, unknown> {
  const entries = Object.entries(fields).map(([field, value]) => [
    field,
    isKeptAsText(value) ? { json: JSON.stringify(value) } : value,
  ]);
  return Object.fromEntries(entries);
}

function isKeptAsText(value: unknown): boolean {
  return typeof value === 'string' ? value.includes('\0') : typeof value === 'object' && value !== null;
}
