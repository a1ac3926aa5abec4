import { systemClock } from '../../src/core/kernel/clock.js';
import { defined } from '../../src/core/kernel/fields.js';
import { openBillingAdministration } from '../../src/saas/administration.js';
import { PROVIDER_RETENTION_MS } from '../../src/saas/billing/events/recovery.js';
import { defineImport } from '../billing/import.js';
import { definePush } from '../billing/push.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { createProgress } from '../progress.js';
import { SAAS, withStore } from '../store.js';
import { complain, say } from '../terminal.js';

interface ResyncOptions extends CommonOptions {
  user?: string;
  organization?: string;
  since?: string;
  dryRun?: true;
}

const DESCRIPTION = `Find what lost webhooks would have changed, and repair it. Events of the last 30 days that were not received are \
stored for the server, which processes them like delivered ones within half a minute: purchases, refunds, disputes, payments. \
Then all subscriptions are compared with the payment provider. The command can be repeated and interrupted at any time, also while \
the server runs. It exits with 1 when the provider fails to answer for a customer, and when --user names no customer.`;

export function define(group: CommandLine): void {
  group.examples('saas-backend billing resync --dry-run', 'saas-backend billing import --dry-run');
  group
    .command('resync')
    .summary('Repair what lost webhooks would have changed')
    .description(DESCRIPTION)
    .option('--user <id>', 'Only this user')
    .option('--organization <id>', 'Only this organization')
    .option('--since <date>', 'Only events since this date, at most 30 days ago, and their users')
    .option('--dry-run', 'Print the differences and change nothing')
    .examples(
      'saas-backend billing resync --dry-run',
      'saas-backend billing resync --since 2030-01-31',
      'saas-backend billing resync --user usr_0197',
    )
    .action(resync);
  defineImport(group);
  definePush(group);
}

async function resync(options: ResyncOptions, command: CommandLine): Promise<void> {
  const { user, organization, dryRun = false } = options;
  // A script whose variable is empty must not resync all users.
  if (user === '') command.error('error: --user needs the identifier of a user, like usr_0197.');
  if (organization === '')
    command.error('error: --organization needs the identifier of an organization, like org_0197.');
  if (user !== undefined && organization !== undefined)
    command.error('error: --user and --organization exclude each other: run the command once for each.');
  const ownerId = user ?? organization;
  const since = parseSince(options, command);
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  const comparing = createProgress({ name: 'events', write: String });
  const syncing = createProgress({ name: 'customers', write: String });
  let processed = 0;
  await withStore(
    SAAS,
    () => openBillingAdministration(complain),
    async (billing) => {
      const report = await billing.run({
        dryRun,
        signal: stopping.signal,
        onEvents: (compared) => comparing.show(compared),
        onProgress(done, total) {
          processed = done;
          syncing.show(done, total);
        },
        ...defined({ ownerId, since }),
      });
      comparing.end();
      syncing.end();
      const { events, customers, subscriptions, changes, failures } = report;
      if (options.json) say(JSON.stringify(report));
      else {
        for (const { subscriptionId, ownerId, before = 'unknown', after, fields } of changes) {
          say(`${subscriptionId} of ${ownerId}: ${before} → ${after} (${fields.join(', ')})`);
        }
        for (const [type, count] of Object.entries(events.missing)) say(`${type}: ${count} not received`);
        const next = dryRun ? 'were not received' : 'are processed by the server';
        const missing = Object.values(events.missing).reduce((sum, count) => sum + count, 0);
        say(`${events.compared} events, ${missing} of which ${next}.`);
        const outcome = dryRun ? 'differ' : 'repaired';
        say(`${customers} customers, ${subscriptions} subscriptions, ${changes.length} ${outcome}.`);
      }
      for (const { ownerId, reason } of failures) complain(`${ownerId}: ${reason}`);
      const isUnknown = ownerId !== undefined && since === undefined && customers === 0;
      if (isUnknown) complain(`Nobody with the identifier ${ownerId} is a customer of the payment provider.`);
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
  if (time < now - PROVIDER_RETENTION_MS) {
    complain('The payment provider keeps events for 30 days only: omit --since to check all users.');
  }
  return time;
}
