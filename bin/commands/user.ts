import { randomBytes } from 'node:crypto';
import { addAbortSignal } from 'node:stream';
import { Argument, Option } from 'commander';
import { chunksOf } from '../../src/core/http/streams.js';
import {
  OPERATOR_ROLES,
  type OperatorRole,
  openUserAdministration,
  type UserAdministration,
} from '../../src/saas/administration.js';
import type { ManagedUser, OperatedUser, UserKey, UserState } from '../../src/saas/auth/users/users.js';
import type { UserApi } from '../../src/saas/user-api.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName, openInput, parseEnd, parseInteger } from '../options.js';
import { askPassword, readPassword } from '../password.js';
import { createProgress } from '../progress.js';
import { SAAS, withStore } from '../store.js';
import { answer, complain, confirmDeletion, fail, say } from '../terminal.js';
import { openExport, PRODUCT_NAMES, type ProductName } from '../user-exports.js';

type CreateOptions = CommonOptions & { name?: string; verified?: true; passwordStdin?: true };
type ImportOptions = CommonOptions & { dryRun?: true; from?: ProductName; passwords?: string };
type ListOptions = CommonOptions & { state?: UserState; limit?: number };
type DeleteOptions = CommonOptions & { yes?: true };
type GrantOptions = CommonOptions & { until?: number };

const STATES = ['suspended', 'deleting', 'unverified', 'operators'] as const;

/** Users that are read at once. */
const PAGE = 200;

const LIST = `List users: all, or those in a state, the newest first; with a prefix, by their addresses. The server may be running. \
Pages are printed as they are read.`;

const DELETE = `Close an account at once: its sessions, tokens and mailed links end. The running server cancels its subscriptions and \
deletes what is stored about the user within a minute, or when it starts. This cannot be undone.`;

const CLOSED =
  'The account is closed. The server cancels its subscriptions and deletes its data within a minute.';

const AS_SERVER = 'The command needs the configuration of the server.';

const CREATE = `Create an account. The command asks for the password on the terminal. The password is never an argument, \
because other users of the machine can read arguments.`;

const IMPORT = `Import users of another system with their password hashes.

With --from, the file is the export of another product as it is, and what is not imported is printed with the number of users. \
Without it, each line is a JSON object with "email" and, optionally, "id", "name", "passwordHash", "emailVerified", "suspended", \
"createdAt", "customerId" (of the payment provider), "publicMetadata" and "privateMetadata". Hashes of argon2, bcrypt, scrypt (also of Firebase) and PBKDF2 stay as they are until the user signs in. Existing accounts never change, so an import can be repeated. The command \
exits with 1 when it refuses a line.`;

const SUSPEND = `Suspend an account at once and end its sessions, tokens and mailed links. A subscription continues to be \
charged: cancel it at the payment provider.`;

const ROLES = `Replace the roles of a user in your application. USER_ROLES lists those that there are; if your code passes them as \
userRoles, set the variable for this command. Running servers apply the change at the next request.`;

const OPERATOR = `Give a user a role in the admin area, or take it: owner, support, read-only or none. The user needs a confirmed \
address and a passkey or a second factor, and signs in with it at /account/operator. Running servers apply it at the next request.`;

const GRANT = `Grant a plan without a payment, also without a payment provider. The plan "free" revokes the grant. \
Subscriptions of the user do not change: a grant and a subscription each give access to their plan, and the newer one is \
shown.`;

