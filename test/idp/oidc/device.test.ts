import * as openid from 'openid-client';
import t, { type Test } from 'tap';
import { deviceRequestCollection } from '../../../src/idp/oidc/device/store.js';
import { consentCollection } from '../../../src/idp/oidc/store.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { copiedCode } from '../../kit/app.js';
import {
  begin,
  DEVICE_GRANT,
  type DeviceApp,
  decide,
  deviceApp,
  deviceClient,
  enterCode,
  openDevicePage,
  poll,
} from '../../kit/device.js';
import { fetchOf, skewOf } from '../../kit/fetch.js';
import { claimsOf, type comparable, ISSUER, idpApp, idpStore, search } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';

/** Sign-in on a device without a browser (RFC 8628). */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const INTERVAL = 5 * SECOND;

const requestsIn = async (t: Test, { idp }: Pick<DeviceApp, 'idp'>) =>
  deviceRequestCollection(await idpStore(t, idp));

t.test('a person enters the code of a device, which then gets tokens once', async (t) => {
  const app = await deviceApp(t);
  const { idp, client, human } = app;
  const { status, body, headers } = await begin(idp, client, { scope: 'openid email offline_access' });
  t.equal(status, 200);
  t.match(body, {
    device_code: /^dc_[0-9a-f]{32}[\w-]{43}$/,
    user_code: /^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/,
    verification_uri: `${ISSUER}/device`,
    verification_uri_complete: `${ISSUER}/device?user_code=${body.user_code}`,
    expires_in: 600,
    interval: 5,
  });
  t.equal(headers['cache-control'], 'no-store');
  t.match(await poll(idp, client, body.device_code), {
    status: 400,
    body: { error: 'authorization_pending' },
  });

  const { page } = await enterCode(idp, human, body.user_code);
  t.equal(page.status, 200);
  t.match(page.body, body.user_code, 'the code is shown again');
  t.match(page.body, /<strong>TV<\/strong> asks to sign in/);
  t.match(page.body, /127\.0\.0\.1/, 'the address of the device');
  t.match(page.body, sentence('device-confirm.warning'));
  t.match(page.body, /Requested: [^<]*2040/);
  idp.clock.advance(INTERVAL);
  t.match(await poll(idp, client, body.device_code), { body: { error: 'authorization_pending' } });

  const { page: done } = await decide(idp, human, body.user_code);
  t.equal(done.status, 200);
  t.match(done.body, sentence('device-allowed.title'));
  const tokens = await poll(idp, client, body.device_code);
  t.match(tokens, {
    status: 200,
    body: { token_type: 'Bearer', scope: 'openid email offline_access', refresh_token: /^rt_/ },
  });
  t.match(claimsOf(tokens.body.id_token), {
    ...{ sub: human.sub, aud: client.id, email: human.handle },
    ...{ sid: /^sid_/, amr: ['pwd'] },
  });
  t.equal((await idp.userinfo(tokens.body.access_token)).body.sub, human.sub);
  t.equal((await idp.refresh(client, tokens.body.refresh_token)).status, 200);
  t.match(await poll(idp, client, body.device_code), { status: 400, body: { error: 'invalid_grant' } });
  t.equal((await idp.userinfo(tokens.body.access_token)).status, 200, 'a repeated poll revokes nothing');

  const stored = JSON.stringify(await (await requestsIn(t, app)).page({ sort: 'id', limit: 9 }));
  for (const secret of [body.device_code, body.user_code, body.user_code.replace('-', '')]) {
    t.notOk(stored.includes(secret), 'only hashes are stored');
  }
});

t.test('without the option there is no endpoint, no page and no metadata', async (t) => {
  const idp = await idpApp(t);
  const client = await deviceClient(t, idp, { public: true });
  t.equal((await begin(idp, client)).status, 404);
  t.equal((await idp.request('GET', '/device')).status, 404);
  t.match(await poll(idp, client, 'dc_x'), { status: 400, body: { error: 'unsupported_grant_type' } });
  const path = '/.well-known/openid-configuration';
  t.notMatch((await idp.request('GET', path)).text, /device/);
  const { body } = await (await deviceApp(t)).idp.request('GET', path);
  t.equal(body.device_authorization_endpoint, `${ISSUER}/device_authorization`);
  t.same(body.grant_types_supported, ['authorization_code', 'refresh_token', DEVICE_GRANT]);
});

