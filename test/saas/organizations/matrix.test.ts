import t from 'tap';
import { routeRules } from '../../../src/core/http/routes.js';
import { createServer } from '../../../src/saas/server.js';
import { errorOf, testOptions } from '../../kit/app.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { type Person, place } from './kit.js';

/** Who may do what: every route for every role, and every change of a role for every role. */

/** Of the application, and what they permit by the documentation. */
const GIVEN = {
  admin: ['projects:write', 'projects:read'],
  member: ['projects:read'],
  accountant: ['billing:manage'],
  recruiter: ['members:manage', 'projects:read'],
  guest: [],
  // All that owners have, but for what concerns owners.
  deputy: [
    'organization:update',
    'members:manage',
    'keys:manage',
    'billing:manage',
    'projects:write',
    'projects:read',
  ],
};
const PERMITTED: Record<string, readonly string[]> = {
  ...GIVEN,
  admin: [...GIVEN.admin, 'organization:update', 'members:manage', 'keys:manage'],
};
const ROLES = ['owner', ...Object.keys(GIVEN)];

const permits = (role: string, permission: string): boolean =>
  role === 'owner' || (PERMITTED[role]?.includes(permission) ?? false);
/** Whether nobody gains by a change that one role makes of another. */
const covers = (role: string, other: string): boolean =>
  role === 'owner' || (other !== 'owner' && (PERMITTED[other] ?? []).every((one) => permits(role, one)));

const STRANGERS = ['none', 'other', 'anonymous'];

interface Cell {
  organization: string;
  /** A member with the role `member`, who is in no other cell. */
  target: string;
  /** The open invitation of the person without an organization. */
  invitation: string;
}

interface Row {
  /** The roles that may; `everyone` with an account. */
  who: readonly string[] | 'everyone';
  body?: (cell: Cell) => object;
  /** For persons who are not in the organization; 404 if absent. */
  refusal?: string;
}

const managers = ROLES.filter((role) => permits(role, 'members:manage'));
const ROUTES: Record<string, Row> = {
  'GET /organizations': { who: 'everyone' },
  'POST /organizations': { who: 'everyone', body: () => ({ name: 'New' }) },
  'POST /organizations/active': { who: ROLES, body: ({ organization }) => ({ organization }) },
  'GET /organizations/:organization': { who: ROLES },
  'PATCH /organizations/:organization': {
    who: ROLES.filter((role) => permits(role, 'organization:update')),
    body: () => ({ name: 'Renamed' }),
  },
  'DELETE /organizations/:organization': { who: ['owner'] },
  'GET /organizations/:organization/members': { who: ROLES },
  'PATCH /organizations/:organization/members/:userId': {
    who: managers.filter((role) => covers(role, 'recruiter')),
    body: () => ({ role: 'recruiter' }),
  },
  'DELETE /organizations/:organization/members/:userId': { who: managers },
  'POST /organizations/:organization/transfer': {
    who: ['owner'],
    body: ({ target }) => ({ userId: target }),
  },
  'GET /organizations/:organization/invitations': { who: managers },
  'POST /organizations/:organization/invitations': {
    who: managers,
    body: () => ({ email: 'new@example.test' }),
  },
  'DELETE /organizations/:organization/invitations/:id': { who: managers },
  'GET /user/invitations': { who: 'everyone' },
  'POST /user/invitations/accept': {
    who: ['none'],
    body: ({ invitation }) => ({ id: invitation }),
    refusal: 'INVITATION_INVALID',
  },
};

/** A person of each role, each in every organization of `cell`, and strangers. */
async function people(t: Parameters<typeof place>[0]) {
  const app = await place(t, { organizationRoles: GIVEN });
  const named: Record<string, Person> = {};
  for (const name of [...ROLES, 'founder', 'target', 'none', 'other']) named[name] = await app.person(name);
  const { organizations } = app.server.fastify.saas;
  if (!organizations) throw new Error('organizations are enabled');
  const of = (name: string): Person => named[name] as Person;
  await organizations.create(of('other').id, { name: 'Theirs' });
  const cell = async (): Promise<Cell> => {
    const { id } = await organizations.create(of('founder').id, { name: 'Ours' });
    for (const role of ROLES) await organizations.addMember(id, of(role).id, role);
    await organizations.addMember(id, of('target').id);
    const { body } = await of('founder').call('POST', `/organizations/${id}/invitations`, {
      email: of('none').email,
    });
    return { organization: id, target: of('target').id, invitation: body.data.invitation.id };
  };
  /** What a refused request must not change. */
  const stateOf = async ({ organization }: Cell) => {
    const get = async (path: string) =>
      (await of('founder').call('GET', `/organizations/${organization}${path}`)).body;
    return [await get(''), await get('/members'), await get('/invitations')];
  };
  return { app, of, cell, stateOf, organizations };
}