export function define(group: CommandLine): void {
  group.examples(
    'saas-backend user create ada@example.com --name "Ada Lovelace" --verified',
    'saas-backend user import users.ndjson --dry-run',
    'saas-backend user grant ada@example.com pro --until 2030-01-31',
  );
  group
    .command('create')
    .summary('Create an account')
    .description(CREATE)
    .argument('<email>')
    .option('--name <text>', 'Display name')
    .option('--verified', 'Mark the e-mail address as confirmed')
    .option('--password-stdin', 'Read the password from standard input')
    .examples(
      'saas-backend user create ada@example.com --name "Ada Lovelace" --verified',
      'saas-backend user create ada@example.com --password-stdin < password.txt',
    )
    .action(create);
  group
    .command('import')
    .summary('Import users of another system with their password hashes')
    .description(IMPORT)
    .argument('<file>', 'File with one JSON object per line, or an export; - reads standard input')
    .addOption(new Option('--from <product>', 'Product that wrote the export').choices(PRODUCT_NAMES))
    .option(
      '--passwords <file>',
      'With --from: password hashes of Auth0, CSV of Clerk or hash_config of Firebase',
    )
    .option('--dry-run', 'Print what the import would do and change nothing')
    .examples(
      'saas-backend user import users.ndjson --dry-run',
      'saas-backend user import auth0.json --from auth0 --passwords hashes.json --dry-run',
      'psql -At -f export.sql | saas-backend user import -',
    )
    .action(importFile);
  group
    .command('list')
    .summary('List users')
    .description(LIST)
    .argument('[prefix]', 'List only addresses that begin with this text')
    .addOption(new Option('--state <state>', 'List only these, without a prefix').choices(STATES))
    .option('--limit <number>', 'Users to print (default: all)', parseInteger(1, 99_999, 100))
    .option('--json', 'Print one JSON object per line')
    .examples(
      'saas-backend user list',
      'saas-backend user list ada@ --limit 10',
      'saas-backend user list --state suspended --json | jq -r .email',
    )
    .action(list);
  withUser(group.command('show'))
    .description('Show an account, its suspension and its subscription')
    .examples('saas-backend user show ada@example.com', 'saas-backend user show usr_0197 --json')
    .action(manage(async (users, by, name) => (await users.find(by)) ?? noUser(name)));
  withUser(group.command('suspend'))
    .summary('Suspend an account and end its sessions')
    .description(SUSPEND)
    .examples('saas-backend user suspend ada@example.com')
    .action(manage(suspend));
  withUser(group.command('unsuspend'))
    .description('Lift a suspension; the user signs in with the same password')
    .examples('saas-backend user unsuspend ada@example.com')
    .action(manage((users, by) => users.unsuspend(by)));
  withUser(group.command('roles'))
    .summary('Replace the roles of a user')
    .description(ROLES)
    .argument('<roles>', 'Roles separated by commas, or none')
    .examples(
      'saas-backend user roles ada@example.com editor,support',
      'saas-backend user roles ada@example.com none',
    )
    .action((user: string, given: string, options: CommonOptions, command: CommandLine) => {
      const roles = given === 'none' ? [] : given.split(',').map((role) => role.trim());
      return manage((users, by) => users.setRoles(by, roles))(user, options, command);
    });
  withUser(group.command('operator-role'))
    .summary('Give a user a role in the admin area, or take it')
    .description(OPERATOR)
    .addArgument(new Argument('<role>', 'Role').choices([...OPERATOR_ROLES, 'none']))
    .examples(
      'saas-backend user operator-role ada@example.com owner',
      'saas-backend user operator-role ada@example.com none',
    )
    .action((name: string, role: OperatorRole | 'none', options: CommonOptions, command: CommandLine) =>
      withUsers({ existing: true }, async (users) => {
        const by = keyOf(name, command);
        answer(options, await users.setOperatorRole(by, role === 'none' ? undefined : role));
      }),
    );
  withUser(group.command('grant'))
    .summary('Grant a plan without a payment, or revoke the grant')
    .description(GRANT)
    .argument('<plan>', 'Plan to grant, or free')
    .option(
      '--until <date>',
      'Last day in UTC (2030-01-31) or a time (2030-01-31T12:00:00Z); default: until revoked',
      parseEnd,
    )
    .examples(
      'saas-backend user grant ada@example.com pro --until 2030-01-31',
      'saas-backend user grant ada@example.com free',
    )
    .action(grant);
  withUser(group.command('reset'))
    .summary('Mail a link with which a user chooses a new password')
    .description(
      `Mail a link with which a user chooses a new password. Earlier links become invalid. ${AS_SERVER}`,
    )
    .examples('saas-backend user reset ada@example.com')
    .action((name: string, options: CommonOptions, command: CommandLine) =>
      withServerFor(name, command, async (users, { id, email }) => {
        await users.sendPasswordReset({ id });
        answer(options, { id, email, sent: true });
      }),
    );
  withUser(group.command('export'))
    .summary('Print what is stored about a user as JSON')
    .description(`Print what is stored about a user as JSON, without secrets. ${AS_SERVER}`)
    .examples('saas-backend user export ada@example.com > ada.json')
    .action((name: string, _options: CommonOptions, command: CommandLine) =>
      withServerFor(name, command, async (users, { id }) => {
        for await (const chunk of chunksOf(await users.export({ id }))) process.stdout.write(chunk);
        say('');
      }),
    );
  withUser(group.command('delete'))
    .summary('Delete an account and its data')
    .description(DELETE)
    .option('--yes', 'Do not ask for the address')
    .examples('saas-backend user delete ada@example.com', 'saas-backend user delete usr_0197 --yes --json')
    .action(remove);
}

