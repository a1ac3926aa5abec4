/** Documents, filters and changes in the language of MongoDB. */
import type { Change, Value, Where } from './collection.js';
import { conditionsOf, type Operators, type Position } from './semantics.js';

/** A document or filter as the driver takes it. */
export type Bson = Record<string, unknown>;

/** A stored document. */
export type Stored = Bson & { _id: string };

/** The name of a field in MongoDB. */
export function keyOf(field: string): string {
  return field === 'id' ? '_id' : field;
}

/** A checked document as it is stored. */
export function storedOf<T extends { id: string }>({ id, ...fields }: T): Stored {
  return { _id: id, ...encoded(fields) };
}

/** The document that was stored. */
export function documentOf<T extends { id: string }>({ _id, ...fields }: Stored): T {
  const entries = Object.entries(fields).map(([field, value]) => [
    field,
    isNested(value) ? JSON.parse((value as { json: string }).json) : value,
  ]);
  return { id: _id, ...Object.fromEntries(entries) } as T;
}

/**
 * Nested values as JSON: BSON takes some keys (`$ref`, `_bsontype`) for types of its own and cannot hold others,
 * and keys may be a stranger's. Nothing asks for what is in there.
 */
function encoded(fields: Bson): Bson {
  const entries = Object.entries(fields).map(([field, value]) => [
    field,
    isNested(value) ? { json: JSON.stringify(value) } : value,
  ]);
  return Object.fromEntries(entries);
}

function isNested(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** A checked filter. Comparisons are those of one type, and equality with null includes absence, as in the port. */
export function filterOf<T>(where: Where<T>): Bson {
  return Object.fromEntries(
    conditionsOf(where).map(([field, condition]) => [keyOf(field), operatorsOf(condition)]),
  );
}

function operatorsOf(condition: Value | null | Operators): unknown {
  if (condition === null || typeof condition !== 'object') return condition;
  return Object.fromEntries(Object.entries(condition).map(([operator, value]) => [`$${operator}`, value]));
}

/** A checked change. */
export function updateOf<T>({ set = {}, unset = [], inc = {} }: Change<T>): Bson {
  return { $set: encoded(set), $unset: Object.fromEntries(unset.map((field) => [field, true])), $inc: inc };
}

/** That every field of `inc` can be counted, as `applyChange` sees it: MongoDB goes on beyond safe integers. */
export function countable<T>({ inc = {} }: Change<T>): Bson[] {
  return Object.entries(inc as Record<string, number>).map(([field, amount]) => ({
    $or: [
      { [field]: { $exists: false } },
      { [field]: { $gte: Number.MIN_SAFE_INTEGER - amount, $lte: Number.MAX_SAFE_INTEGER - amount } },
    ],
  }));
}

/**
 * What follows a position. Null and absent stand before every value; `$not` includes them. The outer condition is
 * where an index starts, the inner one leaves out what shares the value and stands before.
 */
export function after(sort: string, desc: boolean, { value, id }: Position): Bson {
  const key = keyOf(sort);
  if (value === null) {
    return desc
      ? { [key]: null, _id: { $lt: id } }
      : { $or: [{ [key]: { $ne: null } }, { _id: { $gt: id } }] };
  }
  return desc
    ? { [key]: { $not: { $gt: value } }, $or: [{ [key]: { $not: { $gte: value } } }, { _id: { $lt: id } }] }
    : { [key]: { $gte: value }, $or: [{ [key]: { $gt: value } }, { _id: { $gt: id } }] };
}
