/**
 * The storage port, which every engine implements. Each call is one atomic operation on one document, except
 * `insertMany`, `updateMany` and `deleteMany`, which are series of them, and `Store.commit`, which makes several writes or none. `checks.ts`
 * validates arguments before they reach an engine, so that a missing value never matches every document.
 */

/**
 * A value of a declared field or filter. Strings are well-formed, non-empty and without U+0000; numbers are safe
 * integers, because engines round fractions differently. A declared field has one type in all documents.
 */
export type Value = string | number | boolean;

/** An opaque position in a sorted list, which remains valid when documents are inserted or deleted. */
export type Cursor = string;

/** The fields of `T` whose values, if there are any, are `V`. */
type FieldOf<T, V> = {
  [K in keyof T & string]-?: NonNullable<T[K]> extends V ? K : never;
}[keyof T & string];

/** The fields of `T` that can be declared, for filters and sorting. */
export type DeclaredField<T> = FieldOf<T, Value>;

/** Unique fields are required strings, because engines treat absent values in unique indexes differently. */
type UniqueField<T> = {
  [K in keyof T & string]-?: T[K] extends string ? K : never;
}[keyof T & string];

/** The optional fields of `T`, which `unset` can remove. */
export type OptionalField<T> = {
  [K in keyof T & string]-?: Record<never, never> extends Pick<T, K> ? K : never;
}[keyof T & string];

/** The fields of `T` with nested values. */
type ObjectField<T> = {
  [K in keyof T & string]-?: NonNullable<T[K]> extends object ? K : never;
}[keyof T & string];

/** A condition on one field. `null` also matches an absent field; ranges and `in` do not. */
export type Condition<V> = V | null | { in: readonly V[] } | { lt?: V; lte?: V; gt?: V; gte?: V };

/** A filter on declared fields. All conditions must match. */
export type Where<T> = { [K in DeclaredField<T>]?: Condition<NonNullable<T[K]>> };

/** A change of a document. A field may occur once only. `inc` treats an absent field as 0 and rejects null. */
export interface Change<T> {
  set?: Partial<Omit<T, 'id'>>;
  unset?: readonly OptionalField<T>[];
  inc?: { [K in FieldOf<T, number>]?: number };
}

/** One page of a sorted list. Ties are broken by `id`; null and absent sort first (last with `desc`). */
export interface PageQuery<T> {
  where?: Where<T>;
  sort: DeclaredField<T>;
  desc?: boolean;
  after?: Cursor;
  limit: number;
}

/** The result of `page`; `next` is null on the last page. */
export interface Page<T> {
  items: T[];
  next: Cursor | null;
}

/**
 * Documents of one type. `id` is always declared and unique. Callers must not modify arguments until the call has settled;
 * results belong to the caller.
 */
export interface Collection<T extends { id: string }> {
  /** @throws UniqueViolation if the id or the value of a unique field exists */
  insert(doc: T): Promise<void>;
  /** Returns false if the id or the value of a unique field exists in one of them; some of the others are then inserted. */
  insertMany(docs: readonly T[]): Promise<boolean>;
  /** Returns any matching document. */
  findOne(where: Where<T>): Promise<T | null>;
  /** Changes any matching document and returns it after the change; null if none matches. */
  updateOne(where: Where<T>, change: Change<T>): Promise<T | null>;
  /**
   * Changes any matching document like {@link updateOne}, and returns whether there was one. Where it suffices, prefer it:
   * MongoDB changes several documents in one command only without returning them.
   */
  changeOne(where: Where<T>, change: Change<T>): Promise<boolean>;
  /** Deletes any matching document and returns it; null if none matches. */
  deleteOne(where: Where<T>): Promise<T | null>;
  /** Changes all matching documents; unique fields cannot be set. Returns their number. */
  updateMany(where: Where<T>, change: Change<T>): Promise<number>;
  /** Deletes all matching documents. Returns their number. */
  deleteMany(where: Where<T>): Promise<number>;
  page(query: PageQuery<T>): Promise<Page<T>>;
  /**
   * Returns documents that have this text, in any case, within one of the fields of `text`: those that are found first, in no order.
   *
   * @throws RefusedSelector for fewer than {@link MIN_SEARCH} characters
   */
  search(text: string, limit: number): Promise<T[]>;
  /** Reads every matching document or index entry. With `limit`, it stops there. */
  count(where?: Where<T>, limit?: number): Promise<number>;
  /** The number of all documents, at a cost that does not grow with it. */
  estimate(): Promise<Estimate>;
  /** An {@link insert}, for `Store.commit`. */
  inserting(doc: T): Write;
  /** Inserts the document unless its id or the value of a unique field exists, for `Store.commit`: never unmet, never a violation. */
  ensuring(doc: T): Write;
  /** A {@link changeOne}, for `Store.commit`. */
  changing(where: Where<T>, change: Change<T>): Write;
  /** A {@link deleteOne}, for `Store.commit`. */
  deleting(where: Where<T>): Write;
}

/** A write of one document that `Store.commit` makes, with others or alone. */
export interface Write {
  /** The name of its collection. */
  readonly collection: string;
}

