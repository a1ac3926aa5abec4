/** What the SQL of both SQL engines has in common. */
import type { Value } from './collection.js';
import type { Position } from './semantics.js';

/** The SQL operators of the ranges of a condition. */
export const COMPARISON = { lt: '<', lte: '<=', gt: '>', gte: '>=' } as const;

/** Quotes a checked name. */
export function quoteIdentifier(name: string): string {
  return `"${name}"`;
}

/** A part of an SQL text, with `?` for each of its values. */
interface Part<V> {
  text: string;
  values: V[];
}

/**
 * The conditions that select what follows a position, in order. NULL sorts before every value and compares with none.
 *
 * @param toSqlValue converts a value as the engine stores it
 */
export function conditionsAfter<V>(
  sort: string,
  desc: boolean,
  { value, id }: Position,
  toSqlValue: (value: Value) => V,
): Part<V>[] {
  const column = quoteIdentifier(sort);
  const than = desc ? '<' : '>';
  const isNull = `${column} IS NULL`;
  if (value === null) {
    const nulls = { text: `${isNull} AND id ${than} ?`, values: [toSqlValue(id)] };
    return desc ? [nulls] : [nulls, { text: `${column} IS NOT NULL`, values: [] }];
  }
  const values = { text: `(${column}, id) ${than} (?, ?)`, values: [toSqlValue(value), toSqlValue(id)] };
  return desc ? [values, { text: isNull, values: [] }] : [values];
}
