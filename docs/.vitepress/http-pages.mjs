// Pages of the site about every operation of both HTTP APIs, from docs/openapi/*.json: a page for each tag.
import { readFileSync } from 'node:fs';
import { table } from '../table.mjs';

/** Answers that any operation can have; the page names them once. */
const COMMON = ['413', '415', '429', '500', '503'];

/** How curl sends each credential. */
const CREDENTIALS = {
  accessToken: '-H "Authorization: Bearer $ACCESS_TOKEN"',
  adminPassword: '-u "admin:$ADMIN_PASSWORD"',
  adminToken: '-H "Authorization: Bearer $IDP_ADMIN_TOKEN"',
  inviteToken: '-H "Authorization: Bearer $IDP_INVITE_TOKEN"',
  initialAccessToken: '-H "Authorization: Bearer $REGISTRATION_TOKEN"',
  clientBasic: '-u "$CLIENT_ID:$CLIENT_SECRET"',
  agentBasic: '-u "$AGENT_HANDLE:$AGENT_PASSWORD"',
  cronSecret: '-H "Authorization: Bearer $CRON_SECRET"',
};

const errorsPage = readFileSync(new URL('../reference/errors.md', import.meta.url), 'utf8');
const ERRORS = new Set([...errorsPage.matchAll(/^### (\S+)$/gm)].map(([, code]) => code.toLowerCase()));

const PRODUCTS = [
  { product: 'saas-backend', folder: 'saas/http' },
  { product: 'idp', folder: 'idp/http' },
];

/** Groups of pages, as in navigation.json, with the text of each page as the last member. */
export function httpGroups() {
  return PRODUCTS.map(({ product, folder }) => {
    const document = JSON.parse(readFileSync(new URL(`../openapi/${product}.json`, import.meta.url), 'utf8'));
    const pages = document.tags.map(({ name, description }) => {
      const file = `${folder}/${name.toLowerCase().replaceAll(/[^a-z]+/g, '-')}.md`;
      return [file, name, lowerFirst(description.replace(/\.$/, '')), pageOf(document, product, name)];
    });
    return { text: `HTTP API: ${product}`, pages };
  });
}

function lowerFirst(text) {
  return text.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
}

function pageOf(document, product, tag) {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { tags }]) => tags.includes(tag))
      .map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })),
  );
  const { description } = document.tags.find(({ name }) => name === tag);
  return `# ${tag}: HTTP operations of ${product}

${description} The examples use the address \`${document.servers[0].url}\`. Every operation can also answer
413, 415, 429, 500 and 503: see [Errors](../../reference/errors.md). The document for tools: [OpenAPI](../../reference/openapi.md).

${operations.map((operation) => sectionOf(document, operation)).join('\n')}`;
}

function sectionOf(document, operation) {
  const { method, path, operationId, summary, description, parameters = [], requestBody } = operation;
  const [mediaType, request] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  const fields = request ? rowsOf(document, request.schema) : [];
  const parts = [
    `## ${summary}`,
    `\`${method} ${path}\` (\`${operationId}\`). ${callersOf(document, operation)}`,
    description,
    parameters.length > 0 &&
      `**Parameters**\n\n${table(
        ['Name', 'In', 'Type', 'Required', 'Meaning'],
        parameters.map((one) => [
          ...[`\`${one.name}\``, one.in, typeOf(document, one.schema), yes(one.required)],
          one.description ?? one.schema.description ?? '',
        ]),
      )}`,
    request && fields.length > 0 && `**Request** (\`${mediaType}\`)\n\n${fieldTable(fields)}`,
    `\`\`\`sh\n${curlOf(document, operation, mediaType, request?.example)}\n\`\`\``,
    ...Object.entries(operation.responses)
      .filter(([status]) => status < 400)
      .map(([status, response]) => responseOf(document, status, response)),
    errorsOf(document, operation),
  ];
  return `${joined(parts)}\n`;
}

function joined(parts) {
  return parts
    .filter(Boolean)
    .map((part) => part.trimEnd())
    .join('\n\n');
}

function callersOf(document, { security = [] }) {
  const ways = security.map((way) =>
    Object.keys(way)
      .map((name) => document.components.securitySchemes[name].description)
      .join(' '),
  );
  if (ways.length === 0) return 'No credentials.';
  return `Credentials: ${ways.map((way) => way.replace(/\.$/, '') || 'none').join('; or: ')}.`;
}

