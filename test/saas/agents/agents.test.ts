import t from 'tap';
import { MINUTE } from '../../../src/core/kernel/clock.js';
import { auditOf, basic, errorOf, storeOf } from '../../kit/app.js';
import { asserted, assertion } from '../../kit/client-keys.js';
import { authorizePath, codeIn, search } from '../../kit/idp.js';
import { mailSink, readMail } from '../../kit/mail.js';
import { FILES } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';
import { API, agentWorld, SITE } from './kit.js';

/** Agents of an identity provider act for users of saas-backend. */

const METADATA = 'https://app.example.test/.well-known/oauth-protected-resource/api';

t.test('an agent acts for the person who has connected both accounts', async (t) => {
  const world = await agentWorld(t);
  const { app, agent, client, human, delegate, exchange, me, signUp, link } = world;
  const ada = await signUp();
  const given = await delegate('profile:read');
  t.match(
    await me(given.access_token),
    { status: 403, body: { error: { code: 'ACCOUNT_NOT_CONNECTED' } } },
    'without a connection',
  );
  t.match((await link(ada)).body.data, { resource: API, connectedAt: /^2/ });

  const token = (await exchange(given.delegation_token)).body.access_token;
  const answer = await me(token);
  t.equal(answer.status, 200, answer.text);
  t.strictSame(Object.keys(answer.body.data).sort(), ['actor', 'client', 'scopes', 'session', 'user']);
  t.match(answer.body.data, {
    user: { id: ada.id, email: ada.email },
    session: null,
    actor: { sub: agent.sub, delegation: /^dlg_/, via: [] },
    client: client.id,
    scopes: ['profile:read'],
  });
  t.equal((await app.request('GET', '/api/user/profile', { token })).body.data.id, ada.id);
  const mine = (await me(ada.accessToken)).body.data;
  t.strictSame(Object.keys(mine).sort(), ['session', 'user'], 'a session has no actor');
  const records = await auditOf(await storeOf(t, app));
  t.match(
    records.find(({ event }) => event === 'agents.connected'),
    { subject: ada.id },
  );
  t.notMatch(JSON.stringify(records), human.sub, 'the subject at the provider is no part of the audit');
});

t.test('a route admits an agent for its scope only, and says which one it needs', async (t) => {
  const { app, delegate, call, me, signUp, link } = await agentWorld(t);
  const ada = await signUp();
  await link(ada);
  const { access_token: token } = await delegate('billing:read');
  t.equal((await call(token, '/api/billing/subscription')).status, 200);
  t.equal((await call(token, '/api/billing/purchases')).status, 200);

  const lacking = await me(token);
  t.match(lacking, { status: 403, body: { error: { code: 'INSUFFICIENT_SCOPE' } } });
  const challenge = lacking.headers['www-authenticate'] ?? '';
  for (const part of [
    'error="insufficient_scope"',
    'scope="billing:read profile:read"',
    `resource_metadata="${METADATA}"`,
  ])
    t.ok(challenge.includes(part), `${part} in ${challenge}`);

  const all = (await delegate('profile:read billing:read billing:write')).access_token;
  const people = [
    ...['GET /api/auth/sessions', 'GET /api/user/export', 'GET /api/global-settings'],
    ...[
      'POST /api/user/password',
      'POST /api/user/email',
      'POST /api/user/delete',
      'PATCH /api/user/profile',
    ],
    ...['POST /api/billing/create-checkout-session', 'POST /api/billing/create-portal-session'],
    ...['POST /api/billing/sync', 'POST /api/auth/reauthenticate'],
    ...['GET /api/user/agent-account', 'POST /api/user/agent-account', 'DELETE /api/user/agent-account'],
  ];
  for (const route of people) {
    const [method = '', path = ''] = route.split(' ');
    const answer = await app.request(method, path, { token: all });
    t.equal(`${answer.status} ${errorOf(answer)}`, '403 FORBIDDEN', route);
    t.equal(answer.headers['www-authenticate'], undefined, `${route}: no token helps`);
  }
  t.equal((await me(ada.accessToken)).status, 200, 'nothing of this has changed the account');
});

