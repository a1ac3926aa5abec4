import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** What is written about the package holds: generated pages, examples. */

const ROOT = join(compiled('.'), '..');
const run = promisify(execFile);

t.test('the generated pages are what the code says', async (t) => {
  await t.resolves(run(process.execPath, [join(ROOT, 'docs/generate.mjs'), '--check']));
});

t.test('every line of .env.example can be uncommented', async (t) => {
  const text = readFileSync(join(ROOT, '.env.example'), 'utf8');
  const pairs = [...text.matchAll(/^# ([A-Z][A-Z0-9_]+)=(.*)$/gm)].map(([, name = '', value = '']) => [
    name,
    value,
  ]);
  t.ok(pairs.length > 20);
  const secrets = pairs.filter(
    ([name = '', value]) => /SECRET|PASSWORD|TOKEN$|SEED|KEY|URI/.test(name) && value !== '',
  );
  t.same(secrets, [], 'no secret has a value');
  const env = { ...Object.fromEntries(pairs), PORT: '0', IDP_PORT: '0' };
  for (const args of [['bin/saas-backend.js'], ['bin/idp.js', 'serve']] as [string, ...string[]][]) {
    const [script, ...rest] = args;
    const program = startProgram(t, compiled(script), { args: rest, cwd: temporaryFolder(t), env });
    await program.url();
    t.equal(await program.terminate(), 0);
  }
});

t.test('the examples run', async (t) => {
  const embed = startProgram(t, join(ROOT, 'examples/embed.mjs'), {
    cwd: temporaryFolder(t),
    env: { PORT: '0' },
  });
  const [host] = await embed.printed(/^http:\S+/);
  t.equal((await fetch(`${host}/notes`)).status, 401);
  t.equal((await fetch(`${host}/api/health`)).status, 200);
  t.equal((await fetch(`${host}/idp/.well-known/openid-configuration`)).status, 200);

  const express = startProgram(t, join(ROOT, 'examples/express.mjs'), {
    cwd: temporaryFolder(t),
    env: { PORT: '0' },
  });
  const [app] = await express.printed(/^http:\S+/);
  t.equal((await fetch(`${app}/api/health`)).status, 200);
  t.equal(await (await fetch(app)).text(), 'My own page');
  t.equal(await express.terminate(), 0);
});

t.test('the commands of the README work as they stand', async (t) => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  /** The commands below a heading, told where the program listens. */
  const commandsOf = (heading: string, address: string, url: string) => {
    const section = readme.split(`## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
    const blocks = [...section.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block);
    t.ok(blocks.length > 0, heading);
    return `set -e\n${blocks.join('\n').replace(address, url)}`;
  };
  const paste = async (commands: string, env: Record<string, string> = {}) => {
    const { stdout } = await run('sh', ['-c', commands], { env: { PATH: process.env['PATH'], ...env } });
    return stdout;
  };

  const options = { cwd: temporaryFolder(t), args: ['-p', '0'] };
  const saas = await startProgram(t, compiled('bin/saas-backend.js'), options).url();
  const me = await paste(commandsOf('Sign a user in', 'http://localhost:3000/api', `${saas}/api`));
  t.match(me, /"session":\{/);

  const adminToken = 'the-token-of-the-administrator-of-this-test';
  const idp = await startProgram(t, compiled('bin/idp.js'), {
    cwd: temporaryFolder(t),
    args: ['serve', '-port', '0'],
    env: { IDP_ADMIN_TOKEN: adminToken },
  }).url();
  const commands = commandsOf('Sign an agent in', 'http://localhost:8080', idp);
  const tokens = JSON.parse(await paste(commands, { IDP_ADMIN_TOKEN: adminToken }));
  t.match(tokens, { token_type: 'Bearer', id_token: /^[\w-]+\.[\w-]+\.[\w-]+$/ });
});