t.test('only clients that the operator allows use the flow', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const other = await idp.createClient({ public: true });
  const refused = { status: 400, body: { error: 'unauthorized_client' } };
  t.match(await begin(idp, other), refused);
  t.match(await poll(idp, other, 'dc_x'), refused);
  const agents = await deviceClient(t, idp, { public: true, principal_kinds: ['agent'] });
  t.match(await begin(idp, agents), refused);
  t.match((await idp.admin('GET', '/v1/clients')).body.clients, [
    { grant_types: ['authorization_code', 'refresh_token', DEVICE_GRANT] },
    { grant_types: undefined },
  ]);
  t.equal(
    (await idp.admin('POST', '/v1/clients', { redirect_uris: 'https://a.test/', device: true })).status,
    400,
  );

  const { body } = await begin(idp, client);
  await decide(idp, human, body.user_code);
  await clientCollection(await idpStore(t, idp)).updateOne({ id: client.id }, { unset: ['device'] });
  t.match(await poll(idp, client, body.device_code), refused, 'also after an approval');
});

t.test('a confidential client authenticates at both endpoints', async (t) => {
  const { idp, client, human } = await deviceApp(t, { client: {} });
  t.match(await begin(idp, { ...client, secret: 'wrong' }), {
    status: 401,
    body: { error: 'invalid_client' },
  });
  t.match(await begin(idp, { id: client.id, redirectUri: '' }), { status: 401 });
  const { body } = await begin(idp, client);
  await decide(idp, human, body.user_code);
  t.match(await poll(idp, { ...client, secret: 'wrong' }, body.device_code), { status: 401 });
  t.equal((await poll(idp, client, body.device_code)).status, 200);
});

t.test('a wrong, foreign, denied or expired device code gets no tokens', async (t) => {
  const app = await deviceApp(t);
  const { idp, client, human } = app;
  const invalid = { status: 400, body: { error: 'invalid_grant' } };
  t.match(await poll(idp, client, ''), { status: 400, body: { error: 'invalid_request' } });
  t.match(await poll(idp, client, 'dc_x'), invalid);
  const { body: one } = await begin(idp, client);
  t.match(await poll(idp, client, `${one.device_code.slice(0, -1)}_`), invalid);
  t.match(await poll(idp, client, one.user_code), invalid);
  const stranger = await deviceClient(t, idp, { public: true });
  t.match(await poll(idp, stranger, one.device_code), invalid);

  const { page } = await decide(idp, human, one.user_code, 'deny');
  t.match(page.body, sentence('device-denied.title'));
  t.match(await poll(idp, client, one.device_code), { status: 400, body: { error: 'access_denied' } });

  const { body: late } = await begin(idp, client);
  await decide(idp, human, late.user_code);
  idp.clock.advance(10 * MINUTE);
  t.match(await poll(idp, client, late.device_code), { status: 400, body: { error: 'expired_token' } });
});

t.test('a poll that comes too early adds five seconds to the interval', async (t) => {
  const app = await deviceApp(t);
  const { idp, client, human } = app;
  const { body } = await begin(idp, client);
  const errorAfter = async (seconds: number) => {
    idp.clock.advance(seconds * SECOND);
    return (await poll(idp, client, body.device_code)).body.error;
  };
  t.equal(await errorAfter(0), 'authorization_pending');
  t.equal(await errorAfter(5), 'authorization_pending');
  t.equal(await errorAfter(3), 'slow_down');
  t.equal(await errorAfter(8), 'slow_down', 'the interval is ten seconds');
  t.equal(await errorAfter(13), 'slow_down', 'the interval is fifteen seconds');
  t.equal(await errorAfter(20), 'authorization_pending', 'the interval is twenty seconds');
  t.equal((await (await requestsIn(t, app)).page({ sort: 'id', limit: 1 })).items[0]?.interval, 20);
  await decide(idp, human, body.user_code);
  t.equal((await poll(idp, client, body.device_code)).status, 200, 'an approval does not wait');
});

t.test('two first polls at once: one is too early', async (t) => {
  const { idp, client } = await deviceApp(t);
  const { body } = await begin(idp, client);
  const answers = await Promise.all(Array.from({ length: 5 }, () => poll(idp, client, body.device_code)));
  t.same(answers.map((answer) => answer.body.error).sort(), [
    'authorization_pending',
    ...Array(4).fill('slow_down'),
  ]);
});

