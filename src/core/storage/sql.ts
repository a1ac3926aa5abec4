/** What the SQL of both SQL engines has in common. */
import type { Shape } from './checks.js';
import type { Value, Where } from './collection.js';
import { conditionsOf, type Position } from './semantics.js';

const COMPARISON = { lt: '<', lte: '<=', gt: '>', gte: '>=' } as const;

/** Quotes a checked name. */
export function quoteIdentifier(name: string): string {
  return `"${name}"`;
}

/** A part of an SQL text, with `?` for each of its values. Other text contains no question mark. */
export interface Clause<V> {
  text: string;
  values: readonly V[];
}

/** Every document. */
export const ALL: Clause<never> = { text: 'TRUE', values: [] };

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

/** The conjunction of two clauses. */
export function and<V>(a: Clause<V>, b: Clause<V>): Clause<V> {
  return { text: conjunctions(a.text)(b.text), values: a.values.concat(b.values) };
}

/** In what the engines differ. */
interface Dialect<V> {
  /** Converts a value as the engine stores it. */
  toSqlValue(value: Value): V;
  /** The condition that a column has one of several values, which are one parameter, so that the statement stays the same. */
  isOneOf(column: string): string;
  toList(values: readonly Value[]): V;
}

/** Returns what translates filters and positions. */
export function createClauses<V>({ toSqlValue, isOneOf, toList }: Dialect<V>) {
  const conditionClause = ([field, condition]: ReturnType<typeof conditionsOf>[number]): Clause<V> => {
    if (condition === null) return { text: absence(field), values: [] };
    if (typeof condition !== 'object') return { text: equality(field), values: [toSqlValue(condition)] };
    if (condition.in) return { text: isOneOf(quoteIdentifier(field)), values: [toList(condition.in)] };
    return Object.entries(condition)
      .map(
        ([operator, value]): Clause<V> => ({
          text: comparisons(operator)(field),
          values: [toSqlValue(value)],
        }),
      )
      .reduce(and);
  };
  return {
    /** Translates a checked filter. Equality with null includes absence, as the port requires: a column is null in both cases. */
    clauseOf<T>(where: Where<T>): Clause<V> {
      const clauses = conditionsOf(where).map(conditionClause);
      return clauses.length === 0 ? ALL : clauses.reduce(and);
    },

    /** The conditions that select what follows a position, in order. NULL sorts before every value and compares with none. */
    conditionsAfter(sort: string, desc: boolean, { value, id }: Position): Clause<V>[] {
      const column = quoteIdentifier(sort);
      const than = desc ? '<' : '>';
      const isNull = `${column} IS NULL`;
      if (value === null) {
        const nulls = { text: `${isNull} AND id ${than} ?`, values: [toSqlValue(id)] };
        return desc ? [nulls] : [nulls, { text: `${column} IS NOT NULL`, values: [] }];
      }
      const values = { text: `(${column}, id) ${than} (?, ?)`, values: [toSqlValue(value), toSqlValue(id)] };
      return desc ? [values, { text: isNull, values: [] }] : [values];
    },
  };
}

/** An index of a collection. */
interface Index {
  name: string;
  isUnique: boolean;
  fields: string[];
  /** ` WHERE …`, for an index of some documents. */
  where: string;
}

/** The name of the index by which the parts of texts are found. */
export const textIndexOf = ({ name, text }: Shape): string => `${name}.${text.join('.')} text`;

/** Field and collection names contain no dot or space, so these index names are unambiguous. */
export function indexesOf({ name, unique, indexes, sparse }: Shape): Index[] {
  const index = (title: string, fields: string[], more: Partial<Index> = {}): Index => ({
    ...{ name: `${name}.${title}`, isUnique: false, fields, where: '' },
    ...more,
  });
  return [
    ...unique.map((field) => index(`${field} unique`, [field], { isUnique: true })),
    // With the id at the end, the index has the order of `page`.
    ...indexes.map((fields) => index(fields.join('.'), [...new Set([...fields, 'id'])])),
    ...sparse.map((field) =>
      index(`${field} sparse`, [field, 'id'], { where: ` WHERE ${quoteIdentifier(field)} IS NOT NULL` }),
    ),
  ];
}
