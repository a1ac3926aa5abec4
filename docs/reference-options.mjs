// The pages of the options, and .env.example. docs/generate.mjs calls it.
import { describeOptions } from '../dist/src/core/config/option-rows.js';
import { optionsIn, resolveOptions } from '../dist/src/core/config/options.js';
import { OPTION_GROUPS } from './option-groups.mjs';
import { linkPages } from './reference.mjs';
import { escapeHtml, table } from './table.mjs';

const PLUGINS = { 'saas-backend': 'saasBackend', idp: 'identityProvider' };
const OPTION_TYPES = { 'saas-backend': 'SaasBackendOptions', idp: 'IdentityProviderOptions' };

/** The options of a program by group, in the order of docs/option-groups.mjs. */
function groupsOf(program, schemas) {
  const rows = new Map(
    schemas.flatMap((schema) => {
      const properties = new Map(optionsIn(schema));
      return describeOptions(schema).map((row) => [
        row.name,
        { ...row, schema: properties.get(row.name), object: schema, isOfServer: schema !== schemas[0] },
      ]);
    }),
  );
  const groups = Object.entries(OPTION_GROUPS[program]).map(([title, examples]) => ({
    title,
    options: Object.entries(examples).map(([name, example]) => {
      const row = rows.get(name);
      if (!row) throw new Error(`docs/option-groups.mjs: ${program} has no option ${name}, or it has two`);
      rows.delete(name);
      return withExample(program, row, example);
    }),
  }));
  if (rows.size > 0)
    throw new Error(`docs/option-groups.mjs lacks options of ${program}: ${[...rows.keys()]}`);
  return groups;
}

/** Adds the value of the example in code. Throws if it is invalid. */
function withExample(program, row, example) {
  if (example.path) return { ...row, example: example.path, value: example.path };
  if (example.make) return { ...row, make: example.make };
  if (example === '') return row;
  const { object } = row;
  const env = { [row.env]: example };
  const random = () => {
    throw new Error('an example generates nothing');
  };
  const { values } = resolveOptions(object, { program, given: {}, env, random, generate: false });
  const parsed = values[row.name];
  // A text may be completed, such as by the schema of a database.
  return { ...row, example, value: typeof parsed === 'string' ? example : parsed };
}

/** A value as it stands in code. */
function inCode(value) {
  if (Array.isArray(value)) return `[${value.map(inCode).join(', ')}]`;
  if (value !== null && typeof value === 'object')
    return `{ ${Object.entries(value)
      .map(([key, member]) => `${key}: ${inCode(member)}`)
      .join(', ')} }`;
  return typeof value === 'string' ? `'${value}'` : String(value);
}

const listed = (values) => values.map((value) => `\`${value}\``).join(', ');

/** What an option accepts. */
function accepts({ schema, name }) {
  if (schema.enum) return listed(schema.enum);
  if (schema.type === 'boolean')
    return schema.accepts === '0 or 1' || schema.option.parse
      ? '`true`, `false`; variable: `1`, `0`'
      : '`true`, `false`';
  if (schema.type === 'integer') return `whole number from ${schema.minimum} to ${schema.maximum}`;
  if (schema.items?.enum)
    return `list of ${listed(schema.items.enum)}; variable: separated by commas, or \`all\`, \`none\``;
  if (schema.type === 'array') return 'list of texts; variable: separated by commas';
  if (schema.type === 'object') return 'object; variable: JSON';
  if (name === 'trustProxy') return '`false`, or a list of texts; variable: separated by commas';
  if (schema.anyOf) return schema.accepts;
  const least = schema.minLength > 1 ? ` of at least ${schema.minLength} characters` : '';
  return `text${least}`;
}

