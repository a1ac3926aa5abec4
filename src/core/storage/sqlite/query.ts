/** Translates filters and page positions to SQL. */
import type { Value, Where } from '../collection.js';
import { conditionsOf } from '../semantics.js';
import { COMPARISON, quoteIdentifier } from '../sql.js';

/** The text after WHERE and its bound values. */
export interface Clause {
  text: string;
  values: (string | number)[];
}

/** Every document. */
export const ALL: Clause = { text: 'TRUE', values: [] };

/** Translates a checked filter. */
export function clauseOf<T>(where: Where<T>): Clause {
  const clauses = conditionsOf(where).map(conditionClause);
  return clauses.length === 0 ? ALL : clauses.reduce(and);
}

/** Caches SQL texts. Their number is finite, and a statement is found faster by the identical string than by an equal one. */
export function memoize<V>(make: (key: string) => V): (key: string) => V {
  const known = new Map<string, V>();
  return (key) => {
    const before = known.get(key);
    if (before !== undefined) return before;
    const made = make(key);
    known.set(key, made);
    return made;
  };
}

const equality = memoize((field) => `${quoteIdentifier(field)} = ?`);
const absence = memoize((field) => `${quoteIdentifier(field)} IS NULL`);
const comparisons = memoize((operator) =>
  memoize((field) => `${quoteIdentifier(field)} ${COMPARISON[operator as keyof typeof COMPARISON]} ?`),
);
const conjunctions = memoize((a) => memoize((b) => `${a} AND ${b}`));

function conditionClause([field, condition]: ReturnType<typeof conditionsOf>[number]): Clause {
  if (condition !== null && typeof condition !== 'object') {
    return { text: equality(field), values: [toSqlValue(condition)] };
  }
  if (condition === null) return { text: absence(field), values: [] };
  if (condition.in) {
    // One parameter for any number of values, so that the statement stays the same.
    const text = `${quoteIdentifier(field)} IN (SELECT value FROM json_each(?))`;
    return { text, values: [JSON.stringify(condition.in)] };
  }
  return Object.entries(condition)
    .map(([operator, value]) => ({
      text: comparisons(operator)(field),
      values: [toSqlValue(value)],
    }))
    .reduce(and);
}

/** The conjunction of two clauses. */
export function and(a: Clause, b: Clause): Clause {
  return { text: conjunctions(a.text)(b.text), values: a.values.concat(b.values) };
}

/** Converts booleans to 1 and 0, as `json_extract` does: SQLite has no booleans. */
export function toSqlValue<V extends Value | null>(value: V): Exclude<V, boolean> | number {
  return typeof value === 'boolean' ? Number(value) : (value as Exclude<V, boolean>);
}
