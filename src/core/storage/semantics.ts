/** The semantics of filters, changes and cursors. Engines translate filters, with the same results as `matches`. */
import { type Shape, valueProblem } from './checks.js';
import {
  type Change,
  type Cursor,
  type OptionalField,
  type Page,
  RefusedDocument,
  RefusedSelector,
  type Value,
  type Where,
} from './collection.js';

/** The operators of a condition that is neither a value nor null. */
export interface Operators {
  in?: readonly Value[];
  lt?: Value;
  lte?: Value;
  gt?: Value;
  gte?: Value;
}

/** The conditions of a valid filter, without its types. */
export function conditionsOf<T>(where: Where<T>): [string, Value | null | Operators][] {
  return Object.entries(where);
}

/** Whether a document matches a valid filter. */
export function matches<T extends { id: string }>(doc: T, where: Where<T>): boolean {
  const fields = doc as Record<string, unknown>;
  return conditionsOf(where).every(([field, condition]) => {
    const held = (fields[field] ?? null) as Value | null;
    if (condition === null || typeof condition !== 'object') return held === condition;
    if (held === null) return false;
    if (condition.in) return condition.in.includes(held);
    const { lt, lte, gt, gte } = condition;
    return (
      (lt === undefined || compare(held, lt) < 0) &&
      (lte === undefined || compare(held, lte) <= 0) &&
      (gt === undefined || compare(held, gt) > 0) &&
      (gte === undefined || compare(held, gte) >= 0)
    );
  });
}

/** Compares strings by their UTF-8 bytes, like engines; JavaScript compares UTF-16 units. */
export function compare(a: Value, b: Value): number {
  if (typeof a === 'string' && typeof b === 'string') return Buffer.compare(Buffer.from(a), Buffer.from(b));
  return typeof a === typeof b ? Number(a) - Number(b) : Number.NaN;
}

/** Applies a valid change to a copy of a document. */
export function applyChange<T extends { id: string }>(doc: T, change: Change<T>): T {
  // A spread with additions takes ten times as long on Node 20.
  const after: Record<string, unknown> = Object.assign({}, doc, change.set);
  for (const field of change.unset ?? []) delete after[field];
  for (const [field, amount] of Object.entries((change.inc ?? {}) as Record<string, number>)) {
    const before = after[field] ?? (Object.hasOwn(after, field) ? null : 0);
    const sum = typeof before === 'number' ? before + amount : Number.NaN;
    if (!Number.isSafeInteger(sum))
      throw new RefusedDocument(`inc: field ${field} is not a number, or its sum is not a safe integer`);
    after[field] = sum;
  }
  return after as T;
}

/** The change from one state of a document to another. */
export function changeTo<T extends { id: string }>(before: T, after: T): Change<T> {
  const { id: _, ...set } = after;
  const removed = Object.keys(before).filter((field) => !(field in after));
  return { set, unset: removed as OptionalField<T>[] };
}

/** The end of a page: the sort value (null if absent) and the id of its last document. */
export interface Position {
  value: Value | null;
  id: string;
}

/**
 * The page that begins with these documents: one more than the limit shows that there is a next page. Its cursor contains the order
 * of the list, so that it cannot be used with another one.
 */
export function pageOf<T extends { id: string }>(
  docs: readonly T[],
  { sort, desc, limit }: { sort: string; desc: boolean; limit: number },
): Page<T> {
  const items = docs.slice(0, limit);
  const last = items.at(-1);
  if (!last || docs.length <= limit) return { items, next: null };
  const value = (last as Record<string, unknown>)[sort] ?? null;
  return { items, next: Buffer.from(JSON.stringify([sort, desc, value, last.id])).toString('base64url') };
}

/** Parses a cursor of this order. @throws RefusedSelector for any other cursor */
export function positionOf(shape: Shape, sort: string, desc: boolean, cursor: Cursor): Position {
  const invalid = new RefusedSelector(`${shape.name}: the cursor does not belong to this list`);
  let parts: unknown;
  try {
    parts = JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    throw invalid;
  }
  if (!Array.isArray(parts) || parts.length !== 4) throw invalid;
  const [cursorSort, cursorDesc, value, id] = parts;
  if (cursorSort !== sort || cursorDesc !== desc || valueProblem(id, 'string')) throw invalid;
  if (value !== null && valueProblem(value, shape.declared.get(sort) ?? 'string')) throw invalid;
  return { value, id };
}
