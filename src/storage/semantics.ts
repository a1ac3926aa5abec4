/**
 * What filters, changes and cursors mean, as pure functions on documents. Engines translate filters into
 * their own language; their answers must be those of `matches`.
 */
import { type Shape, valueProblem } from './checks.js';
import {
  type Change,
  type Cursor,
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

/** The conditions of a checked filter, without its types. */
export function conditionsOf<T>(where: Where<T>): [string, Value | null | Operators][] {
  return Object.entries(where);
}

/** Whether a document fulfils a (checked) filter. */
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

/** Strings by their UTF-8 bytes, as engines do (`<` of JavaScript goes by UTF-16 units). */
export function compare(a: Value, b: Value): number {
  if (typeof a === 'string' && typeof b === 'string') return Buffer.compare(Buffer.from(a), Buffer.from(b));
  return typeof a === typeof b ? Number(a) - Number(b) : Number.NaN;
}

/** The document after a (checked) change; the one given is left alone. */
export function applyChange<T extends { id: string }>(doc: T, change: Change<T>): T {
  // Node 20 takes ten times as long for a spread to which something is added.
  const after: Record<string, unknown> = Object.assign({}, doc, change.set);
  for (const field of change.unset ?? []) delete after[field];
  for (const [field, amount] of Object.entries((change.inc ?? {}) as Record<string, number>)) {
    const before = after[field] ?? (Object.hasOwn(after, field) ? null : 0);
    const sum = typeof before === 'number' ? before + amount : Number.NaN;
    if (!Number.isSafeInteger(sum)) throw new RefusedDocument(`inc: field ${field} cannot be counted`);
    after[field] = sum;
  }
  return after as T;
}

/** Where a page ended: the sort value (null: absent, too) and the id of its last document. */
export interface Position {
  value: Value | null;
  id: string;
}

/** The cursor that continues after a document. It knows its order, so that it cannot be used in another. */
export function cursorAfter(sort: string, desc: boolean, doc: { id: string }): Cursor {
  const value = (doc as Record<string, unknown>)[sort] ?? null;
  return Buffer.from(JSON.stringify([sort, desc, value, doc.id])).toString('base64url');
}

/** Reads a cursor back; anything but one made for this very order is refused. */
export function positionOf(shape: Shape, sort: string, desc: boolean, cursor: Cursor): Position {
  const refused = new RefusedSelector(`${shape.name}: the cursor is not one of this list`);
  let parts: unknown;
  try {
    parts = JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    throw refused;
  }
  if (!Array.isArray(parts) || parts.length !== 4) throw refused;
  const [itsSort, itsDesc, value, id] = parts;
  if (itsSort !== sort || itsDesc !== desc || typeof id !== 'string' || valueProblem(id)) throw refused;
  if (value !== null && valueProblem(value)) throw refused;
  return { value, id };
}
