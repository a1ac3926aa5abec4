// One page for each export of the package, and an index for each entry point. docs/generate.mjs calls it.
import { flat, withoutComments } from './declarations.mjs';
import { EXPORT_GUIDES } from './export-guides.mjs';
import { folderOf, linkTo, planPages } from './exports-plan.mjs';
import { linkPages } from './reference.mjs';
import { escapeHtml, table } from './table.mjs';

const ENTRIES = {
  'saas-backend': 'both plugins and both servers',
  'saas-backend/client': 'the client of the API for browsers, Node.js and edge runtimes',
  'saas-backend/react': 'hooks for components of React',
  'saas-backend/server': 'who is signed in, for a server beside saas-backend',
  'saas-backend/resource-server': 'access tokens and MCP for an API',
};

/** Types whose options have pages of their own. */
const OPTIONS = {
  SaasBackendOptions: 'saas-backend',
  CreateServerOptions: 'saas-backend',
  IdentityProviderOptions: 'idp',
  CreateIdentityServerOptions: 'idp',
};

const MAX_TYPE_IN_TABLE = 140;
const MAX_INLINE_TYPE = 80;

/** A type as code, in which the names of ours are links. */
function linkedType(type, item, page) {
  const link = (name) => {
    const other = item.names.get(name);
    return other && other !== item ? linkTo(other, page) : undefined;
  };
  return type
    .split(/\b([A-Z]\w+)\b/)
    .map((part, index) => {
      const target = index % 2 === 1 ? link(part) : undefined;
      return { part, target };
    })
    .reduce((parts, { part, target }) => {
      const last = parts.at(-1);
      if (target === undefined && last && last.target === undefined) last.part += part;
      else parts.push({ part, target });
      return parts;
    }, [])
    .filter(({ part }) => part !== '')
    .map(({ part, target }) => {
      const code = part.trim() === '' ? part : `\`${part}\``;
      return target === undefined ? code : `[${code}](${target})`;
    })
    .join('');
}

/** The types of ours in a text, and what the short ones stand for. */
function typesIn(text, item, page) {
  const names = new Set([...withoutComments(text).matchAll(/\b[A-Z]\w+\b/g)].map(([name]) => name));
  const types = [...names]
    .map((name) => item.names.get(name))
    .filter((other) => other && other !== item && !['function', 'const'].includes(other.kind));
  return types.map((other) => {
    const short = shortFormOf(other);
    return `[\`${other.name}\`](${linkTo(other, page)})${short ? ` is \`${short}\`` : ''}`;
  });
}

/** What a type stands for, if it is short. */
function shortFormOf({ kind, text }) {
  const [, body] =
    (kind === 'type' && /^type \w+ = ([\s\S]*?);?$/.exec(text)) ||
    (kind === 'interface' && /^interface \w+ (\{[\s\S]*\})$/.exec(text)) ||
    [];
  const short = body && flat(body);
  return short && short.length <= MAX_INLINE_TYPE && !short.includes('`') ? short : undefined;
}

/** The text of a comment, and what it says about errors. */
function partsOfComment(comment) {
  const [text, ...tags] = comment.split(/@(?=throws\b|param\b|returns\b|deprecated\b)/);
  const throws = tags
    .filter((tag) => tag.startsWith('throws'))
    .map((tag) => tag.slice('throws'.length).trim());
  const others = tags.filter((tag) => !tag.startsWith('throws')).map((tag) => tag.trim());
  return { text: text.trim(), throws, others };
}

/** Prose of a comment on a page below docs/reference/exports/<entry>. */
const prose = (text) =>
  escapeHtml(linkPages(text, '../../../')).replaceAll(/`([A-Z][A-Z_]{3,})`/g, (whole, code) =>
    errors.has(code) ? `[${whole}](../../errors.md#${code.toLowerCase()})` : whole,
  );

/** Code → its error. */
let errors = new Map();

/** `NOT_FOUND, VALIDATION_ERROR for an unknown role; TypeError …` as rows. */
function rowsOfThrows(texts) {
  return texts
    .flatMap((text) => text.replaceAll(/\s+/g, ' ').split(/; |(?<=\)\.?) (?=@)/))
    .flatMap((clause) => {
      const [, codes, rest] =
        /^(?:AppError )?(?:with [^:]*: )?((?:[A-Z][A-Z_]{3,})(?:, [A-Z][A-Z_]{3,})*)\b(.*)$/.exec(clause) ??
        [];
      if (!codes?.split(', ').every((code) => errors.has(code))) {
        const [, error, when = ''] = /^(\w*Error)\b,?(.*)$/.exec(clause) ?? [];
        return [error ? [`\`${error}\``, prose(when.trim())] : ['others', prose(clause)]];
      }
      const all = codes.split(', ');
      const [, others] = /^ and (.*)$/.exec(rest) ?? [];
      const rows = all.map((code, index) => {
        const when = index === all.length - 1 && !others ? rest.replace(/^[,:]? /, '').trim() : '';
        return [
          `[\`${code}\`](../../errors.md#${code.toLowerCase()})`,
          when ? prose(when) : escapeHtml(errors.get(code).message),
        ];
      });
      return others ? [...rows, ['others', prose(others)]] : rows;
    });
}

