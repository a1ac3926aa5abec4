import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import type { Static, TObject, TProperties, TSchema } from 'typebox';
import { Type } from 'typebox';
import type { Random } from '../kernel/secrets.js';
import { suggestion } from '../kernel/text.js';
import { ConfigurationError, type Problem, Report } from './configuration-error.js';
import { loadDevelopmentSecrets } from './development-secrets.js';
import {
  type Describable,
  describeErrors,
  formatValue,
  mustBe,
  type SchemaError,
} from './validation-messages.js';

/**
 * Configuration. A domain declares its options as an annotated schema, from which type, validator, default, environment
 * variable, `.env.example` and documentation are derived. No other file reads the environment.
 */

export interface Annotation<T = unknown> {
  /** The environment variable. */
  env: string;
  /** Read when `env` is unset. */
  fallbackEnv?: string;
  /** Description in `.env.example` and the documentation. */
  doc: string;
  /** Default in the documentation, if the schema has none. */
  shown?: string;
  /** Parses the text of the variable, if the type of the schema is not sufficient. */
  parse?: (text: string) => unknown;
  /** Never printed; `<env>_FILE` names a file that contains it. */
  secret?: boolean;
  /** `<env>_FILE` names a file that contains it, although it is no secret. */
  file?: boolean;
  /** Required in production. */
  required?: 'production';
  /** The name of an earlier option: if that one is set, this one is neither required nor generated. */
  replacedBy?: string;
  /** Default outside production. */
  development?: T;
  /** Generates a value outside production, which is saved in `./data`. */
  generate?: (random: Random) => string;
  /** Adds to a value what it leaves open. */
  complete?: (value: T) => T;
  /** Describes why a value is invalid. */
  check?: (value: T) => string | undefined;
  /** Describes why a value is unsafe: an error in production, otherwise a warning. */
  safe?: (value: T) => string | undefined;
}

export type Annotated = TSchema & { option: Annotation; default?: unknown; type?: string };

/** Annotates a schema. */
export function option<S extends TSchema>(schema: S, annotation: Annotation<Static<S>>): S {
  return Object.assign(schema, { option: annotation });
}

/** The options of a domain. Unknown ones are rejected, so that a typing error does not go unnoticed. */
export function defineOptions<P extends TProperties>(properties: P): TObject<P> {
  return Type.Object(properties, { additionalProperties: false });
}

/** The options of a schema by name: each was annotated by `option`. */
export const optionsIn = ({ properties }: TObject): [string, Annotated][] =>
  Object.entries(properties) as [string, Annotated][];

/** The sources of option values. */
export interface Source {
  /** `saas-backend` or `idp`, for messages and the file of development secrets. */
  program: string;
  given: Record<string, unknown>;
  /** `false` ignores the environment, an object replaces `process.env`. */
  env: Record<string, string | undefined> | false | undefined;
  random: Random;
  /** `false` leaves generated values unset and writes nothing. */
  generate?: boolean;
  /** The options of the server: a plugin refuses them by name, and their variables are known. */
  serverSchema?: TObject;
  /** With which all variables of the program begin. */
  prefix?: string;
}

/** A configuration whose values are valid. */
export interface Resolved<T> {
  /** With defaults. They contain secrets. */
  values: Readonly<T>;
  /** Where each value that is not a default comes from: an option of the code or a variable. */
  origins: Readonly<Record<string, string>>;
  /** Whether NODE_ENV is `production`. */
  production: boolean;
  /** Values that production would reject, and variables without an effect. */
  warnings: Problem[];
  /** Variables whose values are generated for development, the file that contains them, and those that were saved now. */
  generated: { names: string[]; file: string; saved: string[] };
}

// A test validates the schemas themselves, which saves time at the start.
const ajv = new Ajv({ strict: false, meta: false, validateSchema: false, allErrors: true, verbose: true });

