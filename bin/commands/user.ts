import { createReadStream, type ReadStream, statSync } from 'node:fs';
import { addAbortSignal } from 'node:stream';
import { openUserAdministration, type UserAdministration } from '../../src/user-administration.js';
import { type Call, type Command, UsageError } from '../command.js';
import { nameIn } from '../name.js';
import { askPassword, readPassword } from '../password.js';
import { createProgress } from '../progress.js';
import { withStore } from '../store/with-store.js';
import { complain, fail, say } from '../terminal.js';

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

export const commands = [create, importing];

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

function withUsers(call: Call, work: (users: UserAdministration) => Promise<void>): Promise<void> {
  const dryRun = call.isSet('dry-run');
  return withStore(call, () => openUserAdministration(complain, { dryRun }), work);
}
