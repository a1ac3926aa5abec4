import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { discoverAuthorizationServerMetadata } from '@modelcontextprotocol/sdk/client/auth.js';
import { mcpAuthMetadataRouter } from '@modelcontextprotocol/sdk/server/auth/router.js';
import express from 'express';
import expressOidc from 'express-openid-connect';
import t, { type Test } from 'tap';
import { Agent } from '../../kit/agent.js';
import { parseJson } from '../../kit/app.js';
import { onChromium } from '../../kit/chromium.js';
import { claimsOf } from '../../kit/idp.js';
import { compiled } from '../../kit/process.js';
import { waitUntil } from '../../kit/wait.js';
import {
  asLibrary,
  type Known,
  listenerOf,
  load,
  type Party,
  recipe,
  refusalOf,
  startProvider,
  startSite,
  verdicts,
  visitSite,
  withBasic,
  withForm,
} from './kit.js';

/** Has no types. */
const { MemoryStore } = createRequire(import.meta.url)('express-session');

const { middle, idp, issuer, human, agent } = await startProvider(t);
const site = await startSite(t);

const REDIRECT_URI = `${site.url}/callback`;
const redirect_uris = [REDIRECT_URI, `${site.url}/auth/callback/idp`];
const confidential = await idp.createClient({ redirect_uris });
const native = await idp.createClient({ redirect_uris, public: true });

const ENV = {
  ISSUER: issuer,
  APP: site.url,
  CLIENT_ID: confidential.id,
  CLIENT_SECRET: confidential.secret ?? '',
  APP_SECRET: 'application-Wd8sKq2vTn5LzYc0Rj7Hx',
};

interface Application {
  code: string;
  env?: Record<string, string>;
  // biome-ignore lint/suspicious/noExplicitAny: each recipe has its own exports
  open(recipe: any): Party | Promise<Party>;
  /** The error message about an invalid signature, if the library verifies it. */
  refusal?: RegExp;
}

const asExpress: Application['open'] = ({ app }) => {
  // Express prints the errors that it responds with, except in the environment `test`.
  app.set('env', 'test');
  site.answer = app;
  return visitSite(site);
};

const asAuthJs: Application['open'] = ({ handle }) => {
  site.answer = listenerOf(handle, site.url);
  return async (visit) => {
    const browser = new Agent({ origin: site.url });
    const { location = '' } = await browser.submit(await browser.open(`${site.url}/auth/signin`));
    await browser.get((await visit(location)).href);
    const session = await browser.open(`${site.url}/auth/session`);
    const { claims } = parseJson(session.body) as Known;
    return { claims, userinfo: claims };
  };
};

const asMcp: Application['open'] = async (recipe) => {
  const oauthMetadata = await discoverAuthorizationServerMetadata(issuer);
  if (!oauthMetadata) throw new Error('there is no metadata');
  site.answer = express().use(mcpAuthMetadataRouter({ oauthMetadata, resourceServerUrl: new URL(site.url) }));
  const signIn = asLibrary(recipe);
  return async (visit) => {
    const { access_token, id_token } = await signIn(visit);
    return { claims: claimsOf(id_token), userinfo: (await idp.userinfo(access_token)).body };
  };
};

const SIGNATURE = /failed to validate JWT signature|signature verification failed/;

const APPLICATIONS: Record<string, Application> = {
  'openid-client 6': { code: recipe('openid-client 6'), open: asLibrary, refusal: SIGNATURE },
  'openid-client 5': {
    code: recipe('openid-client 5', { "'openid-client'": "'openid-client-5'" }),
    open: asLibrary,
    refusal: SIGNATURE,
  },
  oauth4webapi: { code: recipe('oauth4webapi'), open: asLibrary, refusal: SIGNATURE },
  jose: { code: recipe('jose'), open: asLibrary, refusal: SIGNATURE },
  'express-openid-connect 2': {
    code: recipe('express-openid-connect', { "'express-openid-connect'": "'express-openid-connect-2'" }),
    open: asExpress,
    refusal: SIGNATURE,
  },
  'express-openid-connect 3': { code: recipe('express-openid-connect'), open: asExpress },
  'Auth.js': { code: recipe('Auth.js'), open: asAuthJs },
  'passport-openidconnect': { code: recipe('passport-openidconnect'), open: asExpress },
  'MCP clients': {
    code: recipe('MCP clients'),
    env: { CLIENT_ID: native.id, MCP_SERVER: site.url },
    open: asMcp,
  },
};

async function start(t: Test, { code, env, open }: Application): Promise<Party> {
  return open(await load(t, code, { ...ENV, ...env }));
}

