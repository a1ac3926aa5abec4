import type { FastifyTypebox } from '../../core/http/routes.js';
import { registerBulkActions } from '../../shared/console-kit/bulk.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { outboxList } from '../../shared/console-kit/outbox.js';
import type { ConsoleServices } from './sources.js';

/** The outbox: what was sent to whom, and why an e-mail failed. It never shows the content, which contains links. */
export async function mailsPlugin(
  fastify: FastifyTypebox,
  { console, sources, clock }: ConsoleServices,
): Promise<void> {
  const { mails, principals } = sources;
  if (!mails) return;
  const list = {
    ...outboxList({
      list: mails.list,
      retry: mails.retry,
      resolveUser: async (search) => (await principals.findByName(search))?.id ?? search,
      userHref: (userId) => `principals/${userId}`,
      clock,
    }),
    search: { label: 'User', hint: 'A user name or an ID.', maxLength: 254 },
    empty: 'There are no e-mails yet.',
  };
  registerList(fastify, console, list);
  await registerBulkActions(fastify, console, list);
}
