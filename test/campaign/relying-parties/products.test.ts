/**
 * The recipes of docs/idp/products.md: kube-apiserver's authenticator itself, and of the other programs the requests that their documentation and source describe, sent by a plain client.
 */
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createLocalJWKSet, jwtVerify } from 'jose';
import t, { type Test } from 'tap';
import { basic } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { addGroups } from '../../kit/groups.js';
import {
  type Credentials,
  claimsOf,
  type IdpApp,
  type IdpAppOptions,
  ISSUER,
  idpApp,
  type RegisteredClient,
  search,
} from '../../kit/idp.js';
import { compiled } from '../../kit/process.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';

const ROOT = join(compiled('.'), '..');
const PAGE = readFileSync(join(ROOT, 'docs/idp/products.md'), 'utf8');
const SOURCES = join(ROOT, 'test/campaign/relying-parties');
const ES256_KEY = 'c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721';
const run = promisify(execFile);

/** A block of a recipe. */
function block(heading: string, language: string, index = 0): string {
  const [, section = ''] = PAGE.split(`\n## ${heading}\n`);
  const found = [...(section.split('\n## ')[0] as string).matchAll(/```(\w+)\n([\s\S]*?)```/g)]
    .filter(([, name]) => name === language)
    .map(([, , text = '']) => text);
  if (found[index] === undefined) throw new Error(`${heading} has no block ${index} of ${language}`);
  return found[index];
}

/** What `idp client create` of a recipe asks for. */
function registration(heading: string): Record<string, unknown> {
  const command = block(heading, 'sh').replaceAll('\\\n', ' ');
  const option = (name: string) => {
    const [, quoted, plain] = new RegExp(`--${name} (?:"([^"]*)"|(\\S+))`).exec(command) ?? [];
    return quoted ?? plain;
  };
  const [, uris = ''] = /client create (\S+)/.exec(command) ?? [];
  const [logout, groups, algorithm] = [option('post-logout-uris'), option('groups'), option('id-token-alg')];
  return {
    redirect_uris: uris.split(','),
    principal_kinds: option('kinds')?.split(','),
    admitted_groups: option('admit-groups')?.split(','),
    ...(groups && { groups_claim: groups }),
    ...(logout && { post_logout_redirect_uris: logout.split(',') }),
    ...(algorithm && { id_token_signed_response_alg: algorithm }),
    ...(command.includes('--public') && { public: true }),
  };
}

/** A member of `admins` and `staff`, one of `staff`, and a person in neither. */
async function people(t: Test, idp: IdpApp) {
  const admin = await idp.makeHuman({ name: 'Ada' });
  const member = await idp.makeHuman({ name: 'Grace' });
  const outsider = await idp.makeHuman({ name: 'Eve' });
  await addGroups(t, idp, { admins: [admin.sub], staff: [admin.sub, member.sub], others: [outsider.sub] });
  return { admin, member, outsider };
}

async function world(t: Test, heading: string, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { clock: fakeClock(Date.now()), ...options });
  const known = await people(t, idp);
  return { idp, client: await idp.createClient(registration(heading)), ...known };
}

/** How a program requests a code and redeems it. */
interface Requests {
  scope: string;
  pkce: boolean;
  secret: 'header' | 'form' | 'none';
  more?: Record<string, string>;
}

const authorize = (idp: IdpApp, parameters: Record<string, string>, who: Credentials) =>
  idp.request('GET', `/authorize?${search(parameters)}`, {
    headers: { authorization: basic(who.handle, who.password) },
  });

/** The answer of `/token`, or the error that comes back to the program. */
async function signIn(idp: IdpApp, client: RegisteredClient, requests: Requests, who: Credentials) {
  const verifier = randomBytes(48).toString('base64url');
  const state = randomBytes(24).toString('base64url');
  const answer = await authorize(
    idp,
    {
      client_id: client.id,
      redirect_uri: client.redirectUri,
      response_type: 'code',
      scope: requests.scope,
      state,
      ...(requests.pkce && {
        code_challenge: createHash('sha256').update(verifier).digest('base64url'),
        code_challenge_method: 'S256',
      }),
      ...requests.more,
    },
    who,
  );
  const returned = new URL(answer.headers['location'] ?? 'none:');
  if (`${returned.origin}${returned.pathname}`.replace(/\/$/, '') !== client.redirectUri.replace(/\/$/, ''))
    throw new Error(`${answer.status}: ${answer.text}`);
  const { code, error, state: returnedState } = Object.fromEntries(returned.searchParams);
  if (returnedState !== state) throw new Error('the state is another one');
  if (code === undefined) return { error };
  const { id, secret = '', redirectUri } = client;
  return (
    await idp.request('POST', '/token', {
      headers: requests.secret === 'header' ? { authorization: basic(id, secret) } : {},
      form: search({
        grant_type: 'authorization_code',
        code,
        redirect_uri: redirectUri,
        ...(requests.secret !== 'header' && { client_id: id }),
        ...(requests.secret === 'form' && { client_secret: secret }),
        ...(requests.pkce && { code_verifier: verifier }),
      }),
    })
  ).body;
}

