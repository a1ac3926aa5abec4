import type { Console } from '../console/console.js';
import { registerList } from '../console/lists.js';
import { outboxList } from '../console/outbox.js';
import type { Scope } from '../http/scope.js';
import type { Clock } from '../kernel/clock.js';
import type { ConsoleSources } from './sources.js';

/** The outbox: what was sent to whom, and why an e-mail failed. It never shows the content, which contains links. */
export async function mailsPlugin(
  scope: Scope,
  { console, sources, clock }: { console: Console; sources: ConsoleSources; clock: Clock },
): Promise<void> {
  const { mails, principals } = sources;
  if (!mails) return;
  registerList(scope, console, {
    ...outboxList({
      list: mails.list,
      resolveUser: async (search) => (await principals.findByHandle(search))?.id ?? search,
      userHref: (userId) => `principals/${userId}`,
      clock,
    }),
    search: { label: 'User', hint: 'A user name or an ID.', maxLength: 254 },
    empty: 'There are no e-mails yet.',
  });
}
