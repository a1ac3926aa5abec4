// The pages of events and exports, and the lists of pages. docs/generate.mjs calls it.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { escapeHtml, table } from './table.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const dist = (file) => join(root, 'dist', file);

/** The declarations of a compiled file: their names, comments and text. A type can have the name of the schema that it describes. */
function declarationsOf(file) {
  const found = new Map();
  let comment = [];
  let current;
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    const [, kind, name] =
      /^(?:export )?(?:declare )?(?:abstract )?(interface|type|class|function|const) (\w+)/.exec(line) ?? [];
    if (line.startsWith('/**')) {
      comment = [line];
      current = undefined;
    } else if (name) {
      current = { kind, comment: textOf(comment), lines: [line] };
      found.set(name, [...(found.get(name) ?? []), current]);
      comment = [];
    } else if (/^(import|export|declare) /.test(line)) current = undefined;
    else if (current) current.lines.push(line);
    else comment.push(line);
  }
  return found;
}

const textOf = (lines) =>
  lines
    .map((line) => line.replace(/^\s*(?:\/\*\*|\*(?!\/))? ?/, '').replace(/\s*\*\/\s*$/, ''))
    .join(' ')
    .trim();

/** What a name stands for: its types, or its value if it has none. */
function declarationOf({ declared, file }) {
  const own = declarationsOf(file).get(declared);
  if (!own) throw new Error(`${file} does not declare ${declared}`);
  const types = own.filter(({ kind }) => kind !== 'const');
  const parts = types.length > 0 ? types : own;
  return { comment: parts[0].comment, lines: parts.flatMap(({ lines }) => lines) };
}

/** Types that the compiler derives from schemas: a page describes their fields. */
const DESCRIBED = {
  SaasBackendOptions: 'Every option with its variable and default: [Configuration](options/saas-backend.md).',
  CreateServerOptions:
    'Every option with its variable and default: [Configuration](options/saas-backend.md).',
  IdentityProviderOptions: 'Every option with its variable and default: [Configuration](options/idp.md).',
  CreateIdentityServerOptions: 'Every option with its variable and default: [Configuration](options/idp.md).',
};

/** @param surfaces what `readPublicSurface` has found */
export function apiPage(note, surfaces) {
  const section = (item) => {
    const { comment, lines } = declarationOf(item);
    const text = lines
      .join('\n')
      .trim()
      .replaceAll(/^export (?:declare )?/gm, '');
    return [
      `### ${item.name}`,
      ...[comment, DESCRIBED[item.name]].filter(Boolean).map(escapeHtml),
      `\`\`\`ts\n${text}\n\`\`\``,
    ].join('\n\n');
  };
  const sections = Object.entries(surfaces).flatMap(([entry, items]) => {
    const sorted = items.toSorted((one, other) => (one.name < other.name ? -1 : 1));
    const exported = sorted.filter(({ isExported }) => isExported);
    const reachable = sorted.filter(({ isExported }) => !isExported);
    return [
      `## ${entry}`,
      ...exported.map(section),
      ...(reachable.length > 0
        ? [`## Other types of ${entry}`, 'Exported types refer to them; they cannot be imported by name.']
        : []),
      ...reachable.map(section),
    ];
  });
  return `${note}
# Exports

The functions and types of the package. An editor shows the same comments. Everything that this page does not list is internal and
changes without notice.

${sections.join('\n\n')}
`;
}

