/**
 * Writes the types and the table of operations of `saas-backend/client` from the OpenAPI document of saas-backend. The types
 * stand alone: an application needs neither TypeBox nor Fastify to read them.
 */
const NOTE = '// Generated from docs/openapi/saas-backend.json by the build\n';

/** The client itself sends these tokens and keeps them. */
const TOKENS = ['accessToken', 'refreshToken'];

/** Operations that concern these tokens: `src/client/session.ts` and `src/server` send them. */
const OF_SESSION = ['refresh', 'logout', 'getSession', 'issueAccessToken'];

/** Errors of nearly every operation, the last four for agents only. */
const COMMON_ERRORS = new Set([
  ...['INTERNAL', 'NOT_READY', 'OVERLOADED', 'RATE_LIMITED', 'MAINTENANCE', 'ORIGIN_NOT_ALLOWED'],
  ...['VALIDATION_ERROR', 'INVALID_JSON', 'PAYLOAD_TOO_LARGE', 'UNSUPPORTED_MEDIA_TYPE'],
  ...['UNAUTHENTICATED', 'TOKEN_EXPIRED', 'IMPERSONATED'],
  ...['ACCOUNT_NOT_CONNECTED', 'INSUFFICIENT_SCOPE', 'FORBIDDEN', 'IDENTITY_PROVIDER_UNAVAILABLE'],
]);

/** The values of a subscription's status are known, but not final. */
const OPEN_ENUM = 'x-extensible-enum';
const STATUS_TYPE = 'SubscriptionStatus';
const TIME_TYPE = 'Timestamp';
/** The types that the host declares once, for the server and the client. */
const DECLARED_TYPES = ['NewUserFields', 'PublicMetadata', 'UserFieldsPatch', 'UserFieldValues'];

/** @returns file of `generated/client` → its content */
export function clientFiles(document) {
  const operations = operationsOf(document);
  const groups = [...new Set(operations.map(({ group }) => group))].sort();
  const inGroup = (name) => operations.filter(({ group }) => group === name);
  return {
    ...Object.fromEntries(
      groups.map((group) => [`${group}.ts`, methodsFile(document, group, inGroup(group))]),
    ),
    'operations.ts': operationsFile(groups, inGroup),
    'schemas.ts': schemasFile(document, operations),
    'codes.ts': codesFile(document.components['x-error-codes']),
  };
}

/** The operations for users that answer with JSON. */
function operationsOf(document) {
  const paths = Object.entries(document.paths).filter(([path]) => !path.startsWith('/.well-known/'));
  return paths.flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, operation]) => isForUsers(operation) && !OF_SESSION.includes(operation.operationId))
      .map(([method, operation]) => describe(path, method.toUpperCase(), operation)),
  );
}

const isForUsers = ({ tags, security, responses }) =>
  !tags.some((tag) => tag === 'Operations' || tag.startsWith('Admin')) &&
  !security.some((scheme) => scheme.webhookSignature) &&
  successesOf(responses).length > 0;

const successesOf = (responses) =>
  Object.entries(responses)
    .filter(([status]) => status.startsWith('2'))
    .map(([, { content }]) => content['application/json'].schema);

function describe(path, method, operation) {
  const { operationId: name, summary, description, security, parameters = [], requestBody } = operation;
  const [, prefix, first] = path.split('/');
  if (prefix !== 'api') throw new Error(`${path} is not below /api, where the client sends its requests.`);
  const access = ['public', 'any', 'user'][
    Number(security.some((scheme) => scheme.accessToken)) +
      Number(security.length > 0 && security.every((scheme) => scheme.accessToken ?? scheme.boundAccessToken))
  ];
  const given = parameters.filter(({ in: place }) => place !== 'header');
  const body = requestBody?.content['application/json'].schema;
  // Parts of the path are named in it; everything else is in one place.
  const others = new Set(given.map(({ in: place }) => place).filter((place) => place !== 'path'));
  if (body) others.add('body');
  if (others.size > 1) throw new Error(`${name} has input in several places: ${[...others]}`);
  return {
    ...{ name, method, access, body },
    path: path.replace('/api', ''),
    group: first === 'global-settings' ? 'settings' : first,
    input: [...others][0] ?? given[0]?.in,
    parameters: given,
    isInputRequired: requestBody?.required === true || given.some(({ required }) => required),
    results: successesOf(operation.responses),
    comment: [
      `${summary}.`,
      ...(description ? [description] : []),
      ...errorsOf(operation, access).map((list) => `Errors: ${list}.`),
    ].join(' '),
  };
}

