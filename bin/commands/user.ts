import { createReadStream, type ReadStream, statSync } from 'node:fs';
import { addAbortSignal } from 'node:stream';
import type { ManagedUser, UserKey } from '../../src/auth/users.js';
import { DAY, systemClock } from '../../src/kernel/clock.js';
import { openUserAdministration, type UserAdministration } from '../../src/saas/administration.js';
import { type Call, type Command, UsageError } from '../command.js';
import { nameIn } from '../name.js';
import { askPassword, readPassword } from '../password.js';
import { createProgress } from '../progress.js';
import { withStore } from '../store/with-store.js';
import { complain, fail, say } from '../terminal.js';

const NAMED = 'The user is named by e-mail address or identifier (usr_…).';

const create: Command = {
  name: 'user create',
  takes: ['<email>'],
  summary: 'makes an account',
  about:
    'The password is asked for on the terminal. It is never an argument, which others on the machine could read.',
  options: {
    name: { value: '<text>', doc: 'display name' },
    verified: { doc: 'the address is known to be theirs' },
    'password-stdin': { doc: 'read the password from standard input' },
  },
  examples: [
    'user create ada@example.com --name "Ada Lovelace" --verified',
    'user create ada@example.com --password-stdin < password.txt',
  ],
  run: createUser,
};

const importing: Command = {
  name: 'user import',
  takes: ['<file.ndjson>'],
  summary: 'imports users of another system with their password hashes',
  about: `Each line is { "email", "name"?, "passwordHash"?, "emailVerified"?, "createdAt"? }; - is standard input.
Hashes of argon2, bcrypt, scrypt and PBKDF2 stay as they are until their owner signs in. Addresses that are there
already are never touched, so an import can be repeated. Ends with 1 when lines were refused.`,
  options: { 'dry-run': { doc: 'say what would happen, and change nothing' } },
  examples: ['user import users.ndjson --dry-run', 'psql -At -f export.sql | saas-backend user import -'],
  run: importFile,
};

const show: Command = {
  name: 'user show',
  takes: ['<email>'],
  summary: 'shows an account: whether it is suspended, and what it is entitled to',
  about: NAMED,
  examples: ['user show ada@example.com', 'user show ada@example.com --json'],
  run: (call) => withUser(call, async (users, by) => (await users.find(by)) ?? unknown(call)),
};

const suspend: Command = {
  name: 'user suspend',
  takes: ['<email>'],
  summary: 'suspends an account at once and ends its sessions, tokens and mailed links',
  about: `${NAMED}
A subscription goes on and is charged: cancel it at the payment provider.`,
  examples: ['user suspend ada@example.com'],
  run: suspendUser,
};

const unsuspend: Command = {
  name: 'user unsuspend',
  takes: ['<email>'],
  summary: 'lifts a suspension; the user signs in with the same password',
  about: NAMED,
  examples: ['user unsuspend ada@example.com'],
  run: (call) => withUser(call, (users, by) => users.unsuspend(by)),
};

const grant: Command = {
  name: 'user grant',
  takes: ['<email>', '<plan>'],
  summary: 'grants a plan without a payment; the plan free revokes the grant',
  about: `${NAMED}
It works without a payment provider, too. Subscriptions of the user stay as they are: either entitles to its plan, and the
newer one is shown.`,
  options: {
    until: {
      value: '<date>',
      doc: 'last day (UTC), as 2030-01-31, or a time, as 2030-01-31T12:00:00Z; default: until revoked',
    },
  },
  examples: ['user grant ada@example.com pro --until 2030-01-31', 'user grant ada@example.com free'],
  run: grantPlan,
};

export const commands = [create, importing, show, suspend, unsuspend, grant];

async function createUser(call: Call): Promise<void> {
  const [email = ''] = call.args;
  const { name } = nameIn(call, create);
  const password = await passwordFor(call);
  await withUsers(call, async (users) => {
    const user = await users.create({
      email,
      password,
      emailVerified: call.isSet('verified'),
      ...(name !== undefined && { name }),
    });
    say(call.json ? JSON.stringify(user) : `${user.email} is ${user.id}.`);
  });
}

function passwordFor(call: Call): Promise<string> {
  if (call.isSet('password-stdin')) return readPassword(process.stdin);
  if (process.stdin.isTTY) return askPassword();
  throw new UsageError('there is no terminal to ask for the password. Use --password-stdin.', create);
}

