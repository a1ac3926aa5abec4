import t, { type Test } from 'tap';
import { isRevoked, type RevocationList } from '../../../src/core/http/revocation-list.js';
import type { Terms } from '../../../src/idp/permissions/service.js';
import { subjectOfGroup } from '../../../src/idp/permissions/store.js';
import { basic, PASSWORD } from '../../kit/app.js';
import { delegationWorld } from '../../kit/delegations.js';
import { addGroups } from '../../kit/groups.js';
import { ADMIN_TOKEN, claimsOf, type IdpAppOptions, idpApp, search } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';

/** Which agents may do what at which APIs: nothing without a permission, in every grant. */

const INVITE_TOKEN = 'inviter-Wc5rNz8qKm2XvB7dLt4JhYp9';
const MINUTE = 60_000;

async function start(t: Test, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { limits: false, ...options });
  const files = await addResource(t, idp, FILES, { agents: false, admitsSelfRegistered: false });
  const agent = await idp.mintAgent();
  /** With the password of the agent. */
  const ask = (fields: Record<string, string> = {}, by = agent, remoteAddress?: string) =>
    idp.request('POST', '/token', {
      form: search({ grant_type: 'client_credentials', resource: FILES, ...fields }),
      headers: { authorization: basic(by.sub, by.password) },
      ...(remoteAddress && { from: remoteAddress }),
    });
  const allow = (terms: Terms = {}, subject = agent.sub) =>
    files.permissions.allow(subject, FILES, terms, COMMAND_SOURCE);
  const withdraw = async (subject = agent.sub) => {
    const done = await files.permissions.withdraw(subject, files, COMMAND_SOURCE);
    await files.settled();
    return done;
  };
  const isActive = async (token: string) => (await introspect(idp, files, token)).body.active;
  /** What an API does that verifies tokens itself. */
  const isListed = async (token: string) => {
    const { text } = await idp.request('GET', '/revocations');
    return isRevoked(claimsOf(token), (claimsOf(text) as { revoked: RevocationList }).revoked);
  };
  return { idp, files, agent, ask, allow, withdraw, isActive, isListed };
}

t.test('an agent gets what it has a permission for, and nothing without one', async (t) => {
  const { idp, agent, ask, allow } = await start(t);
  const client = await idp.createClient();
  const authorize = async (scope: string) => {
    const { headers } = await idp.authorize(client, agent, { resource: FILES, scope });
    return new URL(headers['location'] ?? '').searchParams.get('error');
  };
  t.match(await ask(), { status: 400, body: { error: 'invalid_target' } });
  t.equal(await authorize('files:read'), 'access_denied');

  await allow({ scopes: ['files:read'] });
  t.match(await ask(), { status: 200, body: { scope: 'files:read' } }, 'all that it may by default');
  t.match(await ask({ scope: 'files:read' }), { status: 200 });
  t.match(await ask({ scope: 'files:read files:write' }), { status: 400, body: { error: 'invalid_scope' } });
  t.equal(await authorize('files:read'), null);
  t.equal(await authorize('files:write'), 'access_denied');
  const other = await idp.mintAgent();
  t.match(await ask({}, other), { status: 400, body: { error: 'invalid_target' } }, 'another agent');
});

t.test('a person does not need one', async (t) => {
  const { idp } = await start(t);
  const client = await idp.createClient();
  const human = await idp.makeHuman();
  const open = 'https://open.example.test';
  await addResource(t, idp, open, { agents: false });
  const { headers } = await idp.authorize(client, human, { resource: open, scope: 'files:read' });
  t.ok(new URL(headers['location'] ?? '').searchParams.get('code'));
});

