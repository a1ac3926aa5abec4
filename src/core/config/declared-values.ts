import type { TSchema } from 'typebox';
import { problemsOf } from './options.js';
import { mustBe } from './validation-messages.js';

/** Single values whose schemas a host declares, such as settings: what a form can edit, and what is wrong with a value. */

/** A value that a host declares. */
export type DeclaredValue = string | number | boolean;

export type ValueKind = 'text' | 'choice' | 'integer' | 'number' | 'boolean';

/** The keywords of schemas that matter here. */
interface Declared {
  type?: unknown;
  enum?: unknown;
  anyOf?: readonly { const?: unknown }[];
  pattern?: string;
  accepts?: string;
}

/** The texts of a choice: of `Type.Enum`, or of a union of literals. Undefined for any other schema. */
export function choicesOf(schema: TSchema): readonly string[] | undefined {
  const { enum: values, anyOf } = schema as Declared;
  const choices = values ?? anyOf?.map(({ const: value }) => value);
  const areTexts = Array.isArray(choices) && choices.every((choice) => typeof choice === 'string');
  return areTexts ? choices : undefined;
}

/** What a form can edit; `undefined` for any other schema. */
export function kindOf(schema: TSchema): ValueKind | undefined {
  if (choicesOf(schema)) return 'choice';
  const { type, enum: values } = schema as Declared;
  if (values !== undefined) return undefined;
  if (type === 'string') return 'text';
  return type === 'integer' || type === 'number' || type === 'boolean' ? type : undefined;
}

const MAX_TEXT = 10_000;

/** Describes why a value does not fit a schema; `undefined` if it does. @param most the characters of a text */
export function valueProblem(schema: TSchema, value: unknown, most = MAX_TEXT): string | undefined {
  if (problemsOf(schema, value).length > 0) return problemText(schema, value);
  if (typeof value !== 'string') return undefined;
  // The store rejects such texts.
  if (!value.isWellFormed() || value.includes('\0')) return 'must be text without invalid characters';
  return value.length > most ? `must be at most ${most} characters long` : undefined;
}

function problemText(schema: TSchema, value: unknown): string {
  const { pattern, accepts } = schema as Declared;
  const problem = mustBe(schema, value);
  // Nothing else says what the pattern is for.
  return pattern !== undefined && accepts === undefined && typeof value === 'string'
    ? `${problem}; it must match ${pattern}`
    : problem;
}

/** Reads what was typed into a form. Text that is no such value is returned unchanged and fails validation. */
export function parseTyped(text: string, kind: ValueKind): unknown {
  if (kind === 'boolean') return { true: true, false: false }[text] ?? text;
  const isNumber = kind === 'integer' || kind === 'number';
  return isNumber && text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}
