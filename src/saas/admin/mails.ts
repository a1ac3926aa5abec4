import { isOrganizationId } from '../../core/http/identity.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { registerAction } from '../../shared/console-kit/actions.js';
import { registerBulkList } from '../../shared/console-kit/bulk.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { sentenceCase } from '../../shared/console-kit/marks.js';
import type { AdminServices } from './services.js';

const linkToOwner = (id: string) =>
  isOrganizationId(id)
    ? { href: `../organizations/${id}`, label: 'Show the organization' }
    : { href: `../users/${id}`, label: 'Show the user' };

/** The outbox. */
export async function mailsPlugin(
  fastify: FastifyTypebox,
  { console, email, resolveUser }: AdminServices,
): Promise<void> {
  const mails = email.administration;
  await registerBulkList(fastify, console, {
    ...mails.outboxList({ resolveUser, mailHref: ({ id }) => `mails/${id}` }),
    links: [{ path: 'branding', label: 'Templates and test e-mails' }],
    search: { label: 'User', hint: 'The ID or e-mail address of a user.', maxLength: 254 },
    item: mails.schema,
    empty: 'There are no e-mails yet. To check that they arrive, open the templates and send a test e-mail.',
  });

  registerDetail(fastify, console, {
    path: 'mails/:id',
    section: 'mails',
    item: mails.schema,
    find: ({ id = '' }) => mails.find(id),
    view: ({ id, userId, status, ...mail }) => ({
      title: sentenceCase(mail.template),
      facts: [
        { label: 'Status', state: status, text: mails.meaningOf(status) ?? '' },
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
    role: 'support',
    find: ({ id = '' }) => mails.find(id),
    run: ({ id }, _fields, by) => mails.retry(id, by),
    done: 'The e-mail was queued.',
    returnTo: ({ id }) => `mails/${id}`,
  });
}