/** The errors that an application handles for this operation in particular, as a list of at most one sentence. */
function errorsOf({ responses }, access) {
  const codes = Object.values(responses)
    .flatMap(({ $ref = '' }) => /\/\d{3}-([\w.]+)$/.exec($ref)?.[1].split('.') ?? [])
    .filter((code) => !COMMON_ERRORS.has(code) && !(access === 'user' && code === 'ACCOUNT_SUSPENDED'));
  return codes.length > 0 ? [codes.map((code) => `\`${code}\``).join(', ')] : [];
}

function operationsFile(groups, inGroup) {
  const entry = ({ name, method, path, access, input }) =>
    `    ${name}: '${[method, path, access, ...(input ? [input] : [])].join(' ')}',\n`;
  const parts = groups.map((group) => `  ${group}: {\n${inGroup(group).map(entry).join('')}  },\n`);
  const imports = groups.map((group) => `import type { ${interfaceName(group)} } from './${group}.js';\n`);
  const members = groups.map(
    (group) =>
      `  /** The operations below \`/${group}\`. */\n  readonly ${group}: ${interfaceName(group)};\n`,
  );
  return `${NOTE}${imports.join('')}
/** The operations of the API, by the first part of their paths. */
export interface ClientMethods {
${members.join('')}}

/**
 * Method, path, access and the place of the input of each operation. \`any\` sends the access token if there is one,
 * \`public\` never does.
 */
export const OPERATIONS = {
${parts.join('')}} as const;
`;
}

function methodsFile(document, group, operations) {
  const used = new Set();
  const methods = operations.map((operation) => methodOf(operation, { document, used }));
  const imports = [...used].sort().map((name) => `  ${name},\n`);
  return `${NOTE}import type { CallOptions } from '../../src/client/exchange.js';
import type {
${imports.join('')}} from './schemas.js';

/** The operations below \`/${group}\`. */
export interface ${interfaceName(group)} {
${methods.join('\n')}}
`;
}

const interfaceName = (group) => `${group[0].toUpperCase()}${group.slice(1)}Methods`;

function methodOf(operation, context) {
  const { name, comment, input, isInputRequired, results } = operation;
  const typed = { ...context, indent: '  ' };
  const given = input
    ? [
        `${input === 'body' ? 'body' : 'input'}${isInputRequired ? '' : '?'}: ${inputType(operation, { ...typed, isInput: true })}`,
      ]
    : [];
  const result = [...new Set(results.map((schema) => resultType(schema, typed)))];
  // One response has the user, the other does not have it yet.
  const type = result.length > 1 ? `{ user?: User; message?: string }` : result[0];
  if (result.length > 1) context.used.add('User');
  return `${comments(comment, '  ')}  ${name}(${[...given, 'options?: CallOptions'].join(', ')}): Promise<${type}>;\n`;
}

function inputType({ body, parameters }, context) {
  if (body && parameters.length === 0) return typeOf(body, context);
  const properties = Object.fromEntries(parameters.map(({ name, schema }) => [name, withNumber(schema)]));
  const required = parameters.filter((parameter) => parameter.required).map(({ name }) => name);
  const type = typeOf({ type: 'object', properties, required }, context);
  return body ? `${type} & ${typeOf(body, context)}` : type;
}

/** Numbers in a query are text with a pattern. */
const withNumber = (schema) =>
  schema.description?.startsWith('An integer') ? { ...schema, type: ['string', 'number'] } : schema;

/** The `data` of the envelope, or the message of an acknowledgement. */
function resultType(schema, context) {
  const resolved = resolve(schema, context);
  const { data } = resolved.properties;
  return data ? typeOf(data, context) : '{ message?: string }';
}

const nameOf = ({ $ref }) => $ref.split('/').at(-1);
const resolve = (schema, { document }) =>
  schema.$ref ? document.components.schemas[nameOf(schema)] : schema;

