import { customFetch, type JWTAccessTokenClaims, validateJwtAccessToken } from 'oauth4webapi';
import * as openid from 'openid-client';
import t, { type Test } from 'tap';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import type { Agent, Page } from '../../kit/agent.js';
import { basic } from '../../kit/app.js';
import { fetchOf, skewOf } from '../../kit/fetch.js';
import {
  authorizePath,
  CALLBACK,
  claimsOf,
  codeIn,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
} from '../../kit/idp.js';
import { addResource, FILES, FILES_INPUT } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';

const MAIL = 'https://mail.example.test/v1';

/** A person who is signed in, at another application. */
async function signedIn(t: Test) {
  const idp = await idpApp(t);
  await addResource(t, idp, FILES, { tokenLifetimeSeconds: 300, sensitive: ['files:write'] });
  const [human, client] = [await idp.makeHuman(), await idp.createClient()];
  const { browser, page } = await idp.visit(await idp.createClient());
  await browser.submit(page, { handle: human.handle, password: human.password });
  return { idp, human, client, browser };
}

const open = async (idp: IdpApp, browser: Agent, client: RegisteredClient, more: Parameters): Promise<Page> =>
  browser.open((await idp.listen()) + authorizePath(client, more));

t.test('the consent page names the resource, what its scopes permit, and for how long', async (t) => {
  const { idp, client, browser } = await signedIn(t);
  const page = await open(idp, browser, client, {
    resource: FILES,
    scope: 'openid email files:read files:write',
  });
  t.match(page.body, sentence('consent.title'));
  for (const text of [
    /your account ID/,
    /your e-mail address/,
    /Access to <strong>Files<\/strong> at <code>https:&#x2F;&#x2F;files\.example\.test<\/code>/,
    /Read your files/,
    /Change your files <strong>\(sensitive\)<\/strong>/,
    /This access ends after 5 min\./,
  ]) {
    t.match(page.body, text);
  }
  const landed = await browser.submit(page, { decision: 'allow' });
  const { body } = await idp.redeem(client, codeIn(landed.location));
  t.match(claimsOf(body.access_token), { aud: FILES, scope: 'files:read files:write' });

  const lasting = await open(idp, browser, client, {
    resource: FILES,
    scope: 'openid files:read offline_access',
  });
  t.match(lasting.body, sentence('scope.offline_access'));
  const bare = await open(idp, browser, await idp.createClient(), { resource: FILES, scope: 'openid' });
  t.match(bare.body, sentence('consent.no-scopes'));
  t.notMatch(bare.body, /Read your files/);
  const denied = await browser.submit(bare, { decision: 'deny' });
  t.match(denied.location, /error=access_denied/);
});

t.test('new scopes ask again, for the new ones only', async (t) => {
  const { idp, client, browser } = await signedIn(t);
  await addResource(t, idp, MAIL, {
    ...FILES_INPUT,
    name: 'Mail',
    scopes: [{ name: 'mail:send', description: 'Send mail' }],
  });
  const ask = (scope: string, more: Parameters = {}) =>
    open(idp, browser, client, { resource: FILES, scope, ...more });
  const first = await ask('openid files:read');
  await browser.submit(first, { decision: 'allow' });
  t.match((await ask('openid files:read')).location, /code=/, 'the same is not asked again');
  t.match((await ask('files:read')).location, /code=/, 'nor a part');
  t.match((await ask('openid')).location, /code=/);

  const silent = await ask('openid files:read files:write', { prompt: 'none' });
  t.match(silent.location, /error=consent_required/);
  const more = await ask('openid files:read files:write');
  t.match(more.body, sentence('consent.more'));
  t.match(more.body, /Change your files/);
  t.notMatch(more.body, /Read your files|your account ID/, 'what is allowed already is not repeated');
  const landed = await browser.submit(more, { decision: 'allow' });
  const { body } = await idp.redeem(client, codeIn(landed.location));
  t.equal(claimsOf(body.access_token).scope, 'files:read files:write');
  const all = await ask('openid files:read', { prompt: 'consent' });
  t.match(all.body, /your account ID[\s\S]*Read your files/, 'the application asks for the whole page');

  const other = await open(idp, browser, client, { resource: MAIL, scope: 'openid mail:send' });
  t.match(other.body, /wants additional access[\s\S]*Mail[\s\S]*Send mail/, 'another resource is asked for');
  t.match(
    (await open(idp, browser, await idp.createClient(), { resource: FILES, scope: 'files:read' })).body,
    /wants to see/,
  );
});

