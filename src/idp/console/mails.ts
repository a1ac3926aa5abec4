import type { Scope } from '../../core/http/scope.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { Console } from '../../shared/console-kit/console.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { outboxList } from '../../shared/console-kit/outbox.js';
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