t.test('a link with the code fills in the form and approves nothing', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const { body } = await begin(idp, client);
  const path = body.verification_uri_complete.slice(ISSUER.length);
  const { browser, page } = await openDevicePage(await idp.listen(), human, path);
  t.equal(page.form('/device').fields['user_code'], body.user_code, 'also after the sign-in');
  t.match(await poll(idp, client, body.device_code), { body: { error: 'authorization_pending' } });
  const typed = ` ${copiedCode(body.user_code.toLowerCase())}.`;
  t.match((await browser.submit(page, { user_code: typed })).body, sentence('device-confirm.title'));
  t.match((await browser.open(`${await idp.listen()}/device?user_code=%3Cscript%3E`)).body, /value=""/);
});

t.test('an unknown code looks like an expired, used or denied one', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const [used, denied, expired] = await Promise.all(
    [1, 2, 3].map(async () => (await begin(idp, client)).body),
  );
  await decide(idp, human, used.user_code);
  await decide(idp, human, denied.user_code, 'deny');
  const { browser, page } = await openDevicePage(await idp.listen(), human);
  const answerTo = async (code: string) => {
    const answer = await browser.send(page, { user_code: code });
    return {
      status: answer.status,
      body: answer.body.replaceAll(code, '').replace(/name="form" value="[^"]*"/, ''),
    };
  };
  const unknown = (await answerTo('BBBB-BBBB')) as ReturnType<typeof comparable>;
  t.match(unknown, { status: 404, body: sentence('device.unknown') });
  for (const { user_code: code } of [used, denied]) t.same(await answerTo(code), unknown);
  idp.clock.advance(10 * MINUTE);
  t.same(await answerTo(expired.user_code), unknown);
});

t.test('a decision needs the page that has shown the request to this session', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const [one, other] = [(await begin(idp, client)).body, (await begin(idp, client)).body];
  const { browser, page } = await enterCode(idp, human, one.user_code);
  const isPending = async () => (await poll(idp, client, other.device_code)).body.error !== 'invalid_grant';
  const foreign = await browser.submit(page, { user_code: other.user_code });
  t.match(foreign, { status: 403, body: sentence('device.stale') }, 'of another code');
  const { browser: second } = await openDevicePage(await idp.listen(), await idp.makeHuman());
  t.match(await second.send(page), { status: 403 }, 'of another session');
  const code = await browser.open(`${await idp.listen()}/device`);
  t.match(await browser.send(code, { form: 'x' }), { status: 403 });
  const answer = await idp.request('POST', '/device/confirm', {
    form: search({ ...page.form('/confirm').fields, decision: 'allow' }),
  });
  t.match(answer, { status: 401, text: sentence('sign-in.title') }, 'without a session');
  t.ok(await isPending());
  t.match((await poll(idp, client, one.device_code)).body.error, 'authorization_pending');
});

t.test('an agent approves nothing', async (t) => {
  const { idp, client } = await deviceApp(t);
  const agent = await idp.mintAgent();
  const { body } = await begin(idp, client);
  const { page } = await openDevicePage(await idp.listen(), agent);
  t.match(page, { status: 401, body: sentence('sign-in.wrong') });
  const authorization = `Basic ${Buffer.from(`${agent.handle}:${agent.password}`).toString('base64')}`;
  const form = search({ form: 'x', user_code: body.user_code, decision: 'allow' });
  for (const path of ['/device', '/device/confirm']) {
    const answer = await idp.request('POST', path, { form, headers: { authorization } });
    t.equal(answer.status, 401);
  }
  t.match((await poll(idp, client, body.device_code)).body.error, 'authorization_pending');
});

t.test('the same form twice approves once, and a decision is final', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const { body } = await begin(idp, client);
  const { browser, page } = await enterCode(idp, human, body.user_code);
  const eve = await enterCode(idp, await idp.makeHuman(), body.user_code);
  t.match((await browser.send(page, { decision: 'allow' })).body, sentence('device-allowed.title'));
  t.match((await browser.send(page, { decision: 'deny' })).status, 404);
  t.match((await eve.browser.send(eve.page, { decision: 'allow' })).status, 404);
  t.equal(claimsOf((await poll(idp, client, body.device_code)).body.id_token).sub, human.sub);
});

