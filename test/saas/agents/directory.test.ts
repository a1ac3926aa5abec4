import t from 'tap';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { resourceCollection } from '../../../src/idp/resources/store.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { identityCollection } from '../../../src/saas/login-providers/store.js';
import { resolveSaas } from '../../../src/saas/options.js';
import { ADMIN, auditOf, errorOf, PASSWORD, SECRETS } from '../../kit/app.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { type Hosted, hosted } from './directory-kit.js';

/** The people of an identity provider in the same process are the users. */

const usersOf = async ({ saasStore }: Hosted) =>
  (await userCollection(await saasStore()).page({ sort: 'id', limit: 100 })).items;

t.test('who has an account of the provider has one of the application', async (t) => {
  const world = await hosted(t);
  const { request, makePerson, signIn, me } = world;
  const ada = await makePerson('ada@example.test', { name: 'Ada' });
  t.same((await request('GET', '/api/auth/providers')).body.data.providers, [
    { name: 'directory', label: 'Single sign-on' },
  ]);
  const first = await signIn(ada);
  t.equal(first.status, 200, first.text);
  const { user, accessToken } = first.body.data;
  t.match(user, { email: ada.handle, name: 'Ada', emailVerified: true });
  t.match((await me(accessToken)).body.data, { user: { id: user.id }, session: { amr: ['fed'] } });
  t.equal((await signIn(ada)).body.data.user.id, user.id, 'the next sign-in is of the same user');

  const unconfirmed = await makePerson('eve@example.test', { verified: false });
  t.equal(errorOf(await signIn(unconfirmed)), 'PROVIDER_EMAIL_NOT_VERIFIED');
  t.equal((await usersOf(world)).length, 1);
});

t.test('an agent acts for a person as soon as the person has allowed it, without a connection', async (t) => {
  const world = await hosted(t, {
    routes: (app) => {
      const config = { agentScope: 'files:read' };
      app.get('/files', { onRequest: app.saas.requireUser, config }, async ({ saas }) => saas.user.email);
    },
  });
  const { api, request, makePerson, makeAgent, signIn, tokenFor, me } = world;
  const [ada, bob] = [await makePerson('ada@example.test'), await makePerson('bob@example.test')];
  const agent = await makeAgent('scout@agents.test');
  const user = (await signIn(ada)).body.data.user;
  const answer = await me(await tokenFor(ada, agent));
  t.match(answer, {
    status: 200,
    body: {
      data: {
        ...{ user: { id: user.id, email: ada.handle }, session: null, client: agent.sub },
        ...{ actor: { sub: agent.sub, delegation: /^dlg_/, via: [] }, scopes: ['profile:read'] },
      },
    },
  });
  const token = await tokenFor(bob, agent, 'profile:read files:read');
  t.equal((await usersOf(world)).length, 1);
  const files = await request('GET', '/files', { token });
  t.equal(files.text, bob.handle, 'a route of the application, for a person who has never opened it');
  const created = (await usersOf(world)).find(({ email }) => email === bob.handle);
  t.match(created, { email: bob.handle, emailVerified: true, passwordHash: undefined });
  t.equal((await me(token)).body.data.user.id, created?.id);
  t.equal((await signIn(bob)).body.data.user.id, created?.id, 'who later signs in to the same user');
  const events = (await auditOf(await world.saasStore())).filter(({ subject }) => subject === created?.id);
  t.match(
    events.map(({ event }) => event),
    ['user.registered', 'identity.connected', 'login.succeeded'],
  );

  t.equal((await request('GET', '/api/user/agent-account', { token })).status, 404, 'there is no connection');
  const metadata = await request('GET', '/.well-known/oauth-protected-resource/api');
  t.match(metadata.body, {
    ...{ resource: api, authorization_servers: [world.app.idp.issuer()] },
    scopes_supported: ['profile:read', 'billing:read', 'billing:write', 'files:read'],
  });
  const stored = await resourceCollection(world.store).findOne({ identifier: api });
  t.match(stored?.scopes.at(-1), { name: 'files:read', description: 'Read your files' });
});

