import t, { type Test } from 'tap';
import type { OrganizationApi } from '../../../src/saas/organizations/host-api.js';
import { ADMIN, auditOf, errorOf, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { place } from '../organizations/kit.js';
import { follow, submit, textOf } from './kit.js';

/** Organizations in the admin area. */

async function office(t: Test) {
  const app = await place(t);
  const [olga, adam] = [await app.person('olga'), await app.person('adam')];
  const { id } = await app.organize(olga);
  const api = app.server.fastify.saas.organizations as OrganizationApi;
  const get = (path: string) => app.admin('GET', `/admin/api/organizations${path}`);
  const act = (path: string, body: object = {}) =>
    app.request('POST', `/admin/api/organizations/${path}`, { headers: ADMIN, body, from: '203.0.113.9' });
  const roles = async () =>
    Object.fromEntries(
      (await api.members(id)).members.map(({ email, role }) => [email.replace(/@.*/, ''), role]),
    );
  return { app, id, olga, adam, api, get, act, roles };
}

t.test('the operator finds organizations by any part of their names and slugs, and by ID', async (t) => {
  const { app, id, olga, get, api, act } = await office(t);
  for (const name of ['Analysis', 'Ärzte ohne Namen', 'The Analytical One'])
    await api.create(olga.id, { name });
  const found = async (q: string) => {
    const { status, body } = await get(`?q=${encodeURIComponent(q)}`);
    t.equal(status, 200, q);
    return body.data.items.map(({ name }: { name: string }) => name).sort();
  };
  t.same(await found('an'), [], 'of at least three characters');
  t.same(await found('anal'), ['Analysis', 'Analytical Engines', 'The Analytical One']);
  t.same(await found('ÄRZTE'), ['Ärzte ohne Namen']);
  t.same(await found('the-analytical-one'), ['The Analytical One']);
  t.same(await found(id), ['Analytical Engines']);
  for (const none of ['nothing', '%', '_', "'", '\u{10ffff}', 'org_', '__proto__', '[object]'])
    t.same(await found(none), []);
  t.equal((await get('?q=%00')).status, 400);
  t.equal((await get('')).body.data.items.length, 4);
  t.equal((await act(`${id}/rename`, { name: 'Engines' })).status, 200);
  t.same(await found('analytical e'), [], 'by the present name');
  t.same(await found('eng'), ['Engines']);
  t.match(await textOf(app, '/admin/organizations'), /href="[^"]*organizations\/org_/);
  t.match(await textOf(app, '/admin/organizations?q=eng'), 'Engines');
});

t.test('the page of an organization has what is stored about it, with links', async (t) => {
  const { app, id, olga, adam, act } = await office(t);
  await app.join(olga, id, adam);
  await olga.call('POST', `/organizations/${id}/invitations`, { email: 'new@example.test' });
  await act(`${id}/grant`, { plan: 'pro' });
  const tab = (name: string) => textOf(app, `/admin/organizations/${id}?tab=${name}`);
  const summary = await textOf(app, `/admin/organizations/${id}`);
  for (const shown of ['2, of which 1 is an owner', 'granted by an operator, without an end'])
    t.match(summary, shown, shown);
  t.match(await tab('open-invitations'), 'new@example.test');
  t.match(await tab('audit'), 'organization.joined');
  const page = await tab('members');
  t.match(page, `href="../users/${adam.id}"`);
  t.match(page, `href="../organizations/${id}/members/${adam.id}/role"`);
  t.match(
    await textOf(app, `/admin/organizations/${id}/members`),
    `organizations/${id}/members/${adam.id}/remove"`,
    'so do all members',
  );
  const user = await textOf(app, `/admin/users/${adam.id}?tab=organizations`);
  t.match(user, `href="../organizations/${id}"`, 'the page of a user leads to the organization');
  const records = await textOf(app, `/admin/audit?q=${id}`);
  for (const event of ['organization.created', 'organization.joined', 'plan.granted'])
    t.match(records, event);
  t.notMatch(records, 'user.registered', 'and no record about something else');
  t.equal((await app.admin('GET', '/admin/organizations/org_none')).status, 404);
  t.equal((await app.admin('GET', '/admin/api/organizations/org_none/members')).status, 404);
  t.match((await app.admin('GET', `/admin/api/organizations/${id}/members`)).body.data.items, [
    { email: olga.email, role: 'owner' },
    { email: adam.email, role: 'member' },
  ]);
});

