import { closeSync, openSync, readdirSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CommandLine } from '../../bin/command.js';
import type { CommandModule, Program } from '../../bin/program.js';
import { openStore } from '../../src/core/storage/open.js';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Starts the programs on stores that cannot be used. */

const SAAS = compiled('bin/saas-backend.js');
const IDP = compiled('bin/idp.js');

async function says(t: Test, path: string, reason: RegExp): Promise<void> {
  const env = { DATABASE_URI: `sqlite:${path}`, LOG_LEVEL: 'silent' };
  const program = startProgram(t, SAAS, { args: ['-p', '0'], cwd: temporaryFolder(t), env });
  t.equal(await program.ended(), 1, path);
  t.equal(program.lines.length, 1, 'one line, and no stack');
  t.match(program.lines[0], /^saas-backend cannot start: /);
  t.match(program.lines[0], reason);
}

t.test('a file that cannot be created is reported with its cause', async (t) => {
  const file = join(temporaryFolder(t), 'file');
  writeFileSync(file, '');
  await says(
    t,
    `${file}/app.db`,
    /DATABASE_URI names cannot be opened: cannot create .* ENOTDIR\. Choose a file/,
  );
});

t.test(
  'folders in which even root cannot create a file are reported',
  { skip: process.platform !== 'linux' },
  async (t) => {
    await says(t, '/proc/x/y', /cannot create \/proc\/x\/y: ENOENT\. Choose a file/);
    await says(t, '/sys/app.db', /cannot create \/sys\/app\.db: E[A-Z]+\. Choose a file/);
  },
);

t.test('a folder without permission is reported', { skip: process.getuid?.() === 0 }, async (t) => {
  await says(t, '/saas-backend.db', /cannot create .* E(ACCES|ROFS)\. Choose a file/);
});

t.test('a full disk is reported', { skip: process.platform !== 'linux' }, async (t) => {
  await says(t, '/dev/full', /disk is full\. Free up disk space/);
});

t.test('a folder, a text file and a damaged database are reported as such', async (t) => {
  const folder = temporaryFolder(t);
  await says(t, folder, /is a folder\. Choose a file in it, like sqlite:.*\/app\.db\./);

  const text = join(folder, 'notes.txt');
  writeFileSync(text, 'these are my notes, and no database at all');
  await says(t, text, /file is not a database\. Choose another file, or restore the last backup\./);

  const damaged = join(folder, 'damaged.db');
  const store = await openStore(`sqlite:${damaged}`);
  store.collection('things');
  await store.ready();
  await store.close();
  // Behind the header: the page that lists the tables.
  const descriptor = openSync(damaged, 'r+');
  writeSync(descriptor, Buffer.alloc(3996, 0xff), 0, 3996, 100);
  closeSync(descriptor);
  await says(t, damaged, /malformed\. The file is damaged: restore the last backup\./);
});

t.test('a file of a newer version or of another program is reported as such', async (t) => {
  const file = join(temporaryFolder(t), 'app.db');
  const db = await openDatabase(file);
  db.exec('PRAGMA user_version = 999');
  await says(t, file, /written by a newer version .*\. Install that version again, or restore the backup/);
  db.exec('PRAGMA user_version = 0; CREATE TABLE users (name)');
  await says(t, file, /belongs to another program\. Choose another file/);
  db.close();
});