t.test('of decisions and polls at the same time, one counts', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const { body } = await begin(idp, client);
  const people = [human, await idp.makeHuman(), await idp.makeHuman()];
  const open = await Promise.all(people.map((who) => enterCode(idp, who, body.user_code)));
  const decided = await Promise.all(
    open.map(({ browser, page }, index) => browser.send(page, { decision: index === 2 ? 'deny' : 'allow' })),
  );
  t.same(decided.map(({ status }) => status).sort(), [200, 404, 404]);
  const polls = await Promise.all(Array.from({ length: 10 }, () => poll(idp, client, body.device_code)));
  const [tokens, ...others] = polls.filter(({ status }) => status === 200);
  t.same(others, []);
  const winner = decided.findIndex(({ status }) => status === 200);
  if (winner === 2) t.match(polls[0]?.body, { error: 'access_denied' });
  else t.equal(claimsOf(tokens?.body.id_token).sub, people[winner]?.sub);
});

t.test('a trusted client is confirmed like every other one, also by a person who is signed in', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  await clientCollection(await idpStore(t, idp)).updateOne({ id: client.id }, { set: { trusted: true } });
  for (let round = 0; round < 2; round++) {
    const { body } = await begin(idp, client);
    const { page } = await enterCode(idp, human, body.user_code);
    t.match(page.body, sentence('device-confirm.title'));
    t.match((await poll(idp, client, body.device_code)).body.error, 'authorization_pending');
  }
});

t.test('a device gets tokens for the resource that the person has approved', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const files = await addResource(t, idp);
  t.match(await begin(idp, client, { resource: 'https://unknown.example.test' }), {
    ...{ status: 400, body: { error: 'invalid_target' } },
  });
  t.match(await begin(idp, client, { resource: FILES, scope: 'files:delete' }), {
    ...{ status: 400, body: { error: 'invalid_scope' } },
  });
  t.match(await begin(idp, client, { scope: 'x'.repeat(1025) }), {
    status: 400,
    body: { error: 'invalid_request' },
  });
  const { body } = await begin(idp, client, { resource: FILES, scope: 'openid files:read' });
  const { page } = await enterCode(idp, human, body.user_code);
  t.match(page.body, /Access to <strong>Files<\/strong>/);
  t.match(page.body, /Read your files/);
  t.notMatch(page.body, /Change your files/);
  await decide(idp, human, body.user_code);
  t.match(await poll(idp, client, body.device_code, { resource: 'https://other.example.test' }), {
    ...{ status: 400, body: { error: 'invalid_target' } },
  });
  const { body: tokens } = await poll(idp, client, body.device_code, { resource: FILES });
  t.match(claimsOf(tokens.access_token), { aud: FILES, scope: 'files:read', sub: human.sub });
  t.equal((await introspect(idp, files, tokens.access_token)).body.active, true);

  const agents = await addResource(t, idp, 'https://agents.example.test', { principalKinds: ['agent'] });
  t.match(await begin(idp, client, { resource: agents.identifier }), {
    status: 400,
    body: { error: 'invalid_target' },
  });
});

t.test(
  'a person who has registered themselves allows no device what an API does not give them',
  async (t) => {
    const { idp, client, human } = await deviceApp(t);
    const files = await addResource(t, idp, FILES, { admitsSelfRegistered: false });
    const { body } = await begin(idp, client, { resource: FILES, scope: 'openid files:read' });
    const { page } = await enterCode(idp, human, body.user_code);
    t.match([page.status, page.body], [403, /Your account may not use what this device asks for/]);
    await files.update(FILES, { admitsSelfRegistered: true }, COMMAND_SOURCE);
    const open = await enterCode(idp, human, body.user_code);
    await files.update(FILES, { admitsSelfRegistered: false }, COMMAND_SOURCE);
    t.equal(
      (await open.browser.submit(open.page, { decision: 'allow' })).status,
      404,
      'a form that was open',
    );
    t.match((await poll(idp, client, body.device_code)).body, { error: 'authorization_pending' });
  },
);

t.test('the access of a device ends like that of every application', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const signIn = async () => {
    const { body } = await begin(idp, client, { scope: 'openid offline_access' });
    const { browser } = await decide(idp, human, body.user_code);
    return { browser, tokens: (await poll(idp, client, body.device_code)).body };
  };
  const { tokens: revoked } = await signIn();
  await idp.request('POST', '/revoke', {
    form: search({ token: revoked.refresh_token, client_id: client.id }),
  });
  t.equal((await idp.userinfo(revoked.access_token)).status, 401);

  const { browser, tokens } = await signIn();
  const account = await browser.open(`${await idp.listen()}/account`);
  t.match(account.body, /TV/, 'the account page lists it');
  const consents = consentCollection(await idpStore(t, idp));
  t.ok(await consents.findOne({ id: `${human.sub} ${client.id}` }));
  await browser.submit(account, {}, `/disconnect`);
  t.equal((await idp.userinfo(tokens.access_token)).status, 401);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 400);
});