/** The errors of a value, for `describeErrors`; none if it is valid. */
export const schemaErrors = (schema: TSchema, value: unknown): SchemaError[] =>
  ajv.validate(schema, value) ? [] : ((ajv.errors ?? []) as SchemaError[]);

/**
 * Resolves options from arguments, environment and defaults, in this order, and freezes them. `rules` validates
 * combinations of values.
 *
 * @throws ConfigurationError with every problem
 */
export function resolveOptions<P extends TProperties>(
  schema: TObject<P>,
  source: Source,
  rules: (values: Static<TObject<P>>, report: Report) => void = () => {},
): Resolved<Static<TObject<P>>> {
  const env = source.env === false ? {} : (source.env ?? process.env);
  // A replaced environment does not turn production off.
  const mode = env['NODE_ENV'] ?? process.env['NODE_ENV'] ?? '';
  const production = mode === 'production';
  const report = new Report(production);
  // Some tools leave quotes around values of environment files.
  if (/^\W*prod/i.test(mode) && !production) {
    report.refuse(
      `NODE_ENV must be spelled 'production'; given: ${formatValue(mode)}. Anything else is development.`,
      'Set NODE_ENV=production.',
    );
  }
  const values: Record<string, unknown> = {};
  const origins: Record<string, string> = {};
  const toGenerate: [name: string, env: string, make: (random: Random) => string][] = [];

  for (const name of Object.keys(source.given)) {
    if (Object.hasOwn(source.serverSchema?.properties ?? {}, name)) {
      const how = name === 'trustProxy' ? ', like fastify({ trustProxy })' : '';
      report.refuse(
        `'${name}' is an option of a server, not of a plugin. Set it where the host creates its own${how}.`,
      );
    } else if (!Object.hasOwn(schema.properties, name)) {
      report.refuse(`'${name}' is not an option.${suggestion(name, Object.keys(schema.properties))}`);
    }
  }
  if (source.serverSchema) {
    const schemas = [schema, source.serverSchema];
    for (const [problem, remedy] of strayVariables(env, schemas, source)) report.warn(problem, remedy);
  }
  for (const [name, property] of optionsIn(schema)) {
    const annotation = property.option;
    const value =
      readValue(name, property, source.given, env, report) ??
      (production ? undefined : annotation.development);
    const origin = originOf(name, annotation, source.given, env);
    if (origin !== undefined) origins[name] = origin;
    if (value !== undefined) {
      values[name] = annotation.complete?.(value) ?? value;
      checkValue(annotation, value, report);
    } else if (annotation.replacedBy !== undefined && values[annotation.replacedBy] !== undefined) {
      // Nothing needs it.
    } else if (annotation.required === 'production' && production) {
      report.refuse(`${annotation.env} is not set. ${annotation.doc}`);
    } else if (annotation.generate && !production) {
      toGenerate.push([name, annotation.env, annotation.generate]);
    }
  }
  rules(values as Static<TObject<P>>, report);
  if (report.problems.length > 0) throw new ConfigurationError(source.program, report.problems);

  const file = `data/${source.program}.secrets.json`;
  const saved: string[] = [];
  if (toGenerate.length > 0 && source.generate !== false) {
    const made = new Map<string, string>();
    const generators = toGenerate.map(
      ([, env, make]) =>
        [
          env,
          () => {
            const secret = make(source.random);
            made.set(env, secret);
            return secret;
          },
        ] as const,
    );
    const secrets = loadSecrets(source, file, Object.fromEntries(generators));
    for (const [name, env] of toGenerate) values[name] = secrets[env];
    // Those of another program that started at the same time may have been saved instead.
    saved.push(...[...made].filter(([env, secret]) => secrets[env] === secret).map(([env]) => env));
  }
  return {
    values: Object.freeze(values) as Readonly<Static<TObject<P>>>,
    origins,
    production,
    warnings: report.warnings,
    generated: { names: toGenerate.map(([, env]) => env), file, saved },
  };
}

