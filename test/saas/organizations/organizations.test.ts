import fastify from 'fastify';
import t from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { saasBackend } from '../../../src/index.js';
import { organizationCollections } from '../../../src/saas/organizations/store.js';
import { errorOf, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { saasPluginOptions } from '../../kit/host.js';
import { INVITED, place, ROLES } from './kit.js';

t.test('who creates an organization owns it, and others do not learn that it exists', async (t) => {
  const { person, organize } = await place(t);
  const [ada, eve] = [await person('ada'), await person('eve')];
  const created = await ada.call('POST', '/organizations', { name: 'Analytical Engines' });
  t.match(created.body.data.organization, {
    ...{ name: 'Analytical Engines', slug: 'analytical-engines', members: 1, role: 'owner', logoUrl: null },
    permissions: [
      'organization:update',
      'members:manage',
      'keys:manage',
      'billing:manage',
      'projects:write',
      'projects:read',
    ],
  });
  const other = await organize(ada);
  t.match(other.slug, /^analytical-engines-[a-z0-9]{6}$/, 'a slug of its own');
  t.equal(errorOf(await ada.call('POST', '/organizations', { name: 'x', slug: other.slug })), 'SLUG_TAKEN');
  t.match((await organize(ada, '工作')).slug, /^team-[a-z0-9]{6}$/, 'a name without Latin letters');

  for (const named of [other.id, other.slug, 'org_unknown', 'unknown']) {
    const answer = await eve.call('GET', `/organizations/${named}`);
    t.match([answer.status, errorOf(answer)], [404, 'ORGANIZATION_NOT_FOUND']);
    t.equal((await ada.call('GET', `/organizations/${named}`)).status, /unknown/.test(named) ? 404 : 200);
  }
  const changed = await ada.call('PATCH', `/organizations/${other.id}`, {
    slug: 'engines',
    logoUrl: 'https://example.com/logo.svg',
  });
  t.match(changed.body.data.organization, { slug: 'engines', logoUrl: 'https://example.com/logo.svg' });
  t.match((await ada.call('PATCH', '/organizations/engines', { logoUrl: null })).body.data.organization, {
    logoUrl: null,
  });
  for (const body of [
    ...[{}, { name: ' ' }, { name: 'a\nb' }, { slug: 'A' }, { slug: 'ab' }, { slug: 'ab-' }],
    ...['javascript:alert(1)', 'http://example.com/a', 'https://', 'https://a\0', 'https://a b', '//a'].map(
      (logoUrl) => ({ logoUrl }),
    ),
  ])
    t.equal((await ada.call('PATCH', '/organizations/engines', body)).status, 400, JSON.stringify(body));
  for (const slug of ['admin', 'settings']) {
    t.equal(errorOf(await ada.call('PATCH', '/organizations/engines', { slug })), 'SLUG_TAKEN', slug);
    t.equal(errorOf(await ada.call('POST', '/organizations', { name: 'x', slug })), 'SLUG_TAKEN', slug);
  }
  t.match((await organize(ada, 'Settings')).slug, /^settings-[a-z0-9]{6}$/, 'a reserved word');
  t.equal((await ada.call('GET', '/organizations/%00')).status, 400);
});

t.test('an invitation reaches people with and without an account, once', async (t) => {
  const app = await place(t);
  const { person, organize, mail, clock, request } = app;
  const ada = await person('ada');
  const { id } = await organize(ada);
  const invite = (email: string, role?: string) =>
    ada.call('POST', `/organizations/${id}/invitations`, { email, ...(role && { role }) });

  // Bob has no account yet.
  t.equal((await invite('Bob@Example.test', 'admin')).status, 201);
  const first = await mail(INVITED);
  t.same(first.to, ['bob@example.test']);
  t.match(first.text, /Analytical Engines[\s\S]*7 days/);
  t.equal((await invite('bob@example.test', 'admin')).status, 201, 'sent again');
  const { token } = await mail(INVITED);
  const eve = await person('eve');
  t.equal(errorOf(await eve.call('POST', '/user/invitations/accept', { token })), 'INVITATION_OF_OTHER');
  t.match((await eve.call('GET', '/user/invitations')).body.data, { invitations: [] });
  const bob = await app.signUp({ email: 'bob@example.test' });
  const accept = (body: object) =>
    request('POST', '/api/user/invitations/accept', { token: bob.accessToken, body });
  t.equal(errorOf(await accept({ token: first.token })), 'INVITATION_INVALID', 'the link before');
  const { body } = await ada.call('GET', `/organizations/${id}/invitations`);
  const [open] = body.data.invitations;
  t.match(body.data.invitations, [{ email: 'bob@example.test', role: 'admin' }]);
  t.equal(errorOf(await accept({ id: open.id })), 'INVITATION_INVALID', 'an address that is not confirmed');
  t.equal((await accept({})).status, 400);
  for (let times = 0; times < 2; times++) {
    const accepted = await accept({ token });
    t.match(accepted.body.data, { organization: { id, role: 'admin', members: 2 } }, 'the same again');
  }
  t.equal(errorOf(await invite('bob@example.test')), 'ALREADY_MEMBER');

  // Cyd has an account, and needs no link.
  const cyd = await person('cyd');
  t.equal((await invite(cyd.email)).status, 201);
  const { invitations } = (await cyd.call('GET', '/user/invitations')).body.data;
  t.match(invitations, [{ role: 'member', organization: { id, name: 'Analytical Engines' } }]);
  t.equal((await cyd.call('POST', '/user/invitations/accept', { id: invitations[0].id })).status, 200);
  t.equal((await cyd.call('DELETE', `/organizations/${id}/members/${cyd.id}`)).status, 200, 'leaves');
  const again = await cyd.call('POST', '/user/invitations/accept', { id: invitations[0].id });
  t.equal(errorOf(again), 'INVITATION_INVALID', 'a used invitation brings nobody back');

  // Withdrawn and expired ones.
  const dan = await person('dan');
  const withdrawn = (await invite(dan.email)).body.data.invitation.id;
  t.equal((await ada.call('DELETE', `/organizations/${id}/invitations/${withdrawn}`)).status, 200);
  t.equal(
    errorOf(await dan.call('POST', '/user/invitations/accept', { id: withdrawn })),
    'INVITATION_INVALID',
  );
  const late = (await invite(dan.email)).body.data.invitation.id;
  clock.advance(7 * DAY);
  const fresh = await request('POST', '/api/auth/login', {
    body: { email: dan.email, password: dan.password },
  });
  const answer = await request('POST', '/api/user/invitations/accept', {
    token: fresh.body.data.accessToken,
    body: { id: late },
  });
  t.equal(errorOf(answer), 'INVITATION_INVALID');
});

t.test('an invitation is worth as much as its sender', async (t) => {
  const { person, organize, join, mail } = await place(t);
  const [ada, bob, cyd] = [await person('ada'), await person('bob'), await person('cyd')];
  const { id } = await organize(ada);
  await join(ada, id, bob, 'admin');
  const invite = async (by: typeof ada) => {
    await by.call('POST', `/organizations/${id}/invitations`, { email: cyd.email });
    let one = await mail(INVITED);
    while (one.to[0] !== cyd.email) one = await mail(INVITED);
    return { token: one.token };
  };
  const accept = (given: object) => cyd.call('POST', '/user/invitations/accept', given);
  const given = await invite(bob);
  const received = async () =>
    (await cyd.call('GET', '/user/invitations')).body.data.invitations.map(
      ({ role }: { role: string }) => role,
    );
  t.same(await received(), ['member']);
  const change = (role: string) => ada.call('PATCH', `/organizations/${id}/members/${bob.id}`, { role });
  t.equal((await change('member')).status, 200);
  t.same(await received(), [], 'what cannot be accepted is not offered');
  t.equal(errorOf(await accept(given)), 'INVITATION_INVALID', 'who is no admin any more');
  await change('admin');
  await ada.call('DELETE', `/organizations/${id}/members/${bob.id}`);
  t.equal(errorOf(await accept(given)), 'INVITATION_INVALID', 'who has left');
  const again = await invite(ada);
  t.equal(errorOf(await accept(given)), 'INVITATION_INVALID', 'sent again by another member');
  t.equal((await accept(again)).status, 200);
});

t.test('who was added while an invitation was open uses it up', async (t) => {
  const { person, organize, server } = await place(t);
  const [ada, bob] = [await person('ada'), await person('bob')];
  const { id } = await organize(ada);
  const invited = await ada.call('POST', `/organizations/${id}/invitations`, {
    email: bob.email,
    role: 'admin',
  });
  await server.fastify.saas.organizations?.addMember(id, bob.id);
  const accept = () => bob.call('POST', '/user/invitations/accept', { id: invited.body.data.invitation.id });
  t.match((await accept()).body.data.organization, { role: 'member' }, 'the role stays');
  await bob.call('DELETE', `/organizations/${id}/members/${bob.id}`);
  t.equal(errorOf(await accept()), 'INVITATION_INVALID');
});

t.test('mails, organizations and slugs of a user are bounded', async (t) => {
  const { person, organize } = await place(t, { limits: true });
  const ada = await person('ada');
  const [first, second] = [await organize(ada), await organize(ada)];
  const invite = (id: string, email: string) =>
    ada.call('POST', `/organizations/${id}/invitations`, { email });
  for (let count = 0; count < 3; count++)
    t.equal((await invite(count % 2 ? first.id : second.id, 'victim@example.test')).status, 201);
  t.equal((await invite(first.id, 'victim@example.test')).status, 429, 'an address, from any organization');
  // Three of a hundred are used, and the refused one counts.
  for (let count = 4; count < 100; count++)
    t.equal((await invite(count % 2 ? first.id : second.id, `p${count}@example.test`)).status, 201);
  t.equal((await invite(first.id, 'last@example.test')).status, 429, 'a user, in all organizations');
  for (let count = 2; count < 20; count++) await organize(ada);
  t.equal((await ada.call('POST', '/organizations', { name: 'x' })).status, 429);
  const slug = (text: string) => ada.call('PATCH', `/organizations/${first.id}`, { slug: text });
  for (let count = 0; count < 20; count++) t.equal((await slug(`slug-${count}`)).status, 200);
  t.equal((await slug('slug-20')).status, 429);
});

t.test('only confirmed members invite, and nobody gives more than they have', async (t) => {
  const { person, organize, join, server } = await place(t);
  const [ada, bob, cyd] = [await person('ada'), await person('bob'), await person('cyd')];
  const { id } = await organize(ada);
  await join(ada, id, bob, 'admin');
  const invite = (by: typeof ada, role: string) =>
    by.call('POST', `/organizations/${id}/invitations`, { email: 'dan@example.test', role });
  t.equal((await invite(bob, 'member')).status, 201);
  t.equal(errorOf(await invite(bob, 'owner')), 'ROLE_REQUIRED');
  t.equal(errorOf(await invite(bob, 'accountant')), 'ROLE_REQUIRED', 'a permission that admins have not');
  t.equal((await invite(ada, 'boss')).status, 400, 'an unknown role');
  await join(bob, id, cyd);
  t.equal(errorOf(await invite(cyd, 'member')), 'ROLE_REQUIRED');
  const roleOf = (by: typeof ada, of: typeof ada, role: string) =>
    by.call('PATCH', `/organizations/${id}/members/${of.id}`, { role });
  t.equal(errorOf(await roleOf(bob, ada, 'member')), 'ROLE_REQUIRED');
  t.equal(errorOf(await roleOf(bob, bob, 'owner')), 'ROLE_REQUIRED');
  t.equal(errorOf(await roleOf(cyd, cyd, 'admin')), 'ROLE_REQUIRED');
  t.equal((await roleOf(bob, cyd, 'admin')).status, 200);
  t.equal(errorOf(await bob.call('DELETE', `/organizations/${id}/members/${ada.id}`)), 'ROLE_REQUIRED');
  t.equal(errorOf(await bob.call('DELETE', `/organizations/${id}`)), 'ROLE_REQUIRED');
  t.equal(
    errorOf(await bob.call('POST', `/organizations/${id}/transfer`, { userId: bob.id })),
    'ROLE_REQUIRED',
  );
  await server.fastify.saas.users.update({ id: bob.id }, { emailVerified: false });
  t.equal(errorOf(await invite(bob, 'member')), 'FORBIDDEN', 'whose address is not confirmed');
});

t.test('an organization always has an owner', async (t) => {
  const { person, organize, join } = await place(t);
  const [ada, bob] = [await person('ada'), await person('bob')];
  const { id } = await organize(ada);
  const remove = (by: typeof ada, of: typeof ada) =>
    by.call('DELETE', `/organizations/${id}/members/${of.id}`);
  t.equal(errorOf(await remove(ada, ada)), 'LAST_OWNER');
  await join(ada, id, bob, 'admin');
  const demote = await ada.call('PATCH', `/organizations/${id}/members/${ada.id}`, { role: 'member' });
  t.equal(errorOf(demote), 'LAST_OWNER');
  const leave = await ada.call('POST', '/user/delete', { password: ada.password });
  t.match([errorOf(leave), leave.body.message], ['LAST_OWNER', /only owner of Analytical Engines/]);
  t.equal((await ada.call('POST', `/organizations/${id}/transfer`, { userId: bob.id })).status, 200);
  const { members } = (await bob.call('GET', `/organizations/${id}/members`)).body.data;
  t.match(members, [
    { email: 'ada@example.test', role: 'admin' },
    { email: 'bob@example.test', role: 'owner' },
  ]);
  t.equal((await ada.call('POST', '/user/delete', { password: ada.password })).status, 200);
  t.match((await bob.call('GET', `/organizations/${id}`)).body.data.organization, { members: 1 });
});

t.test('the organization of a deleted account goes to an admin, or with it', async (t) => {
  const app = await place(t);
  const { person, organize, join, server } = app;
  const [ada, bob, cyd] = [await person('ada'), await person('bob'), await person('cyd')];
  const [shared, own] = [await organize(ada), await organize(ada, 'Alone')];
  await join(ada, shared.id, cyd);
  await join(ada, shared.id, bob, 'admin');
  await server.fastify.saas.users.delete({ id: ada.id });
  t.match((await bob.call('GET', `/organizations/${shared.id}`)).body.data.organization, {
    role: 'owner',
    members: 2,
  });
  const { organizations, memberships } = organizationCollections(await storeOf(t, app));
  t.equal(await organizations.findOne({ id: own.id }), null);
  t.equal(await memberships.count({ userId: ada.id }), 0);
});

t.test(
  'the active organization belongs to a session, and guards read it, a header or the path',
  async (t) => {
    const host = fastify();
    t.teardown(() => host.close());
    await host.register(saasBackend, {
      ...saasPluginOptions(t),
      organizations: true,
      organizationRoles: ROLES,
    });
    const { requirePermission, requireMember } = host.saas;
    host.get(
      '/projects',
      { onRequest: requirePermission('projects:read') },
      async ({ saas }) => saas.organization,
    );
    host.get('/orgs/:organization/admin', { onRequest: requireMember({ role: 'admin' }) }, async () => ({}));
    host.get(
      '/both',
      { onRequest: [requireMember(), host.saas.requireRecentAuth(), host.saas.requireUser] },
      async ({ saas }) => saas.organization,
    );
    t.throws(() => requirePermission('project:read'), /Did you mean 'projects:read'/);
    t.throws(() => requireMember({ role: 'admn' }), /Did you mean 'admin'/);
    t.throws(() => requireMember({ role: 'guest' }), /every member would be admitted/);
    const signUp = async (email: string) => {
      const body = { email, password: PASSWORD };
      const { data } = (await host.inject({ method: 'POST', url: '/api/auth/register', body })).json();
      await host.saas.users.update({ email }, { emailVerified: true });
      return async (method: 'GET' | 'POST' | 'DELETE', url: string, sent?: object, organization?: string) => {
        const headers = {
          authorization: `Bearer ${data.accessToken}`,
          ...(organization !== undefined && { 'x-organization': organization }),
        };
        const answer = await host.inject({ method, url, headers, ...(sent && { body: sent }) });
        const body = answer.json();
        // A route of the host answers as Fastify does.
        const code = body.error?.code ?? body.code;
        return { status: answer.statusCode, code, body, userId: data.user.id as string };
      };
    };
    const [ada, bob] = [await signUp('ada@example.test'), await signUp('bob@example.test')];
    const organize = async (who: typeof ada, name: string) =>
      (await who('POST', '/api/organizations', { name })).body.data.organization;
    const [first, second] = [await organize(ada, 'First'), await organize(bob, 'Second')];
    const choose = (who: typeof ada, organization: string) =>
      who('POST', '/api/organizations/active', { organization });

    t.equal((await ada('GET', '/projects')).code, 'ORGANIZATION_REQUIRED');
    t.match((await ada('GET', '/projects', undefined, first.slug)).body, { id: first.id, role: 'owner' });
    t.match((await ada('GET', '/both', undefined, first.slug)).body, { id: first.id }, 'before other guards');
    t.equal((await ada('GET', '/projects', undefined, second.id)).code, 'ORGANIZATION_NOT_FOUND');
    t.equal((await choose(ada, second.id)).code, 'ORGANIZATION_NOT_FOUND');
    t.equal((await choose(ada, first.slug)).status, 200);
    t.match((await ada('GET', '/projects')).body, { id: first.id, role: 'owner' });
    t.match((await ada('GET', '/api/organizations')).body.data, { active: first.id });

    const invited = await ada('POST', `/api/organizations/${first.id}/invitations`, {
      email: 'bob@example.test',
    });
    const joined = await bob('POST', '/api/user/invitations/accept', { id: invited.body.data.invitation.id });
    t.equal((await bob('GET', `/orgs/${first.id}/admin`)).code, 'ROLE_REQUIRED');
    t.equal(
      (await bob('GET', `/orgs/${second.id}/admin`, undefined, first.id)).status,
      200,
      'the path decides',
    );
    t.equal((await choose(bob, first.id)).status, 200);
    t.match((await bob('GET', '/projects')).body, { role: 'member', permissions: ['projects:read'] });
    t.equal((await ada('DELETE', `/api/organizations/${first.id}/members/${joined.userId}`)).status, 200);
    t.equal((await bob('GET', '/projects')).code, 'ORGANIZATION_REQUIRED', 'at the next request');
  },
);

t.test('a deleted organization is gone for its members', async (t) => {
  const app = await place(t);
  const { person, organize, join } = app;
  const [ada, bob] = [await person('ada'), await person('bob')];
  const { id } = await organize(ada);
  await join(ada, id, bob);
  await ada.call('POST', `/organizations/${id}/invitations`, { email: 'cyd@example.test' });
  t.equal((await ada.call('DELETE', `/organizations/${id}`)).status, 200);
  for (const one of [ada, bob]) t.same((await one.call('GET', '/organizations')).body.data.organizations, []);
  const { organizations, memberships, invitations } = organizationCollections(await storeOf(t, app));
  t.same([await organizations.count(), await memberships.count(), await invitations.count()], [0, 0, 0]);
});

t.test('without the option, nothing of it exists', async (t) => {
  const { signUp, request, server } = await saasApp(t);
  const { accessToken } = await signUp();
  t.equal((await request('GET', '/api/organizations', { token: accessToken })).status, 404);
  t.throws(() => server.fastify.saas.requireMember(), /option 'organizations'/);
});

t.test('simultaneous changes leave exactly one owner', async (t) => {
  const { person, organize, join } = await place(t);
  const [ada, bob] = [await person('ada'), await person('bob')];
  const { id } = await organize(ada);
  await join(ada, id, bob, 'owner');
  const leave = (who: typeof ada) => who.call('DELETE', `/organizations/${id}/members/${who.id}`);
  const answers = await Promise.all(Array.from({ length: 25 }, () => [leave(ada), leave(bob)]).flat());
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  const left = [ada, bob].map(async (who) => (await who.call('GET', `/organizations/${id}`)).status);
  t.same((await Promise.all(left)).toSorted(), [200, 404]);
});
