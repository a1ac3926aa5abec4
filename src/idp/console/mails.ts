import type { FastifyTypebox } from '../../core/http/routes.js';
import { registerBulkList } from '../../shared/console-kit/bulk.js';
import type { ConsoleServices } from './sources.js';

/** The outbox: what was sent to whom, and why an e-mail failed. It never shows the content, which contains links. */
export async function mailsPlugin(
  fastify: FastifyTypebox,
  { console, sources }: ConsoleServices,
): Promise<void> {
  const { mails, principals } = sources;
  if (!mails) return;
  await registerBulkList(fastify, console, {
    ...mails.outboxList({
      resolveUser: async (search) => (await principals.findByName(search))?.id ?? search,
      userHref: (userId) => `principals/${userId}`,
    }),
    search: { label: 'User', hint: 'A user name or an ID.', maxLength: 254 },
    empty: 'There are no e-mails yet.',
  });
}
