import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { CommandLine } from '../../bin/command.js';
import type { CommandModule, Program } from '../../bin/program.js';
import { engineOf } from '../../src/core/storage/engines.js';
import { onServers } from '../core/storage/engines.js';
import { runProgram } from '../kit/command-line.js';
import { compiled } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Commands on stores that do not exist or are empty. Stores that cannot be opened: `doctor.test.ts`. */

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
  'group list': [],
  'group remove': ['ops'],
  'group member': ['list', 'ops'],
  'agent list': [],
  'agent rotate': ['scout'],
  'agent update': ['scout', '--purpose', 'Reports'],
  'agent allow': ['scout', 'https://api.example.test'],
  'agent disallow': ['scout', 'https://api.example.test'],
  'agent permissions': [],
  'agent receipt': ['gr_1'],
  'invite list': [],
  'invite withdraw': ['ada'],
  'operator grant': ['ada'],
  'agent key': ['list', 'scout'],
  'agent trust': ['list', 'scout'],
  'operator list': [],
  'operator revoke': ['ada'],
  'principal list': [],
  'principal update': ['scout', '--set', 'nickname=Scout'],
  'principal disable': ['scout'],
  'principal enable': ['scout'],
  'principal delete': ['ada', '--yes'],
  'principal reset': ['ada'],
  'principal remove-factor': ['ada'],
  'principal remove-passkeys': ['ada'],
  'resource list': [],
  'resource update': ['https://api.example.test', '--lifetime', '60'],
  'resource rotate': ['https://api.example.test'],
  'resource remove': ['https://api.example.test'],
  'resource approval': ['remove', 'https://api.example.test', 'payment'],
  'billing resync': [],
  'billing import': [],
  'user list': [],
  'user reset': ['ada@example.test'],
  'user export': ['ada@example.test'],
  'user delete': ['ada@example.test', '--yes'],
  'user show': ['ada@example.test'],
  'user suspend': ['ada@example.test'],
  'user unsuspend': ['ada@example.test'],
  'user grant': ['ada@example.test', 'pro'],
  'user roles': ['ada@example.test', 'none'],
  'user operator-role': ['ada@example.test', 'owner'],
};
/** Commands that create a store, or use none. Those of `store` name theirs as arguments: see their own tests. */
const OTHERS = [
  'billing push',
  'store copy',
  'store sql',
  'serve',
  'init',
  'doctor',
  'login',
  'token exchange',
  'client create',
  'registration-token create',
  'resource add',
  'group add',
  'trusted-issuer set',
  'audience set',
  'operator invite',
  'agent mint',
  'invite create',
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
    if (/^(billing|user) /.test(name)) return [['saas-backend', typed] as const];
    const ofBoth = name === 'backup' || name.startsWith('audit ');
    return [['idp', typed] as const, ...(ofBoth ? [['saas-backend', typed] as const] : [])];
  });
  const stores = ['sqlite:typo/app.db', 'sqlite:typo.db', 'sqlite::memory:'];
  const cwd = temporaryFolder(t);
  for (const [index, [program, args]] of cases.entries()) {
    const uri = stores[index % stores.length] as string;
    const { code, err } = await runProgram(
      program,
      args,
      { DATABASE_URI: uri, IDP_DATABASE_URI: uri },
      { cwd },
    );
    t.equal(code, 1, `${args}`);
    t.match(
      err,
      uri.includes('typo')
        ? /^.*DATABASE_URI names: there is no file \/.*typo.*\.db\. Use an existing store file, or start.*\n$/
        : /^.*DATABASE_URI names: an in-memory store is lost when its program stops\. Use a SQLite file\.\n$/,
    );
    t.same(readdirSync(cwd), [], 'nothing is made');
  }
});

t.test('a path that no store file can have is reported in one sentence', async (t) => {
  const cwd = temporaryFolder(t);
  writeFileSync(join(cwd, 'file'), '');
  for (const [env, reason] of [
    [{}, /there is no file \/.*\/data\/idp\.db\. Use an existing.*\n$/],
    [
      { IDP_DATABASE_URI: 'sqlite:file/idp.db' },
      /there is no file .*file\/idp\.db\. Use an existing store file.*\n$/,
    ],
    [{ IDP_DATABASE_URI: 'sqlite:.' }, / is a folder\. Choose a file in it, like sqlite:.*\n$/],
    [
      { IDP_DATABASE_URI: `sqlite:${'x'.repeat(300)}` },
      /there is no file .*x \(ENAMETOOLONG\)\. Use an existing.*\n$/,
    ],
  ] as const) {
    t.match(await runProgram('idp', ['principal', 'list'], env, { cwd }), { code: 1, err: reason });
  }
});

await onServers((engine, fresh) => {
  t.test(`${engine}: a dry run of an import creates nothing, and reads what there is`, async (t) => {
    const uri = fresh(t);
    const run = (...args: string[]) =>
      runProgram(
        'saas-backend',
        ['user', 'import', '-', ...args],
        { DATABASE_URI: uri },
        { cwd: temporaryFolder(t), stdin: '{"email":"ada@example.test"}\n' },
      );
    const dry = await run('--dry-run');
    t.match(dry, { code: 0, out: /1 would be new, 0 already there, 0 refused/ });
    t.equal(dry.err, 'The database has no users yet; the import creates what it needs.\n');
    const { read } = await engineOf(uri).load();
    t.same(await read(uri, ({ collectionNames }) => collectionNames()), [], 'not even a schema');
    t.match(await run(), { code: 0, out: /1 new/ });
    t.match(await run('--dry-run'), { code: 0, out: /0 would be new, 1 already there/, err: '' });
  });
});
