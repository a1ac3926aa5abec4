import { createReadStream, type ReadStream, statSync } from 'node:fs';
import { addAbortSignal } from 'node:stream';
import type { Command } from 'commander';
import { DAY, systemClock } from '../../src/core/kernel/clock.js';
import { openUserAdministration, type UserAdministration } from '../../src/saas/administration.js';
import type { ManagedUser, UserKey } from '../../src/saas/auth/users/users.js';
import { type CommonOptions, examples } from '../command.js';
import { displayName } from '../options.js';
import { askPassword, readPassword } from '../password.js';
import type { Program } from '../program.js';
import { createProgress } from '../progress.js';
import { withStore } from '../store.js';
import { complain, fail, say } from '../terminal.js';

type CreateOptions = CommonOptions & { name?: string; verified?: true; passwordStdin?: true };
type ImportOptions = CommonOptions & { dryRun?: true };
type GrantOptions = CommonOptions & { until?: string };

const CREATE = `Create an account. The command asks for the password on the terminal. The password is never an argument, \
because other users of the machine can read arguments.`;

const IMPORT = `Import users of another system with their password hashes.

Each line is a JSON object with "email" and, optionally, "id", "name", "passwordHash", "emailVerified", "createdAt", \
"publicMetadata" and "privateMetadata". Hashes of argon2, bcrypt, scrypt (also of Firebase) and PBKDF2 stay as they are until the user signs in. Existing accounts never change, so an import can be repeated. The command \
exits with 1 when it refuses a line.`;

const SUSPEND = `Suspend an account at once and end its sessions, tokens and mailed links. A subscription continues to be \
charged: cancel it at the payment provider.`;

const GRANT = `Grant a plan without a payment, also without a payment provider. The plan "free" revokes the grant. \
Subscriptions of the user do not change: a grant and a subscription each give access to their plan, and the newer one is \
shown.`;

export function define(group: Command, program: Program): void {
  group.addHelpText(
    'after',
    examples(
      'saas-backend user create ada@example.com --name "Ada Lovelace" --verified',
      'saas-backend user import users.ndjson --dry-run',
      'saas-backend user grant ada@example.com pro --until 2030-01-31',
    ),
  );
  group
    .command('create')
    .summary('Create an account')
    .description(CREATE)
    .argument('<email>')
    .option('--name <text>', 'Display name')
    .option('--verified', 'Mark the e-mail address as confirmed')
    .option('--password-stdin', 'Read the password from standard input')
    .addHelpText(
      'after',
      examples(
        'saas-backend user create ada@example.com --name "Ada Lovelace" --verified',
        'saas-backend user create ada@example.com --password-stdin < password.txt',
      ),
    )
    .action((email: string, options: CreateOptions, command: Command) =>
      create(program, email, options, command),
    );
  group
    .command('import')
    .summary('Import users of another system with their password hashes')
    .description(IMPORT)
    .argument('<file.ndjson>', 'File with one JSON object per line; - reads standard input')
    .option('--dry-run', 'Print what the import would do and change nothing')
    .addHelpText(
      'after',
      examples(
        'saas-backend user import users.ndjson --dry-run',
        'psql -At -f export.sql | saas-backend user import -',
      ),
    )
    .action((file: string, options: ImportOptions) => importFile(program, file, options));
  withUser(group.command('show'))
    .description('Show an account, its suspension and its subscription')
    .addHelpText(
      'after',
      examples('saas-backend user show ada@example.com', 'saas-backend user show usr_0197 --json'),
    )
    .action((user: string, options: CommonOptions, command: Command) =>
      manage(program, user, options, command, async (users, by) => (await users.find(by)) ?? unknown(user)),
    );
  withUser(group.command('suspend'))
    .summary('Suspend an account and end its sessions')
    .description(SUSPEND)
    .addHelpText('after', examples('saas-backend user suspend ada@example.com'))
    .action((user: string, options: CommonOptions, command: Command) =>
      manage(program, user, options, command, suspend),
    );
  withUser(group.command('unsuspend'))
    .description('Lift a suspension; the user signs in with the same password')
    .addHelpText('after', examples('saas-backend user unsuspend ada@example.com'))
    .action((user: string, options: CommonOptions, command: Command) =>
      manage(program, user, options, command, (users, by) => users.unsuspend(by)),
    );
  withUser(group.command('grant'))
    .summary('Grant a plan without a payment, or revoke the grant')
    .description(GRANT)
    .argument('<plan>', 'Plan to grant, or free')
    .option(
      '--until <date>',
      'Last day in UTC (2030-01-31) or a time (2030-01-31T12:00:00Z); default: until revoked',
    )
    .addHelpText(
      'after',
      examples(
        'saas-backend user grant ada@example.com pro --until 2030-01-31',
        'saas-backend user grant ada@example.com free',
      ),
    )
    .action((user: string, plan: string, options: GrantOptions, command: Command) =>
      grant(program, user, plan, options, command),
    );
}

function withUser(command: Command): Command {
  return command.argument('<user>', 'E-mail address or identifier (usr_…)');
}

async function create(
  program: Program,
  email: string,
  options: CreateOptions,
  command: Command,
): Promise<void> {
  const name = displayName(command, options);
  const password = await passwordFor(options, command);
  await withStore(
    program,
    () => openUserAdministration(complain, {}),
    async (users) => {
      const emailVerified = options.verified === true;
      const user = await users.create({ email, password, emailVerified, ...name });
      say(options.json ? JSON.stringify(user) : `${user.email} is ${user.id}.`);
    },
  );
}

