import type { TSchema, Type as TypeBox } from 'typebox';

/**
 * The builders of TypeBox that the schemas here use, under its types. What they make is plain JSON Schema. Its own
 * module would load four hundred files into every process: twice the time and more memory than all of Fastify.
 */
type Builders = Pick<
  typeof TypeBox,
  | 'Array'
  | 'Boolean'
  | 'Enum'
  | 'Integer'
  | 'Literal'
  | 'Null'
  | 'Object'
  | 'Optional'
  | 'Pick'
  | 'Record'
  | 'String'
  | 'Union'
  | 'Unknown'
>;

type Schema = Record<string, unknown>;
type Properties = Record<string, TSchema>;

/** JSON Schema says of an object what it requires, TypeBox of a property that it may be absent. */
const optional = new WeakSet<object>();

const builders: Record<keyof Builders, (...args: never[]) => Schema> = {
  Array: (items: TSchema, options?: object) => ({ type: 'array', items, ...options }),
  Boolean: (options?: object) => ({ type: 'boolean', ...options }),
  Enum: (values: readonly unknown[], options?: object) => ({ enum: values, ...options }),
  Integer: (options?: object) => ({ type: 'integer', ...options }),
  Literal: (value: string | number | boolean, options?: object) => ({
    type: typeof value,
    const: value,
    ...options,
  }),
  Null: (options?: object) => ({ type: 'null', ...options }),
  Object: object,
  Optional(schema: TSchema) {
    const copy = { ...schema };
    optional.add(copy);
    return copy;
  },
  Pick({ properties }: { properties: Properties }, names: readonly string[]) {
    return object(Object.fromEntries(Object.entries(properties).filter(([name]) => names.includes(name))));
  },
  Record: (_key: TSchema, value: TSchema, options?: object) => ({
    type: 'object',
    patternProperties: { '^.*$': value },
    ...options,
  }),
  String: (options?: object) => ({ type: 'string', ...options }),
  Union: (anyOf: TSchema[], options?: object) => ({ anyOf, ...options }),
  Unknown: (options?: object) => ({ ...options }),
};

function object(properties: Properties, options?: object): Schema {
  const required = Object.keys(properties).filter((name) => !optional.has(properties[name] as TSchema));
  return { type: 'object', ...(required.length > 0 && { required }), properties, ...options };
}

export const Type = builders as unknown as Builders;
