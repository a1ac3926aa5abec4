/** Translates documents, filters and changes to BSON. */
import { type Change, MIN_SEARCH, type Value, type Where } from '../collection.js';
import { conditionsOf, type Operators, type Position } from '../semantics.js';

/** A document or filter in the format of the driver. */
export type Bson = Record<string, unknown>;

/** A stored document. */
export type Stored = Bson & { _id: string };

/** A field's name in MongoDB. */
export function mongoField(field: string): string {
  return field === 'id' ? '_id' : field;
}

/** Encodes a checked document. `text` are the fields whose parts are found. */
export function toStored<T extends { id: string }>({ id, ...fields }: T, text: readonly string[]): Stored {
  return { _id: id, ...encoded(fields), ...partsOf(text, fields) };
}

/** The field with the parts of another one. */
export const partsField = (field: string): string => `_text_${field}`;

/** Characters of a part. */
const PART_LENGTH = 16;

/**
 * The ends of texts from each of their characters, for an index whose ranges are the parts of a text. Never empty, so that documents
 * without parts can be found. An older version decodes `json`, and reads null.
 */
export function partsOf(fields: readonly string[], values: Bson): Bson {
  return Object.fromEntries(
    fields.map((field) => {
      const text = Array.from(String(values[field] ?? '').toLowerCase());
      const parts = text.map((_, from) => text.slice(from, from + PART_LENGTH).join(''));
      const found = parts.slice(0, 1 - MIN_SEARCH);
      return [partsField(field), { json: 'null', parts: found.length > 0 ? [...new Set(found)] : [''] }];
    }),
  );
}

/** What sets the fields of a checked change, with their parts. */
function settingOf<T>({ set = {}, unset = [] }: Change<T>, text: readonly string[]): Bson {
  const touched = text.filter((field) => field in set || (unset as readonly string[]).includes(field));
  return { ...encoded(set), ...partsOf(touched, set) };
}

