import { IsOptional, type Static, type TObject, type TProperties, type TSchema, Type } from 'typebox';
import { choicesOf, type DeclaredValue, kindOf, valueProblem } from '../../../core/config/declared-values.js';
import { describeSchema } from '../../../core/config/validation-messages.js';
import { Nullable } from '../../../core/http/schemas.js';
import type { UserFieldValues } from '../../../core/http/user-metadata.js';
import { type ErrorDetail, httpErrors } from '../../../core/kernel/errors.js';

/**
 * The fields of users that the host declares. Their values are stored as text, as metadata is. Every change is validated here,
 * whoever makes it: a route, a page, the admin area or the host.
 */

/** The fields of users by name, each with a schema of a text, number, boolean or choice of texts. */
export type UserFields = Readonly<Record<string, TSchema>>;

/** The types of the values of declared fields, for `UserMetadata`. */
export type UserFieldsOf<Fields extends UserFields> = Static<
  TObject<{ -readonly [K in keyof Fields]: Fields[K] }>
>;

/** The maximum of the values of a user, as JSON in UTF-8: a ceremony of a passkey contains those of a registration. */
const MAX_FIELDS_BYTES = 4 * 1024;

/** The maximum of a text without a lower one of its own, in characters. */
const MAX_TEXT = 1000;

const MAX_PROBLEMS = 20;
const MAX_NAME = 64;
const NAME = /^[a-z]\w{0,63}$/i;

/** Who gives values: a visitor who fills in the form of a registration, the user later, or an operator and code of the host. */
export type FieldWriter = 'visitor' | 'user' | 'operator';

interface Described {
  title?: string;
  description?: string;
  /** Whether only operators and code of the host write it. */
  readOnly?: boolean;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  const?: unknown;
}

/** A field as a form shows it. */
export interface FieldInput {
  name: string;
  label: string;
  hint: string | undefined;
  kind: NonNullable<ReturnType<typeof kindOf>>;
  /** Of a choice. */
  choices: readonly string[];
  isRequired: boolean;
  /** Whether the user cannot write it. */
  isReadOnly: boolean;
  maxLength: number | undefined;
  minimum: number | undefined;
  maximum: number | undefined;
}

const isWritable = (schema: TSchema): boolean => (schema as Described).readOnly !== true;

function inputOf(name: string, schema: TSchema): FieldInput {
  const { title = name, description, maxLength, minimum, maximum, ...rest } = schema as Described;
  const kind = kindOf(schema) ?? 'text';
  return {
    name,
    label: title,
    hint: description,
    kind,
    choices: choicesOf(schema) ?? [],
    // An empty box of a form is a value, except of a consent.
    isRequired: !IsOptional(schema) && (kind !== 'boolean' || rest.const === true),
    isReadOnly: !isWritable(schema),
    maxLength: kind === 'text' ? Math.min(maxLength ?? MAX_TEXT, MAX_TEXT) : undefined,
    minimum,
    maximum,
  };
}

/** The declared fields of users: what is stored, shown and accepted. */
export type UserFieldRules = ReturnType<typeof createUserFields>;

