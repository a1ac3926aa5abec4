import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { parseEnvFile } from '../../bin/env-file.js';
import { runProgram } from '../kit/command-line.js';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Runs the two programs from a command line. */

const SAAS = compiled('bin/saas-backend.js');
const IDP = compiled('bin/idp.js');
const ROOT = join(compiled('.'), '..');

interface Run {
  cwd?: string;
  env?: Record<string, string>;
}

/** A run that ended: its exit code and all its output. */
async function runToEnd(t: Test, script: string, args: string[], { cwd, env }: Run = {}) {
  const options = { args, cwd: cwd ?? temporaryFolder(t), ...(env && { env }) };
  const program = startProgram(t, script, options);
  const code = await program.ended();
  return { code, text: program.lines.join('\n') };
}

function start(t: Test, script: string, args: string[], { cwd, env }: Run = {}) {
  return startProgram(t, script, { args, cwd: cwd ?? temporaryFolder(t), ...(env && { env }) });
}

const { version: VERSION } = JSON.parse(readFileSync(join(compiled('.'), '../package.json'), 'utf8'));

t.test('help and version', async (t) => {
  for (const script of [SAAS, IDP]) {
    const help = await runToEnd(t, script, ['--help']);
    t.equal(help.code, 0);
    t.match(help.text, /Usage[\s\S]*Examples/);
    t.match(await runToEnd(t, script, ['-help']), help);
    t.match(await runToEnd(t, script, ['-version']), { code: 0, text: VERSION });
  }
});

