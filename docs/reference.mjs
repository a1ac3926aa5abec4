// The pages of events and exports, and the lists of pages. docs/generate.mjs calls it.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { declarationsOf, textOf } from './declarations.mjs';
import { table } from './table.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const dist = (file) => join(root, 'dist', file);

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

Each has \`id\` and \`at\` (ISO 8601). The types are in [SaasEvents](exports/saas-backend/SaasDecorator.md#saasevents). Listeners are called after the commit of the change, which stores the event for
[webhooks](../saas/webhooks.md), too: a process that is killed in between calls no listener, but the webhook is sent. More: [Accounts](../saas/user-events.md#events),
[Billing](../saas/billing-webhooks.md#events-for-your-code), [Organizations](../saas/organizations.md).

${table(['Event', 'Meaning', 'Fields'], rows)}`;
}

/** The pages of the documentation, by group: `docs/.vitepress/navigation.json`. */
export const navigation = JSON.parse(readFileSync(join(root, 'docs/.vitepress/navigation.json'), 'utf8'));

const titles = new Map(navigation.flatMap(({ pages }) => pages.map(([page, title]) => [page, title])));

/** Paths of pages in a description, such as `docs/start.md`, become links. */
export const linkPages = (text, toDocs) =>
  text.replace(/docs\/([\w/-]+\.md)(#[\w-]+)?/g, (path, page, anchor = '') => {
    if (!titles.has(page)) throw new Error(`a description refers to ${path}, which does not exist`);
    return `[${titles.get(page)}](${toDocs}${page}${anchor})`;
  });

const MARK = '<!-- pages: npm run generate -->';

/** Replaces what follows the mark with the list of pages. */
export function withPages(file, others = '') {
  const text = readFileSync(join(root, file), 'utf8');
  if (!text.includes(MARK)) throw new Error(`${file} has no place for the list of pages`);
  const groups = navigation.map(({ text: title, pages }) => {
    const lines = pages.map(([page, name, about]) => {
      if (!existsSync(join(root, 'docs', page)) && !page.startsWith('reference/'))
        throw new Error(`there is no docs/${page}`);
      return `- [${name}](${page}): ${about}`;
    });
    return `## ${title}\n\n${lines.join('\n')}\n`;
  });
  return `${text.slice(0, text.indexOf(MARK))}${MARK}\n\n${groups.join('\n')}${others}`;
}
