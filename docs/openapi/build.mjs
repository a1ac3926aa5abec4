/** Builds an OpenAPI document from the routes of a product and the descriptions beside this file. */
import { convert, exampleOf } from './schemas.mjs';

const METHODS_WITHOUT_BODY = ['GET', 'DELETE'];

/**
 * @param product `info`, `tags` (name → description and operations), `errors` (code → status, code in responses, message),
 *   `securityOf` (access level → schemes), `securityOfAgents`, `securitySchemes`, `schemas` (name → schema), `errorSchema`, `commonErrors`
 * @throws naming operations without a description, and descriptions without an operation
 */
export function buildDocument(product, routes) {
  const described = new Map(
    Object.entries(product.tags).flatMap(([tag, { operations }]) =>
      Object.entries(operations).map(([key, about]) => [key, { ...about, tag }]),
    ),
  );
  const known = new Map(routes.map((route) => [`${route.method} ${route.url}`, route]));
  const missing = [...known]
    .filter(([key, route]) => !described.has(key) && !isPage(route))
    .map(([key]) => key);
  if (missing.length > 0)
    throw new Error(
      `docs/openapi does not describe:\n${missing.join('\n')}\nAdd each with an id and a summary to a group of docs/openapi/api.mjs or admin-api.mjs.`,
    );
  const stale = [...described.keys()].filter((key) => !known.has(key));
  if (stale.length > 0)
    throw new Error(`docs/openapi describes routes that do not exist:\n${stale.join('\n')}`);

  const names = new Map(
    Object.entries(product.schemas).map(([name, schema]) => [JSON.stringify(schema), name]),
  );
  const components = { schemas: {}, responses: {} };
  const context = { product, components, names };
  const paths = {};
  for (const [key, about] of described) {
    const route = known.get(key);
    const path = route.url.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(route, about, context) };
  }
  const used = Object.entries(product.extraSchemas).filter(([name]) =>
    JSON.stringify([paths, components]).includes(`"#/components/schemas/${name}"`),
  );
  return {
    openapi: '3.1.0',
    info: product.info,
    servers: [{ url: product.server }],
    tags: Object.entries(product.tags).map(([name, { description }]) => ({ name, description })),
    paths: sorted(paths),
    components: {
      schemas: sorted({ ...components.schemas, ...Object.fromEntries(used) }),
      responses: sorted(components.responses),
      securitySchemes: product.securitySchemes,
      // Also those of every operation, and of the host's own routes.
      'x-error-codes': Object.keys(product.errors).sort(),
    },
  };
}

const sorted = (object) =>
  Object.fromEntries(Object.entries(object).sort(([one], [other]) => (one < other ? -1 : 1)));

/** Pages for people are not part of the document, unless they answer with JSON as well. */
const isPage = ({ config, schema, url }) =>
  (config.page === true && schema?.response === undefined) || url.endsWith('.csv') || isAsset(url);

const isAsset = (url) => /\.(js|css)$/.test(url);

function operationOf(route, about, context) {
  const { product } = context;
  const { summary, description, id, tag } = about;
  const body = bodyOf(route, about, context);
  return {
    operationId: id,
    summary,
    ...(description && { description }),
    tags: [tag],
    security: securityOf([
      ...(about.security ?? product.securityOf[route.config.access] ?? []),
      ...(route.config.agentScope ? product.securityOfAgents : []),
    ]),
    ...list('parameters', parametersOf(route, about, context)),
    ...(body && { requestBody: body }),
    responses: { ...successesOf(route, about, context), ...failuresOf(route, about, context) },
  };
}

const list = (name, items) => (items.length > 0 ? { [name]: items } : {});

/** `null` stands for a request without authentication. */
const securityOf = (schemes) => schemes.map((name) => (name === null ? {} : { [name]: [] }));

function parametersOf(route, about, { product }) {
  const { schema = {}, url } = route;
  const properties = schema.params?.properties ?? {};
  const anyId = Object.values(schema.params?.patternProperties ?? {})[0];
  const inPath = [...url.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: withExample(convert(properties[name] ?? anyId ?? { type: 'string' }), name),
  }));
  const { querystring } = schema;
  const inQuery = Object.entries(querystring?.properties ?? {})
    // The notice of a page.
    .filter(([name]) => name !== 'done')
    .map(([name, property]) => ({
      name,
      in: 'query',
      ...((querystring.required ?? []).includes(name) &&
        property.default === undefined && { required: true }),
      schema: convert(property),
    }));
  const described = Object.entries(about.query ?? {}).map(([name, description]) => ({
    name,
    in: 'query',
    description,
    ...(about.required?.includes(name) && { required: true }),
    schema: { type: 'string' },
  }));
  return [...inPath, ...inQuery, ...described, ...product.headersOf(route)];
}

