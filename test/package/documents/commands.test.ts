import { execFile } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { serverPort } from '../../kit/port.js';
import { compiled, startCommand, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { allBlocks, blocksOf, pagesOfDocumentation, ROOT, readPage } from './blocks.js';
import { acceptInvitation, allow, connectAccounts, decideFirst, enterCode } from './person.js';

/**
 * The commands of README and docs, pasted into a shell beside running programs. A block that no test runs states the reason in the
 * line above it (`<!-- not run: … -->`), or names the test that runs it (`<!-- run by: … -->`).
 */

const run = promisify(execFile);
const SHELL = ['sh', 'bash', 'shell', 'console'];
const ADMIN_TOKEN = 'the-token-of-the-administrator-of-this-test';

/** The blocks that a test of this file has taken, as `page:line`. */
const taken = new Set<string>();

/** The blocks of commands in a page, or below one of its headings. */
function commandsIn(page: string, heading?: string): string {
  const blocks = blocksOf(page).filter(
    (block) =>
      SHELL.includes(block.language) &&
      (heading === undefined || block.heading === heading) &&
      !block.notRun &&
      !block.runBy,
  );
  if (blocks.length === 0) throw new Error(`there are no commands in ${page}, ${heading}`);
  for (const { line } of blocks) taken.add(`${page}:${line}`);
  return blocks.map(({ text }) => text).join('\n');
}

/** A folder for PATH in which both programs, and `npx` with their names, are those of this repository. */
function programsFolder(t: Test): string {
  const folder = temporaryFolder(t);
  const start = (name: string) => `exec ${process.execPath} ${compiled('bin')}/${name}.js "$@"\n`;
  const scripts = {
    'saas-backend': start('saas-backend'),
    idp: start('idp'),
    npx: `name=$1\nshift\n${start('$name')}`,
  };
  for (const [name, text] of Object.entries(scripts)) {
    writeFileSync(join(folder, name), `#!/bin/sh\n${text}`);
    chmodSync(join(folder, name), 0o755);
  }
  return folder;
}

/** The output of the commands, pasted into a shell. */
async function paste(
  t: Test,
  commands: string,
  env: Record<string, string> = {},
  cwd = temporaryFolder(t),
): Promise<string> {
  const path = `${programsFolder(t)}:${process.env['PATH']}`;
  const options = { cwd, env: { PATH: path, ...env } };
  // Traced, so that a failure says which command it was.
  const pasted = run('sh', ['-exc', commands], options).catch(({ stdout, stderr }) => {
    throw new Error(`a command failed:\n${stdout}\n${stderr.slice(-3000)}`);
  });
  return (await pasted).stdout;
}

/** A running idp, its folder, and its issuer as its clients name it. */
async function startIdp(t: Test, env: Record<string, string> = {}) {
  const cwd = temporaryFolder(t);
  const args = ['serve', '-port', '0'];
  const url = await startProgram(t, compiled('bin/idp.js'), { cwd, args, env }).url();
  return { cwd, issuer: url.replace('127.0.0.1', 'localhost') };
}

/** The application of a page, which runs in a folder where both products are installed. */
async function startPage(t: Test, page: string, heading: string) {
  const port = String(await serverPort());
  const here = (text: string) => text.replaceAll('localhost:3000', `localhost:${port}`);
  const cwd = temporaryFolder(t);
  mkdirSync(join(cwd, 'node_modules'));
  symlinkSync(ROOT, join(cwd, 'node_modules/saas-backend'));
  symlinkSync(join(ROOT, 'node_modules/fastify'), join(cwd, 'node_modules/fastify'));
  const app = blocksOf(page).find((block) => block.language === 'js' && block.heading === heading);
  writeFileSync(join(cwd, 'app.mjs'), app?.text ?? '');
  const start = `exec ${process.execPath} app.mjs`;
  const server = startCommand(t, 'sh', { args: ['-c', start], cwd, env: { PORT: port } });
  await server.printed(/^http:.*\/account$/);
  return { port, here, cwd, start, server };
}

t.test('the application of docs/start.md gets a user, a subscription and an agent as printed', async (t) => {
  const page = 'docs/start.md';
  t.equal(commandsIn(page, 'Run').trim(), 'node app.mjs');
  const { port, here, cwd, start, server } = await startPage(t, page, 'Run');

  const steps = ['The first user', 'The first subscription', 'The first agent'].map((heading) =>
    commandsIn(page, heading),
  );
  const printed = await paste(t, here(steps.join('\n')), {}, cwd);
  t.match(printed, '{"owner":"you@example.com"}');
  t.match(printed, /This requires a subscription to pro[\s\S]*pro \(granted\)[\s\S]*\{"reports":\[\]\}/);
  t.match(printed, /"token_type":"Bearer".*"id_token":"[\w-]+\.[\w-]+\.[\w-]+"/);
  t.equal((await fetch(`http://localhost:${port}/account/sign-up`)).status, 200);
  t.equal((await fetch(`http://localhost:${port}/admin`)).status, 401);

  const tryIt = here(commandsIn('docs/saas/agents-own-provider.md', 'Try it'));
  const [beforehand = '', redemption = ''] = tryIt.split('code=ac_…\n');
  // What the shell of a reader keeps until the person has allowed the access.
  const kept = ['agent', 'runner'];
  const save = kept.map((name) => `echo "$${name}" > ${name}.json`).join('\n');
  const tried = await paste(t, `${beforehand}\n${save}`, {}, cwd);
  const [address = ''] = /^http:.*\/authorize\?.*$/m.exec(tried) ?? [];
  t.match(await (await fetch(address)).text(), 'Sign in', 'where a person allows the access of the agent');
  t.equal(await server.terminate(), 0, 'SIGTERM ends the application');
  const [line = ''] = /^AGENT_ISSUER=.*$/m.exec(tried) ?? [];
  const env = Object.fromEntries([...line.matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name, value]));
  const again = startCommand(t, 'sh', { args: ['-c', start], cwd, env: { PORT: port, ...env } });
  await again.printed(/^http:.*\/account$/);
  const origin = `http://localhost:${port}`;
  const metadata = await fetch(`${origin}/.well-known/oauth-protected-resource/api`);
  t.match(await metadata.json(), { authorization_servers: [`${origin}/idp`] });

  const browser = await connectAccounts(origin, cwd);
  const code = await allow(browser, address);
  const names = beforehand.split('\n').filter((one) => /^(json\(\)|IDP=|API=)/.test(one));
  const restore = kept.map((name) => `${name}=$(cat ${name}.json)`);
  const redeemed = await paste(t, [...names, ...restore, `code=${code}`, redemption].join('\n'), {}, cwd);
  const [{ sub }] = [JSON.parse(readFileSync(join(cwd, 'agent.json'), 'utf8'))];
  const me = `"email":"grace@example.com".*"actor":{"sub":"${sub}"`;
  t.match(redeemed, new RegExp(`${me}.*}{"success":false.*"FORBIDDEN".*}.*${me}`), 'twice, and 403 between');
  t.match(redeemed, /dlg_\S+ +grace@example\.com +helper@agents\.example/);
});