/** Programs of which only the requests are sent. */
const SENT: Record<string, Requests> = {
  Grafana: {
    scope: /^scopes = (.*)$/m.exec(block('Grafana', 'ini'))?.[1] ?? '',
    pkce: true,
    secret: 'header',
  },
  'Open WebUI': {
    scope: /^OAUTH_SCOPES=(.*)$/m.exec(block('Open WebUI', 'properties'))?.[1] ?? '',
    pkce: true,
    secret: 'header',
    more: { nonce: 'n0nceOfAuthlib12345x' },
  },
  'Argo CD': { scope: 'openid profile email groups', pkce: true, secret: 'header' },
  Gitea: { scope: 'openid email profile groups', pkce: false, secret: 'header' },
  Nextcloud: {
    scope: 'openid email profile groups',
    pkce: true,
    secret: 'form',
    more: {
      nonce: 'LK20XJ3VYQ8T4B7N1MZC5W9R6D0FHGSA',
      claims: JSON.stringify({
        id_token: { email: null, name: null, quota: null, groups: null, sub: { essential: true } },
        userinfo: { email: null, name: null, quota: null, groups: null, sub: { essential: true } },
      }),
    },
  },
};

for (const [name, requests] of Object.entries(SENT)) {
  t.test(`the requests of ${name} get the groups, and nobody else is admitted`, async (t) => {
    const { idp, client, admin, member, outsider } = await world(t, name);
    const given: Record<string, string[]> = {
      Nextcloud: ['admin', 'staff'],
      'Open WebUI': ['admin', 'user'],
    };
    const [asAdmin, asMember] = [
      given[name] ?? ['admins', 'staff'],
      name === 'Open WebUI' ? 'user' : 'staff',
    ];
    for (const [who, groups] of [
      [admin, asAdmin],
      [member, [asMember]],
    ] as const) {
      const tokens = await signIn(idp, client, requests, who);
      const jwks = createLocalJWKSet((await idp.request('GET', '/.well-known/jwks.json')).body);
      const { payload } = await jwtVerify(tokens.id_token, jwks, { issuer: ISSUER, audience: client.id });
      const profile = { sub: who.sub, email: who.handle, preferred_username: who.handle };
      t.match(payload, profile);
      t.same(payload['groups'], groups, 'in the id_token');
      t.equal(payload['nonce'], requests.more?.['nonce']);
      const { body } = await idp.userinfo(tokens.access_token);
      t.match(body, profile);
      t.same(body.groups, groups, 'at /userinfo');
      t.equal('refresh_token' in tokens, requests.scope.includes('offline_access'));
    }
    t.match(await signIn(idp, client, requests, outsider), { error: 'access_denied' });
  });
}

t.test('the sign-outs of the recipes lead back', async (t) => {
  for (const [name, uri] of [
    ['Grafana', /redirect_uri=(\S+)/.exec(block('Grafana', 'ini'))?.[1]],
    ['Argo CD', 'https%3A%2F%2Fargocd.example.com'],
    ['Nextcloud', 'https://cloud.example.com/'],
    ['Gitea', 'https%3A%2F%2Fgit.example.com%2F'],
  ] as const) {
    const { idp, client, admin } = await world(t, name);
    const { id_token } = await signIn(idp, client, SENT[name] as Requests, admin);
    // Gitea names the client alone.
    const hint =
      name === 'Gitea' ? `client_id=${client.id}` : `client_id=${client.id}&id_token_hint=${id_token}`;
    const { status, headers } = await idp.request('GET', `/logout?post_logout_redirect_uri=${uri}&${hint}`);
    t.match([status, headers['location']], [303, decodeURIComponent(uri ?? '')], name);
  }
});