t.test(
  'help and version are also commands, and global options stand before or after the command',
  async (t) => {
    const cwd = temporaryFolder(t);
    writeFileSync(join(cwd, '.env'), 'nonsense');
    const type = (line: string) => runProgram('idp', line.split(' '), {}, { cwd });
    for (const [typed, same] of [
      ['help', '--help'],
      ['help client', 'client --help'],
      ['help agent key add', 'agent key add --help'],
      ['--help agent key add', 'agent key add --help'],
      ['agent -h key add', 'agent key add --help'],
      ['version', '--version'],
    ] as const) {
      const expected = await type(same);
      t.match(expected, { code: 0, err: '', out: /./ });
      t.same(await type(typed), expected, typed);
    }
    t.equal((await type('--json version')).out, `${JSON.stringify({ version: VERSION })}\n`);
    t.match(await type('help agent kye'), { code: 2, out: '', err: /^error: unknown command 'kye'/ });
    const empty = temporaryFolder(t);
    t.equal((await runProgram('idp', ['group', 'add', 'ops'], {}, { cwd: empty })).code, 0);
    for (const args of [
      ['--json', 'group', 'list'],
      ['group', '-json', 'list'],
      ['group', 'list', '--json'],
    ])
      t.match(
        await runProgram('idp', args, {}, { cwd: empty }),
        { code: 0, out: /^{"groups":\[{"name":"ops"/ },
        `${args}`,
      );
  },
);

t.test('completion: the shell offers the commands and options of the help', async (t) => {
  const script = (shell: string) => runProgram('idp', ['completion', shell], {});
  const { code, out } = await script('bash');
  t.equal(code, 0);
  const complete = async (line: string) => {
    const words = line.split(' ');
    const ask = `COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _idp; echo "\${COMPREPLY[@]}"`;
    return (await promisify(execFile)('bash', ['-c', `${out}\n${ask}`])).stdout.trim();
  };
  for (const [line, offered] of [
    ['idp cl', 'client'],
    ['idp agent key ', 'add list remove --help'],
    ['idp client list --js', '--json'],
    ['idp --json client cr', 'create'],
    ['idp agent allow scout https://api.example.test --de', '--delegated-only'],
    ['idp completion ', 'bash zsh fish --json --help'],
  ] as const)
    t.equal(await complete(line), offered, line);
  t.match((await script('zsh')).out, /^#compdef idp\n/);
  t.match((await script('fish')).out, /\ncomplete -c idp -a '\(_idp\)'\n$/);
  t.match(await script('tcsh'), { code: 2, err: /Allowed choices are bash, zsh, fish/ });
});

t.test('with --json, each error is one line of JSON with the same exit code', async (t) => {
  const cwd = temporaryFolder(t);
  writeFileSync(join(cwd, 'text'), 'no database');
  const env = { DATABASE_URI: 'sqlite:app.db', IDP_DATABASE_URI: 'sqlite:none.db' };
  const password = 'correct horse battery staple';
  const create = ['user', 'create', 'ada@example.test', '--password-stdin'];
  const options = { cwd, stdin: password };
  t.equal((await runProgram('saas-backend', create, env, options)).code, 0);
  const cases: [
    program: 'idp' | 'saas-backend',
    line: string,
    code: string,
    message: RegExp,
    more?: object,
  ][] = [
    ['saas-backend', 'user craete', 'INVALID_ARGUMENTS', /^unknown command 'craete'/],
    ['saas-backend', 'user', 'INVALID_ARGUMENTS', /^a command is missing$/],
    ['idp', 'invite ada@a.example --name', 'INVALID_ARGUMENTS', /^option '--name <text>' argument missing/],
    ['saas-backend', 'store copy sqlite:a NONE', 'INVALID_ARGUMENTS', /variable NONE is not set/],
    ['saas-backend', 'user show eve@example.test', 'NOT_FOUND', /^There is no user/],
    ['saas-backend', 'user suspend eve@example.test', 'NOT_FOUND', /^The user was not found/],
    ['saas-backend', 'user show x', 'INVALID_CONFIGURATION', /BILLING_PAST_DUE/, { BILLING_PAST_DUE: 'x' }],
    ['idp', 'principal list', 'STORE_UNAVAILABLE', /^idp cannot use the store/],
    ['idp', 'serve --port 0', 'FAILED', /^idp cannot start: the store/, { IDP_DATABASE_URI: 'sqlite:text' }],
  ];
  for (const [program, line, code, message, more = {}] of cases) {
    const args = line.split(' ');
    const plain = await runProgram(program, args, { ...env, LOG_LEVEL: 'silent', ...more }, { cwd });
    for (const position of [0, args.length]) {
      const typed = args.toSpliced(position, 0, '--json');
      const {
        code: exit,
        out,
        err,
      } = await runProgram(program, typed, { ...env, LOG_LEVEL: 'silent', ...more }, { cwd });
      t.equal(exit, plain.code, typed.join(' '));
      t.equal(out, '');
      const { error } = JSON.parse(err.trimEnd().split('\n').at(-1) ?? '');
      t.match(error, { code, message });
    }
  }
});

t.test('invalid arguments exit with code 2 and print the usage', async (t) => {
  const name = /--name must be a name .*/;
  for (const [typed, reason] of [
    ['saas-backend --prot 1', /unknown option '--prot'\s+\(Did you mean --port\?\)/],
    ['saas-backend -prot 21001', /unknown option '--prot'\s+\(Did you mean --port\?\)/],
    [
      'saas-backend user craete',
      /unknown command 'craete'\s+\(Did you mean create\?\)\s+Usage: saas-backend user /,
    ],
    ['saas-backend user create ada@a.example --name=', name],
    ['saas-backend serve now', /too many arguments for 'serve'/],
    [
      'saas-backend backup',
      /missing required argument 'file'\s+Usage: saas-backend backup \[options\] <file>/,
    ],
    ['saas-backend toString', /unknown command 'toString'/],
    ['saas-backend --port http', /--port <number>' argument 'http' is invalid\. Use a number .*, like 8000/],
    ['saas-backend --port=70000', /'70000' is invalid\. Use a number from 0 to 65535/],
    ['saas-backend --port -1', /argument '-1' is invalid/],
    ['saas-backend --json=yes', /option '--json' takes no value/],
    ['saas-backend --log-level loud', /argument 'loud' is invalid\. Allowed choices are trace, .* silent/],
    ['idp serve -prot 21001', /unknown option '--prot'\s+\(Did you mean --port\?\)/],
    ['idp client create https://a.example/cb --name=\t', name],
    ['idp agent mint scout@a.example --name=', name],
    ['idp invite ada@a.example --name \u200b', name],
    ['idp invite ada@a.example --name --until', /option '--name <text>' argument missing/],
    ['idp', /Usage: idp <command>[\s\S]*idp serve/],
    ['idp server', /unknown command 'server'\s+\(Did you mean serve\?\)/],
  ] as const) {
    const [program, ...args] = typed.split(' ') as ['idp' | 'saas-backend', ...string[]];
    const { code, out, err } = await runProgram(program, args, {});
    t.equal(code, 2, typed);
    t.match(out + err, reason);
    t.match(out + err, /Usage/);
  }
});

t.test('a port can be given as an option, with one hyphen or two', async (t) => {
  for (const args of [['-port=0'], ['serve', '--port', '0']]) {
    const program = start(t, SAAS, args, { env: { PORT: '1' } });
    t.equal((await fetch(`${await program.url()}/health`)).status, 200, args.join(' '));
    t.equal(await program.terminate(), 0);
  }
});

t.test('a port in use is reported in one sentence with a remedy', async (t) => {
  const other = createServer().listen(0, '127.0.0.1');
  t.teardown(() => other.close());
  await new Promise((resolve) => other.once('listening', resolve));
  const { port } = other.address() as AddressInfo;
  const { code, text } = await runToEnd(t, SAAS, ['--port', String(port)], { env: { LOG_LEVEL: 'silent' } });
  t.equal(code, 1);
  t.equal(
    text,
    `saas-backend cannot start: port ${port} is in use. Stop the process that listens there, or choose another port with --port.`,
  );
});

t.test('a store that cannot be opened is reported in one sentence with a remedy', async (t) => {
  const cwd = temporaryFolder(t);
  writeFileSync(join(cwd, 'notes.txt'), 'these are my notes, and no database at all');
  const env = { IDP_DATABASE_URI: 'sqlite:notes.txt', LOG_LEVEL: 'silent' };
  const { code, text } = await runToEnd(t, IDP, ['serve', '-port', '0'], { cwd, env });
  t.equal(code, 1);
  t.match(
    text,
    /^idp cannot start: the store that IDP_DATABASE_URI names cannot be opened: .*Choose another file, .*\.$/,
  );
});

t.test('.env of the current folder is read, and the environment takes precedence', async (t) => {
  const cwd = temporaryFolder(t);
  writeFileSync(join(cwd, '.env'), 'ADMIN_USERNAME=root\nADMIN_PASSWORD=from-the-file\nPORT=1\n');
  const program = start(t, SAAS, [], { cwd, env: { PORT: '0', ADMIN_PASSWORD: 'from-the-environment' } });
  const url = await program.url();
  const settings = (password: string) =>
    fetch(`${url}/admin/api/settings`, {
      headers: { authorization: `Basic ${Buffer.from(`root:${password}`).toString('base64')}` },
    });
  t.equal((await settings('from-the-environment')).status, 200);
  t.equal((await settings('from-the-file')).status, 401);
  await program.printed(/^Try:/);
  t.notMatch(program.lines.join('\n'), /Admin password|from-the/, 'chosen credentials are not printed');
});

t.test('no variable of .env is lost without a word', async (t) => {
  // What stands before it, in the same file.
  for (const before of [
    ...[
      '',
      '   ',
      '\t',
      '  \r',
      '\u00a0',
      ' ',
      'A=',
      'A= ',
      '# one\n  # two',
      "A='a\n \nb'",
      'A=`"`',
      'A=\r',
    ],
    ...['A=# a colour', 'A=#fff', 'A= # empty', 'A="#fff" # a colour', 'A={"b": [1]}'],
  ]) {
    const read = parseEnvFile(`FIRST=1\n${before}\n export LAST = "two\\nlines" # a comment\n`);
    t.match(read, { FIRST: '1', LAST: 'two\nlines' }, JSON.stringify(before));
    t.same(
      Object.keys(read).filter((name) => !/^(FIRST|A|LAST)$/.test(name)),
      [],
    );
  }
  t.same(parseEnvFile('A=#fff\nB= # none\nC= a b \nD=`x"\'y`\r\nE=a=b\nA_B="\n  \n"'), {
    ...{ A: '#fff', B: '', C: 'a b', D: `x"'y`, E: 'a=b', A_B: '\n  \n' },
  });
  for (const [text, message] of [
    ['A=1\nnonsense\n', /^line 2 of .env is not NAME=value/],
    ['A=1\n=secret\n', /^line 2 of .env is not NAME=value/],
    ['A="a\nB=secret', /^line 1 of .env begins a value of A with " and does not end it/],
    ['\n\nA=secret#more', /^line 3 of .env has a # in the value of A/],
    ['A="secret" b', /^line 1 of .env continues after the value of A/],
  ] as const) {
    t.throws(() => parseEnvFile(text), { message }, JSON.stringify(text));
    t.throws(() => parseEnvFile(text), { message: /^(?!.*secret)/ });
  }
  const cwd = temporaryFolder(t);
  writeFileSync(join(cwd, '.env'), 'nonsense');
  t.match(await runProgram('saas-backend', ['doctor'], {}, { cwd }), {
    code: 1,
    err: /^saas-backend cannot start: line 1 of \.env is not NAME=value/,
  });
});

t.test('only the programs read .env, not the plugins or a server created in code', async (t) => {
  const cwd = temporaryFolder(t);
  // Some editors begin a file with a byte order mark.
  writeFileSync(join(cwd, '.env'), '\ufeffPUBLIC_URL=nonsense\r\nIDP_PUBLIC_URL=nonsense\r\n');
  const env = { PORT: '0', IDP_PORT: '0' };
  const run = async (program: 'idp' | 'saas-backend', command: string, cwd: string) => {
    const { code, out, err } = await runProgram(program, [command], env, { cwd });
    t.equal(code, 1);
    return out + err;
  };
  for (const program of ['saas-backend', 'idp'] as const)
    for (const command of ['serve', 'doctor'])
      t.match(await run(program, command, cwd), /PUBLIC_URL.* must be an absolute http or https address/);
  const unreadable = temporaryFolder(t);
  mkdirSync(join(unreadable, '.env'));
  t.match(await run('idp', 'doctor', unreadable), /^idp cannot start: \.env cannot be read \(EISDIR\)\./);
  const inUtf16 = temporaryFolder(t);
  writeFileSync(join(inUtf16, '.env'), '\ufeffNODE_ENV=production\n', 'utf16le');
  t.match(await run('saas-backend', 'doctor', inUtf16), 'saas-backend cannot start: .env is not in UTF-8.');
  const embedded = startProgram(t, join(ROOT, 'test/bin/fixtures/embed.mjs'), { cwd, env });
  await t.resolves(embedded.printed(/^http:\S+/));
  const hosted = startProgram(t, compiled('test/kit/saas-server.js'), { cwd, env });
  await t.resolves(hosted.url());
});

const shell = promisify(execFile);

t.test('development generates secrets per folder and logs it', async (t) => {
  const values: string[] = [];
  for (const [script, file, names, ...args] of [
    [SAAS, 'saas-backend', ['ADMIN_PASSWORD', 'JWT_ACCESS_SECRET', 'JWT_REFRESH_SECRET'], '-p', '0'],
    [IDP, 'idp', ['IDP_ADMIN_TOKEN', 'IDP_ED25519_SEED'], 'serve', '-p', '0'],
  ] as [string, string, string[], ...string[]][]) {
    const cwd = temporaryFolder(t);
    const program = start(t, script, args, { cwd });
    await program.url();
    t.match(program.lines.join('\n'), `generated for development and saved in data/${file}.secrets.json`);
    await program.terminate();
    const path = join(cwd, `data/${file}.secrets.json`);
    t.equal(statSync(path).mode & 0o777, 0o600);
    const secrets = JSON.parse(readFileSync(path, 'utf8')) as Record<string, string>;
    t.same(Object.keys(secrets).sort(), names);
    values.push(...Object.values(secrets));

    const again = start(t, script, args, { cwd });
    // The last line of what a developer sees.
    await again.printed(/\/(admin\/api\/settings|v1\/clients)/);
    const said = again.lines.join('\n');
    t.match(said, `: for development, from data/${file}.secrets.json`);
    t.notMatch(said, 'and saved in');
    t.notMatch(said, '\x1b', 'no colours outside a terminal');
    const commands = again.lines.filter((line) => line.startsWith('  curl '));
    t.equal(commands.length, 3);
    for (const command of commands) {
      const { stdout } = await shell('sh', ['-c', `${command.replace('curl', 'curl -sS --fail-with-body')}`]);
      t.type(JSON.parse(stdout), 'object', `${command} works when pasted`);
    }
    t.equal(await again.terminate(), 0);
  }
  t.equal(new Set(values).size, 5);
});

t.test('production prints only its log', async (t) => {
  const env = {
    NODE_ENV: 'production',
    DATABASE_URI: 'sqlite::memory:',
    PUBLIC_URL: 'https://app.example',
    JWT_ACCESS_SECRET: 'b7d1f0c25e8a4396b7d1f0c25e8a4396',
    JWT_REFRESH_SECRET: 'f0c25e8a4396b7d1f0c25e8a4396b7d1',
  };
  const program = start(t, SAAS, ['--host', '127.0.0.1', '-p', '0'], { env });
  await program.url();
  t.equal(await program.terminate(), 0);
  for (const line of program.lines) t.type(JSON.parse(line), 'object');
});

t.test('an uncaught error is logged and sets the exit code', async (t) => {
  const cwd = temporaryFolder(t);
  const faults = {
    uncaughtException: "setImmediate(() => { throw new Error('out of the blue') })",
    unhandledRejection: "Promise.reject(new Error('out of the blue'))",
  };
  for (const [name, fault] of Object.entries(faults)) {
    const preload = join(cwd, `${name}.mjs`);
    writeFileSync(preload, `process.once('SIGWINCH', () => { ${fault} })`);
    const env = { NODE_OPTIONS: `--import=${preload}` };
    const program = start(t, SAAS, ['-p', '0'], { cwd, env });
    await program.url();
    process.kill(program.pid, 'SIGWINCH');
    t.equal(await program.ended(), 1, name);
    t.match(program.lines.join('\n'), /out of the blue/);
  }
});

t.test('a closed stdout ends the program without a stack trace', async (t) => {
  const ask = async (shape: (child: ChildProcess) => void, stdout: 'pipe' | number) => {
    const child = spawn(process.execPath, [IDP, 'doctor', '--json'], {
      cwd: temporaryFolder(t),
      env: { IDP_PORT: '0' },
      stdio: ['ignore', stdout, 'pipe'],
    });
    shape(child);
    const [said, [code]] = await Promise.all([text(child.stderr as Readable), once(child, 'close')]);
    return { code, said };
  };
  t.same(await ask(({ stdout }) => stdout?.destroy(), 'pipe'), { code: 1, said: '' }, 'idp doctor | true');
  if (!existsSync('/dev/full')) return;
  const full = openSync('/dev/full', 'w');
  t.teardown(() => closeSync(full));
  t.same(await ask(() => {}, full), { code: 1, said: 'The output cannot be written (ENOSPC).\n' });
});

t.test('a second signal does not wait for open requests', async (t) => {
  const cwd = temporaryFolder(t);
  const program = start(t, SAAS, ['-p', '0'], { cwd });
  const url = new URL(await program.url());
  // An incomplete request delays the shutdown after the first signal.
  const { connect } = await import('node:net');
  const socket = connect(Number(url.port), url.hostname);
  t.teardown(() => socket.destroy());
  socket.on('error', () => {});
  const wait = 'expect: 100-continue';
  socket.write(
    `POST /api/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n${wait}\r\n\r\n`,
  );
  // The server has the request once it asks for the body.
  await new Promise((resolve) => socket.once('data', resolve));
  process.kill(program.pid, 'SIGTERM');
  await program.printed(/"msg":"stopping"/);
  process.kill(program.pid, 'SIGTERM');
  t.equal(await program.ended(), 1);
});

t.test('npm start runs both servers, forwards signals and ends when one of them ends', async (t) => {
  const cwd = temporaryFolder(t);
  const script = join(ROOT, 'examples/start-both.mjs');
  // Both read .env, so PORT would apply to both.
  const env = { PORT: '0', IDP_PORT: '0' };
  const both = startProgram(t, script, { cwd, env });
  await both.printed(/^saas-backend is ready/);
  await both.printed(/^idp is ready/);
  t.equal(await both.terminate(), 0);

  const broken = startProgram(t, script, { cwd: temporaryFolder(t), env: { ...env, IDP_PORT: '99999' } });
  t.equal(await broken.ended(), 1, 'one that cannot start takes the other with it');
  t.match(broken.lines.join('\n'), /IDP_PORT/);
});
