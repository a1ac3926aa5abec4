import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import type { Static, TObject, TProperties, TSchema } from 'typebox';
import { Type } from 'typebox';
import type { Random } from '../kernel/secrets.js';
import { suggestion } from '../kernel/text.js';
import { ConfigurationError, type Problem, Report } from './configuration-error.js';
import { loadDevelopmentSecrets } from './development-secrets.js';
import { type Describable, mustBe, shown } from './validation-messages.js';

/**
 * Configuration. Each domain declares its options once, as an annotated schema that is at the same time
 * type, validator, default, environment variable, line of `.env.example` and row of the documentation.
 * This file is the only one that reads the environment.
 */

export interface Annotation<T = unknown> {
  /** The environment variable. */
  env: string;
  /** Read when `env` is unset. */
  fallbackEnv?: string;
  /** For people: `.env.example` and the documentation. */
  doc: string;
  /** What the documentation shows as default when the schema has none. */
  shown?: string;
  /** Reads the variable's text where the type of the schema does not say how. */
  parse?: (text: string) => unknown;
  /** Never printed; `<env>_FILE` names a file that holds it. */
  secret?: boolean;
  /** Production does not start without it. */
  required?: 'production';
  /** Default outside production. */
  development?: T;
  /** Makes the value that development keeps in `./data` when none is given. */
  generate?: (random: Random) => string;
  /** Says what is wrong with a value, everywhere. */
  check?: (value: T) => string | undefined;
  /** Says what is unsafe about a value: refused in production, a warning elsewhere. */
  safe?: (value: T) => string | undefined;
}

export type Annotated = TSchema & { option: Annotation; default?: unknown; type?: string };

/** Annotates the schema of one option. */
export function option<S extends TSchema>(schema: S, annotation: Annotation<Static<S>>): S {
  return Object.assign(schema, { option: annotation });
}

/** The options of a domain. Unknown ones are refused, so that a typing error is not a silent default. */
export function defineOptions<P extends TProperties>(properties: P): TObject<P> {
  return Type.Object(properties, { additionalProperties: false });
}

/** Where values come from. */
export interface Source {
  /** Names the program in messages and names its file of development secrets: `saas-backend`, `idp`. */
  program: string;
  given: Record<string, unknown>;
  /** `false` for none, an object to replace `process.env`. */
  env: Record<string, string | undefined> | false | undefined;
  random: Random;
  /** `false`: only look. What development would make up stays unset, and nothing is written. */
  generate?: boolean;
}

export interface Resolved<T> {
  values: Readonly<T>;
  production: boolean;
  /** What production would refuse. */
  warnings: Problem[];
  /** Variables whose value was made up for development, and the file that keeps them. */
  generated: { names: string[]; file: string };
}

// A test holds our schemas to JSON Schema, so that no start has to.
const ajv = new Ajv({ strict: false, meta: false, validateSchema: false });

/**
 * Options from arguments, then environment, then defaults; resolved once and frozen.
 * `rules` sees the values and reports what only several of them together can show.
 *
 * @throws ConfigurationError naming every problem
 */
export function resolveOptions<P extends TProperties>(
  schema: TObject<P>,
  source: Source,
  rules: (values: Static<TObject<P>>, report: Report) => void = () => {},
): Resolved<Static<TObject<P>>> {
  const env = source.env === false ? {} : (source.env ?? process.env);
  // Whoever replaces the environment does not leave production by it.
  const mode = env['NODE_ENV'] ?? process.env['NODE_ENV'] ?? '';
  const production = mode === 'production';
  const report = new Report(production);
  // Quotes, too: some that read a list of variables leave them in.
  if (/^\W*prod/i.test(mode) && !production) {
    report.refuse(
      `NODE_ENV must be spelled 'production'; given: ${shown(mode)}. Anything else is development.`,
      'Set NODE_ENV=production.',
    );
  }
  const properties = Object.entries(schema.properties) as unknown as [string, Annotated][];
  const values: Record<string, unknown> = {};
  const toGenerate: [name: string, env: string, make: (random: Random) => string][] = [];

  for (const name of Object.keys(source.given)) {
    if (!Object.hasOwn(schema.properties, name))
      report.refuse(`'${name}' is not an option.${suggestion(name, Object.keys(schema.properties))}`);
  }
  for (const [name, property] of properties) {
    const annotation = property.option;
    const value =
      read(name, property, source.given, env, report) ?? (production ? undefined : annotation.development);
    if (value !== undefined) {
      values[name] = value;
      judge(annotation, value, report);
    } else if (annotation.required === 'production' && production) {
      report.refuse(`${annotation.env} is not set. ${annotation.doc}`);
    } else if (annotation.generate && !production) {
      toGenerate.push([name, annotation.env, annotation.generate]);
    }
  }
  rules(values as Static<TObject<P>>, report);
  if (report.problems.length > 0) throw new ConfigurationError(source.program, report.problems);

  const file = `data/${source.program}.secrets.json`;
  if (toGenerate.length > 0 && source.generate !== false) {
    const makers = toGenerate.map(([, env, make]) => [env, () => make(source.random)] as const);
    const kept = keepSecrets(source, file, Object.fromEntries(makers));
    for (const [name, env] of toGenerate) values[name] = kept[env];
  }
  return {
    values: Object.freeze(values) as Readonly<Static<TObject<P>>>,
    production,
    warnings: report.warnings,
    generated: { names: toGenerate.map(([, env]) => env), file },
  };
}

