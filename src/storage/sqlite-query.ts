/** Filters and positions in a list, in the language of SQLite. */
import type { Value, Where } from './collection.js';
import { conditionsOf, type Position } from './semantics.js';

/** The text after WHERE, and the values to bind to it. */
export interface Clause {
  text: string;
  values: (string | number)[];
}

const COMPARISON = { lt: '<', lte: '<=', gt: '>', gte: '>=' } as const;

/** Every document. */
export const ALL: Clause = { text: 'TRUE', values: [] };

/** A checked filter in SQL. */
export function clauseOf<T>(where: Where<T>): Clause {
  const clauses = conditionsOf(where).map(conditionClause);
  return clauses.length === 0 ? ALL : clauses.reduce(and);
}

/**
 * Makes each thing once, texts above all. They are few, and the statement of the very same string is found at once, where
 * an equal one has to be read first.
 */
export function once<V>(make: (key: string) => V): (key: string) => V {
  const known = new Map<string, V>();
  return (key) => {
    const before = known.get(key);
    if (before !== undefined) return before;
    const made = make(key);
    known.set(key, made);
    return made;
  };
}

/** What most filters are. */
const equality = once((field) => `${quoted(field)} = ?`);
const absence = once((field) => `${quoted(field)} IS NULL`);
const comparisons = once((operator) =>
  once((field) => `${quoted(field)} ${COMPARISON[operator as keyof typeof COMPARISON]} ?`),
);
const conjunctions = once((a) => once((b) => `${a} AND ${b}`));

function conditionClause([field, condition]: ReturnType<typeof conditionsOf>[number]): Clause {
  if (condition !== null && typeof condition !== 'object') {
    return { text: equality(field), values: [bound(condition)] };
  }
  if (condition === null) return { text: absence(field), values: [] };
  if (condition.in) {
    // One parameter for any number of values, so that the statement stays the same.
    const text = `${quoted(field)} IN (SELECT value FROM json_each(?))`;
    return { text, values: [JSON.stringify(condition.in)] };
  }
  return Object.entries(condition)
    .map(([operator, value]) => ({
      text: comparisons(operator)(field),
      values: [bound(value)],
    }))
    .reduce(and);
}

/** What follows a position, in order. NULL stands before every value and compares with none. */
export function spansAfter(sort: string, desc: boolean, { value, id }: Position): Clause[] {
  const column = quoted(sort);
  const than = desc ? '<' : '>';
  const nulls = { text: `${column} IS NULL`, values: [] };
  const rest = desc ? [] : [{ text: `${column} IS NOT NULL`, values: [] }];
  if (value === null) return [and(nulls, { text: `id ${than} ?`, values: [id] }), ...rest];
  const values = { text: `(${column}, id) ${than} (?, ?)`, values: [bound(value), id] };
  return desc ? [values, nulls] : [values];
}

/** Both. */
export function and(a: Clause, b: Clause): Clause {
  return { text: conjunctions(a.text)(b.text), values: a.values.concat(b.values) };
}

/** A value in SQL, which has no booleans: `json_extract`, too, gives 1 and 0. */
export function bound<V extends Value | null>(value: V): Exclude<V, boolean> | number {
  return typeof value === 'boolean' ? Number(value) : (value as Exclude<V, boolean>);
}

/** A checked name in SQL. */
export function quoted(name: string): string {
  return `"${name}"`;
}
