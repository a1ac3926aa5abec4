import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import bcrypt from 'bcryptjs';
import Provider from 'oidc-provider';
import t, { type Test } from 'tap';
import { Agent } from '../../kit/agent.js';
import { saasApp } from '../../kit/app.js';
import { serverPort } from '../../kit/port.js';
import { startCommand } from '../../kit/process.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { CLIENT, visitor } from './kit.js';

/** Sign-in with real providers: oidc-provider and Dex. Our own is in `federation.test.ts`. */

const CALLBACK = 'http://app.example.test/api/auth/callback/acme';
const EMAIL = 'ada@example.test';

/** Signs up and in again with the provider, whose forms `fill` fills in. */
async function signIn(
  t: Test,
  issuer: string,
  fill: (browser: Agent, url: string) => Promise<string | undefined>,
) {
  const app = await saasApp(t, { login: { acme: { issuer, ...CLIENT } } });
  const browser = visitor(app);
  const visit = async (url: string) =>
    new URL((await fill(new Agent({ origin: issuer }), url)) ?? 'missing:');
  const first = await browser.exchange(await browser.ticket(visit));
  t.match(first.body.data?.user, { email: EMAIL, emailVerified: true }, first.text);
  const second = await browser.exchange(await browser.ticket(visit));
  t.equal(second.body.data?.user.id, first.body.data?.user.id);
}

t.test('people sign in with oidc-provider', async (t) => {
  const port = await serverPort();
  const issuer = `http://127.0.0.1:${port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        ...{ client_id: CLIENT.clientId, client_secret: CLIENT.clientSecret },
        ...{ redirect_uris: [CALLBACK], token_endpoint_auth_method: 'client_secret_post' },
      },
    ],
    cookies: { keys: ['secret of a local server'] },
    // The address is in the response of the userinfo endpoint only.
    claims: { openid: ['sub'], email: ['email', 'email_verified'] },
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: EMAIL, email_verified: true }),
    }),
  });
  const server = createServer(provider.callback());
  server.listen(port, '127.0.0.1');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  await signIn(t, issuer, async (browser, url) => {
    const form = await browser.open(url);
    const consent = await browser.submit(form, { login: 'ada', password: 'any' });
    return (await browser.submit(consent)).location;
  });
});

const missing = {
  name: 'dex-upstream',
  subject: 'Dex as a provider',
  want: 'a Dex',
  remedy: 'Make one with test/campaign/relying-parties/dex.sh <file>, and set TEST_DEX to that file.',
};

await withOrSkip(missing, findDex, (dex) => {
  t.test('people sign in with Dex', async (t) => {
    const port = await serverPort();
    const issuer = `http://127.0.0.1:${port}/dex`;
    const folder = temporaryFolder(t);
    const configuration = {
      ...{ issuer, storage: { type: 'memory' }, web: { http: `127.0.0.1:${port}` } },
      ...{ oauth2: { skipApprovalScreen: true }, enablePasswordDB: true },
      staticClients: [
        { id: CLIENT.clientId, name: 'App', secret: CLIENT.clientSecret, redirectURIs: [CALLBACK] },
      ],
      staticPasswords: [
        { email: EMAIL, hash: bcrypt.hashSync('password', 10), username: 'ada', userID: '08a8684b' },
      ],
    };
    const file = join(folder, 'dex.yaml');
    // JSON is YAML.
    writeFileSync(file, JSON.stringify(configuration));
    startCommand(t, dex, { args: ['serve', file], cwd: folder });
    await waitUntil('Dex answers', async () => {
      const answer = await fetch(`${issuer}/.well-known/openid-configuration`).catch(() => null);
      return answer?.status === 200;
    });
    await signIn(t, issuer, async (browser, url) => {
      const form = await browser.open(url);
      return (await browser.submit(form, { login: EMAIL, password: 'password' })).location;
    });
  });
});

async function findDex(): Promise<string> {
  const dex = process.env['TEST_DEX'] ?? 'dex';
  await promisify(execFile)(dex, ['version']);
  return dex;
}