export function createUserFields(declared: UserFields) {
  const inputs = Object.entries(declared).map(([name, schema]) => inputOf(name, schema));
  const names = Object.keys(declared);
  const schemas = new Map(Object.entries(declared));

  /** What is wrong with a value; undefined if nothing is. */
  const problemOf = (name: string, value: unknown, by: FieldWriter): string | undefined => {
    const schema = schemas.get(name);
    if (!schema) return `is not a field of users; the fields are: ${names.join(', ')}`;
    if (by !== 'operator' && !isWritable(schema)) return 'can be changed by the operator only';
    if (value !== null) return textProblem(value) ?? valueProblem(schema, value, MAX_TEXT);
    return by !== 'operator' && !IsOptional(schema) ? `is required: ${describeSchema(schema)}` : undefined;
  };

  /** The declared values that fit their schemas: others stay stored, for the next version of the declaration. */
  const present = (stored: string | undefined): { fields: UserFieldValues } => {
    const values = Object.entries(valuesIn(stored)).filter(([name, value]) => {
      const schema = schemas.get(name);
      return schema !== undefined && valueProblem(schema, value, MAX_TEXT) === undefined;
    });
    return { fields: Object.fromEntries(values) as UserFieldValues };
  };

  return {
    inputs,

    present,

    /**
     * What is stored after a change; undefined if nothing is. Texts are trimmed, and `null` or an empty text removes a value. A visitor has
     * to give the fields that are required.
     * @throws VALIDATION_ERROR, which names each field as `fields.company`
     */
    change(stored: string | undefined, patch: unknown, by: FieldWriter): string | undefined {
      if (patch === undefined && by !== 'visitor') return stored;
      const isObject =
        patch === undefined || (typeof patch === 'object' && patch !== null && !Array.isArray(patch));
      if (!isObject) throw refused([{ path: 'fields', message: 'must be a JSON object' }]);
      const given = Object.entries(patch ?? {}).flatMap(([name, value]): [string, unknown][] =>
        value === undefined ? [] : [[name, typeof value === 'string' ? value.trim() || null : value]],
      );
      const missing = by === 'visitor' ? names.filter((name) => !IsOptional(declared[name])) : [];
      // A given value takes precedence.
      const changed = new Map<string, unknown>([...missing.map((name) => [name, null] as const), ...given]);
      const problems = [...changed].flatMap(([name, value]) => {
        const message = problemOf(name, value, by);
        return message === undefined ? [] : [{ path: `fields.${name.slice(0, MAX_NAME)}`, message }];
      });
      if (problems.length > 0) throw refused(problems);
      const merged = [...new Map([...Object.entries(valuesIn(stored)), ...changed])];
      const kept = merged.filter(([, value]) => value !== null);
      if (kept.length === 0) return undefined;
      const text = JSON.stringify(Object.fromEntries(kept));
      const bytes = Buffer.byteLength(text);
      if (bytes <= MAX_FIELDS_BYTES) return text;
      const message = `must have at most ${MAX_FIELDS_BYTES} bytes of JSON in all; it would have ${bytes}`;
      throw refused([{ path: 'fields', message }]);
    },

    /** The values of e-mails, as text. */
    mailValues(stored: string | undefined): Record<string, string> {
      const shown = Object.entries(present(stored).fields);
      return Object.fromEntries(shown.map(([name, value]) => [`fields.${name}`, String(value)]));
    },
  };
}

/** Everything that is stored, whether or not it is declared. */
export const valuesIn = (stored: string | undefined): Record<string, DeclaredValue> =>
  JSON.parse(stored ?? '{}');

const refused = (details: ErrorDetail[]) =>
  httpErrors.VALIDATION_ERROR({ details: details.slice(0, MAX_PROBLEMS) });

/** Fields are shown in one line, also in subjects of e-mails. */
const textProblem = (value: unknown): string | undefined =>
  typeof value === 'string' && /[\p{Cc}\p{Zl}\p{Zp}]/u.test(value)
    ? 'must be one line without control characters'
    : undefined;

/** The problems of the host's declarations, as sentences. */
export const userFieldsProblems = (declared: unknown): string[] => {
  if (typeof declared !== 'object' || declared === null) return ["'userFields' must be an object."];
  return Object.entries(declared).flatMap(([name, schema]) => {
    const problem = declarationProblem(name, Object(schema));
    return problem === undefined ? [] : [`'userFields.${name}' ${problem}`];
  });
};

/** Keywords that would have no effect. */
const UNSUPPORTED = ['default', 'format', 'writeOnly'];

function declarationProblem(name: string, schema: TSchema): string | undefined {
  if (!NAME.test(name)) return 'must have a name of letters, digits and underscores, like company.';
  if (kindOf(schema) === undefined)
    return 'must have a schema of a text, number, boolean or choice of texts.';
  const [unsupported] = UNSUPPORTED.filter((keyword) => keyword in schema);
  if (unsupported === 'format') return "has a 'format', which is not validated: use a 'pattern'.";
  if (unsupported !== undefined) return `has '${unsupported}', which has no effect: remove it.`;
  if (!isWritable(schema) && !IsOptional(schema))
    return 'is readOnly, so no form can give it: make it Type.Optional.';
  try {
    valueProblem(schema, '');
  } catch (error) {
    return `has a schema that cannot be used: ${(error as Error).message}.`;
  }
  return undefined;
}

/** The schemas of the document of the running server by their titles; undefined ones are left out. */
export function documentedFields(declared: UserFields | undefined): Record<string, TSchema | undefined> {
  const pick = (
    isKept: (schema: TSchema) => boolean,
    of: (schema: TSchema) => TSchema = (schema) => schema,
  ) =>
    declared &&
    Type.Object(
      Object.fromEntries(
        Object.entries(declared).flatMap(([name, schema]) => (isKept(schema) ? [[name, of(schema)]] : [])),
      ) as TProperties,
      { additionalProperties: false },
    );
  const orNull = (schema: TSchema) => Type.Optional(IsOptional(schema) ? Nullable(schema) : schema);
  return {
    UserFieldValues: pick(() => true, Type.Optional),
    NewUserFields: pick(isWritable),
    UserFieldsPatch: pick(isWritable, orNull),
    OperatedUserFields: pick(
      () => true,
      (schema) => Type.Optional(Nullable(schema)),
    ),
  };
}
