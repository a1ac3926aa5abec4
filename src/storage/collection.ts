/**
 * The storage port: what every engine does, and all that the domains know of storage.
 *
 * Each call is one atomic step on one document; only the two `Many` are a series of such steps.
 * Arguments are checked before an engine sees them (`checks.ts`), so that a forgotten value can
 * never become "matches everything", and all engines agree on what they accept.
 */

/**
 * What a declared field holds and a filter asks for. Never empty, ill-formed or with U+0000; numbers are
 * safe integers, because engines disagree on the last bit of a fraction. A field holds one type throughout.
 */
export type Value = string | number | boolean;

/** A place in a sorted list, opaque to callers. It stays valid while documents come and go. */
export type Cursor = string;

/** The fields of `T` that may be declared, and so be filtered and sorted by. */
export type DeclaredField<T> = {
  [K in keyof T & string]-?: NonNullable<T[K]> extends Value ? K : never;
}[keyof T & string];

/** Unique fields are required strings, so that engines agree on absence without partial indexes. */
export type UniqueField<T> = {
  [K in keyof T & string]-?: T[K] extends string ? K : never;
}[keyof T & string];

/** The fields of `T` that `inc` may count up or down. */
export type NumberField<T> = {
  [K in keyof T & string]-?: NonNullable<T[K]> extends number ? K : never;
}[keyof T & string];

/** The fields of `T` that a document may lack, and that `unset` may therefore remove. */
export type OptionalField<T> = {
  [K in keyof T & string]-?: Record<never, never> extends Pick<T, K> ? K : never;
}[keyof T & string];

/** What one field must be. `null` matches a field that is absent, too; a range or `in` never does. */
export type Condition<V> = V | null | { in: readonly V[] } | { lt?: V; lte?: V; gt?: V; gte?: V };

/** Which documents: all conditions hold. Only declared fields may be named. */
export type Where<T> = { [K in DeclaredField<T>]?: Condition<NonNullable<T[K]>> };

/** What becomes of a document. A field stands in one of the three only; `inc` starts from 0 where
 * the field is absent, and is refused where it is null. */
export interface Change<T> {
  set?: Partial<Omit<T, 'id'>>;
  unset?: readonly OptionalField<T>[];
  inc?: { [K in NumberField<T>]?: number };
}

/** One page of a sorted list. Ties are broken by `id`; null and absent sort first (last with `desc`). */
export interface PageQuery<T> {
  where?: Where<T>;
  sort: DeclaredField<T>;
  desc?: boolean;
  after?: Cursor;
  limit: number;
}

/** What `page` answers; `next` is null on the last page. */
export interface Page<T> {
  items: T[];
  next: Cursor | null;
}

/**
 * Documents of one kind. `id` is always declared and unique.
 * What is passed in must stay as it is until the call has settled; what comes back is the caller's own.
 */
export interface Collection<T extends { id: string }> {
  /** Throws {@link UniqueViolation} when the id or a unique field is taken. */
  insert(doc: T): Promise<void>;
  /** Any one document that matches. */
  findOne(where: Where<T>): Promise<T | null>;
  /** Changes one document that matches and answers it as it is after; null: nothing matched. */
  updateOne(where: Where<T>, change: Change<T>): Promise<T | null>;
  /** Removes one document that matches and answers it. */
  deleteOne(where: Where<T>): Promise<T | null>;
  /** Changes each document that matches; unique fields cannot be set. Answers how many. */
  updateMany(where: Where<T>, change: Change<T>): Promise<number>;
  /** Removes each document that matches. Answers how many. */
  deleteMany(where: Where<T>): Promise<number>;
  page(query: PageQuery<T>): Promise<Page<T>>;
  count(where?: Where<T>): Promise<number>;
}

/** What an engine must know of a collection. Only the fields named here may be filtered and sorted by. */
export interface Declaration<T> {
  /** Fields that narrow down what an id or an index has found: guards of conditional updates. No index is kept. */
  fields?: readonly DeclaredField<T>[];
  unique?: readonly UniqueField<T>[];
  indexes?: readonly (readonly DeclaredField<T>[])[];
}

/** One open database. */
export interface Store {
  /** Declares a collection. The same name may be declared again only in the same way. */
  collection<T extends { id: string }>(name: string, declaration?: Declaration<T>): Collection<T>;
  /** Resolves when every declared collection can be read and, as far as is known, written; throws {@link StoreUnavailable}. */
  ready(): Promise<void>;
  /** Finishes what was begun and releases the database; later calls throw {@link StoreUnavailable}. */
  close(): Promise<void>;
}

/** The id or a unique field of a written document belongs to another one already. */
export class UniqueViolation extends Error {
  override readonly name = 'UniqueViolation';
  readonly collection: string;
  readonly field: string;

  constructor(collection: string, field: string, options?: ErrorOptions) {
    super(`${collection}.${field} is taken`, options);
    this.collection = collection;
    this.field = field;
  }
}

/** For `insert(doc).then(() => doc, nullIfTaken)`: somebody else was first, which is no failure. */
export function nullIfTaken(error: unknown): null {
  if (error instanceof UniqueViolation) return null;
  throw error;
}

/** The database cannot serve now: locked for too long, full, read-only, damaged, out of reach, closed. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
  readonly statusCode = 503;
  /** Seconds after which to try again. */
  readonly retryAfter = 5;
  /** What the operator can do about it, as a sentence. */
  readonly remedy: string | undefined;

  constructor(message: string, { remedy, ...options }: ErrorOptions & { remedy?: string } = {}) {
    super(message, options);
    this.remedy = remedy;
  }
}

/** A filter, sort or cursor that no engine may see: a mistake of the calling code. */
export class RefusedSelector extends TypeError {
  override readonly name = 'RefusedSelector';
}

/** A document or change that no engine may see: a mistake of the calling code. */
export class RefusedDocument extends TypeError {
  override readonly name = 'RefusedDocument';
}