function schemasFile(document, operations) {
  const used = new Set();
  const context = { document, used, indent: '' };
  for (const operation of operations) methodOf(operation, context);
  // Components may use others, which the set gets while it is iterated.
  const interfaces = new Map();
  for (const name of used) {
    const schema = document.components.schemas[name];
    const typed = { ...context, isInput: name.endsWith('Body') };
    if (schema) interfaces.set(name, `export interface ${name} ${objectType(schema, typed)}\n`);
  }
  const { status } = document.components.schemas.SubscriptionSummary.properties;
  const union = status[OPEN_ENUM].map((status) => `  | '${status}'\n`).join('');
  const text = [...interfaces]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([, text]) => text)
    .join('\n');
  const declared = DECLARED_TYPES.filter((type) => text.includes(`: ${type}`));
  return `${NOTE}import type { ${declared.join(', ')} } from '../../src/core/http/user-metadata.js';

// The star lets applications add their types to the interface under the name of the client, too.
export type * from '../../src/core/http/user-metadata.js';

/** A date and time in ISO 8601 with milliseconds, in UTC. */
export type ${TIME_TYPE} = string;

/** The payment provider may add others, which grant no access. */
export type ${STATUS_TYPE} =
${union}  | (string & {});

${text}`;
}

function typeOf(schema, context) {
  if (schema.$ref) {
    const name = nameOf(schema);
    context.used.add(name);
    return name;
  }
  if (schema[OPEN_ENUM]) return named(STATUS_TYPE, context);
  // What the API of browsers for passkeys returns, whose types only some programs have.
  if (schema.description?.includes('PublicKeyCredential.toJSON()')) return 'object';
  if (schema.const !== undefined) return literal(schema.const);
  if (schema.enum) return schema.enum.map(literal).join(' | ');
  if (schema.anyOf) return schema.anyOf.map((each) => typeOf(each, context)).join(' | ');
  const types = [schema.type].flat();
  return types.map((type) => simpleType(type, schema, context)).join(' | ');
}

function simpleType(type, schema, context) {
  if (type === 'object') return objectType(schema, context);
  if (type === 'array') {
    const item = typeOf(schema.items, context);
    return /^\w+$/.test(item) ? `${item}[]` : `Array<${item}>`;
  }
  if (type === 'integer') return 'number';
  if (type === 'string') return schema.format === 'date-time' ? named(TIME_TYPE, context) : 'string';
  return type ?? 'unknown';
}

function named(type, { used }) {
  used.add(type);
  return type;
}

const literal = (value) => (typeof value === 'string' ? `'${value}'` : String(value));

function objectType({ title, properties = {}, required = [], additionalProperties }, context) {
  const hasTokens = properties.accessToken !== undefined;
  const shown = Object.entries(properties).filter(
    ([name]) => !TOKENS.includes(name) && !(hasTokens && name === 'expiresIn'),
  );
  const inner = { ...context, indent: `${context.indent}  ` };
  if (shown.length === 0) {
    if (DECLARED_TYPES.includes(title)) return named(title, context);
    // What the API of browsers for passkeys takes.
    if (additionalProperties === true) return 'any';
    return additionalProperties ? `Record<string, ${typeOf(additionalProperties, context)}>` : '{}';
  }
  const members = shown.map(([name, schema]) => {
    const comment = schema[OPEN_ENUM] ? '' : comments(schema.description, inner.indent);
    const isRequired = required.includes(name);
    // In a request, undefined is the same as absent.
    const type = `${typeOf(schema, inner)}${context.isInput && !isRequired ? ' | undefined' : ''}`;
    return `${comment}${inner.indent}${name}${isRequired ? '' : '?'}: ${type};\n`;
  });
  const others = additionalProperties ? `${inner.indent}[section: string]: unknown;\n` : '';
  return `{\n${members.join('')}${others}${context.indent}}`;
}

/** A comment in lines of at most 110 characters. */
function comments(text, indent) {
  if (!text) return '';
  if (`${indent}/** ${text} */`.length <= 110) return `${indent}/** ${text} */\n`;
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = `${lines.at(-1)} ${word}`;
    if (`${indent} * ${line}`.length > 108) lines.push(` ${word}`);
    else lines[lines.length - 1] = line;
  }
  return `${indent}/**\n${lines.map((line) => `${indent} *${line}\n`).join('')}${indent} */\n`;
}

function codesFile(codes) {
  const union = [...new Set(codes)].sort().map((code) => `  | '${code}'\n`);
  return `${NOTE}
/** The codes of the errors that the API answers with. */
export type ErrorCode =
${union.join('').trimEnd()};
`;
}
