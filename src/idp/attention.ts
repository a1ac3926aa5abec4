import { createAttentionJob, type ProblemChange } from '../shared/console-kit/attention.js';
import { createAttentionMails } from '../shared/email/attention.js';
import type { EmailModule } from '../shared/email/module.js';
import { CONSOLE_PATH } from './console/guard.js';
import type { ConsoleModule } from './console/module.js';
import type { IdpContext } from './context.js';

/** Operators get a mail about what needs attention, if their addresses and a mail server are configured. */
export function openAttention(
  context: IdpContext,
  { email, console }: { email: EmailModule | undefined; console: ConsoleModule },
): void {
  const { values, issuer, clock, jobs } = context;
  const { operatorEmails: to = [] } = values;
  if (!email || to.length === 0) return;
  const urlOf = (path: string) => `${issuer()}${CONSOLE_PATH}/${path}`;
  const mailsOf = createAttentionMails({ outbox: email.service, to, urlOf, clock });
  const attention = {
    read: console.readAttention,
    effects: async (change: ProblemChange) => mailsOf(change),
  };
  jobs.add('attention', createAttentionJob(context, attention));
}
