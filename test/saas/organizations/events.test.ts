import t from 'tap';
import { organizationCollections } from '../../../src/saas/organizations/store.js';
import { auditOf, saasApp, storeOf } from '../../kit/app.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { KEY, receiver } from '../webhooks/kit.js';
import { place } from './kit.js';

/** What is told and kept about organizations: events, audit, export, and the deletion of accounts. */

t.test('webhooks tell of every change, in IDs and roles', async (t) => {
  const hook = await receiver(t);
  const app = await place(t, { webhooks: true, settingsEncryptionKey: KEY });
  const names = ['created', 'updated', 'deleted', 'member_added', 'member_updated', 'member_removed'].map(
    (name) => `organization.${name}`,
  );
  await app.admin('POST', '/admin/api/endpoints/create', { url: hook.url, events: names.join(' ') });
  const [ada, bob] = [await app.person('ada'), await app.person('bob')];
  const { id: organizationId } = await app.organize(ada);
  await app.join(ada, organizationId, bob);
  const path = `/organizations/${organizationId}`;
  await ada.call('PATCH', path, { name: 'Renamed' });
  await ada.call('PATCH', `${path}/members/${bob.id}`, { role: 'admin' });
  await ada.call('POST', `${path}/transfer`, { userId: bob.id });
  await ada.call('DELETE', `${path}/members/${ada.id}`);
  await bob.call('DELETE', path);
  await waitUntil('all events', () => hook.received.length === 8);
  const member = (userId: string, role: string) => ({ organizationId, userId, role });
  const expected: [name: string, data: object][] = [
    ['created', { organizationId, userId: ada.id, organization: { name: 'Analytical Engines', members: 1 } }],
    ['deleted', { organizationId }],
    ['member_added', member(bob.id, 'member')],
    ['member_removed', { organizationId, userId: ada.id }],
    ['member_updated', member(ada.id, 'admin')],
    ['member_updated', member(bob.id, 'admin')],
    ['member_updated', member(bob.id, 'owner')],
    ['updated', { organizationId, organization: { name: 'Renamed', members: 2 } }],
  ];
  // Deliveries overtake each other.
  const order = ({ type, data }: (typeof hook.received)[number]['event']) =>
    `${type} ${data['userId'] === bob.id} ${data['role']}`;
  const told = hook.received.map(({ event }) => event).sort((a, b) => (order(a) < order(b) ? -1 : 1));
  t.match(
    told,
    expected.map(([name, data]) => ({ type: `organization.${name}`, data })),
  );
  t.notMatch(JSON.stringify(told), /example\.test/, 'no address');

  const events = (await auditOf(await storeOf(t, app))).map(({ event }) => event);
  for (const name of ['created', 'invited', 'joined', 'updated', 'transferred', 'left', 'closed', 'deleted'])
    t.ok(events.includes(`organization.${name}`), name);
});

t.test('the export and the deletion tell the truth, also while organizations are switched off', async (t) => {
  const folder = temporaryFolder(t);
  const app = await place(t, { folder });
  const [ada, bob, cyd] = [await app.person('ada'), await app.person('bob'), await app.person('cyd')];
  const [{ id }, alone] = [await app.organize(ada), await app.organize(ada, 'Alone')];
  await app.join(ada, id, bob, 'admin');
  await app.join(ada, id, cyd);
  t.match((await bob.call('GET', '/user/export')).body.data.organizations, [
    { id, name: 'Analytical Engines', role: 'admin', joinedAt: String },
  ]);
  t.equal((await ada.call('GET', '/user/export')).body.data.organizations.length, 2);

  const off = await saasApp(t, { folder, clock: app.clock });
  const { users } = off.server.fastify.saas;
  t.match((await off.request('GET', '/api/user/export', { token: bob.accessToken })).body.data, {
    organizations: [{ id, role: 'admin' }],
  });
  const refused = await off.post('/user/delete', { password: ada.password }, { token: ada.accessToken });
  t.match(refused.body, { error: { code: 'LAST_OWNER' } });
  await users.suspend({ id: bob.id });
  await users.delete({ id: ada.id });
  const { organizations, memberships } = organizationCollections(await storeOf(t, app));
  t.equal(await organizations.findOne({ id: alone.id }), null);
  t.match(await organizations.findOne({ id }), { owners: 1, members: 2 });
  const owner = await memberships.findOne({ organizationId: id, role: 'owner' });
  t.equal(owner?.userId, cyd.id, 'not the admin, who is suspended');
  await users.delete({ id: cyd.id });
  t.match(await memberships.findOne({ organizationId: id, role: 'owner' }), { userId: bob.id });
  await users.delete({ id: bob.id });
  t.same([await organizations.count(), await memberships.count()], [0, 0]);
});

t.test('an account can be deleted while the deletion of its organization is not complete', async (t) => {
  const app = await place(t);
  const [ada, bob] = [await app.person('ada'), await app.person('bob')];
  const { id } = await app.organize(ada);
  await app.join(ada, id, bob);
  const { organizations, memberships } = organizationCollections(await storeOf(t, app));
  // As after a failure of the payment provider.
  await organizations.changeOne({ id }, { set: { deletingAt: app.clock.now() } });
  for (const [method, path, body] of [
    ['GET', '', undefined],
    ['PATCH', `/members/${bob.id}`, { role: 'admin' }],
    ['DELETE', `/members/${bob.id}`, undefined],
  ] as const)
    t.equal((await ada.call(method, `/organizations/${id}${path}`, body)).status, 404);
  t.equal((await ada.call('POST', '/user/delete', { password: ada.password })).status, 200);
  t.equal((await bob.call('POST', '/user/delete', { password: bob.password })).status, 200);
  t.equal(await memberships.count(), 0);
});
