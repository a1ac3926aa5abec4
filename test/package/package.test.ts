import { execFile } from 'node:child_process';
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { refusalOf, withBasic, withForm } from '../campaign/relying-parties/kit.js';
import { serverPorts } from '../kit/port.js';
import { compiled, startCommand, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';
import { loadBetterAuth, REDIRECT_URI } from './better-auth.js';
import { createConsumer } from './consumer.js';
import { standInTheMiddle } from './man-in-the-middle.js';

/** The main use of the published package: the packed tarball in an empty folder, on real input. */

const ROOT = join(compiled('.'), '..');
const consumer = await createConsumer(temporaryFolder(t));
const run = promisify(execFile);
const JSON_BODY = { 'content-type': 'application/json' };

/** The error message about a wrong signature. */
const REFUSED = /id_token failed verification against the discovery JWKS/;

interface Tokens {
  accessToken: string;
  refreshToken: string;
}

t.test('the package contains only what runs', async (t) => {
  const expected =
    /^(dist\/(client\.js|bin\/[\w/-]+\.js|src\/[\w/-]+\.(js|d\.ts)|generated\/client\/\w+\.d\.ts)|src\/core\/passwords\/[\w-]+\.txt|templates\/(?!init\/)[\w/.-]+\.(html|css|js|txt|text|subject|json)|templates\/init\/([\w[\].]+\/)+[\w.-]+|docs\/((?:(?!decisions\/)[\w-]+\/){0,2}[\w-]+\.md|llms\.txt)|docs\/images\/[\w-]+\.(png|svg)|docs\/openapi\/[\w-]+\.json|examples\/[\w-]+\.(mjs|json|ya?ml)|examples\/deploy\/(Caddyfile|systemd\/[\w@-]+\.(service|timer|env|conf))|package\.json|README\.md|LICENSE|\.env\.example)$/;
  t.same(
    consumer.packed.filter((file) => !expected.test(file)),
    [],
  );
  const client = ['dist/client.js', 'dist/src/client/index.d.ts'];
  for (const file of [
    ...['README.md', '.env.example', 'dist/bin/idp.js', 'dist/src/index.d.ts'],
    ...['_gitignore', '_dockerignore', '_env.example'].map((name) => `templates/init/common/${name}`),
    ...client,
  ]) {
    t.ok(consumer.packed.includes(file), file);
  }
});

t.test('the package is small', async (t) => {
  const count = Object.keys(consumer.installed).length;
  t.comment(`${count} packages, ${(consumer.bytes / 2 ** 20).toFixed(1)} MiB`);
  t.ok(count <= 220);
  t.ok(consumer.bytes < 100 * 2 ** 20);
});

t.test('native dependencies have a build for each platform of a release', async (t) => {
  const builds = {
    ...{ 'linux-x64': ['glibc', 'musl'], 'linux-arm64': ['glibc', 'musl'] },
    ...{ 'darwin-x64': ['glibc'], 'darwin-arm64': ['glibc'], 'win32-x64': ['glibc'] },
  };
  for (const name of ['argon2', '@photostructure/sqlite'])
    for (const [platform, libraries] of Object.entries(builds)) {
      const files = readdirSync(join(consumer.folder, 'node_modules', name, 'prebuilds', platform));
      for (const library of libraries)
        t.ok(
          files.some((file) => file.endsWith(`.${library}.node`)),
          `${name} on ${platform} with ${library}`,
        );
    }
});

t.test('the test of a release passes, which each platform and runtime runs', async (t) => {
  const { stdout } = await run(process.execPath, [join(ROOT, 'test/package/smoke.mjs'), consumer.tarball]);
  t.match(stdout, /: passed\n$/);
});

t.test('both plugins load as an ECMAScript module and by require', async (t) => {
  const body = `
    const app = Fastify();
    const options = { env: {}, databaseUri: 'sqlite::memory:' };
    app.register(saasBackend, options).register(identityProvider, { ...options, prefix: '/idp' });
    app.inject('/api/health').then(async ({ statusCode }) => {
      const { statusCode: other } = await app.inject('/idp/jwks');
      console.log(statusCode, other);
      await app.close();
    });`;
  const names = '{ identityProvider, saasBackend }';
  const forms = {
    'app.mjs': `import Fastify from 'fastify'; import ${names} from 'saas-backend';${body}`,
    'app.cjs': `const Fastify = require('fastify'); const ${names} = require('saas-backend');${body}`,
  };
  for (const [file, text] of Object.entries(forms)) {
    writeFileSync(join(consumer.folder, file), text);
    const { stdout } = await run(process.execPath, [file], { cwd: consumer.folder });
    t.equal(stdout, '200 200\n', file);
  }
});

t.test('the client of the package loads alone, and in pages', async (t) => {
  const file = join(consumer.folder, 'node_modules/saas-backend/dist/client.js');
  t.notMatch(readFileSync(file, 'utf8'), /\b(import|require|process|Buffer)\b/);
  writeFileSync(
    join(consumer.folder, 'client.cjs'),
    `const { createClient } = require('saas-backend/client');
     console.log(typeof createClient({ baseUrl: 'http://localhost/api' }).auth.login);`,
  );
  const { stdout } = await run(process.execPath, ['client.cjs'], { cwd: consumer.folder });
  t.equal(stdout, 'function\n');
});

t.test('the types cover the options and decorators of both plugins, even beside zod', async (t) => {
  const { devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const beside = ['zod', 'fastify-type-provider-zod', '@types/node', 'react', '@types/react'];
  await consumer.install(...beside.map((name) => `${name}@${devDependencies[name]}`));
  copyFileSync(join(ROOT, 'test/package/fixtures/app.mts'), join(consumer.folder, 'typed.mts'));
  copyFileSync(join(ROOT, 'test/client/fixtures/types.mts'), join(consumer.folder, 'client.mts'));
  writeFileSync(
    join(consumer.folder, 'typed.cts'),
    "import { createServer } from 'saas-backend'; const stop: () => Promise<void> = createServer().stop; void stop;",
  );
  const strictest = ['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess', '--noEmit'];
  const target = ['--target', 'es2023', '--module', 'nodenext', '--types', 'node'];
  const tsc = join(ROOT, 'node_modules/.bin/tsc');
  const files = ['typed.mts', 'typed.cts', 'client.mts'];
  // Our own declarations and those of our dependencies are checked, too.
  const check = run(tsc, [...strictest, ...target, '--skipLibCheck', 'false', ...files], {
    cwd: consumer.folder,
  });
  t.equal((await check.catch((error: { stdout: string }) => error)).stdout, '');
});

t.test('the packed saas-backend signs a user in, and the session survives a restart', async (t) => {
  const options = {
    cwd: temporaryFolder(t),
    args: ['--port', '0'],
    env: { PUBLIC_URL: 'http://localhost:3000' },
  };
  const account = { email: 'ada@example.com', password: 'a sentence is fine' };
  const post = (url: string, body: object) =>
    fetch(url, { method: 'POST', headers: JSON_BODY, body: JSON.stringify(body) });

  const first = startProgram(t, consumer.bin('saas-backend'), options);
  const before = `${await first.url()}/api`;
  t.equal((await post(`${before}/auth/register`, account)).status, 201);
  const login = await post(`${before}/auth/login`, account);
  t.equal(login.status, 200);
  const { data: signedIn } = (await login.json()) as { data: Tokens };
  t.equal(await first.terminate(), 0);

  const second = startProgram(t, consumer.bin('saas-backend'), options);
  const after = `${await second.url()}/api`;
  const me = (accessToken: string) =>
    fetch(`${after}/auth/me`, { headers: { authorization: `Bearer ${accessToken}` } });
  t.match(await (await me(signedIn.accessToken)).json(), { data: { user: { email: account.email } } });
  const refreshed = await post(`${after}/auth/refresh`, { refreshToken: signedIn.refreshToken });
  t.equal(refreshed.status, 200);
  const { data: tokens } = (await refreshed.json()) as { data: Tokens };
  t.equal((await me(tokens.accessToken)).status, 200);
  t.equal(await second.terminate(), 0);
});

t.test('the packed idp signs agents and people in at better-auth, which refuses a foreign key', async (t) => {
  await consumer.install('better-auth@1.7.25');
  const middle = await standInTheMiddle(t);
  const adminToken = 'the-token-of-the-administrator-of-this-test';
  const idp = startProgram(t, consumer.bin('idp'), {
    cwd: temporaryFolder(t),
    args: ['serve', '-port', '0'],
    env: { IDP_PUBLIC_URL: middle.url, IDP_ADMIN_TOKEN: adminToken },
  });
  middle.target = await idp.url();

  const administer = async (path: string, body: object) => {
    const headers = { ...JSON_BODY, authorization: `Bearer ${adminToken}` };
    const answer = await fetch(middle.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    t.equal(answer.status, 201, path);
    return (await answer.json()) as Record<string, string>;
  };
  const application = { name: 'An application', redirect_uris: [REDIRECT_URI] };
  const client = await administer('/v1/clients', application);
  const { client_id: clientId = '', client_secret: clientSecret = '' } = client;
  const { password = '', ...agent } = await administer('/v1/agents', { handle: 'scout@agents.example' });
  const login = { handle: 'ada@example.com', password: 'a sentence is fine' };
  const human = await administer('/v1/accounts', { ...login, kind: 'human' });
  const people = [
    {
      sub: agent['sub'],
      email: agent['handle'],
      visit: withBasic({ handle: `${agent['handle']}`, password }),
    },
    { sub: human['sub'], email: human['handle'], visit: withForm(middle.url, login) },
  ];

  const betterAuth = await loadBetterAuth(consumer.folder);
  const start = () => betterAuth({ issuer: middle.url, clientId, clientSecret });
  const signIn = start();
  for (const { sub, email, visit } of people)
    t.match((await signIn(visit)).claims, { sub, email }, `it signs ${email} in`);
  middle.swapsKey = true;
  const stranger = start();
  for (const { email, visit } of people)
    t.match(await refusalOf(stranger(visit)), REFUSED, `it refuses ${email}`);
  t.equal(await idp.terminate(), 0);
});

t.test('the steps of docs/idp/better-auth.md sign an agent in at an application', async (t) => {
  const text = readFileSync(join(ROOT, 'docs/idp/better-auth.md'), 'utf8');
  const [ports, cwd] = [await serverPorts(2), consumer.folder];
  const blocks = [...text.matchAll(/```(?:sh|js)\n([\s\S]*?)```/g)].map(([, block = '']) =>
    block.replaceAll('8080', String(ports[0])).replaceAll(/(localhost:|listen\()3000/g, `$1${ports[1]}`),
  );
  const [install = '', register = '', app = '', start = '', mint = '', signIn = '', invite = ''] = blocks;
  const [installs = '', serves = ''] = install.trim().split('\n');
  t.equal(installs, 'npm i saas-backend better-auth', 'which has been done');
  const env = { HOME: cwd, IDP_PUBLIC_URL: `http://localhost:${ports[0]}` };
  /** Ends together with the server, not only with the shell around it. */
  const inShell = (command: string) => [
    '-c',
    `exec ${command.trim().replace(/^npx /, 'node_modules/.bin/')}`,
  ];
  await startCommand(t, 'sh', { cwd, env, args: inShell(serves) }).url();
  const sh = async (commands: string) => {
    const options = { cwd, env: { PATH: process.env['PATH'], ...env } };
    return (await run('sh', ['-c', `set -e\n${commands}`], options)).stdout;
  };
  await sh(register);
  writeFileSync(join(cwd, 'app.mjs'), app);
  const [secret = '', command = ''] = start.trim().split(/ (?=node )/);
  await startCommand(t, 'sh', { cwd, env, args: ['-c', `export ${secret}; exec ${command}`] }).printed(
    /^listening$/,
  );
  const session = JSON.parse(await sh(`${mint}\n${signIn}`));
  t.match(session, { user: { email: 'scout@agents.example', name: 'Scout' } });
  t.match(await sh(invite), /invite_url +http:\/\/localhost:\d+\/invite\//);
});