/** Documents with this text within one of the fields, whatever parts an older version has left there. */
export function textFilter(fields: readonly string[], text: string): Bson {
  const from = Array.from(text.toLowerCase()).slice(0, PART_LENGTH).join('');
  const isPart = { $elemMatch: { $gte: from, $lt: `${from}\u{10ffff}` } };
  const isWithin = { $regex: text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'), $options: 'i' };
  // `null`: it has none yet.
  const parts = [isPart, null];
  return {
    $or: fields.flatMap((field) =>
      parts.map((part) => ({ [`${partsField(field)}.parts`]: part, [field]: isWithin })),
    ),
  };
}

/** Decodes a stored document. */
export function toDocument<T extends { id: string }>({ _id, ...fields }: Stored): T {
  const document: Bson = { id: _id };
  for (const [field, value] of Object.entries(fields)) {
    // What is derived from other fields.
    if (field.startsWith('_')) continue;
    document[field] = isNested(value) ? JSON.parse((value as { json: string }).json) : value;
  }
  return document as T;
}

export function toDocumentOrNull<T extends { id: string }>(stored: Stored | null): T | null {
  return stored && toDocument<T>(stored);
}

/**
 * Encodes nested values as JSON: BSON interprets some keys (`$ref`, `_bsontype`) and cannot store others, and keys may
 * come from untrusted input. Nested values are never queried.
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

/** Translates a checked filter. MongoDB compares within one type, and equality with null includes absence, as the port requires. */
export function toFilter<T>(where: Where<T>): Bson {
  return Object.fromEntries(
    conditionsOf(where).map(([field, condition]) => [mongoField(field), operatorsOf(condition)]),
  );
}

/** A single condition stays unwrapped, because MongoDB has a fast path for filters by `_id`. */
export function and(first: Bson, ...others: Bson[]): Bson {
  return others.length === 0 ? first : { $and: [first, ...others] };
}

function operatorsOf(condition: Value | null | Operators): unknown {
  if (condition === null || typeof condition !== 'object') return condition;
  return Object.fromEntries(Object.entries(condition).map(([operator, value]) => [`$${operator}`, value]));
}

/** Translates a checked change. */
export function toUpdate<T>(change: Change<T>, text: readonly string[]): Bson {
  const { unset = [], inc = {} } = change;
  return {
    $set: settingOf(change, text),
    // Each operator costs the server, also without fields.
    ...(unset.length > 0 && { $unset: Object.fromEntries(unset.map((field) => [field, true])) }),
    ...(Object.keys(inc).length > 0 && { $inc: inc }),
  };
}

/** Conditions under which `applyChange` accepts `inc`: MongoDB itself counts beyond safe integers. */
export function countableConditions<T>({ inc = {} }: Change<T>): Bson[] {
  return Object.entries(inc as Record<string, number>).map(([field, amount]) => ({
    $or: [{ [field]: { $exists: false } }, { [field]: operatorsOf(countableRange(amount)) }],
  }));
}

/** The numbers whose sum with the amount is a safe integer. */
const countableRange = (amount: number): Operators => ({
  gte: Number.MIN_SAFE_INTEGER - amount,
  lte: Number.MAX_SAFE_INTEGER - amount,
});

/** The server's code for a conversion that fails. No other expression of `toStages` can fail with it. */
export const CONVERSION_FAILURE = 241;

// Both fail for every ID. They contain it so that the server does not evaluate them in advance, for all documents.
const NO_MATCH = { $toInt: { $concat: ['not a number: ', '$_id'] } };
const UNDECIDED = { $arrayElemAt: ['$_id', 0] };

/** False for the document of an upsert when none is stored. To compare the whole document takes the server a tenth of an update. */
const IS_STORED = { $ne: ['$$ROOT', { _id: '$_id' }] };

/**
 * The stages of an update by the ID of `where` alone, which the server need not plan. They fail with `CONVERSION_FAILURE` if
 * the document does not match the other conditions. If it does, they fail with another code when `inc` cannot be applied, and
 * when it consists of its ID only: that is also the document of an upsert when none is stored.
 */
export function toStages<T>(where: Where<T>, change: Change<T>, text: readonly string[]): Bson[] {
  const { unset = [], inc = {} } = change;
  const counted = Object.entries(inc as Record<string, number>);
  const conditions = conditionsOf(where).filter(([field]) => field !== 'id');
  const comparisons = conditions.flatMap(([field, condition]) => comparisonsOf(`$${field}`, condition));
  const matchesWithoutFields = conditions.every(([, condition]) => condition === null);
  const changeable = [
    ...(matchesWithoutFields ? [IS_STORED] : []),
    ...counted.map(([field, amount]) => isCountable(`$${field}`, amount)),
  ];
  const sums = counted.map(([field, amount]) => [field, { $add: [{ $ifNull: [`$${field}`, 0] }, amount] }]);
  const changed = {
    $mergeObjects: ['$$ROOT', { $literal: settingOf(change, text) }, Object.fromEntries(sums)],
  };
  const result = { $cond: [{ $and: changeable }, changed, UNDECIDED] };
  const stage = { $replaceWith: { $cond: [{ $and: comparisons }, result, NO_MATCH] } };
  return unset.length > 0 ? [stage, { $unset: unset }] : [stage];
}

/**
 * The comparisons of a condition as expressions, which sort absence before null and null before every value. Unlike filters
 * they compare values of different types, which makes no difference: a field has one type.
 */
function comparisonsOf(field: string, condition: Value | null | Operators): Bson[] {
  if (condition === null) return [{ $lte: [field, null] }];
  if (typeof condition !== 'object') return [{ $eq: [field, { $literal: condition }] }];
  const comparisons = Object.entries(condition).map(([operator, value]) => ({
    [`$${operator}`]: [field, { $literal: value }],
  }));
  const excludesNull = 'gt' in condition || 'gte' in condition || 'in' in condition;
  return excludesNull ? comparisons : [{ $gt: [field, null] }, ...comparisons];
}

/** `countableConditions` of one field, as an expression: only numbers are between two numbers. */
const isCountable = (field: string, amount: number): Bson => ({
  $or: [{ $eq: [{ $type: field }, 'missing'] }, { $and: comparisonsOf(field, countableRange(amount)) }],
});

/**
 * The condition that selects what follows a position. Null and absent sort before every value; `$not` includes them.
 * The outer condition bounds the index scan, the inner one breaks ties by id.
 */
export function conditionAfter(sort: string, desc: boolean, { value, id }: Position): Bson {
  const key = mongoField(sort);
  if (value === null) {
    return desc
      ? { [key]: null, _id: { $lt: id } }
      : { $or: [{ [key]: { $ne: null } }, { _id: { $gt: id } }] };
  }
  return desc
    ? { [key]: { $not: { $gt: value } }, $or: [{ [key]: { $not: { $gte: value } } }, { _id: { $lt: id } }] }
    : { [key]: { $gte: value }, $or: [{ [key]: { $gt: value } }, { _id: { $gt: id } }] };
}