/** The outcome of `Store.commit`. `unmet`: the first write for which there was no matching document. */
export type Commit = { readonly committed: true } | { readonly committed: false; readonly unmet: Write };

/** A number of documents. */
export interface Estimate {
  count: number;
  /** False above {@link EXACT_COUNT_LIMIT}. */
  isExact: boolean;
}

/** The fewest characters that `search` finds: a shorter text is part of too many documents. */
export const MIN_SEARCH = 3;

/** Whether a text is long enough. Characters are code points, as engines count them. */
export const canSearch = (text: string): boolean => [...text].length >= MIN_SEARCH;

/** Up to this number of documents, an estimate is exact. */
export const EXACT_COUNT_LIMIT = 10_000;

/**
 * The fields of a collection that filters and sorting may use. Those with an index are in `unique`, `indexes` or `sparse`; the others are for
 * conditions beside an id or an indexed field.
 */
export interface Declaration<T> {
  /** Fields with strings and without an index. */
  fields?: readonly FieldOf<T, string>[];
  /** Every declared field with numbers, whether or not it has an index. */
  numbers?: readonly FieldOf<T, number>[];
  /** Every declared field with booleans, whether or not it has an index. */
  booleans?: readonly FieldOf<T, boolean>[];
  unique?: readonly UniqueField<T>[];
  indexes?: readonly (readonly DeclaredField<T>[])[];
  /** Fields with strings that few documents have. Each has an index of those documents, by which `null` is not found. */
  sparse?: readonly FieldOf<T, string>[];
  /** Fields with strings whose parts `search` finds: names and addresses. Their index costs a write of one of them several times as much. */
  text?: readonly FieldOf<T, string>[];
  view?: View<T>;
}

/**
 * A view of the documents for the queries of other applications, in PostgreSQL only. They rely on its columns: add further ones at the
 * end, and never remove or change one.
 */
export interface View<T> {
  name: `${string}_view`;
  /** What each column contains: a field, or a part of one. `presence`: whether the document has the field. */
  columns: Record<
    string,
    | readonly ['text', FieldOf<T, string>]
    | readonly ['boolean', FieldOf<T, boolean>]
    | readonly ['number' | 'time', FieldOf<T, number>]
    | readonly ['presence', OptionalField<T>]
    | readonly ['text' | 'time', ObjectField<T>, part: string]
  >;
}

/** An open database. */
export interface Store {
  /** Declares a collection. Repeated declarations of a name must be equal. */
  collection<T extends { id: string }>(name: string, declaration?: Declaration<T>): Collection<T>;
  /**
   * Makes all writes or none, also if the process or the database is killed. A document may occur in one of them only. Conflicts with other
   * commits are repeated.
   *
   * @throws UniqueViolation if the id or the value of a unique field exists; nothing is written then
   */
  commit(writes: readonly Write[]): Promise<Commit>;
  /** How long the calls of one request may wait in all (`request-budget.ts`). Absent: the calls are limited one by one. */
  readonly requestTimeoutMs?: number;
  /** The time of the database server (milliseconds). Absent if the database has no clock of its own. */
  serverTime?(): Promise<number>;
  /** Resolves if every declared collection can be read and, as far as known, written. @throws StoreUnavailable */
  ready(): Promise<void>;
  /** Finishes pending calls and closes the database; later calls throw {@link StoreUnavailable}. */
  close(): Promise<void>;
}

/** The id or the value of a unique field exists in another document. */
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

/** Converts a UniqueViolation to null: `insert(doc).then(() => doc, nullIfTaken)`. */
export function nullIfTaken(error: unknown): null {
  if (error instanceof UniqueViolation) return null;
  throw error;
}

/** A foreign key of another application, in PostgreSQL, refers to a document that was to be deleted. */
export class ForeignKeyViolation extends Error {
  override readonly name = 'ForeignKeyViolation';
  readonly statusCode = 409;
  /** Advice for the operator, as a sentence. */
  readonly remedy =
    'Create the foreign key with ON DELETE CASCADE or SET NULL, or delete the rows that refer to it.';
}

/** The database is unavailable: locked for too long, full, read-only, damaged, unreachable or closed. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
  readonly statusCode = 503;
  /** In seconds. */
  readonly retryAfter = 5;
  /** Advice for the operator, as a sentence. */
  readonly remedy: string | undefined;
  /** Whether a write that failed with it may have taken effect, or still may. */
  readonly mayHaveTakenEffect: boolean;

  constructor(
    message: string,
    {
      remedy,
      mayHaveTakenEffect = false,
      ...options
    }: ErrorOptions & { remedy?: string; mayHaveTakenEffect?: boolean } = {},
  ) {
    super(message, options);
    this.remedy = remedy;
    this.mayHaveTakenEffect = mayHaveTakenEffect;
  }
}

/** An invalid filter, sort or cursor: a bug in the calling code. */
export class RefusedSelector extends TypeError {
  override readonly name = 'RefusedSelector';
}

/** An invalid document or change: a bug in the calling code. */
export class RefusedDocument extends TypeError {
  override readonly name = 'RefusedDocument';
}