t.test('in one process, an agent acts for a person of the provider as printed', async (t) => {
  const page = 'docs/saas/agents-in-your-api.md';
  const { here, cwd } = await startPage(t, page, 'In one process');
  const [beforehand = '', redemption = ''] = here(commandsIn(page, 'In one process')).split('code=ac_…\n');
  const kept = ['agent', 'verifier'].map((name) => `echo "$${name}" > ${name}.txt`);
  const printed = await paste(t, [beforehand, ...kept].join('\n'), {}, cwd);
  const [address = ''] = /^http:.*\/authorize\?.*$/m.exec(printed) ?? [];
  const code = await allow(await acceptInvitation(printed, address), address);
  const names = beforehand.split('\n').filter((one) => /^(json\(\)|IDP=|API=)/.test(one));
  const restore = ['agent', 'verifier'].map((name) => `${name}=$(cat ${name}.txt)`);
  const redeemed = await paste(t, [...names, ...restore, `code=${code}`, redemption].join('\n'), {}, cwd);
  t.match(redeemed, /"email":"you@example.com".*"actor":\{"sub":"u_/);
});

t.test('the commands about agents and access tokens work as printed', async (t) => {
  const { cwd, issuer } = await startIdp(t);
  const [agents, apis] = ['docs/idp/agents.md', 'docs/idp/apis.md'];
  const commands = [
    ...[
      ...['Get a token for an API', 'Sign in to an application', 'Sign in with one command'],
      'Use a key instead of a password',
    ].map((heading) => commandsIn(agents, heading)),
    ...['Register the API', 'Let agents in'].map((heading) => commandsIn(apis, heading)),
    commandsIn('docs/idp/access-tokens.md'),
    commandsIn('docs/idp/verify-tokens.md'),
    commandsIn('docs/idp/dpop.md'),
    commandsIn('docs/idp/workload-identity.md'),
    commandsIn('docs/idp/delegation.md'),
    commandsIn('docs/idp/identity-assertions.md'),
    commandsIn(apis, 'Change or remove it'),
    ...['Act for people', 'Change the password'].map((heading) => commandsIn(agents, heading)),
    commandsIn('docs/idp/oversee-agents.md'),
    commandsIn(agents, 'Stop an agent'),
  ].join('\n');
  const printed = await paste(t, commands.replace('http://localhost:8080', issuer), {}, cwd);
  t.equal(printed.match(/"scope":"reports:read"/g)?.length, 2, 'of agents with a password and a key');
  t.match(printed, /"preferred_username":"scout@agents\.example"/, 'userinfo');
  t.match(printed, /"scope":"openid files:read"/, 'of a sign-in');
  t.match(printed, /"request_uri":"urn:ietf:params:oauth:request_uri:[\w-]+"/);
  t.match(printed, /"active":true,"scope":"files:read"/, 'introspection by the API');
  t.match(printed, /\}eyJ[\w-]+\.[\w-]+\.[\w-]+\n/, 'an id_token');
  t.match(printed, /"password":"agp_[\w-]{43}"/, 'a new password');
  t.match(printed, /scout@agents\.example +agent +disabled/);
});

t.test('the commands of docs/idp/device-flow.md work as printed', async (t) => {
  const { cwd, issuer } = await startIdp(t, { IDP_DEVICE_FLOW: '1' });
  const steps = ['Enable it', 'Ask for a code', 'Wait for the person'].map((heading) =>
    commandsIn('docs/idp/device-flow.md', heading),
  );
  const commands = steps.join('\n').replace('http://localhost:8080', issuer);
  const printed = await paste(t, `${commands}\necho $client_id > client_id`, {}, cwd);
  t.match(printed, /^[B-Z]{4}-[B-Z]{4}\n/);
  t.ok(printed.includes(`${issuer}/device\n`));
  t.match(printed, /"error":"authorization_pending"/);

  const login = commandsIn('docs/idp/device-flow.md', 'With one command').replace('npx idp', 'exec idp');
  const names = { IDP: issuer, client_id: readFileSync(join(cwd, 'client_id'), 'utf8').trim() };
  const env = { ...names, PATH: `${programsFolder(t)}:${process.env['PATH']}` };
  const device = startCommand(t, 'sh', { args: ['-c', login], cwd, env });
  const [, code = ''] = await device.printed(/enter the code (\S+)/);
  t.match((await enterCode(issuer, code)).body, 'Device allowed');
  t.equal(await device.ended(), 0);
  t.match(device.lines.at(-1), /^eyJ[\w-]+\.[\w-]+\.[\w-]+$/);
});

t.test('the commands of docs/idp/approvals.md work as printed', async (t) => {
  const { cwd, issuer } = await startIdp(t, { IDP_APPROVALS: 'true' });
  const steps = ['Declare what needs an approval', 'Ask a person', 'Get the token'].map((heading) =>
    commandsIn('docs/idp/approvals.md', heading),
  );
  const save = 'echo "$sub" > sub\necho "$password" > password';
  const commands = `${steps.join('\n')}\n${save}`.replace('http://localhost:8080', issuer);
  const printed = await paste(t, commands, {}, cwd);
  t.match(printed, /"error":"authorization_pending"/);
  const browser = await acceptInvitation(printed, `${issuer}/account`);

  const heading = 'An agent that pays after approval';
  const [api, agent] = blocksOf('docs/idp/approvals.md').filter(
    (one) => one.heading === heading && one.language === 'js',
  );
  const port = String(await serverPort());
  for (const [name, text = ''] of Object.entries({ 'api.mjs': api?.text, 'agent.mjs': agent?.text }))
    writeFileSync(join(cwd, name), text.replaceAll('http://localhost:8080', issuer).replaceAll('4000', port));
  mkdirSync(join(cwd, 'node_modules'));
  symlinkSync(ROOT, join(cwd, 'node_modules/saas-backend'));
  const [serve = '', ask = ''] = commandsIn('docs/idp/approvals.md', heading).split(/\n+(?=CLIENT_ID)/);
  const run = (command: string) =>
    startCommand(t, 'sh', { args: ['-c', command.replace('node', `exec ${process.execPath}`)], cwd });
  run(serve);
  await waitUntil('the API', () =>
    fetch(`http://127.0.0.1:${port}`).then(
      () => true,
      () => false,
    ),
  );
  const asking = run(`sub=$(cat sub)\npassword=$(cat password)\n${ask}`);
  t.match((await decideFirst(browser, issuer)).body, 'Pay <strong><bdi>12.5</bdi></strong>');
  await asking.printed(/^\{"paid":12\.5,"by":"u_[0-9a-f]{32}","txn":"gr_[0-9a-f]{32}"\}$/);
  t.equal(await asking.ended(), 0);
  await paste(t, commandsIn('docs/idp/approvals.md', 'A notification instead of polling'), {}, cwd);
});

t.test('the commands of docs/idp/groups.md work as printed', async (t) => {
  const { cwd } = await startIdp(t);
  const printed = await paste(t, commandsIn('docs/idp/groups.md'), {}, cwd);
  t.match(
    printed,
    /@example\.com +domain +@example\.com[^\n]*\nada@example\.com +human/,
    'before the invitation is accepted',
  );
  t.match(printed, /groups_claim +admins=Grafana Admin,staff\n/);
  t.match(printed, /admitted_groups +admins staff\n/);
});

t.test('the commands of docs/idp/invitations.md work as printed', async (t) => {
  const { cwd } = await startIdp(t);
  const printed = await paste(t, commandsIn('docs/idp/invitations.md'), {}, cwd);
  t.match(printed, /invite_url/);
  t.match(printed, /^mary@example\.com {2}\S+\/invite\//m);
});

t.test('the commands of docs/saas/migrate-keycloak.md invite the people of a realm to idp', async (t) => {
  const { cwd } = await startIdp(t);
  const file = 'demo-realm.json';
  copyFileSync(join(ROOT, 'test/bin/fixtures', file), join(cwd, file));
  const printed = await paste(t, commandsIn('docs/saas/migrate-keycloak.md', 'People of idp'), {}, cwd);
  t.match(printed, /^ada {2}\S+\/invite\//m);
  t.notMatch(printed, /service-account/);
});

t.test('the commands of docs/idp/claims.md work as printed', async (t) => {
  const { cwd } = await startIdp(t);
  const printed = await paste(t, commandsIn('docs/idp/claims.md'), {}, cwd);
  t.match(printed, /metadata +\{"department":"Sales","grade":3,"teams":\["core","web"\]\}\n/);
  t.match(printed, /claims +department:string=department,level:number=grade,teams:list=teams\n/);
});

t.test('the commands of docs/idp/mcp.md work as printed', async (t) => {
  const cwd = temporaryFolder(t);
  const bin = `${process.execPath} ${compiled('bin/idp.js')}`;
  const section = (heading: string) => commandsIn('docs/idp/mcp.md', heading);
  const port = await serverPort();
  let issuer = 'http://localhost:8080';
  /** For the ports and the folder of this test. */
  const here = (commands: string) =>
    commands
      .replaceAll('http://localhost:8080', issuer)
      .replaceAll('http://127.0.0.1:4000', `http://127.0.0.1:${port}`)
      .replaceAll('npx idp', bin)
      .replaceAll('node node_modules/saas-backend', `${process.execPath} ${ROOT}`);
  const serve = here(section('Start the provider')).replace(/ serve\n/, ' serve -port 0\n');
  const idp = startCommand(t, 'sh', { args: ['-c', serve.replace(bin, `exec ${bin}`)], cwd });
  issuer = (await idp.url()).replace('127.0.0.1', 'localhost');
  const options = { issuer, ISSUER: issuer, MCP_SERVER: `http://127.0.0.1:${port}/mcp` };
  await paste(t, here(section('Register the server')), {}, cwd);
  const [start = '', ...checks] = here(section('Start the server')).split(/\n(?=curl)/);
  const server = startCommand(t, 'sh', {
    args: ['-c', start.replace(process.execPath, `exec ${process.execPath}`)],
    env: { ...options, PORT: String(port) },
    cwd,
  });
  await server.url();
  const challenged = await paste(t, checks.join('\n'), {}, cwd);
  t.match(challenged, /HTTP\/1\.1 401[\s\S]*resource_metadata="http/);
  t.match(challenged, `"authorization_servers":["${issuer}"]`);

  const asAgent = here(section('Call a tool as an agent'));
  const fromShell = here(section('Call a tool from a shell'));
  const printed = await paste(t, `${asAgent}\n${fromShell}`, options, cwd);
  t.match(printed, /^\{"subject":"u_[0-9a-f]{32}","kind":"agent","actors":\[\],"client":"u_[0-9a-f]{32}"/m);
  t.match(printed, /^it needs notes:write\n\{"count":1\}$/m);
  t.match(printed, /client\\":\\"cid_/, 'through an application');
  const invite = here(commandsIn('docs/idp/mcp-clients.md'));
  t.match(await paste(t, invite, {}, cwd), /invite_url +http/);
});

t.test('the commands about a user work as printed beside a running saas-backend', async (t) => {
  const cwd = temporaryFolder(t);
  const env = {
    ADMIN_PASSWORD: 'a password of the operator',
    PAYMENT_WEBHOOK_SECRET: 'whsec_test',
    BILLING_PLANS: JSON.stringify({ pro: { prices: ['price_1Pro'] } }),
  };
  const options = { cwd, env, args: ['--port', '0'] };
  const url = await startProgram(t, compiled('bin/saas-backend.js'), options).url();
  const registered = await fetch(`${url}/api/auth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ email: 'ada@example.com', password: 'a sentence is fine' }),
  });
  t.equal(registered.status, 201);
  const pasted = (commands: string) => paste(t, commands, env, cwd);

  t.match(await pasted(commandsIn('docs/saas/suspend-delete-export.md', 'Suspension')), /state +suspended/);
  t.match(await pasted(commandsIn('docs/saas/billing-access.md', 'Grants')), /pro \(granted\)/);
  const tests = 'Subscribers in your tests';
  const script = blocksOf('docs/saas/billing.md').find(
    (one) => one.language === 'js' && one.heading === tests,
  );
  writeFileSync(join(cwd, 'subscribe.mjs'), script?.text ?? '');
  const { id } = ((await registered.json()) as { data: { user: { id: string } } }).data.user;
  const subscribe = commandsIn('docs/saas/billing.md', tests);
  t.match(
    await pasted(subscribe.replace('http://localhost:3000', url).replace('usr_…', id)),
    /processed[\s\S]*processed/,
  );
  const show = commandsIn('docs/saas/billing.md', 'Without an account of Stripe');
  t.match(await pasted(show), /subscription +pro \(active\)/);

  const curl = commandsIn('docs/saas/admin-lists.md')
    .replace('http://localhost:3000', url)
    .replace('-u admin', `-u 'admin:${env.ADMIN_PASSWORD}'`);
  t.match(await pasted(curl), /"items":\[\],"next":null/);
  await pasted(commandsIn('docs/saas/admin-audit.md'));

  writeFileSync(join(cwd, 'users.ndjson'), '{"email":"grace@example.com","name":"Grace"}\n');
  t.match(
    await pasted(commandsIn('docs/saas/import-users.md')),
    /2 lines: 1 new, 1 already there, 0 refused/,
  );
  writeFileSync(join(cwd, 'users.ndjson'), '{"email":"kim@example.com","name":"Kim"}\n');
  t.match(await pasted(commandsIn('docs/saas/migrate-better-auth.md')), /1/);
  t.match(await pasted(commandsIn('docs/saas/migrate-supabase.md')), /1/);
  t.match(await pasted(commandsIn('docs/saas/existing-users.md')), /1/);
  const signUp = commandsIn('docs/saas/accounts.md').replaceAll('http://localhost:3000', url);
  t.match(await pasted(signUp.replaceAll('ada@', 'mary@')), /accessToken[\s\S]*accessToken/);
});

t.test('a user buys, changes and cancels with the requests of the pages about billing', async (t) => {
  const port = String(await serverPort());
  const url = `http://localhost:${port}`;
  const provider = startCommand(t, process.execPath, {
    args: [join(ROOT, 'examples/payment-provider.mjs')],
    env: { APP: url, PORT: '0' },
  });
  const payments = {
    ...{ PAYMENT_API_URL: await provider.url(), PAYMENT_SECRET_KEY: 'sk_test_local' },
    PAYMENT_WEBHOOK_SECRET: 'whsec_test',
    BILLING_PLANS: JSON.stringify({ pro: { prices: ['price_1Pro'], limits: { messages: 20 } } }),
  };
  const options = { cwd: temporaryFolder(t), env: payments, args: ['--port', port] };
  await startProgram(t, compiled('bin/saas-backend.js'), options).url();
  const account = { email: 'ada@example.com', password: 'a sentence is fine' };
  const post = (path: string) =>
    fetch(`${url}/api/auth/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(account),
    });
  await post('register');
  const { data } = (await (await post('login')).json()) as { data: { accessToken: string } };
  const asPrinted = (page: string, heading: string) => {
    const commands = commandsIn(`docs/saas/${page}`, heading).replaceAll('http://localhost:3000', url);
    return paste(t, `token=${data.accessToken}\n${commands}`);
  };

  const sold = await asPrinted('billing-selling.md', 'Sell a plan');
  const [page = ''] = /http:[^"]+\/pay\/\w+/.exec(sold) ?? [];
  await fetch(`${page}?pay`, { method: 'POST', redirect: 'manual' });
  t.match(await asPrinted('billing-access.md', 'Show the plan'), /"status":"active".*"plan":"pro"/);
  t.match(await asPrinted('billing-limits.md', 'Show what is left'), /"messages"/);
  t.match(await asPrinted('billing-changes.md', 'Change the plan'), /"quantity":2/);
  t.match(
    await asPrinted('billing-changes.md', 'Cancel and resume'),
    /"cancelAtPeriodEnd":true.*"cancelAtPeriodEnd":false/s,
  );
});

t.test('the commands of docs/operate/backup.md copy and restore a database', async (t) => {
  const cwd = temporaryFolder(t);
  const backups = join(cwd, 'backups');
  mkdirSync(backups);
  const env = { DATABASE_URI: 'sqlite:saas-backend.db', IDP_DATABASE_URI: 'sqlite:idp.db' };
  const programs = [
    startProgram(t, compiled('bin/saas-backend.js'), { cwd, env, args: ['--port', '0'] }),
    startProgram(t, compiled('bin/idp.js'), { cwd, env, args: ['serve', '-port', '0'] }),
  ];
  for (const program of programs) await program.url();
  const here = (commands: string) => commands.replaceAll('/backups', backups);
  await paste(t, here(commandsIn('docs/operate/backup.md', 'Backup')), env, cwd);
  for (const program of programs) t.equal(await program.terminate(), 0);
  const restore = here(commandsIn('docs/operate/backup.md', 'Restore'))
    .replaceAll(/saas-backend-\d{4}-\d\d-\d\d/g, 'saas-backend-$(date +%F)')
    // They are missing after an ordinary stop, as the comment says.
    .replace(' saas-backend.db-wal saas-backend.db-shm', '');
  await paste(t, restore, env, cwd);
  const options = { cwd, env, args: ['--port', '0'] };
  await startProgram(t, compiled('bin/saas-backend.js'), options).url();
  t.ok(existsSync(join(cwd, 'old/saas-backend.db')));
});

t.test('the commands for operators of idp work as printed', async (t) => {
  const env = {
    IDP_ADMIN_TOKEN: ADMIN_TOKEN,
    IDP_FACTOR_ENCRYPTION_KEY: 'the key of the second factors of this test, long enough',
    IDP_PASSKEYS: 'true',
    IDP_CLIENT_REGISTRATION: 'true',
    IDP_ES256_KEY: '7'.repeat(64),
  };
  const { cwd, issuer } = await startIdp(t, env);
  for (const handle of ['ada@example.com', 'grace@example.com']) {
    const answer = await fetch(`${issuer}/v1/accounts`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ handle, password: 'a sentence is fine', kind: 'human' }),
    });
    t.equal(answer.status, 201, await answer.text());
  }
  const pasted = (commands: string) =>
    paste(t, commands.replaceAll('http://localhost:8080', issuer), env, cwd);

  t.match(
    await pasted(commandsIn('docs/saas/agents-own-provider.md', 'Set up')),
    /https:\/\/app\.example\.com\/api/,
  );
  const removals = [commandsIn('docs/both/factors.md'), commandsIn('docs/both/passkeys.md')]
    .join('\n')
    .replaceAll(/$(?<=.)/gm, ' 2>&1 || true');
  t.match(await pasted(removals), /ada@example\.com has no .*\n.*ada@example\.com has no /s);
  const operators = commandsIn('docs/idp/console.md', 'Operators');
  t.match(await pasted(operators.replace('invite ada@', 'invite new@')), /grace@example\.com/);
  t.match(await pasted(commandsIn('docs/idp/eddsa.md', 'ES256')), /client_secret/);
  t.match(await pasted(commandsIn('docs/idp/from-keycloak.md')), /admitted_groups +editors[\s\S]*invite_url/);
  t.match(await pasted(commandsIn('docs/idp/products.md')), /client_id/);
  t.match(await pasted(commandsIn('docs/idp/keys.md')), /^[0-9a-f]{64}\n\{"keys":\[/);
  t.match(await pasted(commandsIn('docs/explain/certification.md', 'Run the plans')), /invite_url/);
  t.match(await pasted(commandsIn('docs/idp/broker.md', 'Keycloak')), /post_logout_redirect_uris/);

  const key = { kty: 'OKP', crv: 'Ed25519', x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo', kid: 'one' };
  writeFileSync(join(cwd, 'keys.json'), JSON.stringify({ keys: [key] }));
  const clients = commandsIn('docs/idp/clients.md');
  t.match(await pasted(clients), /private_key_jwt[\s\S]*client_secret/);
  const registration = commandsIn('docs/idp/client-registration.md');
  const [create = '', ...register] = registration.split('\n');
  const [token = ''] = /irt_[\w-]+/.exec(await pasted(create)) ?? [];
  const command = register.join('\n').replace('https://id.example.com', issuer).replace('irt_…', token);
  t.match(await pasted(command), /"client_id"/);
});

t.test('every variable in a block of variables is an option', async (t) => {
  const known = readPage('.env.example');
  const lines = allBlocks(['ini']).flatMap(({ page, text }) =>
    [...text.matchAll(/^ *([A-Z][A-Z0-9_]+)=/gm)].map(([, name]) => ({ page, name })),
  );
  t.ok(lines.length > 15);
  const wrong = lines.filter(({ name }) => name !== 'NODE_ENV' && !known.includes(`# ${name}=`));
  t.strictSame(wrong, []);
});

t.test('every script that a page names exists', async (t) => {
  const scriptsOf = (page: string) => JSON.parse(readPage(page)).scripts;
  // Those of this repository, and of an application that `saas-backend init` has written.
  const scripts = { ...scriptsOf('package.json'), ...scriptsOf('templates/init/fastify/package.json') };
  const named = allBlocks(SHELL).flatMap(({ page, text }) =>
    [...text.matchAll(/npm run ([\w:]+)/g)].map(([, name = '']) => ({ page, name })),
  );
  t.ok(named.length > 0);
  t.strictSame(
    named.filter(({ name }) => !scripts[name]),
    [],
  );
});

t.test('every block of commands is run by a test, or states why not', async (t) => {
  const blocks = allBlocks([...SHELL, 'ts', 'tsx', 'js']);
  const unmarked = blocks.filter(
    ({ page, line, language, notRun, runBy }) =>
      SHELL.includes(language) && !notRun && !runBy && !taken.has(`${page}:${line}`),
  );
  t.strictSame(
    unmarked.map(({ page, line }) => `${page}:${line}`),
    [],
  );
  for (const { page, line, runBy } of blocks)
    if (runBy) t.ok(existsSync(join(ROOT, runBy)), `${page}:${line} names ${runBy}`);
  const marked = blocks.filter(({ notRun }) => notRun);
  t.ok(marked.length <= 22, `${marked.length} blocks are not run`);
  const unnamed = pagesOfDocumentation()
    .flatMap(blocksOf)
    .filter(({ language }) => language === '');
  t.strictSame(
    unnamed.map(({ page, line }) => `${page}:${line}`),
    [],
    'a block without a language could be a command',
  );
});
