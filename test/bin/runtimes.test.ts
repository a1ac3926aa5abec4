import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { withForm } from '../campaign/relying-parties/kit.js';
import { PASSWORD } from '../kit/app.js';
import { ADMIN_TOKEN, authorizePath, CALLBACK, codeIn, redemption, refreshing } from '../kit/idp.js';
import { compiled, type Program, startCommand } from '../kit/process.js';
import { withOrSkip } from '../kit/skip.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Both programs and a host of the plugins on other runtimes than Node.js, with the code that is published. */

const RUNTIMES = [
  { name: 'Bun', variable: 'TEST_BUN', command: 'bun', args: [], package: '@oven/bun-linux-x64' },
  {
    name: 'Deno',
    variable: 'TEST_DENO',
    command: 'deno',
    args: ['run', '--allow-all', '--no-lock', '--node-modules-dir=manual'],
    package: '@deno/linux-x64-glibc',
  },
];

const HOST = `
  import Fastify from '${compiled('../node_modules/fastify/fastify.js')}';
  import { identityProvider, saasBackend } from '${compiled('src/index.js')}';
  const app = Fastify({ logger: true });
  app.register(saasBackend, { databaseUri: 'sqlite:saas.db' });
  app.register(identityProvider, { databaseUri: 'sqlite:idp.db', adminToken: '${ADMIN_TOKEN}', prefix: '/id' });
  app.after(() => app.get('/mine', { onRequest: app.saas.requireUser }, async ({ saas }) => saas.user.id));
  await app.listen({ port: 0, host: '127.0.0.1' });
  process.once('SIGTERM', () => app.close());
`;

interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  body: any;
}

async function post(url: string, body: object | string, token?: string): Promise<Answer> {
  const type = typeof body === 'string' ? 'x-www-form-urlencoded' : 'json';
  const headers = {
    'content-type': `application/${type}`,
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  };
  const payload = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(url, { method: 'POST', headers, body: payload });
  return { status: response.status, body: await response.json() };
}

const ACCOUNT = { email: 'ada@example.com', password: PASSWORD };

/** Registers, signs in and refreshes; returns the access token. */
async function useSaas(t: Test, api: string): Promise<string> {
  t.equal((await post(`${api}/auth/register`, ACCOUNT)).status, 201);
  const { body } = await post(`${api}/auth/login`, ACCOUNT);
  const { refreshToken } = body.data;
  const renewed = await post(`${api}/auth/refresh`, { refreshToken });
  t.equal(renewed.status, 200);
  return renewed.body.data.accessToken;
}

/** Signs a person in at an application, which refreshes its tokens. */
async function useIdp(t: Test, issuer: string): Promise<void> {
  const human = { handle: 'ada', password: PASSWORD };
  t.equal((await post(`${issuer}/v1/accounts`, { kind: 'human', ...human })).status, 201);
  const made = await post(`${issuer}/v1/clients`, { redirect_uris: CALLBACK }, ADMIN_TOKEN);
  const client = { id: made.body.client_id, secret: made.body.client_secret, redirectUri: CALLBACK };
  const path = authorizePath(client, { scope: 'openid offline_access', prompt: 'consent' });
  const { href } = await withForm(new URL(issuer).origin, human)(issuer + path);
  const { body } = await post(`${issuer}/token`, redemption(client, codeIn(href)));
  const renewed = await post(`${issuer}/token`, refreshing(client, body.refresh_token));
  t.equal(renewed.status, 200);
  t.ok(renewed.body.id_token);
}

for (const runtime of RUNTIMES) {
  const missing = {
    name: runtime.command,
    subject: runtime.name,
    want: `a ${runtime.name}`,
    remedy: `Install the npm package ${runtime.package}, and set ${runtime.variable} to the path of its program.`,
  };
  const find = async () => {
    const command = process.env[runtime.variable] ?? runtime.command;
    await promisify(execFile)(command, ['--version']);
    return command;
  };
  await withOrSkip(missing, find, (command) => {
    const start = (t: Test, cwd: string, ...args: string[]): Program => {
      const env = { HOME: cwd, DENO_DIR: join(cwd, 'deno'), IDP_ADMIN_TOKEN: ADMIN_TOKEN };
      return startCommand(t, command, { args: [...runtime.args, ...args], cwd, env });
    };
    const serve = (name: string) => [compiled(`bin/${name}.js`), 'serve', '-p', '0'];

    t.test(`${runtime.name} runs saas-backend, whose store outlives it`, async (t) => {
      const cwd = temporaryFolder(t);
      const first = start(t, cwd, ...serve('saas-backend'));
      await useSaas(t, `${await first.url()}/api`);
      t.equal(await first.terminate(), 0);
      const second = start(t, cwd, ...serve('saas-backend'));
      t.equal((await post(`${await second.url()}/api/auth/login`, ACCOUNT)).status, 200);
      t.equal(await second.terminate(), 0);
    });

    t.test(`${runtime.name} runs idp`, async (t) => {
      const idp = start(t, temporaryFolder(t), ...serve('idp'));
      await useIdp(t, await idp.url());
      t.equal(await idp.terminate(), 0);
    });

    t.test(`${runtime.name} runs a host of both plugins`, async (t) => {
      const cwd = temporaryFolder(t);
      const file = join(cwd, 'host.mjs');
      writeFileSync(file, HOST);
      const host = start(t, cwd, file);
      const url = await host.url();
      const token = await useSaas(t, `${url}/api`);
      const mine = await fetch(`${url}/mine`, { headers: { authorization: `Bearer ${token}` } });
      t.match(await mine.text(), /^usr_/);
      await useIdp(t, `${url}/id`);
      t.equal(await host.terminate(), 0);
    });
  });
}