const throwsTable = (texts) =>
  texts.length === 0 ? [] : [table(['Throws', 'When'], rowsOfThrows(texts)).trimEnd()];

const fence = (text) => `\`\`\`ts\n${inLines(text)}\n\`\`\``;

/** A long list of texts gets a line for each. */
const inLines = (text) =>
  /^type \w+ = '[^;]*';$/.test(text) && text.length > MAX_TYPE_IN_TABLE
    ? text.replace(' = ', ' =\n    | ').replaceAll(/(?<=') \| /g, '\n    | ')
    : text;

/** `name: type` of a property; nothing for a method. */
function propertyOf({ text }) {
  const [, optional, type] = /^(?:readonly |static )*(?:'[^']+'|[\w$]+)(\??): ([\s\S]+)$/.exec(text) ?? [];
  if (type === undefined || /=>/.test(flat(type).replace(/\{.*\}/, ''))) return undefined;
  const short = flat(type);
  return short.length > MAX_TYPE_IN_TABLE || short.includes('`') ? undefined : { type: short, optional };
}

/** The members of a type: properties in a table, functions one by one. */
function memberParts(item, page, level) {
  const members = item.members.filter(
    // Those with a variable stand on the page of the options.
    ({ comment }) => !(OPTIONS[item.name] && /Variable:\s+`/.test(comment)),
  );
  const properties = members.map((member) => ({ member, property: propertyOf(member) }));
  const rows = properties
    .filter(({ property }) => property)
    .map(({ member, property }) => {
      const { text, throws } = partsOfComment(member.comment);
      const thrown = throws.length > 0 ? ` Throws ${throws.join('; ')}` : '';
      return [
        `\`${member.name}${property.optional}\``,
        linkedType(property.type, item, page),
        prose(`${text}${thrown}`).replaceAll('\n', ' '),
      ];
    });
  const others = properties.filter(({ property }) => !property).map(({ member }) => member);
  return [
    ...(rows.length > 0 ? [table(['Property', 'Type', 'Meaning'], rows).trimEnd()] : []),
    ...others.flatMap((member) => {
      const { text, throws, others: tags } = partsOfComment(member.comment);
      const types = typesIn(member.text, item, page);
      return [
        `${'#'.repeat(level)} ${member.name}`,
        ...(text ? [prose(text)] : []),
        fence(withoutComments(member.text)),
        ...tags.map((tag) => prose(tag)),
        ...(types.length > 0 ? [`Types: ${types.join(', ')}.`] : []),
        ...throwsTable(throws),
      ];
    }),
  ];
}

/** What stands below the heading of an item. */
function bodyOf(item, page, level) {
  const { text, throws, others } = partsOfComment(item.comment);
  const [head] = item.text.split('{\n');
  const isPlain = /^(?:interface|type) \w+(?: =)? $/.test(head);
  const declaration = item.members ? `${head.replace(/ =? ?$/, '')}` : item.text;
  const types = typesIn(item.members ? head : item.text, item, page);
  return [
    ...(text ? [prose(text)] : []),
    ...(item.comment === ''
      ? ['Part of requests and responses of the API: [OpenAPI](../../openapi.md).']
      : []),
    ...(OPTIONS[item.name]
      ? [
          `Options with variables: [Options of ${OPTIONS[item.name]}](../../options/${OPTIONS[item.name]}.md).`,
        ]
      : []),
    ...(item.members && isPlain ? [] : [fence(item.members ? declaration : withoutComments(item.text))]),
    ...others.map((tag) => prose(tag)),
    ...(types.length > 0 ? [`Types: ${types.join(', ')}.`] : []),
    ...throwsTable(throws),
    ...(item.members ? memberParts(item, page, level) : []),
  ];
}

/** Links to the guides that have an example. */
const examplesOf = ({ name, entry }) =>
  (EXPORT_GUIDES[entry][name] ?? []).map((page) => linkPages(`docs/${page}`, '../../../'));

function pageOf(note, item) {
  const { page } = item;
  const guests = item.guests.toSorted((one, other) => (one.name < other.name ? -1 : 1));
  const examples = examplesOf(item);
  const how = item.isExported
    ? fence(
        `import ${['interface', 'type'].includes(item.kind) ? 'type ' : ''}{ ${item.name} } from '${item.entry}';`,
      )
    : `A type of [${item.entry}](../${folderOf(item.entry)}.md) that cannot be imported by name.`;
  return `${[
    `${note}\n# ${item.name}`,
    how,
    ...(examples.length > 0 ? [`Examples: ${examples.join(', ')}.`] : []),
    ...bodyOf(item, page, 2),
    ...guests.flatMap((guest) => [`## ${guest.name}`, ...bodyOf(guest, page, 3)]),
  ].join('\n\n')}\n`;
}

/** The first sentence of a comment, on one line. */
function summaryOf({ comment }) {
  const text = partsOfComment(comment).text.replaceAll(/\s+/g, ' ');
  // A period in code ends no sentence.
  const plain = text.replaceAll(/`[^`]*`/g, (code) => '_'.repeat(code.length));
  const end = /\.(?= |$)|: (?=_{3})/.exec(plain)?.index ?? text.length;
  return text.slice(0, end).replace(/:$/, '');
}

