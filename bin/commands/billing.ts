import { DAY, systemClock } from '../../src/core/kernel/clock.js';
import { openBillingAdministration } from '../../src/saas/administration.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { createProgress } from '../progress.js';
import { SAAS, withStore } from '../store.js';
import { complain, say } from '../terminal.js';

interface ResyncOptions extends CommonOptions {
  user?: string;
  since?: string;
  dryRun?: true;
}

const DESCRIPTION = `Compare all subscriptions with the payment provider and repair the differences, for instance after \
lost webhooks. The command can be repeated and interrupted at any time, also while the server runs. It exits with 1 when \
the provider fails to answer for a customer, and when --user names no customer.`;

/** How long the payment provider keeps its events. */
const EVENT_RETENTION_MS = 30 * DAY;

export function define(group: CommandLine): void {
  group.examples('saas-backend billing resync --dry-run');
  group
    .command('resync')
    .summary('Repair subscriptions that differ from the payment provider')
    .description(DESCRIPTION)
    .option('--user <id>', 'Only this user')
    .option('--since <date>', 'Only users with an event since this date, at most 30 days ago')
    .option('--dry-run', 'Print the differences and change nothing')
    .examples(
      'saas-backend billing resync --dry-run',
      'saas-backend billing resync --since 2030-01-31',
      'saas-backend billing resync --user usr_0197',
    )
    .action(resync);
}

async function resync(options: ResyncOptions, command: CommandLine): Promise<void> {
  const { user: userId, dryRun = false } = options;
  // A script whose variable is empty must not resync all users.
  if (userId === '') command.error('error: --user needs the identifier of a user, like usr_0197.');
  const since = parseSince(options, command);
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  const progress = createProgress({ name: 'customers', write: String });
  let processed = 0;
  await withStore(
    SAAS,
    () => openBillingAdministration(complain),
    async (billing) => {
      const report = await billing.run({
        dryRun,
        signal: stopping.signal,
        onProgress(done, total) {
          processed = done;
          progress.show(done, total);
        },
        ...(userId !== undefined && { userId }),
        ...(since !== undefined && { since }),
      });
      progress.end();
      const { customers, subscriptions, changes, failures } = report;
      if (options.json) say(JSON.stringify(report));
      else {
        for (const { subscriptionId, userId: owner, before = 'unknown', after, fields } of changes) {
          say(`${subscriptionId} of ${owner}: ${before} → ${after} (${fields.join(', ')})`);
        }
        const outcome = dryRun ? 'differ' : 'repaired';
        say(`${customers} customers, ${subscriptions} subscriptions, ${changes.length} ${outcome}.`);
      }
      for (const { userId: owner, reason } of failures) complain(`${owner}: ${reason}`);
      const isUnknown = userId !== undefined && since === undefined && customers === 0;
      if (isUnknown) complain(`No user with the identifier ${userId} is a customer of the payment provider.`);
      if (stopping.signal.aborted) {
        complain(`Interrupted after ${processed} of ${customers} customers.`);
        process.exitCode = 130;
      } else if (failures.length > 0 || isUnknown) process.exitCode = 1;
    },
  );
}

function parseSince({ since }: ResyncOptions, command: CommandLine): number | undefined {
  if (since === undefined) return undefined;
  const time = /^\d{4}-\d\d-\d\d(T|$)/.test(since) ? Date.parse(since) : Number.NaN;
  if (Number.isNaN(time)) command.error(`error: --since takes a date like 2030-01-31, not '${since}'.`);
  const now = systemClock.now();
  if (time > now) command.error(`error: --since takes a date in the past, not '${since}'.`);
  if (time < now - EVENT_RETENTION_MS) {
    complain('The payment provider keeps events for 30 days only: omit --since to check all users.');
  }
  return time;
}
