import { SerializerSelector } from '@fastify/fast-json-stringify-compiler';
import { Ajv, type ValidateFunction } from 'ajv';
import type { DataValidationCxt } from 'ajv/dist/types/index.js';
import type {
  FastifyInstance,
  FastifySchemaCompiler,
  FastifySchemaValidationError,
  FastifySerializerCompiler,
  RouteOptions,
} from 'fastify';
import { describeErrors, type SchemaError } from '../config/validation-messages.js';

/** Validator and serializer compilers. A schema is compiled at its first use, which keeps the start fast. */

/**
 * Rejects wrong types without coercion, so that numbers in queries and forms are strings with a pattern. Removes unknown
 * properties where a schema has `additionalProperties: false`. A test validates the schemas themselves.
 */
const ajv = new Ajv({
  allErrors: true,
  // Includes the schema and the value, which messages are derived from.
  verbose: true,
  coerceTypes: false,
  removeAdditional: true,
  useDefaults: true,
  strict: false,
  meta: false,
  validateSchema: false,
});

/** Removes the spaces that keyboards and clipboards add around a value, before it is validated. */
ajv.addKeyword({
  keyword: 'trimmed',
  type: 'string',
  schemaType: 'boolean',
  modifying: true,
  errors: false,
  before: 'maxLength',
  validate(isTrimmed: boolean, text: string, _schema: unknown, context?: DataValidationCxt) {
    if (isTrimmed && context?.parentData) context.parentData[context.parentDataProperty] = text.trim();
    return true;
  },
});

/** Removes values from validation errors: hooks and the log of a host see them, and a value may be a password. */
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

type Serializer = ReturnType<typeof compileSerializer>;

/** Of all servers in this process: compiling a union takes tens of milliseconds. */
const serializers = new WeakMap<object, Serializer>();

const serializerCompiler: FastifySerializerCompiler<unknown> = (route) => {
  const schema = route.schema as object;
  let serialize: Serializer | undefined;
  return (data) => {
    serialize ??= serializers.get(schema);
    if (!serialize) {
      serialize = compileSerializer(route);
      serializers.set(schema, serialize);
    }
    return serialize(data);
  };
};

/** Sets the compilers of a context, which would otherwise inherit those of the host. */
export function setCompilers(fastify: FastifyInstance): void {
  fastify.setValidatorCompiler(validatorCompiler);
  fastify.setSerializerCompiler(serializerCompiler);
  // A reply serializer of the host would take precedence over the response schemas.
  fastify.setReplySerializer(undefined as never);
}

/** Sets the compilers of a route: Fastify replaces those of a context when a host adds a schema later. */
export function pinCompilers(route: RouteOptions): void {
  Object.assign(route, { validatorCompiler, serializerCompiler });
}
