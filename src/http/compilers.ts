import { SerializerSelector } from '@fastify/fast-json-stringify-compiler';
import { Ajv, str, type ValidateFunction } from 'ajv';
import type {
  FastifyInstance,
  FastifySchemaCompiler,
  FastifySchemaValidationError,
  FastifySerializerCompiler,
  RouteOptions,
} from 'fastify';
import { describeErrors, type SchemaError } from '../config/validation-messages.js';
import { charactersIn } from '../kernel/text.js';
import { isToken } from './schemas.js';

/** How schemas become functions. Each is compiled when a request first needs it: a start would compile them all. */

/**
 * A wrong type is an error, never a conversion; unknown properties are dropped before anyone sees them. TypeBox
 * schemas carry annotations of ours (`option`), which are not rules. A test holds our schemas to JSON Schema, whose
 * own schema need not be compiled either.
 */
const ajv = new Ajv({
  allErrors: true,
  // Errors bring the schema and the value, of which messages are made.
  verbose: true,
  coerceTypes: false,
  removeAdditional: true,
  useDefaults: true,
  strict: false,
  meta: false,
  validateSchema: false,
});

/**
 * The two rules on lengths, which count code points (JSON Schema). Ajv counts them all; they need not be where the length
 * of the string settles it, and of a token that takes five microseconds.
 */
const LENGTHS = {
  maxLength: {
    than: 'more',
    holds: (most: number, text: string) =>
      text.length <= most || (text.length <= 2 * most && charactersIn(text) <= most),
  },
  minLength: {
    than: 'fewer',
    holds: (least: number, text: string) => text.length >= 2 * least || charactersIn(text) >= least,
  },
};

for (const [keyword, { than, holds }] of Object.entries(LENGTHS)) {
  ajv.removeKeyword(keyword).addKeyword({
    keyword,
    type: 'string',
    schemaType: 'number',
    errors: false,
    // As Ajv orders them: what is told of a text begins with its length.
    before: 'pattern',
    validate: holds,
    error: { message: ({ schemaCode }) => str`must NOT have ${than} than ${schemaCode} characters` },
  });
}

/** Errors that are thrown reach the hooks and the log of a host, so they bring words and no value: it may be a password. */
function describe(errors: readonly SchemaError[]): FastifySchemaValidationError[] {
  return describeErrors(errors.slice(0, 100)).map(({ path, message }) => ({
    instancePath: path === '' ? '' : `/${path.replaceAll('.', '/')}`,
    message,
    keyword: '',
    schemaPath: '',
    params: {},
  }));
}

const compileSerializer = SerializerSelector()({}, {}) as FastifySerializerCompiler<unknown>;

const validatorCompiler: FastifySchemaCompiler<unknown> = ({ schema }) => {
  let validate: ValidateFunction | undefined;
  return (data: unknown) => {
    validate ??= ajv.compile(schema as object);
    return validate(data) || { error: describe((validate.errors ?? []) as SchemaError[]) };
  };
};

const serializerCompiler: FastifySerializerCompiler<unknown> = (route) => {
  let serialize: ReturnType<typeof compileSerializer> | undefined;
  return (data) => {
    serialize ??= compileSerializer({ ...route, schema: asWritten(route.schema) });
    return serialize(data);
  };
};

/** What a scope does not set itself it would inherit from the host. */
export function setCompilers(scope: FastifyInstance): void {
  scope.setValidatorCompiler(validatorCompiler);
  scope.setSerializerCompiler(serializerCompiler);
  // A host's own would come before the schemas of our answers.
  scope.setReplySerializer(undefined as never);
}

/** Fastify replaces the compilers of scopes, by its own that convert types, when a host adds a schema later; those of a route stay. */
export function keepCompilers(route: RouteOptions): void {
  Object.assign(route, { validatorCompiler, serializerCompiler });
}

/** The same schema in words of the serializer's, which then looks for nothing to escape in tokens. */
function asWritten(schema: unknown): unknown {
  const written = JSON.stringify(schema, (_, part) => (isToken(part) ? { ...part, format: 'unsafe' } : part));
  return JSON.parse(written);
}