/** Whether a default can be written as it stands; others are described in words. */
function isLiteral(value) {
  return value !== '' && !/[\s<`']/.test(value);
}

function section({
  name,
  env,
  fallbackEnv,
  file,
  doc,
  default: initial,
  make,
  example,
  value,
  isOfServer,
  ...option
}) {
  const variable = example === undefined ? `\`${env}\`` : `\`${env}=${example}\``;
  const rows = [
    ['In code', value === undefined ? `\`${name}\`` : `\`${name}: ${inCode(value)}\``],
    ['Environment', fallbackEnv ? `${variable}, or \`${fallbackEnv}\`` : variable],
    file && ['From a file', `\`${env}_FILE=/run/secrets/${env.toLowerCase().replaceAll('_', '-')}\``],
    ['Accepts', accepts({ name, ...option })],
    make && ['Value', make.startsWith('the ') ? make : `for example of \`${make}\``],
    isOfServer && ['Applies to', 'servers and programs; a plugin takes it from its host'],
    ['Default', initial === '' ? 'not set' : isLiteral(initial) ? `\`${initial}\`` : initial],
  ].filter(Boolean);
  return `### ${env}\n\n${escapeHtml(linkPages(doc, '../../'))}\n\n${table(['', ''], rows)}`;
}

const slugOf = (text) => text.toLowerCase().replaceAll(' ', '-');

/** @param schemas those of the plugin and of the server */
export function optionsPage(note, program, schemas) {
  const groups = groupsOf(program, schemas);
  const rows = groups.map(({ title, options }) => [
    `[${title}](#${slugOf(title)})`,
    options.map(({ name, env }) => `[\`${name}\`](#${env.toLowerCase()})`).join(', '),
  ]);
  const anchors = groups.flatMap(({ title, options }) => [
    slugOf(title),
    ...options.map(({ env }) => env.toLowerCase()),
  ]);
  const doubled = anchors.filter((anchor, index) => anchors.indexOf(anchor) !== index);
  if (doubled.length > 0) throw new Error(`${program}: groups and options have the same anchor: ${doubled}`);
  const [first, second] = groups.slice(0, 2).map(({ options }) => options[0]);
  return `${note}
# Options of ${program}

\`\`\`js [Code]
// In code
fastify.register(${PLUGINS[program]}, {
  ${first.name}: ${inCode(first.value)},
  ${second.name}: ${inCode(second.value)},
});
\`\`\`

\`\`\`sh [Environment]
# In the environment, or in a file .env
${first.env}=${first.example}
${second.env}=${second.example}
\`\`\`

[Configuration](../configuration.md) says which of them wins. Options without a variable, such as hooks, are members of
[${OPTION_TYPES[program]}](../exports/saas-backend/${OPTION_TYPES[program]}.md).

${table(['Job', 'Options'], rows)}
${groups.map(({ title, options }) => `## ${title}\n\n${options.map(section).join('\n')}`).join('\n')}`;
}

/** @param programs the schemas of each */
export function configurationPage(note, programs) {
  const rows = Object.entries(programs).flatMap(([program, schemas]) =>
    schemas.flatMap(describeOptions).map(({ env, name }) => ({
      ...{ env, name, program },
      link: `options/${program}.md#${env.toLowerCase()}`,
    })),
  );
  rows.sort((one, other) => (one.env + one.program < other.env + other.program ? -1 : 1));
  return `${note}
# Configuration

- [Options of saas-backend](options/saas-backend.md)
- [Options of idp](options/idp.md)

| Order | Source | Example |
| --- | --- | --- |
| 1 | option in code | \`saasBackend, { publicUrl: 'https://app.example.com' }\` |
| 2 | environment variable | \`PUBLIC_URL=https://app.example.com\` |
| 3 | file \`.env\` in the current folder, only for the two programs | \`PUBLIC_URL=https://app.example.com\` |
| 4 | default | \`http://localhost:3000\` |

The first source that has a value wins.

- An empty variable counts as unset.
- A secret can be in a file: \`JWT_ACCESS_SECRET_FILE=/run/secrets/jwt\` is the path of the file that contains \`JWT_ACCESS_SECRET\`.
- With \`env: false\` in code, the plugins and servers read no variable.
- \`saas-backend doctor\` and \`idp doctor\` check the configuration and name each problem with its remedy.

| | \`NODE_ENV=production\` | otherwise |
| --- | --- | --- |
| Missing secrets | prevent the start | are generated and saved below \`./data\` |
| Weak secrets | prevent the start | are logged as warnings |

## Find an option by its name

${table(
  ['Variable', 'Option', 'Program'],
  rows.map(({ env, name, program, link }) => [`[\`${env}\`](${link})`, `\`${name}\``, program]),
)}`;
}

export function envExample(programs) {
  const seen = new Set();
  const sections = Object.entries(programs).map(([program, schemas]) => {
    const groups = groupsOf(program, schemas).map(({ title, options }) => {
      const own = options.filter(({ env }) => !seen.has(env));
      for (const { env } of own) seen.add(env);
      const entries = own.map(({ env, doc, default: value, secret, example }) => {
        const shown = !secret && isLiteral(value) ? value : '';
        const initial = value === shown ? '' : ` Default: ${value.replaceAll('`', '')}.`;
        const hint = example === undefined || secret || shown !== '' ? '' : ` Example: ${example}`;
        return `# ${doc}${initial}${hint}\n# ${env}=${shown}\n`;
      });
      return own.length === 0 ? '' : `### ${title}\n\n${entries.join('\n')}`;
    });
    return `## ${program}\n\n${groups.filter(Boolean).join('\n')}`;
  });
  return `# Copy this file to .env and uncomment what you change. Both programs read .env from the current folder.
# Environment variables override this file. A secret or BILLING_PLANS can be read from a file: <NAME>_FILE=/run/secrets/name.

${sections.join('\n')}`;
}