t.test('the requests of Tailscale: WebFinger, the metadata and a sign-in', async (t) => {
  const { idp, client, member, outsider } = await world(t, 'Tailscale', {
    trustedEmailDomains: ['example.com'],
  });
  const [, path = ''] = /^GET (\S+)/m.exec(block('Tailscale', 'text')) ?? [];
  const { status, headers, body } = await idp.request('GET', path);
  t.match([status, headers['content-type']], [200, 'application/jrd+json']);
  const [, shown = ''] = /^(\{.*\})$/m.exec(block('Tailscale', 'text')) ?? [];
  t.same(body, JSON.parse(shown.replace('https://id.example.com', ISSUER)));
  const [{ href }] = body.links;
  const metadata = await idp.request('GET', new URL(`${href}/.well-known/openid-configuration`).pathname);
  t.equal(metadata.body.issuer, href);
  const requests: Requests = { scope: 'openid profile email', pkce: false, secret: 'header' };
  const { id_token } = await signIn(idp, client, requests, member);
  t.match(claimsOf(id_token), { iss: href, email: member.handle });
  t.notOk('groups' in claimsOf(id_token), 'it does not ask for them');
  t.match(await signIn(idp, client, requests, outsider), { error: 'access_denied' });
});

t.test('the requests of kubelogin: a public client on a port of this machine', async (t) => {
  const { idp, client, member, outsider } = await world(t, 'Kubernetes', { es256Key: ES256_KEY });
  const requests: Requests = {
    scope: 'groups offline_access openid',
    pkce: true,
    secret: 'none',
    more: { access_type: 'offline', nonce: 'cUQ2b0M5dXh4eHZ3' },
  };
  const tokens = await signIn(idp, client, requests, member);
  t.same(claimsOf(tokens.id_token).groups, ['staff']);
  const { body } = await idp.refresh(client, tokens.refresh_token);
  t.same(claimsOf(body.id_token).groups, ['staff'], 'after a refresh');
  t.match(await signIn(idp, client, requests, outsider), { error: 'access_denied' });
});

const inKubernetes = {
  name: 'kubernetes',
  subject: 'The authenticator of kube-apiserver',
  want: 'a Go with its modules',
  remedy: 'Install Go 1.26 or newer, which fetches what it needs.',
};
await withOrSkip(inKubernetes, buildKubernetes, (binary) => {
  t.test('kube-apiserver accepts ES256 and the groups, and nothing else', async (t) => {
    const { idp, client, admin, member } = await world(t, 'Kubernetes', { es256Key: ES256_KEY });
    const requests: Requests = { scope: 'openid groups', pkce: true, secret: 'none' };
    const options = registration('Kubernetes');
    const eddsa = await idp.createClient({ ...options, id_token_signed_response_alg: 'EdDSA' });
    const other = await idp.createClient(options);
    const agents = await idp.createClient({ ...options, principal_kinds: ['agent'], admitted_groups: [] });
    const tokenOf = async (from: RegisteredClient, who: Credentials) =>
      (await signIn(idp, from, requests, who)).id_token as string;
    const good = await tokenOf(client, admin);
    const [header, payload, signature = ''] = good.split('.');
    const changed = [header, payload, `${signature[0] === 'A' ? 'B' : 'A'}${signature.slice(1)}`].join('.');
    const address = new URL(await idp.listen()).host;
    const file = join(temporaryFolder(t), 'authentication.yaml');
    /** Whom the API server with the file of the recipe takes the bearers for. */
    const ask = async (audience: RegisteredClient, ...tokens: string[]) => {
      const text = block('Kubernetes', 'yaml').replace('cid_…', audience.id);
      writeFileSync(file, text.replace('https://id.example.com', ISSUER));
      const asked = run(binary, [file], { env: { ISSUER, ADDRESS: address } });
      asked.child.stdin?.end(`${tokens.join('\n')}\n`);
      return (await asked).stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
    };
    t.match(await ask(client, good, await tokenOf(client, member), await tokenOf(other, admin), changed), [
      { known: true, name: `idp:${admin.sub}`, groups: ['idp:admins', 'idp:staff'] },
      { known: true, name: `idp:${member.sub}`, groups: ['idp:staff'] },
      { known: false, refusal: /audience/ },
      { known: false, refusal: /failed to verify signature/ },
    ]);
    t.match(await ask(eddsa, await tokenOf(eddsa, admin)), [
      { known: false, refusal: /signed with unsupported algorithm.*"EdDSA"/ },
    ]);
    t.match(await ask(agents, await tokenOf(agents, await idp.mintAgent())), [
      { known: false, refusal: /only people may use this cluster/ },
    ]);
  });
});

async function buildKubernetes(): Promise<string> {
  const binary = join(temporaryFolder(t), 'apiserver');
  await run('go', ['build', '-o', binary, '.'], { cwd: join(SOURCES, 'kubernetes') });
  return binary;
}