/** The comment and the fields of each event of an interface, with those of the interfaces that it refers to. */
function eventsOf(file, interfaceName) {
  const declarations = declarationsOf(dist(file));
  const membersOf = (name) => {
    const [found] = declarations.get(name) ?? [];
    if (!found) throw new Error(`${file} does not declare ${name}`);
    return found.lines.slice(1).join('\n');
  };
  /** `name?: type;` at the first level of a body. */
  const fieldsOf = (body) => {
    const flat = body.replace(/\/\*\*[\s\S]*?\*\//g, '').replace(/\{[^{}]*\}/g, '{}');
    return [...flat.matchAll(/(\w+)\??: [^;]*;/g)].map(([, field]) => field);
  };
  const rows = membersOf(interfaceName).matchAll(
    /(?: {4}\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n)? {4}'([\w.]+)': ([\s\S]*?);\n(?= {4}['/]|\}|$)/g,
  );
  return [...rows].map(([, comment = '', name, type]) => {
    const named = [...type.replace(/\{[\s\S]*\}/g, '').matchAll(/\b[A-Z]\w+/g)].flatMap(([part]) => {
      const [members] = declarations.get(part) ?? [];
      return members ? fieldsOf(members.lines.slice(1).join('\n')) : [];
    });
    const inline = /\{([\s\S]*)\}/.exec(type)?.[1] ?? '';
    const fields = [...new Set([...named, ...fieldsOf(`${inline};`)])];
    return { name, comment: textOf(comment.split('\n')), fields };
  });
}

/** When the events without a comment are emitted. */
const MEANINGS = {
  'user.registered': 'An account was created: by its user, the host, the command or an import.',
  'user.unsuspended': 'The operator has lifted the suspension.',
  'user.suspended': 'The operator has suspended the account.',
  'user.deleted': 'The account was deleted.',
  'session.revoked':
    'One session ended (`scope`: `local`), all but one (`others`), or all of them (`global`).',
  'subscription.updated': 'A subscription was created or changed.',
  'invoice.paid': 'An invoice was paid.',
  'invoice.voided': 'An invoice was voided. `amount`: what is no longer to be paid.',
  'payment.failed': 'A payment of an invoice failed.',
  'payment.refunded': 'A payment was refunded. `refundedAmount`: the sum of all refunds of the payment.',
  'payment.disputed': 'A customer disputes a payment.',
  'payment.dispute_closed': 'A dispute ended. `status`: the result at the provider, such as `won` or `lost`.',
};

export function eventsPage(note) {
  const all = [
    ...eventsOf('src/saas/auth/events.d.ts', 'AuthEvents'),
    ...eventsOf('src/saas/billing/notifications.d.ts', 'BillingEvents'),
    ...eventsOf('src/saas/admin/attention.d.ts', 'AttentionEvents'),
    ...eventsOf('src/saas/agents/schemas.d.ts', 'AgentEvents'),
    ...eventsOf('src/saas/organizations/events.d.ts', 'OrganizationEvents'),
  ];
  const rows = all.map(({ name, comment, fields }) => {
    const meaning = MEANINGS[name] ?? comment;
    if (!meaning) throw new Error(`docs/reference.mjs does not say what the event ${name} means`);
    const own = fields.filter((field) => !['id', 'at'].includes(field));
    return [`\`${name}\``, meaning, own.map((field) => `\`${field}\``).join(', ')];
  });
  return `${note}
# Events

Events of saas-backend for the code of your application, in the process where the change was made:

\`\`\`js
fastify.saas.events.on('user.registered', ({ id, at, userId, user }) => {});
\`\`\`

Each has \`id\` and \`at\` (ISO 8601). The types are in [SaasEvents](api.md#saasevents). Listeners are called after the commit of the change, which stores the event for
[webhooks](../saas/webhooks.md), too: a process that is killed in between calls no listener, but the webhook is sent. More: [Accounts](../saas/user-events.md#events),
[Billing](../saas/billing-webhooks.md#events-for-your-code), [Organizations](../saas/organizations.md).

${table(['Event', 'Meaning', 'Fields'], rows)}`;
}

/** The pages of the documentation, by group: `docs/.vitepress/navigation.json`. */
export const navigation = JSON.parse(readFileSync(join(root, 'docs/.vitepress/navigation.json'), 'utf8'));

const MARK = '<!-- pages: npm run generate -->';

/** Replaces what follows the mark with the list of pages. */
export function withPages(file, others = '') {
  const text = readFileSync(join(root, file), 'utf8');
  if (!text.includes(MARK)) throw new Error(`${file} has no place for the list of pages`);
  const groups = navigation.map(({ text: title, pages }) => {
    const lines = pages.map(([page, name, about]) => {
      if (!existsSync(join(root, 'docs', page)) && !GENERATED.includes(page))
        throw new Error(`there is no docs/${page}`);
      return `- [${name}](${page}): ${about}`;
    });
    return `## ${title}\n\n${lines.join('\n')}\n`;
  });
  return `${text.slice(0, text.indexOf(MARK))}${MARK}\n\n${groups.join('\n')}${others}`;
}

const GENERATED = [
  'options/saas-backend',
  'options/idp',
  'cli',
  'cli/saas-backend',
  'cli/idp',
  'events',
  'api',
].map((name) => `reference/${name}.md`);
