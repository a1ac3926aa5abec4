import { SerializerSelector } from '@fastify/fast-json-stringify-compiler';
import { Ajv, type ValidateFunction } from 'ajv';
import type { FastifyInstance, FastifySchemaValidationError, FastifySerializerCompiler } from 'fastify';

/** How schemas become functions. Each is compiled when a request first needs it: a start would compile them all. */

/**
 * A wrong type is an error, never a conversion; unknown properties are dropped before anyone sees them. TypeBox
 * schemas carry annotations of ours (`option`), which are not rules. A test holds our schemas to JSON Schema, whose
 * own schema need not be compiled either.
 */
const ajv = new Ajv({
  allErrors: true,
  coerceTypes: false,
  removeAdditional: true,
  useDefaults: true,
  strict: false,
  meta: false,
  validateSchema: false,
});

const compileSerializer = SerializerSelector()({}, {}) as FastifySerializerCompiler<unknown>;

/** What a scope does not set itself it would inherit from the host. */
export function setCompilers(scope: FastifyInstance): void {
  scope.setValidatorCompiler(({ schema }) => {
    let validate: ValidateFunction | undefined;
    return (data) => {
      validate ??= ajv.compile(schema as object);
      return validate(data) || { error: validate.errors as FastifySchemaValidationError[] };
    };
  });
  scope.setSerializerCompiler((route) => {
    let serialize: ReturnType<typeof compileSerializer> | undefined;
    return (data) => {
      serialize ??= compileSerializer(route);
      return serialize(data);
    };
  });
  // A host's own would come before the schemas of our answers.
  scope.setReplySerializer(undefined as never);
}
