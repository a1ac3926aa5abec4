import t from 'tap';
import { keyed } from './kit.js';

/** Which key may call which route. */

const KINDS = [
  'person',
  'user key',
  'organization key',
  'key of a member',
  'narrow key',
  'expired',
  'unknown',
];

type Row = Record<(typeof KINDS)[number], string>;

/** The outcomes of a person, their key, and keys of the organization of an admin and of a member. */
const row = (
  person: string,
  own: string,
  ofAdmin: string,
  ofMember: string,
  narrow = 'INSUFFICIENT_SCOPE',
): Row => ({
  ...{
    person,
    'user key': own,
    'organization key': ofAdmin,
    'key of a member': ofMember,
    'narrow key': narrow,
  },
  ...{ expired: 'UNAUTHENTICATED', unknown: 'UNAUTHENTICATED' },
});
const forPeople = (person = 'ok') => row(person, 'FORBIDDEN', 'FORBIDDEN', 'FORBIDDEN', 'FORBIDDEN');
const NONE = 'ORGANIZATION_REQUIRED';
const HIDDEN = 'ORGANIZATION_NOT_FOUND';

const ROUTES: Record<string, Row> = {
  'GET /files': row('ok', 'ok', 'FORBIDDEN', 'FORBIDDEN'),
  'GET /people': forPeople(),
  'GET /recent': forPeople(),
  'GET /mine': row('FORBIDDEN', 'FORBIDDEN', 'FORBIDDEN', 'FORBIDDEN'),
  'GET /both': row(NONE, NONE, 'FORBIDDEN', 'FORBIDDEN'),
  // Which organization: none is named, their own, another one of the same people.
  'GET /team': row(NONE, NONE, 'ok', 'ok'),
  'GET /team OURS': row('ok', 'ok', 'ok', 'ok'),
  'GET /team OTHER': row('ok', 'ok', HIDDEN, HIDDEN),
  'GET /ours/team': row('ok', 'ok', 'ok', 'ok'),
  'GET /other/team': row('ok', 'ok', HIDDEN, HIDDEN),
  'GET /foreign/team': row(HIDDEN, HIDDEN, HIDDEN, HIDDEN),
  'GET /team-people OURS': forPeople(),
  'GET /ours': row(NONE, NONE, 'FORBIDDEN', 'FORBIDDEN'),
  // The role of the responsible member is the ceiling.
  'GET /admins OURS': row('ok', 'ok', 'ok', 'ROLE_REQUIRED'),
  'GET /projects OURS': row('ok', 'ok', 'ok', 'ROLE_REQUIRED'),
  // Our own routes.
  'GET /api/user/profile': row('ok', 'ok', 'FORBIDDEN', 'FORBIDDEN', 'ok'),
  'GET /api/auth/me': row('ok', 'ok', 'FORBIDDEN', 'FORBIDDEN', 'ok'),
  'GET /api/billing/subscription': row('ok', 'ok', 'ok', 'ROLE_REQUIRED'),
  'GET /api/billing/usage OURS': row('ok', 'ok', 'ok', 'ROLE_REQUIRED'),
  'GET /api/billing/usage OTHER': row('ok', 'ok', HIDDEN, HIDDEN),
  'GET /api/billing/purchases FOREIGN': row(HIDDEN, HIDDEN, HIDDEN, HIDDEN),
  'POST /api/billing/subscription/pause': row('FORBIDDEN', 'FORBIDDEN', 'FORBIDDEN', 'ROLE_REQUIRED'),
  'POST /api/billing/create-portal-session': forPeople('BILLING_NOT_CONFIGURED'),
  'GET /api/auth/sessions': forPeople(),
  'GET /api/user/export': forPeople(),
  'PATCH /api/user/profile': forPeople('VALIDATION_ERROR'),
  'GET /api/organizations': forPeople(),
  'GET /api/organizations/ours/members': forPeople(),
  'GET /api/user/keys': forPeople(),
  'POST /api/user/keys': forPeople('VALIDATION_ERROR'),
  'POST /api/user/keys/key_1/rotate': forPeople('NOT_FOUND'),
  'DELETE /api/user/keys/key_1': forPeople('NOT_FOUND'),
  'GET /api/organizations/ours/keys': forPeople(),
  'POST /api/organizations/ours/keys': forPeople('VALIDATION_ERROR'),
  'POST /api/organizations/ours/keys/key_1/rotate': forPeople('NOT_FOUND'),
  'DELETE /api/organizations/ours/keys/key_1': forPeople('NOT_FOUND'),
};

t.test(
  'each kind of key calls the routes that its scope, its owner and the role permit, and no other',
  async (t) => {
    const app = await keyed(t, {
      organizationRoles: {
        member: ['projects:read', 'keys:manage'],
        admin: ['projects:read', 'projects:write', 'billing:manage'],
      },
    });
    const [eve, admin, bob] = [await app.person('eve'), await app.person('ada'), await app.person('bob')];
    const make = async (slug: string) =>
      (await eve.call('POST', '/organizations', { name: slug, slug })).body.data.organization.id as string;
    const [ours, other, foreign] = [await make('ours'), await make('other'), await make('foreign')];
    for (const id of [ours, other]) {
      await app.host.saas.organizations?.addMember(id, admin.id, 'admin');
      await app.host.saas.organizations?.addMember(id, bob.id, 'member');
    }
    const day = new Date(app.clock.now() + 86_400_000).toISOString();
    const credentials: Record<string, string> = {
      person: admin.accessToken,
      'user key': (await app.create(admin)).secret,
      'organization key': (await app.create(admin, {}, ours)).secret,
      'key of a member': (await app.create(bob, {}, ours)).secret,
      'narrow key': (await app.create(admin, { scopes: ['profile:read'] })).secret,
      expired: (await app.create(admin, { expiresAt: day })).secret,
      unknown: `sk_${'x'.repeat(43)}`,
    };
    app.clock.advance(86_400_000);
    credentials['person'] = (
      await app.post('/auth/login', { email: admin.email, password: admin.password })
    ).body.data.accessToken;
    for (const [name, expected] of Object.entries(ROUTES)) {
      const [method, path, named] = name.split(' ');
      const organization = { OURS: 'ours', OTHER: other, FOREIGN: foreign }[named ?? ''];
      for (const kind of KINDS) {
        const headers = organization === undefined ? {} : { 'x-organization': organization };
        const answer = await app.send(credentials[kind] ?? '', `${method} ${path}`, headers);
        t.equal(answer.code ?? 'ok', expected[kind], `${kind}: ${name}`);
      }
    }
  },
);
