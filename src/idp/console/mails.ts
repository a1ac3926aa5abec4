import type { FastifyTypebox } from '../../core/http/routes.js';
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
  registerList(fastify, console, {
    ...outboxList({
      list: mails.list,
      resolveUser: async (search) => (await principals.findByName(search))?.id ?? search,
      userHref: (userId) => `principals/${userId}`,
      clock,
    }),
    search: { label: 'User', hint: 'A user name or an ID.', maxLength: 254 },
    empty: 'There are no e-mails yet.',
  });
}