function withUser(command: CommandLine): CommandLine {
  return command.argument('<user>', 'E-mail address or identifier (usr_…)');
}

async function list(prefix: string | undefined, { state, limit, json }: ListOptions): Promise<void> {
  let isClosed = false;
  process.stdout.once('error', () => {
    isClosed = true;
  });
  await withUsers({ existing: true }, async (users) => {
    let [left, after] = [limit ?? Number.POSITIVE_INFINITY, undefined as string | undefined];
    do {
      const page = await users.list({ search: prefix, state, after, limit: Math.min(left, PAGE) });
      for (const user of page.items) say(json ? JSON.stringify(user) : line(user));
      left -= page.items.length;
      after = page.next ?? undefined;
    } while (after !== undefined && left > 0 && !isClosed);
  });
}

const line = ({ id, email, createdAt, state }: OperatedUser): string =>
  [id.padEnd(36), createdAt, state.padEnd(9), email].join('  ');

async function remove(name: string, options: DeleteOptions, command: CommandLine): Promise<void> {
  await withUsers({ existing: true }, async (users) => {
    const { id, email } = await findUser(users, name, command);
    if (!options.yes) await confirmDeletion(command, email);
    await users.delete(id);
    answer(options, { id, email, state: 'deleting' }, CLOSED);
  });
}

/** Runs `work` as the server with this configuration would: it does not listen, and runs no jobs. */
async function withServerFor(
  name: string,
  command: CommandLine,
  work: (users: UserApi, user: ManagedUser) => Promise<void>,
): Promise<void> {
  const user = await withUsers({ existing: true }, (users) => findUser(users, name, command));
  const { createServer } = await import('../../src/saas/server.js');
  const { fastify, stop: close } = createServer({
    logLevel: 'silent',
    cronSecret: randomBytes(32).toString('base64url'),
  });
  const open = async () => {
    await fastify.ready();
    return { users: fastify.saas.users, close };
  };
  await withStore(SAAS, open, ({ users }) => work(users, user));
}

function withUsers<R>(
  options: { existing?: boolean; dryRun?: boolean },
  work: (users: UserAdministration) => Promise<R>,
): Promise<R> {
  return withStore(SAAS, () => openUserAdministration(complain, options), work);
}

async function create(email: string, options: CreateOptions, command: CommandLine): Promise<void> {
  const name = displayName(command, options);
  const password = await passwordFor(options, command);
  await withUsers({}, async (users) => {
    const emailVerified = options.verified === true;
    const user = await users.create({ email, password, emailVerified, ...name });
    say(options.json ? JSON.stringify(user) : `${user.email} is ${user.id}.`);
  });
}

function passwordFor({ passwordStdin }: CreateOptions, command: CommandLine): Promise<string> {
  if (passwordStdin) return readPassword(process.stdin);
  if (process.stdin.isTTY) return askPassword();
  return command.error('error: there is no terminal to ask for the password. Use --password-stdin.');
}