t.test('without a delegation, nobody is created and nobody acts', async (t) => {
  const world = await hosted(t);
  const { api, request, makePerson, makeAgent, delegate, me } = world;
  await makePerson('ada@example.test');
  const agent = await makeAgent('scout@agents.test');
  const form = { grant_type: 'client_credentials', resource: api, scope: 'profile:read' };
  const credentials = Buffer.from(`${agent.sub}:${agent.password}`).toString('base64');
  const own = await request('POST', '/idp/token', {
    form,
    headers: { authorization: `Basic ${credentials}` },
  });
  t.equal(own.status, 200, own.text);
  t.equal(errorOf(await me(own.body.access_token)), 'ACCOUNT_NOT_CONNECTED', 'an agent alone');
  const other = await makeAgent('other@agents.test', false);
  const bob = await makePerson('bob@example.test');
  t.match((await delegate(bob, other)).location, /error=access_denied/, 'without a permission');
  t.same(await usersOf(world), []);
});

t.test('no user is taken over by the address', async (t) => {
  const world = await hosted(t);
  const { app, makePerson, makeAgent, signIn, tokenFor, me, post } = world;
  const agent = await makeAgent('scout@agents.test');
  const email = 'ada@example.test';
  const old = await app.saas.users.create({ email, password: PASSWORD, emailVerified: true });
  const ada = await makePerson(email);
  t.equal(errorOf(await signIn(ada)), 'ACCOUNT_EXISTS');
  const token = await tokenFor(ada, agent);
  const refused = await me(token);
  t.match(refused, { status: 403, body: { error: { code: 'ACCOUNT_NOT_CONNECTED' }, message: /Sign in/ } });
  const eve = await makePerson('eve@example.test', { verified: false });
  const unconfirmed = await me(await tokenFor(eve, agent));
  t.match(unconfirmed.body, { error: { code: 'ACCOUNT_NOT_CONNECTED' }, message: /confirmed/ });
  t.same(
    (await usersOf(world)).map(({ id }) => id),
    [old.id],
  );
  t.equal(await identityCollection(await world.saasStore()).count({}, 9), 0);

  // The owner of both connects them.
  const session = (await post('/auth/login', { email, password: PASSWORD })).body.data.accessToken;
  const connected = await world.connect(session, ada);
  t.equal(connected.status, 200, connected.text);
  t.equal((await me(token)).body.data.user.id, old.id);
  const identity = connected.body.data.id;
  const gone = await world.request('DELETE', `/api/user/identities/${identity}`, { token: session });
  t.equal(errorOf(gone), 'LAST_LOGIN_METHOD', 'who was connected stays, and ends with the person');
});

t.test('a person who is disabled at the provider is refused with the next request', async (t) => {
  const world = await hosted(t, { apiKeys: true });
  const { admin, makePerson, makeAgent, signIn, tokenFor, me, post, request } = world;
  const ada = await makePerson('ada@example.test');
  const agent = await makeAgent('scout@agents.test');
  const { user, accessToken, refreshToken } = (await signIn(ada)).body.data;
  const key = await post('/user/keys', { name: 'k', scopes: ['profile:read'] }, { token: accessToken });
  t.equal(key.status, 201, key.text);
  const token = await tokenFor(ada, agent);
  for (const one of [accessToken, token, key.body.data.secret]) t.equal((await me(one)).status, 200);

  await admin(`/principals/${ada.sub}/disable`);
  t.match(await me(accessToken), { status: 401, body: { error: { code: 'UNAUTHENTICATED' } } });
  t.equal((await me(token)).status >= 401, true);
  t.equal(errorOf(await me(key.body.data.secret)), 'ACCOUNT_SUSPENDED');
  t.equal((await post('/auth/refresh', { refreshToken })).status, 401);
  await world.app.saas.users.update({ id: user.id }, { password: PASSWORD });
  const login = await post('/auth/login', { email: ada.handle, password: PASSWORD });
  t.equal(errorOf(login), 'ACCOUNT_SUSPENDED', 'also with a password');

  await admin(`/principals/${ada.sub}/enable`);
  const again = await signIn(ada);
  t.equal(again.body.data.user.id, user.id);
  t.equal((await request('GET', '/api/auth/me', { token: again.body.data.accessToken })).status, 200);
});

