/** Converts the TypeBox schemas of routes to schemas of OpenAPI 3.1, and makes examples for them. */
import { isTimestamp, SubscriptionStatus } from '../../dist/src/core/http/schemas.js';

const plain = (schema) =>
  JSON.parse(
    JSON.stringify(schema, (_, part) => (isTimestamp(part) ? { ...part, format: 'date-time' } : part)),
  );

const STATUSES = JSON.stringify(SubscriptionStatus);

/**
 * @param names JSON of a schema → its name among the components, which `components.schemas` then contains
 * @param isRequest whether properties with a default may be absent
 * @param isClosed whether the route rejects unknown properties, which others ignore
 */
export function convert(schema, context = {}) {
  const { names, components } = context;
  const name = context.isClosed ? undefined : names?.get(JSON.stringify(schema));
  if (name === undefined) return converted(schema, context);
  if (!components.schemas[name]) {
    components.schemas[name] = {};
    components.schemas[name] = converted(schema, context);
  }
  return { $ref: `#/components/schemas/${name}` };
}

function converted(source, context) {
  if (source === true || source === false || Object.keys(source).length === 0) return source;
  if (JSON.stringify(source) === STATUSES) return subscriptionStatus();
  const { accepts, trimmed: _, ...schema } = { ...source };
  const result = JSON.parse(JSON.stringify(schema));
  if (plain([source])[0].format === 'date-time') result.format = 'date-time';
  if (schema.properties) {
    result.properties = Object.fromEntries(
      Object.entries(schema.properties).map(([name, property]) => [
        name,
        convert(property, { ...context, isClosed: false }),
      ]),
    );
    const required = (schema.required ?? []).filter(
      (name) => !(context.isRequest && schema.properties[name]?.default !== undefined),
    );
    if (required.length > 0) result.required = required;
    else delete result.required;
    if (context.isClosed) result.additionalProperties = false;
    else if (schema.additionalProperties === false) delete result.additionalProperties;
  }
  if (schema.items) result.items = convert(schema.items, context);
  if (schema.patternProperties) {
    const [values] = Object.values(schema.patternProperties);
    delete result.patternProperties;
    result.additionalProperties = convert(values, context);
  }
  if (schema.anyOf) result.anyOf = schema.anyOf.map((each) => convert(each, context));
  if (schema.enum && !schema.type) result.type = typeof schema.enum[0];
  if (accepts) {
    const sentence = `${accepts[0].toUpperCase()}${accepts.slice(1)}.`;
    result.description = schema.description ? `${schema.description} ${sentence}` : sentence;
  }
  return simplified(result);
}

/** `{ type: [t, 'null'] }` instead of a union of two. */
function simplified(schema) {
  const { anyOf, ...others } = schema;
  const other = anyOf?.length === 2 && anyOf[1].type === 'null' ? anyOf[0] : undefined;
  if (!other || other.$ref || other.enum || typeof other.type !== 'string') return schema;
  return { ...other, ...others, type: [other.type, 'null'] };
}

const subscriptionStatus = () => ({
  type: 'string',
  description: `${SubscriptionStatus.enum.map((status) => `\`${status}\``).join(', ')}. The payment provider may add others, which grant no access.`,
  'x-extensible-enum': SubscriptionStatus.enum,
  examples: ['active'],
});

const EXAMPLES = {
  id: '0197f3c2a1b07c6e',
  sub: '0197f3c2a1b07c6e',
  email: 'ada@example.com',
  handle: 'ada@example.com',
  name: 'Ada Lovelace',
  plan: 'pro',
  password: 'correct horse battery staple',
  currentPassword: 'correct horse battery staple',
  newPassword: 'a better horse battery staple',
  accessToken: 'eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl',
  refreshToken: 'eyJhbGciOiJIUzI1NiJ9.e30.cmVmcmVzaA',
  access_token: 'at_3fV8q2',
  refresh_token: 'rt_9xK1m7',
  expiresIn: 900,
  expires_in: 900,
  currency: 'usd',
  ip: '192.0.2.1',
  url: 'https://app.example.com/',
  amr: ['pwd'],
  code: '123456',
  provider: 'google',
  codeVerifier: 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk',
  codeChallenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM',
  returnTo: '/welcome',
  priceId: 'price_1Pro',
  subscriptionId: 'sub_1',
  user: 'ada@example.com',
  to: 'ada@example.com',
  invite_url: 'https://id.example.com/invite/4dJ2',
  issuer: 'https://id.example.com',
  client_name: 'My app',
  scope: 'openid profile',
  session: '0197f3c2a1b07c6f',
  challenge: 'eyJhbGciOiJIUzI1NiJ9.e30.Y2hhbGxlbmdl',
  recoveryCodes: ['ABCD-EFGH-JKLM'],
};

/** An example of a schema: its own, one for the name of the property, or one for the type. */
export function exampleOf(schema, name = '', schemas = {}) {
  if (schema === true || schema === undefined) return {};
  if (schema.$ref) return exampleOf(schemas[schema.$ref.split('/').at(-1)], name, schemas);
  if (schema.examples?.length) return schema.examples[0];
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return exampleOf(schema.anyOf[0], name, schemas);
  if (schema.format === 'date-time') return '2026-01-31T12:00:00.000Z';
  const [type] = [schema.type].flat();
  const known = EXAMPLES[name];
  if (type !== undefined && known !== undefined && typeOf(known) === type) return known;
  if (type === 'object') return exampleObject(schema, schemas);
  if (type === 'array') return schema.items ? [exampleOf(schema.items, name, schemas)] : [];
  if (type === 'integer' || type === 'number') return Math.max(schema.minimum ?? 0, 1);
  if (type === 'boolean') return true;
  return type === 'null' ? null : 'text';
}

function typeOf(value) {
  if (Array.isArray(value)) return 'array';
  return Number.isInteger(value) ? 'integer' : typeof value;
}

const exampleObject = ({ properties = {}, required = [] }, schemas) =>
  Object.fromEntries(
    Object.entries(properties)
      .filter(([name]) => required.includes(name) || EXAMPLES[name] !== undefined)
      .map(([name, property]) => [name, exampleOf(property, name, schemas)]),
  );