async function importFile(file: string, options: ImportOptions, command: CommandLine): Promise<void> {
  const { dryRun = false, from, passwords } = options;
  if (passwords !== undefined && !from) command.error('error: --passwords needs --from.');
  const exported = from && (await openExport(from, file, passwords));
  const unit = exported?.unit ?? 'line';
  const stopping = new AbortController();
  const { signal } = stopping;
  // A second signal ends the process at once.
  process.once('SIGINT', () => stopping.abort());
  const { input, bytes: total } = exported ? { input: exported.input, bytes: undefined } : openInput(file);
  addAbortSignal(signal, input);
  const progress = createProgress({ name: 'MiB', write: (bytes) => (bytes / 2 ** 20).toFixed(1) });
  await withUsers({ dryRun }, async (users) => {
    const report = await users.import(input, {
      dryRun,
      signal,
      ...(exported && { convert: exported.convert }),
      onProgress: (bytes) => progress.show(bytes, total),
      onRefused: (line, reason) => {
        progress.end();
        complain(`${unit} ${line}: ${reason}`);
      },
    });
    progress.end();
    const { lines, created, existing, refused, interrupted } = report;
    const outcome = dryRun ? 'would be new' : 'new';
    const notImported = exported?.notImported();
    const rows = Object.entries(notImported ?? {}).map(([what, users]) => `\n  ${what} (${users})`);
    say(
      options.json
        ? JSON.stringify({ ...report, notImported })
        : `${lines} ${unit}s: ${created} ${outcome}, ${existing} already there, ${refused} refused.`,
    );
    if (rows.length > 0 && !options.json) say(`Not imported, with the number of users:${rows.join('')}`);
    if (interrupted) complain('Interrupted. The imported users stay; the same command imports the rest.');
    if (interrupted || refused > 0) process.exitCode = interrupted ? 130 : 1;
  });
}

async function suspend(users: UserAdministration, by: UserKey): Promise<ManagedUser> {
  const user = await users.suspend(by);
  if (['active', 'trialing', 'past_due'].includes(user.subscription.status)) {
    complain('The subscription continues to be charged: cancel it at the payment provider.');
  }
  return user;
}

async function grant(user: string, plan: string, options: GrantOptions, command: CommandLine): Promise<void> {
  const { until } = options;
  if (plan === 'free' && until !== undefined) {
    command.error('error: the plan free revokes a grant at once and takes no --until.');
  }
  const apply = manage((users, by) =>
    plan === 'free'
      ? users.revokeGrant(by)
      : users.grant(by, { plan, ...(until !== undefined && { until }) }),
  );
  await apply(user, options, command);
}

/** An action that calls `work` for one user and shows the user that it returns. */
const manage =
  (work: (users: UserAdministration, by: UserKey, name: string) => Promise<ManagedUser>) =>
  async (name: string, { json }: CommonOptions, command: CommandLine): Promise<void> => {
    const by = keyOf(name, command);
    await withUsers({ existing: true }, async (users) => {
      const user = await work(users, by, name);
      say(json ? JSON.stringify(user) : describe(user));
    });
  };

function keyOf(name: string, command: CommandLine): UserKey {
  if (name === '') command.error('error: the user is empty. Use an e-mail address or an identifier.');
  return name.includes('@') ? { email: name } : { id: name };
}

const findUser = async (
  users: UserAdministration,
  name: string,
  command: CommandLine,
): Promise<ManagedUser> => (await users.find(keyOf(name, command))) ?? noUser(name);

const noUser = (name: string): never => fail(1, `There is no user ${name}.`, 'NOT_FOUND');

function describe(user: ManagedUser): string {
  const { id, email, name, createdAt, emailVerified, suspendedAt, roles, subscription, granted } = user;
  const { status, plan, entitled } = subscription;
  const rows = {
    id,
    email: emailVerified ? email : `${email} (not verified)`,
    ...(name && { name }),
    created: createdAt,
    ...(roles && { roles: roles.join(', ') || 'none' }),
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
