import { openBillingAdministration } from '../../src/saas/administration.js';
import { readLines } from '../../src/saas/auth/import/import-lines.js';
import type { CustomerClaim, CustomerResult } from '../../src/saas/billing/customers/import.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { openInput } from '../options.js';
import { createProgress } from '../progress.js';
import { SAAS, withStore } from '../store.js';
import { complain, fail, say } from '../terminal.js';

interface ImportOptions extends CommonOptions {
  metadata?: string;
  byEmail?: true;
  dryRun?: true;
}

const IMPORT = `Link customers that existed at the payment provider before, with their subscriptions, to users.

Without a file, all customers are read. Each is linked to the user whose ID is in its metadata, and, with --by-email, to the user \
who has confirmed its address, if no other customer has it. A file has one JSON object per line, with "customerId" and one of "userId" \
and "email". A linked customer never moves to another user, so the command can be interrupted and repeated. It exits with 1 when a \
line of the file cannot be linked, or when the provider fails to answer for a customer.`;

export function defineImport(group: CommandLine): void {
  group
    .command('import')
    .summary('Link customers that existed before to users')
    .description(IMPORT)
    .argument('[file.ndjson]', 'File that names the users of customers; - reads standard input')
    .option(
      '--metadata <key>',
      'Key of the metadata with the ID of the user (default: userId or organizationId)',
    )
    .option('--by-email', 'Link by the confirmed address of the user as well')
    .option('--dry-run', 'Print what the import would do and change nothing')
    .examples(
      'saas-backend billing import --dry-run',
      'saas-backend billing import --metadata supabaseUUID --by-email',
      'saas-backend billing import customers.ndjson',
    )
    .action(importCustomers);
}

const MAX_LINE_BYTES = 4 * 1024;

async function importCustomers(file: string | undefined, options: ImportOptions): Promise<void> {
  const { dryRun, byEmail, metadata: metadataKey, json } = options;
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  const progress = createProgress({ name: 'customers', write: String });
  const results: CustomerResult[] = [];
  await withStore(
    SAAS,
    () => openBillingAdministration(complain),
    async (billing) => {
      const report = await billing.importCustomers({
        claims: file === undefined ? undefined : readClaims(file),
        metadataKey,
        byEmail,
        dryRun,
        signal: stopping.signal,
        onProgress: (done) => progress.show(done),
        onResult(result) {
          if (json) results.push(result);
          else {
            progress.end();
            say(describe(result));
          }
        },
      });
      progress.end();
      const { customers, linked, known, ambiguous, missing, failed, interrupted } = report;
      const outcome = dryRun ? 'would be linked' : 'linked';
      say(
        json
          ? JSON.stringify({ ...report, results })
          : `${customers} customers: ${linked} ${outcome}, ${known} already linked, ${ambiguous} ambiguous, ${missing} without a user, ${failed} failed.`,
      );
      const isIncomplete = failed > 0 || (file !== undefined && missing + ambiguous > 0);
      if (interrupted) complain('Interrupted. What is linked stays; the same command links the rest.');
      if (interrupted || isIncomplete) process.exitCode = interrupted ? 130 : 1;
    },
  );
}

function describe({ customerId, outcome, userId, by, subscriptions, reason }: CustomerResult): string {
  if (outcome !== 'linked') return `${customerId} ${outcome}${userId ? ` (${userId})` : ''}: ${reason}`;
  const found = subscriptions === undefined ? '' : `, ${subscriptions} subscriptions`;
  return `${customerId} → ${userId} (by ${by})${found}`;
}

/** The lines of a file; the command ends at the first that cannot be read. */
async function* readClaims(file: string): AsyncGenerator<CustomerClaim> {
  for await (const { number, text } of readLines(openInput(file).input, MAX_LINE_BYTES)) {
    if (typeof text !== 'string') fail(1, `line ${number}: ${text.reason}`);
    if (text.trim() === '') continue;
    const claim = parseClaim(text);
    if (!claim)
      fail(
        1,
        `line ${number}: must be like {"customerId":"cus_1","userId":"usr_1"}, or with "email" instead of "userId"`,
      );
    yield claim;
  }
}

function parseClaim(text: string): CustomerClaim | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const { customerId, userId, email, ...others } = value as Record<string, unknown>;
  const names = [userId, email].filter((name) => name !== undefined && name !== null);
  const isValid =
    typeof customerId === 'string' && /^cus_\w{1,250}$/.test(customerId) && Object.keys(others).length === 0;
  if (!isValid || names.length !== 1 || typeof names[0] !== 'string') return null;
  return { customerId, ...(typeof userId === 'string' ? { userId } : { email: names[0] }) };
}
