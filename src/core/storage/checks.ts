/** Validation of arguments for all engines. Messages name fields, never values, which may be secrets. */
import { canSearch, type Declaration, RefusedDocument, RefusedSelector } from './collection.js';

/** The type of a declared field, which PostgreSQL needs for its column. */
export type FieldType = 'string' | 'number' | 'boolean';

/** A validated declaration. */
export interface Shape {
  readonly name: string;
  readonly unique: readonly string[];
  readonly indexes: readonly (readonly string[])[];
  readonly sparse: readonly string[];
  readonly text: readonly string[];
  /** Fields that a filter or sort may name, and the type of their values. */
  readonly declared: ReadonlyMap<string, FieldType>;
  /** Fields that are strings in every document: `id` and the unique ones. */
  readonly required: ReadonlySet<string>;
  readonly view?: ShapeView;
}

/** A view of the documents of a collection: what each column contains. */
export interface ShapeView {
  readonly name: string;
  readonly columns: Record<
    string,
    readonly [content: 'text' | 'boolean' | 'number' | 'time' | 'presence', field: string, part?: string]
  >;
}

/** Well below the limits of the stack and of SQLite, which is 1,000. */
const MAX_DEPTH = 100;
const MAX_PAGE = 1000;
const RANGE = new Set(['lt', 'lte', 'gt', 'gte']);
const ACTIONS = new Set(['set', 'unset', 'inc']);

/** Validates the declaration of a collection. */
export function shapeOf<T>(name: string, declaration: Declaration<T>): Shape {
  const unique: readonly string[] = declaration.unique ?? [];
  const indexes: readonly (readonly string[])[] = declaration.indexes ?? [];
  const { fields = [], numbers = [], booleans = [] } = declaration;
  const sparse: readonly string[] = declaration.sparse ?? [];
  const text: readonly string[] = declaration.text ?? [];
  const required = new Set(['id', ...unique]);
  const strings = [...required, ...fields, ...indexes.flat(), ...sparse];
  const declared = new Map<string, FieldType>([
    ...strings.map((field) => [field, 'string'] as const),
    ...numbers.map((field) => [field, 'number'] as const),
    ...booleans.map((field) => [field, 'boolean'] as const),
  ]);
  // `doc` is the column of the document in SQL databases.
  const bad =
    [name, ...declared.keys(), ...text].find((word) => !isFieldName(word)) ??
    (declared.has('doc') ? 'doc' : null);
  if (bad !== null) throw new TypeError(`${name}: ${JSON.stringify(bad)} cannot be declared`);
  if (name.endsWith('_view')) throw new TypeError(`${name} is the name of a view`);
  const { view } = declaration;
  return { name, unique, indexes, sparse, text, declared, required, ...(view && { view }) };
}

/** Validates a filter with at least one condition. */
export function checkWhere(shape: Shape, where: unknown): void {
  checkConditions(shape, where);
  if (Object.keys(where).length === 0) throw new RefusedSelector(`${shape.name}: the filter is empty`);
}

/** Validates a filter that may be empty, for lists and counts. */
export function checkConditions(shape: Shape, where: unknown): asserts where is object {
  if (!isPlainObject(where)) throw new RefusedSelector(`${shape.name}: the filter is not a plain object`);
  for (const field of keysOf(where)) {
    const type = shape.declared.get(field as string);
    const problem =
      type === undefined
        ? 'is not declared'
        : conditionProblem(where[field as string], type, shape.required.has(field as string));
    if (problem) throw new RefusedSelector(`${shape.name}: filter field ${String(field)} ${problem}`);
  }
}

function conditionProblem(condition: unknown, type: FieldType, required: boolean): string | null {
  // A required field is never null, so a null condition is an error of the caller.
  if (condition === null) return required ? 'can never be null' : null;
  const problemOf = (value: unknown) => valueProblem(value, type);
  if (!isPlainObject(condition)) return problemOf(condition);
  const operators = keysOf(condition);
  if (operators.length === 1 && operators[0] === 'in') {
    const values = condition['in'];
    return Array.isArray(values) ? firstProblem(values, problemOf) : 'has an `in` that is not an array';
  }
  if (operators.length === 0 || !operators.every((operator) => RANGE.has(operator as string))) {
    return 'has an operator other than in, or lt, lte, gt, gte';
  }
  return firstProblem(Object.values(condition), problemOf);
}

/** Validates the bound of a count. */
export function checkLimit(limit: number): void {
  if (!Number.isSafeInteger(limit) || limit < 1) {
    throw new RefusedSelector('The limit of a count must be an integer from 1.');
  }
}

/** Validates sort, direction and limit of a page; `positionOf` validates the cursor. */
export function checkPage(shape: Shape, query: { where?: unknown; sort: string; limit: number }): void {
  // `in`, not `!== undefined`: a filter that is accidentally undefined must not list everything.
  if ('where' in query) checkConditions(shape, query.where);
  if (!shape.declared.has(query.sort)) {
    throw new RefusedSelector(`${shape.name}: sort field ${query.sort} is not declared`);
  }
  checkPageLimit(shape, query.limit);
}

function checkPageLimit({ name }: Shape, limit: number): void {
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE)
    throw new RefusedSelector(`${name}: limit must be between 1 and ${MAX_PAGE}`);
}

/** Validates a search. */
export function checkSearch(shape: Shape, text: string, limit: number): void {
  if (shape.text.length === 0) throw new RefusedSelector(`${shape.name}: no field is searched for text`);
  const problem = valueProblem(text, 'string') ?? (canSearch(text) ? null : 'is too short');
  if (problem) throw new RefusedSelector(`${shape.name}: the text of the search ${problem}`);
  checkPageLimit(shape, limit);
}