t.test('a permission has conditions', async (t) => {
  const { idp, ask, allow } = await start(t, { limits: true, trustProxy: ['127.0.0.1'] });
  const until = idp.clock.now() + MINUTE;
  await allow({ until });
  const { body } = await ask();
  t.equal(body.expires_in, 60, 'a token ends with it');
  idp.clock.advance(MINUTE);
  t.equal((await ask()).status, 400, 'it has ended');

  await allow({ networks: ['192.0.2.0/24', '2001:db8::7'] });
  const from = async (address: string) => (await ask({}, undefined, address)).status;
  t.same(
    await Promise.all(['192.0.2.7', '192.0.3.7', '2001:db8::7', '2001:db8::8'].map(from)),
    [200, 400, 200, 400],
  );

  await allow({ tokensPerHour: 2 });
  t.same([await from('192.0.2.1'), await from('192.0.2.2'), await from('192.0.2.3')], [200, 200, 429]);
  idp.clock.advance(60 * MINUTE);
  t.equal(await from('192.0.2.3'), 200);

  await allow({ delegatedOnly: true });
  t.equal(await from('192.0.2.1'), 400, 'not for itself');
});

t.test('terms that are not possible are refused', async (t) => {
  const { idp, allow } = await start(t);
  const cases: [Terms, string][] = [
    [{ scopes: ['files:delete'] }, 'scopes'],
    [{ until: idp.clock.now() }, 'until'],
    [{ networks: ['192.0.2.0/33'] }, 'networks'],
    [{ networks: ['example.com'] }, 'networks'],
    [{ tokensPerHour: 0 }, 'tokens_per_hour'],
  ];
  for (const [terms, path] of cases)
    await t.rejects(allow(terms), { code: 'VALIDATION_ERROR', details: [{ path }] }, path);
});

t.test('groups and every agent have permissions; who registered itself has none', async (t) => {
  const { idp, agent, ask, allow, withdraw } = await start(t);
  await addGroups(t, idp, { research: [agent.sub] });
  await allow({ scopes: ['files:read'] }, subjectOfGroup('research'));
  t.match(await ask(), { status: 200, body: { scope: 'files:read' } });
  await allow({ scopes: ['files:write'] });
  t.match(await ask(), { status: 200, body: { scope: 'files:read files:write' } }, 'both together');
  await withdraw();
  await withdraw(subjectOfGroup('research'));
  t.equal((await ask()).status, 400);

  await allow({}, '*');
  const own = { handle: 'own@example.test', password: PASSWORD };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body: own })).body;
  t.equal((await ask()).status, 200);
  t.equal((await ask({}, { ...own, sub })).status, 400);
  await allow({}, sub);
  t.equal((await ask({}, { ...own, sub })).status, 200, 'unless it is named');
});

t.test('tokens end with the permission, and with what it no longer allows', async (t) => {
  const { idp, files, agent, ask, allow, withdraw, isActive, isListed } = await start(t);
  const other = await idp.mintAgent();
  await addGroups(t, idp, { research: [other.sub] });
  await allow();
  await allow({}, subjectOfGroup('research'));
  const issue = async (by = agent) => (await ask({ scope: 'files:read' }, by)).body.access_token;
  const [first, others] = [await issue(), await issue(other)];
  await withdraw();
  t.same([await isActive(first), await isActive(others)], [false, true]);

  await allow({ scopes: ['files:read'] });
  idp.clock.advance(10_000);
  const second = await issue();
  await allow();
  await files.settled();
  t.same([await isActive(second), await isListed(second)], [true, false], 'more scopes');
  await allow({ scopes: ['files:write'] });
  await files.settled();
  t.same([await isActive(second), await isListed(second)], [false, true], 'fewer scopes');
  await withdraw(subjectOfGroup('research'));
  t.equal(await isActive(others), false, 'of a group');
  t.equal(await withdraw(subjectOfGroup('research')), false, 'there is none any more');
});

