import { createServer as createHttpServer } from 'node:http';
import express from 'express';
import t from 'tap';
import { createServer, type SaasRequest } from '../../../src/index.js';
import { parseJson, testOptions } from '../../kit/app.js';
import { listen } from '../../kit/listener.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { place, ROLES } from './kit.js';

/** Organizations in the code of an application: its guards without Fastify, and `fastify.saas.organizations`. */

t.test('Express and node:http: guards admit members by role and permission', async (t) => {
  const app = await place(t);
  const [ada, bob] = [await app.person('ada'), await app.person('bob')];
  const { id, slug } = await app.organize(ada);
  await app.join(ada, id, bob);
  const backend = createServer({
    ...testOptions(temporaryFolder(t)),
    ...{ databaseUri: app.databaseUri, clock: app.clock, middleware: true },
    ...{ organizations: true, organizationRoles: ROLES },
  });
  t.teardown(() => backend.stop());
  t.throws(() => backend.requirePermission('project:write'), /Did you mean 'projects:write'/);
  t.throws(() => backend.requireMember({ role: 'admn' }), /Did you mean 'admin'/);

  const site = express();
  site.use(backend.middleware);
  site.get(
    '/orgs/:organization/reports',
    backend.requirePermission('projects:write'),
    (request, response) => {
      response.json(request.saas.organization);
    },
  );
  const base = await listen(t, site);
  const write = backend.requirePermission('projects:write');
  const plain = createHttpServer((request: SaasRequest, response) => {
    write(request, response, () => response.end(JSON.stringify(request.saas?.organization)));
  });
  const bare = await listen(t, plain.listeners('request')[0] as never);
  const get = async (url: string, { accessToken }: { accessToken: string }, organization?: string) => {
    const headers = {
      authorization: `Bearer ${accessToken}`,
      ...(organization && { 'x-organization': organization }),
    };
    const response = await fetch(url, { headers });
    const body = parseJson(await response.text()) as Record<string, never> | undefined;
    return { status: response.status, body };
  };
  t.match(await get(`${base}/orgs/${slug}/reports`, ada), { status: 200, body: { id, role: 'owner' } });
  t.match(await get(`${base}/orgs/${id}/reports`, bob), {
    status: 403,
    body: { error: { code: 'ROLE_REQUIRED' } },
  });
  t.match(await get(`${base}/orgs/unknown/reports`, bob, id), { status: 404 }, 'the path decides');
  t.match(await get(bare, ada, id), { status: 200, body: { id, role: 'owner' } });
  t.match(await get(bare, ada), { status: 400, body: { error: { code: 'ORGANIZATION_REQUIRED' } } });
  t.match(await get(bare, bob, slug), { status: 403 });
  await app.server.fastify.saas.organizations?.removeMember(id, bob.id);
  t.match(await get(bare, bob, slug), { status: 404 }, 'at the next request, in another process');
});

t.test('the host manages organizations without a role', async (t) => {
  const { person, server } = await place(t, { organizationMaxMembers: 2, limits: true });
  const [ada, bob, cyd] = [await person('ada'), await person('bob'), await person('cyd')];
  const { organizations } = server.fastify.saas;
  if (!organizations) throw new Error('organizations are enabled');
  const rejects = (work: Promise<unknown>, code: string, what = code) => t.rejects(work, { code }, what);
  const { id } = await organizations.create(ada.id, { name: ' Engines ', slug: 'engines' });
  t.match(await organizations.get('engines'), { id, name: 'Engines', members: 1 });
  for (const given of [{ name: '' }, { name: 'a\nb' }, { name: 'x', slug: 'A b' }, { name: 'x', slug: 'ab' }])
    await rejects(organizations.create(ada.id, given), 'VALIDATION_ERROR', JSON.stringify(given));
  await rejects(organizations.create(ada.id, { name: 'x', slug: 'engines' }), 'SLUG_TAKEN');
  await rejects(organizations.create('usr_none', { name: 'x' }), 'NOT_FOUND');
  for (const named of ['org_none', 'none', '', '\0']) await rejects(organizations.get(named), 'NOT_FOUND');

  t.match(await organizations.addMember(id, bob.id), { email: bob.email, role: 'member' });
  await rejects(organizations.addMember(id, bob.id), 'ALREADY_MEMBER');
  await rejects(organizations.addMember(id, cyd.id), 'TOO_MANY_MEMBERS');
  await rejects(organizations.addMember(id, cyd.id, 'boss'), 'VALIDATION_ERROR');
  t.match(await organizations.changeRole(id, bob.id, 'admin'), { role: 'admin' });
  await rejects(organizations.changeRole(id, ada.id, 'member'), 'LAST_OWNER');
  await rejects(organizations.removeMember(id, ada.id), 'LAST_OWNER');
  const first = await organizations.members(id, { limit: 1 });
  const rest = await organizations.members(id, { limit: 1, after: first.next ?? '' });
  t.same([...first.members, ...rest.members].map(({ userId }) => userId).sort(), [ada.id, bob.id].sort());
  await organizations.removeMember('engines', bob.id);
  t.same(await organizations.listOf(bob.id), []);
  t.match(await organizations.listOf(ada.id), [{ id, role: 'owner' }]);

  // Users create 20 a day, the host as many as a user may have.
  for (let count = 1; count < 200; count++) await organizations.create(ada.id, { name: 'More' });
  await rejects(organizations.create(ada.id, { name: 'More' }), 'TOO_MANY_ORGANIZATIONS');
  t.equal((await ada.call('GET', '/organizations')).body.data.organizations.length, 200);
  await organizations.delete(id);
  await rejects(organizations.get(id), 'NOT_FOUND');
});