t.test('a sign-in form names the resource, so that the password is the consent', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const request = { resource: FILES, scope: 'openid files:read' };
  const { browser, page } = await idp.visit(client, request);
  t.match(page.body, /By signing in[\s\S]*Access to <strong>Files[\s\S]*Read your files/);
  t.match(
    page.body,
    /resource(=|&#x3D;)https%3A%2F%2Ffiles.example.test/,
    'the link to the sign-up keeps the resource',
  );
  const landed = await browser.submit(page, { handle: human.handle, password: human.password });
  t.match(landed.location, /code=/);
  t.match((await open(idp, browser, client, { ...request, prompt: 'none' })).location, /code=/);
});

t.test('an application that is trusted needs no consent for a resource', async (t) => {
  const { idp, client, browser } = await signedIn(t);
  await clientCollection(await idpStore(t, idp)).updateOne({ id: client.id }, { set: { trusted: true } });
  t.match((await open(idp, browser, client, { resource: FILES, scope: 'files:write' })).location, /code=/);
});

t.test('a revoked consent ends the access to resources, and is asked for again', async (t) => {
  const { idp, client, browser } = await signedIn(t);
  const request = { resource: FILES, scope: 'openid files:read offline_access' };
  const landed = await browser.submit(await open(idp, browser, client, request), { decision: 'allow' });
  const { body } = await idp.redeem(client, codeIn(landed.location));
  const account = await browser.open(`${await idp.listen()}/account`);
  t.match(
    account.body,
    /https:&#x2F;&#x2F;files.example.test[\s\S]*Read your files/,
    'the account page names access',
  );
  await browser.submit(account, { client_id: client.id }, '/applications/disconnect');
  t.match(await idp.refresh(client, body.refresh_token), { status: 400, body: { error: 'invalid_grant' } });
  t.match((await open(idp, browser, client, request)).body, /Read your files/);
});

t.test('a page that asked for new scopes only does not restore what was revoked meanwhile', async (t) => {
  const { idp, client, browser } = await signedIn(t);
  const ask = (scope: string) => open(idp, browser, client, { resource: FILES, scope });
  await browser.submit(await ask('openid files:read'), { decision: 'allow' });
  const more = await ask('openid files:read files:write');
  t.notMatch(more.body, /Read your files/);
  const account = await browser.open(`${await idp.listen()}/account`);
  await browser.submit(account, { client_id: client.id }, '/applications/disconnect');
  const again = await browser.submit(more, { decision: 'allow' });
  t.equal(again.location, undefined);
  t.match(again.body, /wants to see[\s\S]*Read your files[\s\S]*Change your files/);
  t.match((await browser.submit(again, { decision: 'allow' })).location, /code=/);
});

t.test('openid-client sends the resource; oauth4webapi accepts the token', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const send = fetchOf(idp);
  const config = await openid.discovery(
    new URL(ISSUER),
    client.id,
    { [openid.clockSkew]: skewOf(idp) },
    openid.ClientSecretPost(client.secret ?? ''),
    { [openid.customFetch]: send as openid.CustomFetch },
  );
  const verifier = openid.randomPKCECodeVerifier();
  const target = openid.buildAuthorizationUrl(config, {
    redirect_uri: CALLBACK,
    scope: 'openid files:read offline_access',
    resource: FILES,
    code_challenge: await openid.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
  });
  const answer = await idp.request('GET', target.pathname + target.search, {
    headers: { authorization: basic(agent.handle, agent.password) },
  });
  const landed = new URL(answer.headers['location'] ?? '');
  const checks = { pkceCodeVerifier: verifier, idTokenExpected: true };
  const tokens = await openid.authorizationCodeGrant(config, landed, checks, { resource: FILES });
  const refreshed = await openid.refreshTokenGrant(config, tokens.refresh_token ?? '', { resource: FILES });
  const metadata = config.serverMetadata() as never;
  const validate = (token: string, audience: string): Promise<JWTAccessTokenClaims> =>
    validateJwtAccessToken(
      metadata,
      new Request(`${FILES}/list`, { headers: { authorization: `Bearer ${token}` } }),
      audience,
      { [openid.clockSkew]: skewOf(idp), [customFetch]: send as never } as never,
    );
  for (const token of [tokens.access_token, refreshed.access_token]) {
    t.match(await validate(token, FILES), { sub: agent.sub, client_id: client.id, scope: 'files:read' });
  }
  await t.rejects(validate(tokens.access_token, MAIL), 'another audience');
  await t.rejects(validate(tokens.id_token ?? '', client.id), 'an id_token');
});
