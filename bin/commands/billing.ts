import { DAY, systemClock } from '../../src/kernel/clock.js';
import type { AppError } from '../../src/kernel/errors.js';
import { type BillingAdministration, openBillingAdministration } from '../../src/saas/administration.js';
import { type Call, type Command, UsageError } from '../command.js';
import { createProgress } from '../progress.js';
import { complain, fail, say, sentences } from '../terminal.js';

const resync: Command = {
  name: 'billing resync',
  summary: 'asks the payment provider what its customers have, and repairs what differs',
  about: `For when webhooks were lost. It can be repeated and interrupted at any time, also while the program serves.
Ends with 1 when the provider could not be asked about somebody, and when --user names nobody it knows.`,
  options: {
    user: { value: '<id>', doc: 'only this user' },
    since: { value: '<date>', doc: 'only those of whom the provider has told since then, up to 30 days ago' },
    'dry-run': { doc: 'say what differs, and change nothing' },
  },
  examples: [
    'billing resync --dry-run',
    'billing resync --since 2030-01-31',
    'billing resync --user usr_0197',
  ],
  run: resyncAll,
};

export const commands = [resync];

/** How long the provider remembers what it has told. Milliseconds. */
const MEMORY = 30 * DAY;

async function resyncAll(call: Call): Promise<void> {
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  const progress = createProgress({ name: 'customers', write: String });
  const userId = call.text('user');
  // Of nobody, as of a script whose variable is empty, must not become of everybody.
  if (userId === '') throw new UsageError('--user needs the identifier of a user.', resync);
  const since = sinceOf(call);
  let asked = 0;
  await withBilling(call, async (billing) => {
    const report = await billing.run({
      dryRun: call.isSet('dry-run'),
      signal: stopping.signal,
      onProgress(done, total) {
        asked = done;
        progress.show(done, total);
      },
      ...(userId !== undefined && { userId }),
      ...(since !== undefined && { since }),
    });
    progress.end();
    const { customers, subscriptions, changes, failures } = report;
    if (call.json) say(JSON.stringify(report));
    else {
      for (const { subscriptionId, userId: whose, before = 'unknown', after, fields } of changes) {
        say(`${subscriptionId} of ${whose}: ${before} → ${after} (${fields.join(', ')})`);
      }
      const done = call.isSet('dry-run') ? 'differ' : 'repaired';
      say(`${customers} customers, ${subscriptions} subscriptions, ${changes.length} ${done}.`);
    }
    for (const { userId: whose, reason } of failures) complain(`${whose}: ${reason}`);
    const isUnknown = userId !== undefined && since === undefined && customers === 0;
    if (isUnknown) complain(`No user with the identifier ${userId} is a customer of the payment provider.`);
    if (stopping.signal.aborted) {
      complain(`Interrupted after ${asked} of ${customers} customers.`);
      process.exitCode = 130;
    } else if (failures.length > 0 || isUnknown) process.exitCode = 1;
  });
}

function sinceOf(call: Call): number | undefined {
  const text = call.text('since');
  if (text === undefined) return undefined;
  const time = /^\d{4}-\d\d-\d\d(T|$)/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time))
    throw new UsageError(`--since takes a date like 2030-01-31, not '${text}'.`, resync);
  const now = systemClock.now();
  if (time > now) throw new UsageError(`--since takes a date that has passed, not '${text}'.`, resync);
  if (time < now - MEMORY) {
    complain('The payment provider remembers 30 days: without --since, it is asked about everybody.');
  }
  return time;
}

async function withBilling(
  { program: { name, storeVariable } }: Call,
  work: (billing: BillingAdministration) => Promise<void>,
): Promise<void> {
  let billing: BillingAdministration | undefined;
  try {
    billing = await openBillingAdministration(complain);
    await work(billing);
  } catch (error) {
    const { name: kind, message } = error as AppError;
    if (kind === 'StoreUnavailable') {
      fail(1, `${name} cannot use the store that ${storeVariable} names: ${sentences(error as Error)}`);
    }
    if (kind !== 'AppError') throw error;
    fail(1, message);
  } finally {
    await billing?.close();
  }
}