/** Validates a document: plain JSON, with Values in its declared fields. */
export function checkDocument(shape: Shape, doc: unknown): void {
  if (!isPlainObject(doc)) throw new RefusedDocument(`${shape.name}: the document is not a plain object`);
  for (const field of keysOf(doc)) checkField(shape, field, doc[field as string]);
  for (const field of shape.required) {
    if (!Object.hasOwn(doc, field)) throw new RefusedDocument(`${shape.name}: field ${field} is missing`);
  }
}

function checkField(shape: Shape, field: string | symbol, value: unknown): void {
  const problem = isFieldName(field) ? fieldProblem(shape, field, value) : 'has a name that cannot be stored';
  if (problem) throw new RefusedDocument(`${shape.name}: field ${String(field)} ${problem}`);
}

function fieldProblem(shape: Shape, field: string, value: unknown): string | null {
  const type = shape.declared.get(field);
  if (type === undefined) return jsonProblem(value, 0);
  return value === null && !shape.required.has(field) ? null : valueProblem(value, type);
}

/** Validates a change of at least one field. `updateMany` cannot set a unique field, which only one document can have. */
export function checkChange(shape: Shape, change: unknown, many = false): void {
  if (!isPlainObject(change) || !keysOf(change).every((action) => ACTIONS.has(action as string))) {
    throw new RefusedDocument(`${shape.name}: a change is set, unset and inc`);
  }
  const { set = {}, unset = [], inc = {} } = change;
  if (!isPlainObject(set) || !Array.isArray(unset) || !isPlainObject(inc)) {
    throw new RefusedDocument(`${shape.name}: set and inc are plain objects, unset is an array`);
  }
  const seen = new Set<unknown>();
  const validateField = (field: unknown, locked: boolean): void => {
    const problem = seen.has(field)
      ? 'is changed twice'
      : field === 'id' || locked
        ? 'cannot be changed this way'
        : null;
    if (problem) throw new RefusedDocument(`${shape.name}: field ${String(field)} ${problem}`);
    seen.add(field);
  };
  for (const field of keysOf(set)) {
    checkField(shape, field, set[field as string]);
    validateField(field, many && shape.required.has(field as string));
  }
  for (const field of unset) {
    if (!isFieldName(field)) throw new RefusedDocument(`${shape.name}: unset contains an invalid field name`);
    validateField(field, shape.required.has(field));
  }
  for (const field of keysOf(inc)) {
    const amount = inc[field as string];
    if (!Number.isSafeInteger(amount)) {
      throw new RefusedDocument(`${shape.name}: inc of ${String(field)} is not a safe integer`);
    }
    checkField(shape, field, amount);
    validateField(field, false);
  }
  if (seen.size === 0) throw new RefusedDocument(`${shape.name}: the change is empty`);
}

/** Describes why a value is invalid in a declared field of this type or in a filter on it; null if it is valid. */
export function valueProblem(value: unknown, type: FieldType): string | null {
  if (typeof value !== type) return `is not a ${type}`;
  if (typeof value === 'number') return Number.isSafeInteger(value) ? null : 'is not a safe integer';
  if (typeof value !== 'string') return null;
  if (value === '') return 'is empty';
  // In SQLite, lone surrogates become U+FFFD and JSON strings end at U+0000, so different strings would become equal.
  return value.isWellFormed() && !value.includes('\0') ? null : 'is ill-formed';
}

function jsonProblem(value: unknown, depth: number): string | null {
  if (value === null || typeof value === 'boolean') return null;
  if (typeof value === 'number')
    return Number.isFinite(value) ? null : 'contains a number that is not finite';
  if (typeof value === 'string') return value.isWellFormed() ? null : 'contains an ill-formed string';
  if (depth === MAX_DEPTH) return 'is nested too deep';
  if (Array.isArray(value)) return firstProblem(value, (item) => jsonProblem(item, depth + 1));
  if (!isPlainObject(value)) return 'is not plain JSON';
  for (const key of keysOf(value)) {
    if (typeof key === 'symbol' || key === '__proto__' || !key.isWellFormed())
      return 'contains an unusable key';
  }
  return firstProblem(Object.values(value), (item) => jsonProblem(item, depth + 1));
}

/** Unlike most array methods, visits the holes of sparse arrays. */
function firstProblem(values: unknown[], problemOf: (value: unknown) => string | null): string | null {
  for (const value of values) {
    const problem = problemOf(value);
    if (problem) return problem;
  }
  return null;
}

/** A letter, then letters, digits and `_`: neither a path nor an operator in any engine, nor an inherited property. */
function isFieldName(name: unknown): name is string {
  if (typeof name !== 'string') return false;
  if (fieldNames.has(name)) return true;
  const isValid = /^[a-z]\w*$/i.test(name) && !(name in Object.prototype);
  if (isValid && fieldNames.size < MAX_FIELD_NAMES) fieldNames.add(name);
  return isValid;
}

/** Valid names: to look one up takes a quarter of the time of its validation. */
const fieldNames = new Set<string>();
const MAX_FIELD_NAMES = 10_000;

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** `Reflect.ownKeys`, which takes three times as long on Node 20. */
function keysOf(object: object): (string | symbol)[] {
  const symbols = Object.getOwnPropertySymbols(object);
  const names = Object.getOwnPropertyNames(object);
  return symbols.length === 0 ? names : [...names, ...symbols];
}