t.test('every route of organizations is in the matrix', async (t) => {
  const server = createServer({ ...testOptions(temporaryFolder(t)), organizations: true });
  t.teardown(() => server.stop());
  const found: string[] = [];
  server.fastify.addHook('onRoute', ({ method, url, config }) => {
    if (!/^\/api\/(organizations|user\/invitations)/.test(url) || method === 'HEAD') return;
    t.match(routeRules({ config }).access, /^(recent-)?user$/, url);
    t.equal(routeRules({ config }).agentScope, undefined, 'people only');
    found.push(`${method} ${url.slice('/api'.length)}`);
  });
  await server.fastify.ready();
  t.same(found.sort(), Object.keys(ROUTES).sort());
});

t.test('each route admits the roles that it names, and refuses everyone else without a change', async (t) => {
  const { app, of, cell, stateOf } = await people(t);
  for (const [route, { who, body, refusal }] of Object.entries(ROUTES)) {
    for (const actor of [...ROLES, ...STRANGERS]) {
      const here = await cell();
      const [method = '', template = ''] = route.split(' ');
      const url = template
        .replace(':organization', here.organization)
        .replace(':userId', here.target)
        .replace(':id', here.invitation);
      const given = body?.(here);
      const before = await stateOf(here);
      const answer =
        actor === 'anonymous'
          ? await app.request(method, `/api${url}`, { ...(given && { body: given }) })
          : await of(actor).call(method, url, given);
      const isAdmitted = actor !== 'anonymous' && (who === 'everyone' || who.includes(actor));
      const expected = isAdmitted
        ? 'admitted'
        : actor === 'anonymous'
          ? 'UNAUTHENTICATED'
          : (refusal ?? (STRANGERS.includes(actor) ? 'ORGANIZATION_NOT_FOUND' : 'ROLE_REQUIRED'));
      const shown = answer.status < 300 ? 'admitted' : errorOf(answer);
      if (shown !== expected) t.equal(shown, expected, `${actor}: ${route}`);
      if (!isAdmitted) t.same(await stateOf(here), before, `${actor}: ${route}`);
    }
  }
});

t.test('nobody gives or takes a role that permits more than their own', async (t) => {
  const { of, cell, organizations } = await people(t);
  const { organization, target } = await cell();
  for (const actor of ROLES)
    for (const before of ROLES)
      for (const after of ROLES) {
        if (before === after) continue;
        await organizations.changeRole(organization, target, before);
        const path = `/organizations/${organization}/members/${target}`;
        const answer = await of(actor).call('PATCH', path, { role: after });
        const may = permits(actor, 'members:manage') && covers(actor, before) && covers(actor, after);
        const { members } = await organizations.members(organization);
        const role = members.find(({ userId }) => userId === target)?.role;
        t.match(
          { status: answer.status, role },
          may ? { status: 200, role: after } : { status: 403, role: before },
          `${actor}: ${before} → ${after}`,
        );
      }
});

t.test(
  'nobody invites with, or replaces or withdraws an invitation for, a role above their own',
  async (t) => {
    const { of, cell } = await people(t);
    const { organization } = await cell();
    const path = `/organizations/${organization}/invitations`;
    const invite = (by: string, role: string, email: string) => of(by).call('POST', path, { email, role });
    for (const actor of ROLES)
      for (const role of ROLES) {
        const may = permits(actor, 'members:manage') && covers(actor, role);
        const email = `${actor}-${role}@example.test`;
        const what = `${actor}: ${role}`;
        t.equal((await invite(actor, role, email)).status, may ? 201 : 403, what);
        const { id } = (await invite('owner', role, email)).body.data.invitation;
        if (permits(actor, 'members:manage'))
          t.equal((await invite(actor, 'member', email)).status, may ? 201 : 403, `${what}, replaced`);
        t.equal(
          (await of(actor).call('DELETE', `${path}/${id}`)).status,
          may ? 200 : 403,
          `${what}, withdrawn`,
        );
      }
  },
);