t.test('the operator adds members, gives a stuck organization an owner, and leaves records', async (t) => {
  const { app, id, olga, adam, act, roles } = await office(t);
  t.equal(
    errorOf(await act(`${id}/add-member`, { user: 'nobody@example.test', role: 'member' })),
    'VALIDATION_ERROR',
  );
  t.equal(errorOf(await act(`${id}/add-member`, { user: adam.id, role: 'emperor' })), 'VALIDATION_ERROR');
  t.equal((await act(`${id}/add-member`, { user: adam.email, role: 'member' })).status, 200);
  t.equal(errorOf(await act(`${id}/add-member`, { user: adam.id, role: 'member' })), 'ALREADY_MEMBER');
  const ofOlga = `${id}/members/${olga.id}`;
  t.equal(errorOf(await act(`${ofOlga}/remove`)), 'LAST_OWNER', 'an organization always has an owner');
  t.equal(errorOf(await act(`${ofOlga}/role`, { role: 'admin' })), 'LAST_OWNER');
  t.equal((await act(`${id}/members/${adam.id}/role`, { role: 'owner' })).status, 200);
  t.same(await roles(), { olga: 'owner', adam: 'owner' });
  t.equal((await act(`${ofOlga}/remove`)).status, 200);
  t.same(await roles(), { adam: 'owner' });
  t.equal(errorOf(await act(`${ofOlga}/remove`)), 'NOT_FOUND');
  const records = (await auditOf(await storeOf(t, app))).filter(({ by }) => by !== undefined);
  t.same(
    records.map(({ event, by, ip, subject }) => ({ event, by, ip, subject })),
    [
      { event: 'organization.member_added', subject: adam.id },
      { event: 'organization.member_updated', subject: adam.id },
      { event: 'organization.member_removed', subject: olga.id },
    ].map((one) => ({ ...one, by: SECRETS.adminUsername, ip: '203.0.113.9' })),
  );
});

t.test('the operator renames, grants plans and deletes, in pages as well', async (t) => {
  const { app, id, olga, act, get } = await office(t);
  const page = `/admin/organizations/${id}`;
  const renamed = await submit(app, `${page}/rename`, { name: 'Engines', slug: 'engines' });
  t.match((await follow(app, `${page}/rename`, renamed)).text, 'The organization was renamed.');
  t.match((await get(`/${id}`)).body.data, { name: 'Engines', slug: 'engines', state: 'active' });
  t.equal(errorOf(await act(`${id}/rename`, { name: 'Engines', slug: 'admin' })), 'SLUG_TAKEN');
  t.equal((await act(`${id}/grant`, { plan: 'pro' })).status, 200);
  t.match((await olga.call('GET', `/organizations/${id}`)).body.data.organization.subscription, {
    ...{ plan: 'pro', entitled: true },
  });
  t.equal((await act(`${id}/revoke-grant`)).status, 200);
  t.equal((await get(`/${id}`)).body.data.granted, null);
  const refused = await submit(app, `${page}/delete`, { confirm: 'another' });
  t.match([refused.status, refused.text], [400, /must be Engines/]);
  const deleted = await submit(app, `${page}/delete`, { confirm: 'Engines' });
  t.match((await follow(app, `${page}/delete`, deleted)).text, 'The organization was deleted.');
  t.equal((await get(`/${id}`)).status, 404);
  const closed = (await auditOf(await storeOf(t, app))).find(({ event }) => event === 'organization.closed');
  t.match(closed, { by: SECRETS.adminUsername, detail: id });
});

t.test('without organizations the admin area has none of this', async (t) => {
  const app = await saasApp(t);
  const { id } = await app.signUp({ email: 'ada@example.test' });
  for (const path of ['/admin/organizations', '/admin/api/organizations'])
    t.equal((await app.admin('GET', path)).status, 404, path);
  t.notMatch(await textOf(app, '/admin'), /organizations/i);
  t.notMatch(await textOf(app, `/admin/users/${id}`), /organizations/i);
});