async function importFile(call: Call): Promise<void> {
  const [file = ''] = call.args;
  const stopping = new AbortController();
  const { signal } = stopping;
  // A second signal does not wait.
  process.once('SIGINT', () => stopping.abort());
  const { input, bytes: total } = openInput(file);
  addAbortSignal(signal, input);
  const progress = createProgress({ name: 'MiB', write: (bytes) => (bytes / 2 ** 20).toFixed(1) });
  await withUsers(call, async (users) => {
    const report = await users.import(input, {
      dryRun: call.isSet('dry-run'),
      signal,
      onProgress: (bytes) => progress.show(bytes, total),
      onRefused: (line, reason) => {
        progress.end();
        complain(`line ${line}: ${reason}`);
      },
    });
    progress.end();
    const { lines, created, existing, refused, interrupted } = report;
    const news = call.isSet('dry-run') ? 'would be new' : 'new';
    say(
      call.json
        ? JSON.stringify(report)
        : `${lines} lines: ${created} ${news}, ${existing} already there, ${refused} refused.`,
    );
    if (interrupted) complain('Interrupted. What was imported stays; the same command imports the rest.');
    if (interrupted || refused > 0) process.exitCode = interrupted ? 130 : 1;
  });
}

function openInput(file: string): { input: ReadStream | typeof process.stdin; bytes: number | undefined } {
  if (file === '-') return { input: process.stdin, bytes: undefined };
  const state = statSync(file, { throwIfNoEntry: false });
  if (!state) fail(1, `there is no file ${file}.`);
  if (state.isDirectory()) fail(1, `${file} is a folder. Name a file of lines of JSON, like users.ndjson.`);
  return { input: createReadStream(file), bytes: state.isFile() ? state.size : undefined };
}

async function suspendUser(call: Call): Promise<void> {
  await withUser(call, async (users, by) => {
    const user = await users.suspend(by);
    if (['active', 'trialing', 'past_due'].includes(user.subscription.status)) {
      complain('The subscription goes on and is charged: cancel it at the payment provider.');
    }
    return user;
  });
}

async function grantPlan(call: Call): Promise<void> {
  const [, plan = ''] = call.args;
  const until = untilOf(call);
  if (plan === 'free' && until !== undefined) {
    throw new UsageError('free revokes a grant at once and takes no --until.', grant);
  }
  await withUser(call, (users, by) =>
    plan === 'free'
      ? users.revokeGrant(by)
      : users.grant(by, { plan, ...(until !== undefined && { until }) }),
  );
}

/** The end of the day that was named, else the time. */
function untilOf(call: Call): number | undefined {
  const text = call.text('until');
  if (text === undefined) return undefined;
  const isDay = /^\d{4}-\d\d-\d\d$/.test(text);
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(text);
  const time = isDay || isTime ? Date.parse(text) : Number.NaN;
  // Date.parse takes the 31st of February for the 3rd of March.
  const isReal = !Number.isNaN(time) && (isTime || new Date(time).toISOString().startsWith(text));
  if (!isReal) {
    throw new UsageError(
      `--until takes a date (2030-01-31) or a time (2030-01-31T12:00:00Z), not '${text}'.`,
      grant,
    );
  }
  const end = isDay ? time + DAY : time;
  if (end <= systemClock.now()) throw new UsageError(`--until ${text} is in the past.`, grant);
  return end;
}

/** Does something with the user who is named first, and shows the user. */
function withUser(
  call: Call,
  work: (users: UserAdministration, by: UserKey) => Promise<ManagedUser>,
): Promise<void> {
  const [name = ''] = call.args;
  const by = name.includes('@') ? { email: name } : { id: name };
  if (name === '') throw new UsageError('the first argument is empty: name an e-mail address.');
  const open = () => openUserAdministration(complain, { existing: true });
  return withStore(call, open, async (users) => {
    const user = await work(users, by);
    say(call.json ? JSON.stringify(user) : described(user));
  });
}

function unknown(call: Call): never {
  return fail(1, `There is no user ${call.args[0]}.`);
}

function described(user: ManagedUser): string {
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

function withUsers(call: Call, work: (users: UserAdministration) => Promise<void>): Promise<void> {
  const dryRun = call.isSet('dry-run');
  return withStore(call, () => openUserAdministration(complain, { dryRun }), work);
}