function keepSecrets({ program, random }: Source, file: string, makers: Record<string, () => string>) {
  try {
    return loadDevelopmentSecrets(file, makers, random);
  } catch (error) {
    const reason = (error as Error).message.replace(/\.?$/, '.');
    const remedy = `Set ${Object.keys(makers).join(', ')} instead.`;
    throw new ConfigurationError(program, [
      { message: `Development secrets cannot be saved: ${reason}`, remedy },
    ]);
  }
}

function judge(annotation: Annotation, value: unknown, report: Report): void {
  const wrong = annotation.check?.(value);
  if (wrong !== undefined) {
    report.refuse(`${annotation.env} ${wrong}`);
    return;
  }
  const unsafe = annotation.safe?.(value);
  if (unsafe !== undefined) report.unsafe(`${annotation.env} ${unsafe}`);
}

/** One option, as typed as its schema; `undefined` when nobody set it and it has no default. */
function read(
  name: string,
  schema: Annotated,
  given: Record<string, unknown>,
  env: Record<string, string | undefined>,
  report: Report,
): unknown {
  const { env: own, fallbackEnv } = schema.option;
  let value = given[name];
  let variable = own;
  if (value === undefined) {
    let text = readText(own, schema.option.secret === true, env, report);
    if (text === undefined && fallbackEnv !== undefined && env[fallbackEnv]) {
      [variable, text] = [fallbackEnv, env[fallbackEnv]];
    }
    if (text === undefined) return schema.default;
    value = parse(text, schema);
  }
  if (ajv.validate(schema, value)) return value;
  // The option of a secret takes free text only, of which no message shows anything.
  report.refuse(
    `${variable} (option '${name}') ${mustBe({ ...(schema as Describable), writeOnly: schema.option.secret === true }, value)}.`,
  );
  return undefined;
}

/** The text of a variable or of the file that `<variable>_FILE` names. Empty is unset. */
function readText(
  variable: string,
  secret: boolean,
  env: Record<string, string | undefined>,
  report: Report,
): string | undefined {
  const text = env[variable] || undefined;
  const file = secret ? env[`${variable}_FILE`] || undefined : undefined;
  if (file === undefined) return text;
  if (text !== undefined) {
    report.refuse(`${variable} and ${variable}_FILE are both set.`, 'Set only one of them.');
    return undefined;
  }
  try {
    // No secret begins with a byte order mark or ends with the end of a line; editors put both there unseen.
    return readFileSync(file, 'utf8').replace(/^\ufeff|[\r\n]+$/g, '') || undefined;
  } catch (error) {
    report.refuse(
      `${variable}_FILE names a file that cannot be read (${(error as NodeJS.ErrnoException).code}).`,
    );
    return undefined;
  }
}

/** Text of the environment as the schema wants it. What cannot be converted stays text, and the schema refuses it. */
function parse(text: string, schema: Annotated): unknown {
  if (schema.option.parse) return schema.option.parse(text);
  switch (schema.type) {
    case 'integer':
      return /^-?\d{1,15}$/.test(text) ? Number(text) : text;
    case 'boolean':
      return { true: true, '1': true, false: false, '0': false }[text] ?? text;
    case 'array':
      return parseList(text);
    default:
      return text;
  }
}

/** `a, b` as `['a', 'b']`. */
export function parseList(text: string): string[] {
  const items = text.split(',').map((item) => item.trim());
  return items.filter((item) => item !== '');
}

/** Sets the variables that nobody has set. For the programs: a plugin leaves the environment of its host alone. */
export function completeEnvironment(variables: Record<string, string | undefined>): void {
  for (const [name, value] of Object.entries(variables)) process.env[name] ??= value;
}

/** Threads of libuv's pool, which password hashing shares with the file system and DNS. */
export function threadPoolSize(): number {
  return Number(process.env['UV_THREADPOOL_SIZE']) || 4;
}