t.test('who has deleted the account is not created again by an agent', async (t) => {
  const world = await hosted(t);
  const { app, makePerson, makeAgent, signIn, tokenFor, me, post } = world;
  const [ada, bob] = [await makePerson('ada@example.test'), await makePerson('bob@example.test')];
  const agent = await makeAgent('scout@agents.test');
  const token = await tokenFor(ada, agent);
  const { delegation } = (await me(token)).body.data.actor;
  t.match(await app.idp.findPerson(ada.sub, delegation), { email: ada.handle });
  t.equal(await app.idp.findPerson(bob.sub, delegation), null, 'it is that of one person');
  const { accessToken, user } = (await signIn(ada)).body.data;
  const deleted = await post('/user/delete', {}, { token: accessToken });
  t.equal(deleted.status, 200, deleted.text);
  const refused = await me(token);
  t.ok([401, 403].includes(refused.status), refused.text);
  t.equal(
    await app.idp.findPerson(ada.sub, delegation),
    null,
    'also before the list of revoked tokens is read',
  );
  t.same(await usersOf(world), []);
  t.equal((await me(accessToken)).status, 401);
  const back = await signIn(ada);
  t.equal(back.status, 200, 'the person may come back');
  t.not(back.body.data.user.id, user.id);
  t.ok([401, 403].includes((await me(token)).status), 'without the agents of before');
  t.equal((await me(await tokenFor(ada, agent))).status, 200);
});

t.test(
  'a person who has left the provider for good is refused, and the operator may delete the user',
  async (t) => {
    const world = await hosted(t);
    const { app, people, makePerson, makeAgent, signIn, tokenFor, me } = world;
    const [ada, agent] = [await makePerson('ada@example.test'), await makeAgent('scout@agents.test')];
    const { user, accessToken } = (await signIn(ada)).body.data;
    const token = await tokenFor(ada, agent);
    await people.updateOne({ id: ada.sub }, { set: { state: 'deleted' } });
    t.equal((await me(accessToken)).status, 401);
    t.ok([401, 403].includes((await me(token)).status));
    t.match(
      await usersOf(world),
      [{ id: user.id }],
      'what belongs to the user is kept until the operator deletes it',
    );
    await app.saas.users.delete({ id: user.id });
    t.same(await usersOf(world), []);
  },
);

t.test('another address at the provider changes nothing here', async (t) => {
  const world = await hosted(t);
  const { people, makePerson, makeAgent, signIn, tokenFor, me } = world;
  const [ada, agent] = [await makePerson('ada@example.test'), await makeAgent('scout@agents.test')];
  const { user, accessToken } = (await signIn(ada)).body.data;
  const token = await tokenFor(ada, agent);
  const email = 'lovelace@example.test';
  await people.updateOne({ id: ada.sub }, { set: { email }, unset: ['emailVerifiedAt'] });
  for (const one of [accessToken, token])
    t.match((await me(one)).body.data.user, { id: user.id, email: 'ada@example.test' });
  t.match(
    (await signIn(ada)).body.data.user,
    { id: user.id, email: 'ada@example.test' },
    'not even confirmed yet',
  );
  t.equal((await usersOf(world)).length, 1);
});

t.test('the operator of the application suspends and deletes users as before', async (t) => {
  const world = await hosted(t);
  const { app, request, makePerson, makeAgent, signIn, tokenFor, me } = world;
  const [ada, agent] = [await makePerson('ada@example.test'), await makeAgent('scout@agents.test')];
  const { user } = (await signIn(ada)).body.data;
  const token = await tokenFor(ada, agent);
  const admin = (action: string) =>
    request('POST', `/admin/api/users/${user.id}/${action}`, { headers: ADMIN, body: {} });
  t.equal((await admin('suspend')).status, 200);
  t.equal(errorOf(await me(token)), 'ACCOUNT_SUSPENDED');
  t.equal(errorOf(await signIn(ada)), 'ACCOUNT_SUSPENDED');
  await app.saas.users.delete({ id: user.id });
  t.ok([401, 403].includes((await me(token)).status), 'the agent does not create the user again');
  t.same(await usersOf(world), []);
  t.not((await signIn(ada)).body.data.user.id, user.id, 'the person is a new user');
});