t.test('a change of the password between approval and poll ends the approval', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  const { body } = await begin(idp, client);
  const { browser } = await decide(idp, human, body.user_code);
  const page = await browser.open(`${await idp.listen()}/account/password`);
  const password = 'another sentence, quite long';
  await browser.submit(page, { current_password: human.password, password, password_confirm: password });
  const answer = await poll(idp, client, body.device_code);
  t.match(answer, { status: 400, body: { error: 'invalid_grant' } });
});

t.test('requests of an address and of a client are limited, so that a flood stores little', async (t) => {
  const app = await deviceApp(t, { limits: true });
  const { idp, client } = app;
  const statuses = [];
  for (let count = 0; count < 33; count++) statuses.push((await begin(idp, client, {}, '192.0.2.1')).status);
  t.same(statuses, [...Array(30).fill(200), 429, 429, 429]);
  t.equal((await begin(idp, client, {}, '192.0.2.2')).status, 200);
  t.equal(await (await requestsIn(t, app)).count(), 31);
  let allowed = 31;
  for (let block = 3; block < 50; block++) {
    for (let count = 0; count < 30; count++) {
      if ((await begin(idp, client, {}, `192.0.2.${block}`)).status === 200) allowed++;
    }
  }
  t.equal(allowed, 1000, 'a client has a thousand requests in ten minutes');
  const other = await deviceClient(t, idp, { public: true });
  t.equal((await begin(idp, other, {}, '192.0.2.200')).status, 200);
});

t.test('a person guesses twenty codes in ten minutes', async (t) => {
  const { idp, client, human } = await deviceApp(t, { limits: true });
  const { body } = await begin(idp, client);
  const { browser, page } = await openDevicePage(await idp.listen(), human);
  const statuses = [];
  for (let count = 0; count < 20; count++) {
    statuses.push((await browser.send(page, { user_code: 'BBBB-BBBB' })).status);
  }
  t.same(statuses, Array(20).fill(404));
  const limited = await browser.send(page, { user_code: body.user_code });
  t.equal(limited.status, 429, 'also the right one is refused');
  t.equal(limited.headers.get('retry-after'), '600');
  t.match(limited.body, body.user_code, 'the form is kept');
  idp.clock.advance(10 * MINUTE);
  t.equal((await browser.send(page, { user_code: 'BBBB-BBBB' })).status, 404);
});

t.test('openid-client signs a device in, with a bound key', async (t) => {
  const { idp, client, human } = await deviceApp(t);
  let polls = 0;
  const send: ReturnType<typeof fetchOf> = async (url, init) => {
    if (new URL(url).pathname === '/token') {
      // The person decides between the second and the third poll; the time of the provider passes.
      idp.clock.advance(INTERVAL);
      if (++polls === 3) await decide(idp, human, started.user_code);
    }
    return fetchOf(idp)(url, init);
  };
  const config = await openid.discovery(
    new URL(ISSUER),
    client.id,
    { [openid.clockSkew]: skewOf(idp) },
    openid.None(),
    { [openid.customFetch]: send as openid.CustomFetch },
  );
  const DPoP = openid.getDPoPHandle(config, await openid.randomDPoPKeyPair('ES256'));
  const started = await openid.initiateDeviceAuthorization(config, { scope: 'openid offline_access' });
  // The library waits in real time.
  const request = { ...started, interval: 0 };
  const tokens = await openid.pollDeviceAuthorizationGrant(config, request, undefined, { DPoP });
  t.equal(tokens.token_type, 'dpop');
  t.equal(tokens.claims()?.sub, human.sub);
  const refresh = (given: openid.DPoPOptions) =>
    openid.refreshTokenGrant(config, tokens.refresh_token ?? '', undefined, given);
  t.equal(await refresh({}).catch(({ error }) => error), 'invalid_dpop_proof');
  t.equal((await refresh({ DPoP })).token_type, 'dpop');
});