function responseOf(document, status, response) {
  const { description, content = {} } = resolve(document, response);
  const [mediaType, { schema, example } = {}] = Object.entries(content)[0] ?? [];
  const rows = schema ? rowsOf(document, schema) : [];
  const parts = [
    `**Response ${status}**: ${mediaType ? `\`${mediaType}\`` : description}`,
    rows.length > 0 && fieldTable(rows),
    typeof example === 'object' && `\`\`\`json\n${JSON.stringify(example, null, 2)}\n\`\`\``,
  ];
  return joined(parts);
}

function errorsOf(document, { responses }) {
  const rows = Object.entries(responses)
    .filter(([status]) => status >= 400 && !COMMON.includes(status))
    .flatMap(([status, response]) =>
      resolve(document, response)
        .description.split('\n\n')
        .map((line) => [status, ...(/^`([^`]+)`: (.*)$/s.exec(line)?.slice(1) ?? ['', line])]),
    )
    .map(([status, code, message]) => [status, linkTo(code), message]);
  return rows.length > 0 && `**Errors**\n\n${table(['Status', 'Code', 'Message'], rows)}`;
}

/** A code with the link to its cause and remedy. */
function linkTo(code) {
  if (code === '') return '';
  const anchor = code.toLowerCase();
  return ERRORS.has(anchor) ? `[\`${code}\`](../../reference/errors.md#${anchor})` : `\`${code}\``;
}

const yes = (required) => (required ? 'yes' : '');

const fieldTable = (rows) => table(['Field', 'Type', 'Required', 'Meaning'], rows);

function resolve(document, value) {
  if (!value.$ref) return value;
  const [, , kind, name] = value.$ref.split('/');
  return document.components[kind][name];
}

/** A row for each field, also of objects within, to a depth of four. */
function rowsOf(document, schema, prefix = '', depth = 0) {
  const { properties, items, required = [] } = resolve(document, schema);
  if (items) return rowsOf(document, items, `${prefix}[]`, depth);
  if (!properties || depth > 3) return [];
  return Object.entries(properties).flatMap(([name, given]) => {
    const field = resolve(document, given);
    const full = prefix ? `${prefix}.${name}` : name;
    const row = [`\`${full}\``, typeOf(document, field), yes(required.includes(name))];
    return [[...row, field.description ?? ''], ...rowsOf(document, field, full, depth + 1)];
  });
}

function typeOf(document, given) {
  const schema = resolve(document, given);
  if ('const' in schema) return `\`${JSON.stringify(schema.const)}\``;
  const values = schema.enum ?? schema['x-extensible-enum'];
  if (values) return values.map((value) => `\`${value}\``).join(', ');
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(document, one)).join(' or ');
  if (schema.items) return `array of ${typeOf(document, schema.items)}`;
  const type = [schema.type ?? 'any'].flat().join(' or ');
  return schema.format ? `${type} (${schema.format})` : type;
}

function curlOf(document, { method, path, parameters = [], security = [] }, mediaType, example) {
  const exampleOf = ({ name, schema }) => {
    const { examples: [first] = [], const: fixed } = resolve(document, schema);
    return String(first ?? fixed ?? `{${name}}`);
  };
  const query = parameters.filter((one) => one.in === 'query' && one.required);
  const search = query.map((one) => `${one.name}=${exampleOf(one)}`).join('&');
  const headers = parameters.filter((one) => one.in === 'header' && one.required);
  const scheme = security.flatMap((way) => Object.keys(way)).find((name) => CREDENTIALS[name]);
  const lines = [
    `curl${method === 'GET' ? '' : ` -X ${method}`} '${document.servers[0].url}${path}${search && `?${search}`}'`,
    scheme && CREDENTIALS[scheme],
    ...headers.map((one) => `-H '${one.name}: ${exampleOf(one)}'`),
    ...bodyOf(mediaType, example),
  ];
  return lines.filter(Boolean).join(' \\\n  ');
}

function bodyOf(mediaType, example) {
  if (example === undefined) return [];
  if (mediaType === 'application/json')
    return [
      `-H 'content-type: application/json'`,
      `-d '${JSON.stringify(example).replaceAll("'", "'\\''")}'`,
    ];
  return Object.entries(example).map(([name, value]) => `--data-urlencode '${name}=${value}'`);
}