t.test('programs without a token find the identity provider', async (t) => {
  const { app, issuer } = await agentWorld(t, { prefix: '/my/api', agentResource: `${SITE}/my/api` });
  const { status, headers } = await app.request('GET', '/my/api/auth/me');
  t.equal(status, 401);
  const address = /resource_metadata="([^"]+)"/.exec(headers['www-authenticate'] ?? '')?.[1] ?? '';
  t.match(headers['www-authenticate'], /^Bearer realm="api", scope="profile:read", resource_metadata=/);
  t.equal(address, `${SITE}/.well-known/oauth-protected-resource/my/api`);
  const metadata = await app.request('GET', new URL(address).pathname);
  t.match(metadata.body, {
    resource: `${SITE}/my/api`,
    authorization_servers: [issuer],
    scopes_supported: ['profile:read', 'billing:read', 'billing:write'],
    bearer_methods_supported: ['header'],
    resource_name: 'SaaS',
  });
  t.equal(metadata.headers['access-control-allow-origin'], '*');
  const people = await app.request('GET', '/my/api/auth/sessions');
  t.equal(people.headers['www-authenticate'], 'Bearer realm="api"', 'a route for people names none');
  const garbage = await app.request('GET', '/my/api/auth/me', { token: 'at_unknown' });
  t.match(garbage.headers['www-authenticate'], /error="invalid_token", scope="profile:read", resource_met/);
});

t.test('whatever ends the permission ends the access', async (t) => {
  const world = await agentWorld(t);
  const { idp, agent, client, human, delegate, exchange, me, app, signUp, link } = world;
  const ada = await signUp();
  await link(ada);
  const refused = (token: string) =>
    waitUntil('the access has ended', async () => (await me(token)).status === 401);
  const revoke = (token: string) =>
    idp.request('POST', '/revoke', {
      form: search({ token }),
      headers: { authorization: basic(client.id, client.secret ?? '') },
    });

  const given = await delegate('profile:read');
  t.equal((await me(given.access_token)).status, 200);
  await revoke(given.delegation_token);
  await refused(given.access_token);
  t.equal((await exchange(given.delegation_token)).status, 400, 'the delegation has ended');

  const unlinked = (await delegate('profile:read')).access_token;
  t.equal((await me(unlinked)).status, 200);
  const ended = await app.request('DELETE', '/api/user/agent-account', { token: ada.accessToken });
  t.match(ended.body.data, { connectedAt: null });
  t.equal(errorOf(await me(unlinked)), 'ACCOUNT_NOT_CONNECTED', 'with the next request');
  t.equal((await app.request('DELETE', '/api/user/agent-account', { token: ada.accessToken })).status, 200);
  await link(ada);
  t.equal((await me(unlinked)).status, 200);

  await idp.admin('POST', `/v1/principals/${agent.sub}/disable`);
  await refused(unlinked);
  await idp.admin('POST', `/v1/principals/${agent.sub}/enable`);
  const last = (await delegate('profile:read')).access_token;
  t.equal((await me(last)).status, 200);
  await idp.admin('POST', `/v1/principals/${human.sub}/disable`);
  await refused(last);
});

t.test(
  'no other token of the identity provider opens the API, and none of the API opens the provider',
  async (t) => {
    const { idp, client, agent, browser, delegate, me, signUp, link } = await agentWorld(t);
    const ada = await signUp();
    await link(ada);
    const page = await browser.open(
      (await idp.listen()) + authorizePath(client, { scope: 'openid profile' }),
    );
    const code = codeIn((await browser.submit(page, { decision: 'allow' })).location);
    const { access_token: opaqueToken, id_token: idToken } = (await idp.redeem(client, code)).body;
    const own = await idp.request('POST', '/token', {
      form: search({
        ...{ grant_type: 'client_credentials', resource: API, scope: 'profile:read', client_id: agent.sub },
        ...asserted(
          await assertion(agent.key, {
            clientId: agent.sub,
            issuer: idp.server.fastify.idp.issuer(),
            now: idp.clock.now(),
          }),
        ),
      }),
    });
    const given = await delegate('profile:read');
    const files = (await delegate('files:read', { resource: FILES })).access_token;
    const wrong = {
      'opaque access token': opaqueToken,
      id_token: idToken,
      'access token for another API': files,
      'delegation token': given.delegation_token,
    };
    for (const [name, token] of Object.entries(wrong)) {
      t.equal(typeof token, 'string', name);
      t.match(await me(token), { status: 401, body: { error: { code: 'UNAUTHENTICATED' } } }, name);
    }
    t.equal(own.status, 200, own.text);
    t.equal(errorOf(await me(own.body.access_token)), 'ACCOUNT_NOT_CONNECTED', 'an agent alone');
    t.equal((await idp.userinfo(ada.accessToken)).status, 401);
  },
);