function indexOf(note, entry, items) {
  const index = `${folderOf(entry)}.md`;
  const line = (item) =>
    [`- [${item.name}](${linkTo(item, index)})`, escapeHtml(linkPages(summaryOf(item), '../../'))]
      .filter(Boolean)
      .join(': ');
  const isFunction = ({ kind, text }) =>
    kind === 'function' || (kind === 'const' && /^const \w+: /.test(text));
  const pages = items.filter((item) => item.root === item);
  const guests = items.filter((item) => item.root !== item);
  const groups = {
    Functions: pages.filter((item) => item.isExported && isFunction(item)),
    Classes: pages.filter((item) => item.isExported && item.kind === 'class'),
    Types: pages.filter((item) => item.isExported && !isFunction(item) && item.kind !== 'class'),
    'Types that cannot be imported': pages.filter((item) => !item.isExported),
  };
  const lists = Object.entries(groups)
    .filter(([, list]) => list.length > 0)
    .map(([title, list]) => `## ${title}\n\n${list.map(line).join('\n')}`);
  const rest = guests.map((item) => `[${item.name}](${linkTo(item, index)})`);
  return `${note}
# Exports of ${entry}

${ENTRIES[entry][0].toUpperCase()}${ENTRIES[entry].slice(1)}. [Exports](../api.md) lists the other entry points.

${lists.join('\n\n')}
${rest.length > 0 ? `\n## Types on these pages\n\n${rest.join(', ')}.\n` : ''}`;
}

function overview(note, counts) {
  const rows = Object.entries(ENTRIES).map(([entry, about]) => [
    `[\`${entry}\`](exports/${folderOf(entry)}.md)`,
    about,
    counts[entry],
  ]);
  rows.splice(1, 0, ['`saas-backend/next`', 'the same as `saas-backend`, for Next.js', '']);
  return `${note}
# Exports

${table(['Import', 'What it has', 'Exports'], rows)}
Each export has a page with its signature, its members, its errors and the guides that use it. An editor shows the same comments.
Everything that these pages do not list is internal and changes without notice. The npm package has the lists without the pages.
`;
}

/**
 * @param surfaces what `readPublicSurface` has found
 * @param all the errors of the products
 * @returns the text of each page by its path
 */
export function exportPages(note, surfaces, all) {
  errors = new Map(all.map((error) => [error.code, error]));
  const plan = planPages(surfaces);
  for (const { entry, items } of plan) {
    const names = items.filter(({ root, name }) => root.name === name).map(({ name }) => name);
    const unknown = Object.keys(EXPORT_GUIDES[entry]).filter((name) => !names.includes(name));
    if (unknown.length > 0) throw new Error(`docs/export-guides.mjs: ${entry} has no pages for ${unknown}`);
  }
  const counts = {};
  const pages = {};
  for (const { entry, items } of plan) {
    counts[entry] = items.filter(({ isExported }) => isExported).length;
    pages[`docs/reference/exports/${folderOf(entry)}.md`] = indexOf(note, entry, items);
    for (const item of items.filter(({ root, ...own }) => root.page === own.page && root.name === own.name))
      pages[`docs/reference/exports/${item.page}`] = pageOf(note, item);
  }
  return { 'docs/reference/api.md': overview(note, counts), ...pages };
}
