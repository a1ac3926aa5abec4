import { Type } from 'typebox';
import { isOrganizationId } from '../../core/http/identity.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { Email } from '../../core/http/schemas.js';
import type { Clock } from '../../core/kernel/clock.js';
import { registerAction } from '../../shared/console-kit/actions.js';
import { registerBulkActions } from '../../shared/console-kit/bulk.js';
import { type Console, Parameters } from '../../shared/console-kit/console.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { meaningOf, outboxList } from '../../shared/console-kit/outbox.js';
import type { MailAdministration } from '../../shared/email/administration.js';
import type { ResolveUser } from './users.js';

/** The preview of a mail: nothing in it runs, and nothing is loaded but images. */
const PREVIEW_HEADERS = {
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; sandbox",
  'x-frame-options': 'DENY',
};

const TestMail = Type.Object({ to: Email });

const Template = Type.Object({
  name: Type.String(),
  subject: Type.String(),
  text: Type.String(),
  html: Type.String(),
});

export interface MailsPluginOptions {
  console: Console;
  mails: MailAdministration;
  resolveUser: ResolveUser;
  clock: Clock;
}

const linkToOwner = (id: string) =>
  isOrganizationId(id)
    ? { href: `../organizations/${id}`, label: 'Show the organization' }
    : { href: `../users/${id}`, label: 'Show the user' };

/** The outbox and the templates. */
export async function mailsPlugin(
  fastify: FastifyTypebox,
  { console, mails, resolveUser, clock }: MailsPluginOptions,
): Promise<void> {
  const list = {
    ...outboxList({
      list: mails.list,
      retry: mails.retry,
      resolveUser,
      mailHref: ({ id }) => `mails/${id}`,
      clock,
    }),
    links: [{ path: 'mails/templates', label: 'Templates and test e-mails' }],
    search: { label: 'User', hint: 'The ID or e-mail address of a user.', maxLength: 254 },
    item: mails.schema,
    empty: 'There are no e-mails yet. To check that they arrive, open the templates and send a test e-mail.',
  };
  registerList(fastify, console, list);
  await registerBulkActions(fastify, console, list);

  registerTemplates(fastify, console, mails);

  registerDetail(fastify, console, {
    path: 'mails/:id',
    section: 'mails',
    item: mails.schema,
    find: ({ id = '' }) => mails.find(id),
    view: ({ id, userId, status, ...mail }) => ({
      title: `E-mail ${mail.template}`,
      facts: [
        { label: 'Status', text: `${status}. ${meaningOf(status)}` },
        { label: 'To', text: mail.to },
        { label: 'Attempts', text: String(mail.attempts) },
        { label: 'Reason', text: mail.reason },
        { label: 'Created', time: mail.createdAt },
        { label: 'Next attempt', time: mail.dueAt },
        { label: 'Completed', time: mail.endedAt },
        { label: 'Not sent after', time: mail.expiresAt },
        { label: 'ID', text: id, isCode: true },
      ],
      actions: [
        ...(mail.canRetry ? [{ href: `${id}/retry`, label: 'Send again' }] : []),
        { href: `templates/${mail.template}`, label: 'Show the template' },
        ...(userId === null ? [] : [linkToOwner(userId)]),
      ],
    }),
  });

  await registerAction(fastify, console, {
    path: 'mails/:id/retry',
    section: 'mails',
    title: ({ template }) => `Send ${template} again`,
    consequences:
      'The e-mail is queued with all its attempts, for a day at least. Links to sign in or to confirm an address are never sent again: send a new one from the page of the user.',
    button: 'Send again',
    find: ({ id = '' }) => mails.find(id),
    run: ({ id }, _fields, by) => mails.retry(id, by),
    done: 'The e-mail was queued.',
    returnTo: ({ id }) => `mails/${id}`,
  });

  await registerAction(fastify, console, {
    path: 'mails/templates/:name/test',
    section: 'mails',
    title: ({ name }) => `Send ${name} as a test`,
    consequences: 'The e-mail has sample values and is sent at once. Its links do not work.',
    button: 'Send',
    fields: TestMail,
    inputs: [{ name: 'to', label: 'To', hint: 'An address of yours.', type: 'email', isRequired: true }],
    async find({ name = '' }) {
      await mails.preview(name);
      return { name };
    },
    run: ({ name }, { to }, by) => mails.sendTest(name, to, by),
    done: {
      sent: 'The mail server accepted the test e-mail.',
      written: 'No mail server is configured: the test e-mail was written to data/mail.',
      undeliverable: 'No mail server is configured: the test e-mail was only logged.',
    },
    timeoutMs: 30_000,
    returnTo: ({ name }) => `mails/templates/${name}`,
  });
}

/** Previews of all templates. */
function registerTemplates(fastify: FastifyTypebox, console: Console, mails: MailAdministration): void {
  registerList<{ name: string; subject: string }>(fastify, console, {
    path: 'mails/templates',
    section: 'mails',
    title: 'Templates of e-mails',
    intro: 'With sample values. EMAIL_TEMPLATE_DIR replaces single files.',
    links: [{ path: 'mails', label: 'All e-mails' }],
    columns: [
      { label: 'Template', text: ({ name }) => name, href: ({ name }) => `mails/templates/${name}` },
      { label: 'Subject', text: ({ subject }) => subject },
    ],
    item: Type.Object({ name: Type.String(), subject: Type.String() }),
    async read() {
      const items = mails.names.map(async (name) => ({ name, ...(await mails.preview(name)) }));
      return { items: await Promise.all(items), next: null };
    },
    empty: 'There are no templates.',
  });

  registerDetail(fastify, console, {
    path: 'mails/templates/:name',
    section: 'mails',
    template: 'admin-mail-template',
    item: Template,
    find: async ({ name = '' }) => ({ name, ...(await mails.preview(name)) }),
    view: ({ name, subject, text }) => ({ title: `Template ${name}`, name, subject, text }),
  });

  const route = { config: console.config, schema: { params: Parameters } };
  fastify.get('/mails/templates/:name/html', route, async (request, reply) => {
    const { html } = await mails.preview(request.params['name'] ?? '');
    return reply.headers(PREVIEW_HEADERS).type('text/html; charset=utf-8').send(html);
  });
}