function passwordFor({ passwordStdin }: CreateOptions, command: Command): Promise<string> {
  if (passwordStdin) return readPassword(process.stdin);
  if (process.stdin.isTTY) return askPassword();
  return command.error('error: there is no terminal to ask for the password. Use --password-stdin.');
}

async function importFile(program: Program, file: string, options: ImportOptions): Promise<void> {
  const { dryRun = false } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  // A second signal ends the process at once.
  process.once('SIGINT', () => stopping.abort());
  const { input, bytes: total } = openInput(file);
  addAbortSignal(signal, input);
  const progress = createProgress({ name: 'MiB', write: (bytes) => (bytes / 2 ** 20).toFixed(1) });
  await withStore(
    program,
    () => openUserAdministration(complain, { dryRun }),
    async (users) => {
      const report = await users.import(input, {
        dryRun,
        signal,
        onProgress: (bytes) => progress.show(bytes, total),
        onRefused: (line, reason) => {
          progress.end();
          complain(`line ${line}: ${reason}`);
        },
      });
      progress.end();
      const { lines, created, existing, refused, interrupted } = report;
      const outcome = dryRun ? 'would be new' : 'new';
      say(
        options.json
          ? JSON.stringify(report)
          : `${lines} lines: ${created} ${outcome}, ${existing} already there, ${refused} refused.`,
      );
      if (interrupted) complain('Interrupted. The imported users stay; the same command imports the rest.');
      if (interrupted || refused > 0) process.exitCode = interrupted ? 130 : 1;
    },
  );
}

function openInput(file: string): { input: ReadStream | typeof process.stdin; bytes: number | undefined } {
  if (file === '-') return { input: process.stdin, bytes: undefined };
  const state = statSync(file, { throwIfNoEntry: false });
  if (!state) fail(1, `there is no file ${file}.`);
  if (state.isDirectory()) fail(1, `${file} is a folder. Name a file with lines of JSON, like users.ndjson.`);
  return { input: createReadStream(file), bytes: state.isFile() ? state.size : undefined };
}

async function suspend(users: UserAdministration, by: UserKey): Promise<ManagedUser> {
  const user = await users.suspend(by);
  if (['active', 'trialing', 'past_due'].includes(user.subscription.status)) {
    complain('The subscription continues to be charged: cancel it at the payment provider.');
  }
  return user;
}

async function grant(
  program: Program,
  user: string,
  plan: string,
  options: GrantOptions,
  command: Command,
): Promise<void> {
  const until = parseUntil(options, command);
  if (plan === 'free' && until !== undefined) {
    command.error('error: the plan free revokes a grant at once and takes no --until.');
  }
  await manage(program, user, options, command, (users, by) =>
    plan === 'free'
      ? users.revokeGrant(by)
      : users.grant(by, { plan, ...(until !== undefined && { until }) }),
  );
}

/** The end of a day, or the time itself. */
function parseUntil({ until }: GrantOptions, command: Command): number | undefined {
  if (until === undefined) return undefined;
  const isDay = /^\d{4}-\d\d-\d\d$/.test(until);
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(until);
  const time = isDay || isTime ? Date.parse(until) : Number.NaN;
  // Date.parse reads 31 February as 3 March.
  const isReal = !Number.isNaN(time) && (isTime || new Date(time).toISOString().startsWith(until));
  if (!isReal) {
    command.error(
      `error: --until takes a date (2030-01-31) or a time (2030-01-31T12:00:00Z), not '${until}'.`,
    );
  }
  const end = isDay ? time + DAY : time;
  if (end <= systemClock.now()) command.error(`error: --until ${until} is in the past.`);
  return end;
}

/** Calls `work` for one user and shows the user that it returns. */
async function manage(
  program: Program,
  name: string,
  { json }: CommonOptions,
  command: Command,
  work: (users: UserAdministration, by: UserKey) => Promise<ManagedUser>,
): Promise<void> {
  if (name === '') command.error('error: the user is empty. Use an e-mail address or an identifier.');
  const by = name.includes('@') ? { email: name } : { id: name };
  await withStore(
    program,
    () => openUserAdministration(complain, { existing: true }),
    async (users) => {
      const user = await work(users, by);
      say(json ? JSON.stringify(user) : describe(user));
    },
  );
}

function unknown(name: string): never {
  return fail(1, `There is no user ${name}.`);
}

function describe(user: ManagedUser): string {
  const { id, email, name, createdAt, emailVerified, suspendedAt, subscription, granted } = user;
  const { status, plan, entitled } = subscription;
  const rows = {
    id,
    email: emailVerified ? email : `${email} (not verified)`,
    ...(name && { name }),
    created: createdAt,
    state: suspendedAt === null ? 'open' : `suspended since ${suspendedAt}`,
    subscription: entitled ? `${plan} (${status})` : `not entitled (${status})`,
    ...(granted && {
      granted: `${granted.plan}, ${granted.until ? `until ${granted.until}` : 'until revoked'}`,
    }),
  };
  return Object.entries(rows)
    .map(([title, value]) => `${title.padEnd(14)}${value}`)
    .join('\n');
}