/** Command lines of both programs that require an existing store. */
const OF_WHAT_EXISTS: Record<string, string[]> = {
  backup: ['copy.db'],
  'audit list': [],
  'audit purge': [],
  'client list': [],
  'client update': ['cid_x', '--name', 'x'],
  'client rotate': ['cid_x'],
  'client delete': ['cid_x'],
  'registration-token list': [],
  'registration-token revoke': ['rtk_1'],
  'trusted-issuer list': [],
  'trusted-issuer remove': ['https://idp.example.test'],
  'trusted-issuer link': ['https://idp.example.test', 'ada', '--subject', 'x'],
  'trusted-issuer unlink': ['https://idp.example.test', '--subject', 'x'],
  'trusted-issuer links': ['https://idp.example.test'],
  'audience list': [],
  'audience remove': ['https://auth.example.test'],
  'delegation list': [],
  'delegation revoke': ['dlg_1'],
  'agent rotate': ['scout'],
  'operator grant': ['ada'],
  'agent key': ['list', 'scout'],
  'operator list': [],
  'operator revoke': ['ada'],
  'principal list': [],
  'principal disable': ['scout'],
  'principal enable': ['scout'],
  'principal reset': ['ada'],
  'principal remove-factor': ['ada'],
  'principal remove-passkeys': ['ada'],
  'resource list': [],
  'resource update': ['https://api.example.test', '--lifetime', '60'],
  'resource rotate': ['https://api.example.test'],
  'resource remove': ['https://api.example.test'],
  'billing resync': [],
  'user show': ['ada@example.test'],
  'user suspend': ['ada@example.test'],
  'user unsuspend': ['ada@example.test'],
  'user grant': ['ada@example.test', 'pro'],
};
/** Commands that create a store, or use none. `store copy` names its stores as arguments: see its own tests. */
const OTHERS = [
  'store copy',
  'serve',
  'doctor',
  'login',
  'token exchange',
  'client create',
  'registration-token create',
  'resource add',
  'trusted-issuer set',
  'audience set',
  'operator invite',
  'agent mint',
  'invite',
  'user create',
  'user import',
];

t.test('commands that require a store report a mistyped file and do not create it', async (t) => {
  const files = readdirSync(compiled('bin/commands')).filter((file) => file.endsWith('.js'));
  const modules: CommandModule[] = await Promise.all(
    files.map((file) => import(compiled(`bin/commands/${file}`))),
  );
  const names = modules.flatMap(({ define }, index) => {
    const command = new CommandLine(files[index]?.replace('.js', ''));
    define(command, { name: 'idp' } as Program);
    const subcommands = command.commands.map((subcommand) => `${command.name()} ${subcommand.name()}`);
    return subcommands.length > 0 ? subcommands : [command.name()];
  });
  t.same(names.sort(), [...Object.keys(OF_WHAT_EXISTS), ...OTHERS].sort(), 'no command is forgotten');

  const cases = Object.entries(OF_WHAT_EXISTS).flatMap(([name, args]) => {
    const typed = [...name.split(' '), ...args];
    if (/^(billing|user) /.test(name)) return [[SAAS, typed] as const];
    return name === 'backup' || name.startsWith('audit ')
      ? [[SAAS, typed] as const, [IDP, typed] as const]
      : [[IDP, typed] as const];
  });
  const stores = ['sqlite:typo/app.db', 'sqlite:typo.db', 'sqlite::memory:'];
  await Promise.all(
    cases.map(async ([script, args], index) => {
      const uri = stores[index % stores.length] as string;
      const cwd = temporaryFolder(t);
      const program = startProgram(t, script, {
        args,
        cwd,
        env: { DATABASE_URI: uri, IDP_DATABASE_URI: uri },
      });
      t.equal(await program.ended(), 1, `${args}`);
      t.equal(program.lines.length, 1, 'one line');
      const reason = uri.includes('typo')
        ? /DATABASE_URI names: there is no file \/.*typo.*\.db\. Use an existing store file, or start/
        : /DATABASE_URI names: an in-memory store is lost when its program stops\. Use a SQLite file\.$/;
      t.match(program.lines[0], reason);
      t.same(readdirSync(cwd), [], 'nothing is made');
    }),
  );
});

t.test('without a variable, development names the default path of the store', async (t) => {
  const cwd = temporaryFolder(t);
  const program = startProgram(t, IDP, { args: ['principal', 'list'], cwd });
  t.equal(await program.ended(), 1);
  t.match(program.lines, [/there is no file \/.*\/data\/idp\.db\. Use an existing/]);
  t.same(readdirSync(cwd), []);
});

t.test('a name that no file can have is reported', async (t) => {
  const cwd = temporaryFolder(t);
  writeFileSync(join(cwd, 'file'), '');
  for (const [path, reason] of [
    ['file/idp.db', /there is no file .*file\/idp\.db\. Use an existing store file/],
    ['.', / is a folder\. Choose a file in it, like sqlite:/],
    ['x'.repeat(300), /there is no file .*x \(ENAMETOOLONG\)\. Use an existing store file/],
  ] as const) {
    const env = { IDP_DATABASE_URI: `sqlite:${path}` };
    const program = startProgram(t, IDP, { args: ['principal', 'list'], cwd, env });
    t.equal(await program.ended(), 1);
    t.equal(program.lines.length, 1, 'one line, and no stack');
    t.match(program.lines[0], reason);
  }
});