t.test('a person who uses an application without an agent acts with its scopes, and no actor', async (t) => {
  const { idp, client, browser, me, signUp, link, call } = await agentWorld(t);
  const ada = await signUp();
  await link(ada);
  const request = { resource: API, scope: 'profile:read' };
  const page = await browser.open((await idp.listen()) + authorizePath(client, request));
  const code = codeIn((await browser.submit(page, { decision: 'allow' })).location);
  const token = (await idp.redeem(client, code)).body.access_token;
  t.match((await me(token)).body.data, {
    user: { id: ada.id },
    session: null,
    actor: null,
    client: client.id,
    scopes: ['profile:read'],
  });
  t.equal(errorOf(await call(token, '/api/auth/sessions')), 'FORBIDDEN', 'it is no session');
});

t.test('a connection belongs to the browser, the application and the user who confirm it', async (t) => {
  const { app, human, begin, signInAt, finish, ticketFor, connect, signUp, idp } = await agentWorld(t, {
    accessTokenTtl: 3600,
  });
  const begun = await begin();
  t.equal(begun.answer.status, 303);
  t.match(Object.fromEntries(new URL(begun.url).searchParams), {
    ...{ scope: 'openid', response_type: 'code', code_challenge_method: 'S256', prompt: 'select_account' },
    ...{ state: /./, nonce: /./, redirect_uri: `${API}/auth/agents/callback` },
  });
  const callback = await signInAt(begun.url, human);
  t.equal((await finish(callback, '')).status, 400, 'another browser');
  t.equal((await finish(callback, (await begin()).cookie)).status, 400, 'another connection');
  const forged = new URL(callback);
  forged.searchParams.set('code', 'forged');
  t.match((await finish(forged, begun.cookie)).headers['location'], /agents\?error=connection_failed$/);
  for (const returnTo of ['https://evil.test/', '//evil.test/'])
    t.equal((await begin({ returnTo })).answer.status, 400, returnTo);

  const ada = await signUp();
  const ticket = await ticketFor(human);
  t.equal(errorOf(await connect(ada, ticket, 'w'.repeat(43))), 'INVALID_TICKET', 'another application');
  t.equal(errorOf(await connect(ada, begun.cookie.split('=')[1] ?? '')), 'INVALID_TICKET', 'a cookie');
  t.equal(errorOf(await connect(await app.signUp(), ticket)), 'EMAIL_NOT_VERIFIED');
  app.clock.advance(9 * MINUTE);
  const uses = await Promise.all(Array.from({ length: 5 }, () => connect(ada, ticket)));
  t.same(
    uses.map((answer) => errorOf(answer) ?? 'connected').sort(),
    [...Array(4).fill('INVALID_TICKET'), 'connected'],
    'a ticket is used once',
  );
  const spare = await ticketFor(human);
  t.equal(errorOf(await connect(await signUp(), spare)), 'AGENT_ACCOUNT_TAKEN');
  t.equal((await connect(ada, spare)).status, 200, 'a repetition is no error');
  const other = await idp.makeHuman();
  t.equal(errorOf(await connect(ada, await ticketFor(other))), 'ALREADY_CONNECTED');
  app.clock.advance(10 * MINUTE);
  t.match(await connect(ada, await ticketFor(human)), {
    status: 401,
    body: { error: { code: 'REAUTHENTICATION_REQUIRED' } },
  });
});

t.test('the owner reads about a connection in a mail, the export and the audit', async (t) => {
  const mails = await mailSink(t);
  const { app, human, issuer, signUp, link } = await agentWorld(t, {
    emailSmtpUrl: mails.url,
  });
  const told: object[] = [];
  for (const name of ['agents.connected', 'agents.disconnected'] as const)
    app.server.fastify.saas.events.on(name, ({ userId, issuer }) => void told.push({ name, userId, issuer }));
  const ada = await signUp();
  await app.listen();
  await link(ada);
  const isMailed = (subject: RegExp) =>
    mails.mails.some((mail) => subject.test(readMail(mail).headers['subject'] ?? ''));
  await waitUntil('the mail', () => isMailed(sentence('mail.agents-connected.subject')));
  const exported = (await app.request('GET', '/api/user/export', { token: ada.accessToken })).body.data;
  t.match(exported.agentAccounts, [{ issuer, subject: human.sub, connectedAt: /^2/ }]);
  await app.request('DELETE', '/api/user/agent-account', { token: ada.accessToken });
  await waitUntil('the mail', () => isMailed(sentence('mail.agents-disconnected.subject')));
  t.same(told, [
    { name: 'agents.connected', userId: ada.id, issuer },
    { name: 'agents.disconnected', userId: ada.id, issuer },
  ]);
  const records = (await auditOf(await storeOf(t, app))).filter(({ event }) => event.startsWith('agents.'));
  t.match(records, [{ event: 'agents.connected' }, { event: 'agents.disconnected' }]);
});