const withExample = (schema, name) =>
  schema.examples ? schema : { ...schema, examples: [exampleOf(schema, name)] };

function bodyOf(route, about, context) {
  const { product } = context;
  const schema = about.body ?? route.schema?.body;
  if (!schema || METHODS_WITHOUT_BODY.includes(route.method)) return undefined;
  const changed = about.body ? schema : withFields(schema, about.fields);
  const converted = convert(changed, { ...context, isRequest: true, isClosed: about.rejectsUnknown });
  const type =
    about.hasForm || (about.body && product.hasForms)
      ? 'application/x-www-form-urlencoded'
      : 'application/json';
  const resolved = resolve(converted, context);
  // No parameter may occur twice (RFC 6749 §3.1), so an unknown one is a string as well.
  if (type !== 'application/json') resolved.additionalProperties ??= { type: 'string' };
  const isRequired = (resolved.required ?? []).length > 0;
  const example = exampleOf(resolved, '', context.components.schemas);
  return { required: isRequired, content: { [type]: { schema: converted, example } } };
}

const resolve = (schema, { components }) =>
  schema.$ref ? components.schemas[schema.$ref.split('/').at(-1)] : schema;

/** With better types for the fields that the service validates; `false` leaves a field out. */
function withFields(schema, fields = {}) {
  const properties = { ...schema.properties, ...fields };
  const kept = Object.entries(properties).filter(([, property]) => property !== false);
  return { ...schema, properties: Object.fromEntries(kept) };
}

const DESCRIPTIONS = { 200: 'OK', 201: 'Created', 202: 'Accepted' };

function successesOf(route, about, context) {
  const declared = Object.entries(route.schema?.response ?? {}).map(([status, schema]) => [
    status,
    { description: DESCRIPTIONS[status], schema },
  ]);
  const all = [...declared, ...Object.entries(about.responses ?? {})];
  return Object.fromEntries(all.map(([status, answer]) => [status, successOf(answer, context)]));
}

function successOf({ description, schema, type = 'application/json', headers = [], example }, context) {
  const converted = schema && convert(schema, context);
  return {
    description,
    ...(headers.length > 0 && {
      headers: Object.fromEntries(headers.map((name) => [name, { schema: { type: 'string' } }])),
    }),
    ...(converted && {
      content: {
        [type]: {
          schema: converted,
          example:
            example ??
            exampleOf(converted, '', { ...context.components.schemas, ...context.product.extraSchemas }),
        },
      },
    }),
    ...(!schema && type === 'text/html' && { content: { [type]: { schema: { type: 'string' } } } }),
  };
}

/** The codes that a route may answer with, by status. */
export function failureCodes(route, about, { errors, commonErrors }) {
  const codes = new Set([...commonErrors(route, about), ...(about.errors ?? [])]);
  const byStatus = {};
  for (const code of codes) {
    const error = errors[code];
    if (!error) throw new Error(`${route.method} ${route.url} names the error ${code}, which no table has.`);
    byStatus[error.status] ??= new Map();
    byStatus[error.status].set(error.code, error.message);
  }
  return byStatus;
}

function failuresOf(route, about, { product, components }) {
  const answers = {};
  for (const [status, codes] of Object.entries(failureCodes(route, about, product))) {
    const sortedCodes = [...codes].sort(([one], [other]) => (one < other ? -1 : 1));
    const name = `${status}-${sortedCodes.map(([code]) => code).join('.')}${about.isForBrowsers ? '-page' : ''}`;
    components.responses[name] ??= {
      description: sortedCodes.map(([code, message]) => `\`${code}\`: ${message}`).join('\n\n'),
      ...(['429', '503'].includes(status) && {
        headers: { 'Retry-After': { description: 'Seconds to wait.', schema: { type: 'string' } } },
      }),
      content: {
        'application/json': {
          schema: product.errorSchema(sortedCodes.map(([code]) => code)),
          examples: Object.fromEntries(
            sortedCodes.map(([code, message]) => [code, { value: product.errorExample(code, message) }]),
          ),
        },
        ...(about.isForBrowsers && { 'text/html': { schema: { type: 'string' } } }),
      },
    };
    answers[status] = { $ref: `#/components/responses/${name}` };
  }
  return answers;
}
