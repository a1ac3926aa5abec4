import { charactersIn } from '../kernel/text.js';

/**
 * Messages about invalid values: what is accepted, an example, and what was given. Free text and secrets (`writeOnly`) are
 * described and never repeated.
 */

/** The JSON Schema keywords in use, and `accepts`, which describes a pattern in English. */
export interface Describable {
  type?: string;
  enum?: readonly unknown[];
  const?: unknown;
  anyOf?: readonly Describable[];
  items?: Describable;
  properties?: Record<string, Describable>;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  accepts?: string;
  examples?: readonly unknown[];
  default?: unknown;
  writeOnly?: boolean;
}

/** An error as Ajv reports it in verbose mode. */
export interface SchemaError {
  instancePath: string;
  keyword?: string;
  message?: string;
  params?: Record<string, unknown>;
  parentSchema?: Describable;
  data?: unknown;
}

/** `must be a whole number from 1 to 50, like 7; given: "seven"` */
export function mustBe(schema: Describable, value: unknown): string {
  return `must be ${acceptedBy(schema)}; given: ${given(schema, value)}`;
}

/** Describes what a schema accepts, with an example if there is one. */
export function acceptedBy(schema: Describable): string {
  const { type, examples = type === 'integer' ? [schema.default] : [] } = schema;
  const [example] = examples;
  return kindOf(schema) + (example === undefined ? '' : `, like ${exampleText(example)}`);
}

function kindOf(schema: Describable): string {
  if (schema.accepts !== undefined) return schema.accepts;
  if (schema.anyOf) return [...new Set(schema.anyOf.map(kindOf))].join(' or ');
  if (schema.enum) return `one of ${schema.enum.join(', ')}`;
  if ('const' in schema) return String(schema.const);
  switch (schema.type) {
    case 'integer':
      return `a whole number${between(schema.minimum, schema.maximum)}`;
    case 'number':
      return `a number${between(schema.minimum, schema.maximum)}`;
    case 'boolean':
      return 'true or false';
    case 'array':
      return `a list${amount(schema.minItems, schema.maxItems, 'entries')}, each of them ${kindOf(schema.items ?? {})}`;
    case 'object':
      return 'a JSON object';
    case 'null':
      return 'null';
    case 'string':
      return `text${amount(schema.minLength, schema.maxLength, 'characters')}`;
    default:
      return 'a value';
  }
}

function between(least: number | undefined, most: number | undefined): string {
  if (least !== undefined && most !== undefined) return ` from ${least} to ${most}`;
  if (least !== undefined) return ` of ${least} or more`;
  return most === undefined ? '' : ` of at most ${most}`;
}

function amount(least: number | undefined, most: number | undefined, unit: string): string {
  if (most === undefined) return least === undefined ? '' : ` of ${least} or more ${unit}`;
  return least === undefined ? ` of at most ${most} ${unit}` : ` of ${least} to ${most} ${unit}`;
}

const exampleText = (example: unknown): string =>
  typeof example === 'string' ? example : JSON.stringify(example);

/** Describes a given value; repeats it only if the schema accepts no free text. */
function given(schema: Describable, value: unknown): string {
  if (schema.writeOnly)
    return value === ''
      ? 'empty text'
      : `a ${typeof value === 'string' ? 'different text' : 'value of another type'}`;
  if (typeof value !== 'string') return shown(value);
  return isFreeText(schema) ? described(value) : shown(value);
}

function isFreeText({ type, anyOf, enum: values, items }: Describable): boolean {
  if (anyOf) return anyOf.some(isFreeText);
  return (type === 'string' && values === undefined) || (items !== undefined && isFreeText(items));
}

/** Longer text is only described, because it may be a misplaced secret. */
const MAX_SHOWN = 24;

/** Formats a value for a message. Text with an @ is only described, because it may be a URL with credentials. */
export function shown(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value !== 'string') return String(value);
  const isShort = value !== '' && value.trim() !== '' && value.length <= MAX_SHOWN && !value.includes('@');
  return isShort ? JSON.stringify(value) : described(value);
}

function described(text: string): string {
  if (text === '') return 'empty text';
  const length = charactersIn(text);
  const size = `${length} character${length === 1 ? '' : 's'}`;
  return text.trim() === '' ? `blank text of ${size}` : `text of ${size}`;
}

/** Converts schema errors to messages, one per path. */
export function describeErrors(errors: readonly SchemaError[]): { path: string; message: string }[] {
  const found = new Map<string, string>();
  for (const error of errors.filter((one) => !isExplained(one, errors))) {
    const { path, message } = describe(error);
    if (!found.has(path)) found.set(path, message);
  }
  return [...found].map(([path, message]) => ({ path, message }));
}

/** Whether another error explains this one: the error of an `anyOf` covers those of its alternatives, unless one is deeper. */
function isExplained(error: SchemaError, errors: readonly SchemaError[]): boolean {
  const isAlternative = ({ keyword, instancePath }: SchemaError) =>
    keyword === 'anyOf' && instancePath === error.instancePath;
  const isDeeper = ({ instancePath }: SchemaError) => instancePath.startsWith(`${error.instancePath}/`);
  return errors.some(isAlternative) && (error.keyword !== 'anyOf' || errors.some(isDeeper));
}

function describe({ instancePath, message, params, parentSchema, data }: SchemaError) {
  const parent = instancePath.slice(1).replaceAll('/', '.');
  const missing = params?.['missingProperty'];
  if (typeof missing !== 'string') {
    return { path: parent, message: parentSchema ? mustBe(parentSchema, data) : (message ?? 'is not valid') };
  }
  const wanted = parentSchema?.properties?.[missing];
  return {
    path: parent ? `${parent}.${missing}` : missing,
    message: wanted ? `is required: ${acceptedBy(wanted)}` : 'is required',
  };
}