function expectKnown(t: Test, { claims, userinfo }: Known, kind: 'human' | 'agent') {
  const { sub, handle } = kind === 'human' ? human : agent;
  const sub_profile = kind === 'human' ? 'user' : 'ai_agent';
  const name = kind === 'human' ? 'Ada' : 'Scout';
  t.match(claims, { iss: issuer, sub, kind, sub_profile, name, email: handle }, `${kind}: claims`);
  t.match(userinfo, { sub, kind, sub_profile, email: handle }, `${kind}: userinfo`);
}

for (const [name, application] of Object.entries(APPLICATIONS)) {
  t.test(`${name} signs people and agents in`, async (t) => {
    const signIn = await start(t, application);
    expectKnown(t, await signIn(withForm(issuer, human)), 'human');
    expectKnown(t, await signIn(withBasic(agent)), 'agent');
  });

  const { refusal } = application;
  t.test(`${name} ${refusal ? 'refuses' : 'does not look at'} the signature of a foreign key`, async (t) => {
    middle.swapsKey = true;
    t.teardown(() => {
      middle.swapsKey = false;
    });
    const signIn = await start(t, application);
    if (refusal) t.match(await refusalOf(signIn(withBasic(agent))), refusal);
    else expectKnown(t, await signIn(withBasic(agent)), 'agent');
  });
}

t.test('the documentation lists every tested client', async (t) => {
  const said = verdicts();
  for (const [name, { refusal }] of Object.entries(APPLICATIONS)) {
    t.equal(said.get(name) === 'refuses', refusal !== undefined, `${name}: ${said.get(name)}`);
    said.delete(name);
  }
  // Those of test/package and of the browser.
  t.same(
    [...said],
    [
      ['better-auth', 'refuses'],
      ['oidc-client-ts', 'trusts TLS'],
    ],
  );
});

t.test('express-openid-connect ends its session when the provider tells it', async (t) => {
  const provider = await startProvider(t);
  const app = await startSite(t);
  const client = await provider.idp.createClient({
    redirect_uris: `${app.url}/callback`,
    backchannel_logout_uri: `${app.url}/backchannel-logout`,
  });
  const handler = express();
  handler.set('env', 'test');
  handler.use(
    expressOidc.auth({
      issuerBaseURL: provider.issuer,
      baseURL: app.url,
      clientID: client.id,
      clientSecret: client.secret ?? '',
      secret: ENV.APP_SECRET,
      idTokenSigningAlg: 'EdDSA',
      authorizationParams: { response_type: 'code', scope: 'openid' },
      backchannelLogout: { store: new MemoryStore() },
    }),
  );
  handler.get('/', (request, response) => void response.json(request.oidc.user));
  app.answer = handler;
  const browser = new Agent({ origin: app.url });
  const { location = '' } = await browser.open(app.url);
  await browser.follow(await browser.get((await withForm(provider.issuer, provider.human)(location)).href));
  t.match(parseJson((await browser.get(app.url)).body), { sub: provider.human.sub });
  await provider.idp.admin('POST', `/v1/principals/${provider.human.sub}/disable`);
  await waitUntil('the session has ended', async () => (await browser.get(app.url)).status === 302);
});

/** A browser-only application: the recipe of oidc-client-ts, in a real browser. */

/** Its browser build defines a global name; this makes it a module as well. */
const FILE = '../node_modules/oidc-client-ts/dist/browser/oidc-client-ts.min.js';
const LIBRARY = `${readFileSync(compiled(FILE), 'utf8')}\nexport const { UserManager } = oidc;`;

const PAGE = `<!doctype html><body>
<script type="importmap">{ "imports": { "oidc-client-ts": "/oidc-client-ts.js" } }</script>
<script type="module" src="/recipe.js"></script>`;

await onChromium((browser) => {
  t.test('oidc-client-ts signs a person in and does not verify the signature', async (t) => {
    const provider = await startProvider(t);
    const { idp, issuer, human, middle } = provider;
    const site = await startSite(t);
    const client = await idp.createClient({ redirect_uris: `${site.url}/callback`, public: true });
    const files: Record<string, string> = {
      '/oidc-client-ts.js': LIBRARY,
      '/recipe.js': recipe('oidc-client-ts', { 'http://localhost:8080': issuer, 'cid_…': client.id }),
    };
    site.answer = ({ url = '/' }, response) => {
      const type = files[url] ? 'text/javascript' : 'text/html';
      response.writeHead(200, { 'content-type': type }).end(files[url] ?? PAGE);
    };

    for (const swapsKey of [false, true]) {
      middle.swapsKey = swapsKey;
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(site.url);
      await page.fill('[name=handle]', human.handle);
      await page.fill('[name=password]', human.password);
      await page.press('[name=password]', 'Enter');
      const text = await page.textContent('body:has-text("sub_profile")');
      const { sub, handle: email } = human;
      t.match(JSON.parse(text ?? ''), { sub, email, name: 'Ada', kind: 'human', sub_profile: 'user' });
      t.equal(new URL(page.url()).pathname, '/callback');
      await context.close();
    }
  });
});