t.test('simultaneous changes leave one permission, or none', async (t) => {
  const { files, agent, allow, withdraw, ask } = await start(t);
  const either = [['files:read'], ['files:write']];
  await Promise.all(Array.from({ length: 50 }, (_, index) => allow({ scopes: either[index % 2] })));
  const { items } = await files.permissions.list({ subject: agent.sub });
  t.equal(items.length, 1);
  t.ok(
    either.some(([scope]) => scope === items[0]?.scopes.join()),
    'the terms of one of them',
  );
  t.equal(items[0]?.revision, 49, 'each change was of the one before');
  const done = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => (index % 2 ? withdraw() : allow().then(() => null))),
  );
  const left = (await files.permissions.list({ subject: agent.sub })).items.length;
  t.ok(left <= 1);
  t.ok(done.includes(true), 'at least one has ended it');
  t.equal((await ask()).status, left === 1 ? 200 : 400);
});

t.test('a resource that is registered again has no permissions', async (t) => {
  const { idp, files, ask, allow } = await start(t);
  await allow();
  await files.remove(FILES, COMMAND_SOURCE);
  t.same((await files.permissions.list()).items, [], 'none is left');
  await addResource(t, idp, FILES, { agents: false });
  t.match(await ask(), { status: 400, body: { error: 'invalid_target' } });
});

t.test('a delegation gives no more than the permission of its agent', async (t) => {
  const { idp, files, agent, ask, delegate, exchange } = await delegationWorld(t);
  await files.permissions.withdraw('*', files, COMMAND_SOURCE);
  idp.clock.advance(10_000);
  const grant = (terms: Terms) => files.permissions.allow(agent.sub, FILES, terms, COMMAND_SOURCE);
  t.match((await ask()).location, /error=access_denied/, 'without one');
  await grant({ scopes: ['files:read'], delegatedOnly: true });
  const { delegation_token: token, access_token: first } = await delegate();
  t.match(claimsOf(first), { scope: 'files:read', act: { sub: agent.sub } });
  const next = await exchange(token);
  t.equal(next.status, 200);
  await grant({ scopes: ['files:write'] });
  await files.settled();
  const { body } = await exchange(next.body.delegation_token);
  t.notOk('scope' in claimsOf(body.access_token), 'what the person allowed, and the permission no longer');
  await files.permissions.withdraw(agent.sub, files, COMMAND_SOURCE);
  t.match(await exchange(body.delegation_token), { status: 400, body: { error: 'invalid_target' } });
});

t.test('the administrator token reads permissions, and lets no agent in', async (t) => {
  const { idp, agent, ask, allow } = await start(t);
  const body = { agent: agent.sub, resource: FILES };
  t.equal((await idp.admin('PUT', '/v1/permissions', body)).status, 405, 'the route does not exist');
  await addGroups(t, idp, { research: [] });
  await allow({}, subjectOfGroup('research'));
  const join = await idp.admin('POST', '/v1/groups/research/members', { member: agent.sub });
  t.equal(join.status, 403);
  t.equal((await ask()).status, 400);
  const listed = await idp.admin('GET', '/v1/permissions');
  t.match(listed.body.permissions, [{ agent: 'group:research', resource: FILES, until: null }]);
});

t.test('who may invite people also lets agents in', async (t) => {
  const { idp, agent, ask } = await start(t, { inviteToken: INVITE_TOKEN });
  const call = (method: string, path: string, body?: object, token = INVITE_TOKEN) =>
    idp.request(method, path, { token, ...(body && { body }) });
  const given = { agent: agent.sub, resource: FILES, scopes: ['files:read'], tokens_per_hour: 5 };
  t.equal((await call('PUT', '/v1/permissions', given, ADMIN_TOKEN)).status, 401);
  t.equal((await call('PUT', '/v1/permissions', { ...given, agent: `u_${'0'.repeat(32)}` })).status, 400);
  t.match(await call('PUT', '/v1/permissions', given), { status: 200, body: { scopes: ['files:read'] } });
  t.equal((await ask()).status, 200);
  const query = search({ agent: agent.sub, resource: FILES });
  t.equal((await call('DELETE', `/v1/permissions?${query}`)).status, 204);
  t.equal((await call('DELETE', `/v1/permissions?${query}`)).status, 404);
  t.equal((await ask()).status, 400);
});