t.test('an agent that registered itself gets nothing that every agent may do', async (t) => {
  const { api, permissions, request, makeAgent, makePerson, tokenFor, me } = await hosted(t);
  await permissions.allow('*', api, {}, COMMAND_SOURCE);
  const own = { handle: 'own@agents.test', password: PASSWORD, kind: 'agent' };
  const { sub } = (await request('POST', '/idp/v1/accounts', { body: own })).body;
  const ask = async (id: string, password: string) => {
    const form = { grant_type: 'client_credentials', resource: api, scope: 'profile:read' };
    const credentials = Buffer.from(`${id}:${password}`).toString('base64');
    return request('POST', '/idp/token', { form, headers: { authorization: `Basic ${credentials}` } });
  };
  t.match(await ask(sub, PASSWORD), { status: 400, body: { error_description: /has no permission/ } });
  const minted = await makeAgent('scout@agents.test', false);
  t.equal((await ask(minted.sub, minted.password)).status, 200);
  const ada = await makePerson('ada@example.test');
  t.equal((await me(await tokenFor(ada, minted))).status, 200, 'people who registered themselves do');
});

t.test('nobody registers with a password, and the operator may close registration', async (t) => {
  const world = await hosted(t, { accountPages: true });
  const { request, post, makePerson, makeAgent, signIn, tokenFor, me } = world;
  const email = 'ada@example.test';
  t.equal(errorOf(await post('/auth/register', { email, password: PASSWORD })), 'REGISTRATION_DISABLED');
  const page = await request('GET', '/account/sign-in');
  t.match(page.text, /Single sign-on/);
  t.notMatch(page.text, /\/account\/sign-up/);
  t.equal((await request('GET', '/account/sign-up')).status, 403);
  t.equal((await request('GET', '/account/agents')).status, 404);
  const ada = await makePerson(email);
  const token = await tokenFor(ada, await makeAgent('scout@agents.test'));
  const body = { allowRegistration: false, version: 0 };
  t.equal((await request('PATCH', '/admin/api/settings', { body, headers: ADMIN })).status, 200);
  t.equal(errorOf(await me(token)), 'REGISTRATION_DISABLED');
  t.equal(errorOf(await signIn(ada)), 'REGISTRATION_DISABLED');
});

t.test('fifty first requests create one user', async (t) => {
  const world = await hosted(t);
  const ada = await world.makePerson('ada@example.test');
  const agent = await world.makeAgent('scout@agents.test');
  const token = await world.tokenFor(ada, agent);
  // Also of another process, which registers the same application and client.
  const other = await hosted(t, { folder: world.folder, seed: 'other', publicUrl: world.origin });
  t.equal(await resourceCollection(world.store).count({}, 9), 1);
  t.equal(await clientCollection(world.store).count({}, 9), 1);
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, index) => (index % 2 ? world : other).me(token)),
  );
  t.same(
    [...new Set(answers.map(({ status }) => status))],
    [200],
    answers.find((one) => one.status !== 200)?.text ?? '',
  );
  t.equal(new Set(answers.map(({ body }) => body.data.user.id)).size, 1);
  t.equal((await usersOf(world)).length, 1);
  t.equal(await identityCollection(await world.saasStore()).count({}, 9), 1);
});

t.test('a directory that cannot be used prevents the start', async (t) => {
  const directory = {
    issuer: () => 'x',
    registerApplication: t.fail,
    findPerson: t.fail,
    endDelegations: t.fail,
  };
  const [agents, common] = [{ directory } as never, { env: false, ...SECRETS } as const];
  const agentIssuer = 'https://id.example.test';
  const login = { directory: { issuer: agentIssuer, clientId: 'x' } };
  t.ok(resolveSaas({ ...common, agents }));
  t.throws(() => resolveSaas({ ...common, agents: {} as never }), {
    message: /Register identityProvider before/,
  });
  for (const more of [{ agentIssuer, agentResource: agentIssuer, agentClientId: 'x' }, { login }])
    t.throws(() => resolveSaas({ ...common, agents, ...more }), { message: /The option agents replaces/ });
});