function originOf(
  name: string,
  { env: own, fallbackEnv = own }: Annotation,
  given: Record<string, unknown>,
  env: Record<string, string | undefined>,
): string | undefined {
  if (given[name] !== undefined) return `the option ${name}`;
  return [own, `${own}_FILE`, fallbackEnv].find((variable) => env[variable]);
}

function loadSecrets({ program, random }: Source, file: string, generators: Record<string, () => string>) {
  try {
    return loadDevelopmentSecrets(file, generators, random);
  } catch (error) {
    const reason = (error as Error).message.replace(/\.?$/, '.');
    const remedy = `Set ${Object.keys(generators).join(', ')} instead.`;
    throw new ConfigurationError(program, [
      { message: `Development secrets cannot be saved: ${reason}`, remedy },
    ]);
  }
}

function checkValue(annotation: Annotation, value: unknown, report: Report): void {
  const wrong = annotation.check?.(value);
  if (wrong !== undefined) {
    report.refuse(`${annotation.env} ${wrong}`);
    return;
  }
  const unsafe = annotation.safe?.(value);
  if (unsafe !== undefined) report.unsafe(`${annotation.env} ${unsafe}`);
}

/** Reads one option; `undefined` if it is not set and has no default. */
function readValue(
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
    let text = readText(own, isFromFile(schema.option), env, report);
    if (text === undefined && fallbackEnv !== undefined && env[fallbackEnv]) {
      [variable, text] = [fallbackEnv, env[fallbackEnv]];
    }
    if (text === undefined) return schema.default;
    value = parse(text, schema);
  }
  const errors = schemaErrors(schema, value);
  if (errors.length === 0) return value;
  // `writeOnly` keeps a secret out of the message.
  const described = { ...(schema as Describable), writeOnly: schema.option.secret === true };
  const isStructured = schema.type === 'object' && typeof value === 'object' && value !== null;
  const problems = isStructured ? describeParts(errors) : [`${mustBe(described, value)}.`];
  for (const problem of problems) report.refuse(`${variable} (option '${name}') ${problem}`);
  return undefined;
}

/** The problems of a value that code passed, for a VALIDATION_ERROR. */
export function problemsOf(schema: TSchema, value: unknown): { path: string; message: string }[] {
  return schemaErrors(schema, value).flatMap((error) => {
    if (error.keyword !== 'additionalProperties') return describeErrors([error]);
    return [{ path: String(error.params?.['additionalProperty']), message: 'is not an option' }];
  });
}

/** The problems with the parts of an object, each of which begins with its path. */
function describeParts(errors: readonly SchemaError[]): string[] {
  const isUnknown = ({ keyword }: SchemaError) => keyword === 'additionalProperties';
  const unknown = errors.filter(isUnknown).map(({ instancePath, params, parentSchema }) => {
    const key = String(params?.['additionalProperty']);
    const path = [...instancePath.split('/').slice(1), key].join('.');
    return `${path} is not an option.${suggestion(key, Object.keys(parentSchema?.properties ?? {}))}`;
  });
  const invalid = describeErrors(errors.filter((error) => !isUnknown(error)));
  return [...unknown, ...invalid.map(({ path, message }) => `${path} ${message}.`)];
}

/** Shorter names have too many neighbours. */
const MIN_MISSPELT = 8;
const MAX_EDITS = 2;

/** Whether a third of a name is in another one: two edits leave one of them. Much faster than their number. */
function sharesAThird(name: string, other: string): boolean {
  const third = Math.floor(other.length / 3);
  const thirds = [other.slice(0, third), other.slice(third, 2 * third), other.slice(2 * third)];
  return Math.abs(name.length - other.length) <= MAX_EDITS && thirds.some((part) => name.includes(part));
}

/** Variables that look like one of the program, without being read. */
function strayVariables(
  env: Record<string, string | undefined>,
  schemas: readonly TObject[],
  { program, prefix, given }: Pick<Source, 'program' | 'prefix' | 'given'>,
): [problem: string, remedy: string][] {
  const options = schemas.flatMap(optionsIn);
  const annotations = options.map(([, { option }]) => option);
  const names = annotations.flatMap(({ env: name, fallbackEnv }) => [name, fallbackEnv ?? name]);
  const files = annotations.filter(isFromFile).map(({ env: name }) => `${name}_FILE`);
  const known = new Set([...names, ...files]);
  // What code has set is missed by nobody: a name like it is one of the application.
  const inCode = options.filter(([key]) => given[key] !== undefined).map(([, { option }]) => option.env);
  const unset = [...known].filter(
    (name) => name.length >= MIN_MISSPELT && !env[name] && !inCode.includes(name),
  );
  return Object.keys(env)
    .filter((name) => env[name] && !known.has(name))
    .flatMap((name): [string, string][] => {
      const variable = name.replace(/_FILE$/, '');
      if (variable !== name && known.has(variable))
        return [[`${name} has no effect: ${variable} is not read from a file.`, `Set ${variable}.`]];
      // A variable of idp is none of saas-backend, although they differ by few letters.
      const isForeign = prefix === undefined && name.startsWith('IDP_');
      const near = isForeign ? [] : unset.filter((other) => sharesAThird(name, other));
      const hint = suggestion(name, near, '', MAX_EDITS);
      const isOurs = hint !== '' || (prefix !== undefined && name.startsWith(prefix));
      return isOurs
        ? [[`${name} has no effect: it is not a variable of ${program}.${hint}`, 'Correct or unset it.']]
        : [];
    });
}

/** Whether `<env>_FILE` may name a file that contains the value. */
export const isFromFile = ({ secret, file }: Annotation): boolean => secret === true || file === true;

/** The text of a variable or of the file that `<variable>_FILE` names. An empty text counts as unset. */
function readText(
  variable: string,
  fromFile: boolean,
  env: Record<string, string | undefined>,
  report: Report,
): string | undefined {
  const text = env[variable] || undefined;
  const file = fromFile ? env[`${variable}_FILE`] || undefined : undefined;
  if (file === undefined) return text;
  if (text !== undefined) {
    report.refuse(`${variable} and ${variable}_FILE are both set.`, 'Set only one of them.');
    return undefined;
  }
  try {
    // Editors add byte order marks and final newlines, which are not part of the value.
    return readFileSync(file, 'utf8').replace(/^\ufeff|(?<![\r\n])[\r\n]+$/g, '') || undefined;
  } catch (error) {
    report.refuse(
      `${variable}_FILE names a file that cannot be read (${(error as NodeJS.ErrnoException).code}).`,
    );
    return undefined;
  }
}

/** Converts text to the type of the schema. Text that cannot be converted is returned unchanged and fails validation. */
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

/** `a, b` → `['a', 'b']`. */
export function parseList(text: string): string[] {
  const items = text.split(',').map((item) => item.trim());
  return items.filter((item) => item !== '');
}

/** Sets variables that are not set. For programs only: a plugin must not change the environment of its host. */
export function completeEnvironment(variables: Record<string, string | undefined>): void {
  for (const [name, value] of Object.entries(variables)) process.env[name] ??= value;
}

/** The value of a variable that is not an option of its reader. @param env as in `Source` */
export function readVariable(name: string, env?: Source['env']): string | undefined {
  return (env === false ? {} : (env ?? process.env))[name];
}

/** The text of a variable, or of the file that `<name>_FILE` names. @throws ConfigurationError */
export function readSecret(program: string, name: string): string | undefined {
  const report = new Report(false);
  const text = readText(name, true, process.env, report);
  if (report.problems.length > 0) throw new ConfigurationError(program, report.problems);
  return text;
}

/** The size of libuv's thread pool, which password hashing shares with the file system and DNS. */
export function threadPoolSize(): number {
  return Number(process.env['UV_THREADPOOL_SIZE']) || 4;
}
