import t from 'tap';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { addGroups, groupsIn } from '../../kit/groups.js';
import {
  ADMIN_TOKEN,
  type Credentials,
  claimsOf,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
} from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { linksIn } from '../provisioning/kit.js';

/** Groups and their members. */

const INVITE_TOKEN = 'invite-only-9JdK3vXw7QbLr2ZsTn5Gh8';

/** The claim of a sign-in with the scope groups. */
async function groupsOf(idp: IdpApp, who: Credentials): Promise<string[] | undefined> {
  const client = await idp.createClient();
  const code = await idp.codeFor(client, who, { scope: 'openid groups' });
  return claimsOf((await idp.redeem(client, code)).body.id_token).groups;
}

/** A person who has accepted an invitation, whose address is verified in a trusted domain. */
async function invited(idp: IdpApp, handle: string): Promise<Credentials> {
  const { body } = await idp.request('POST', '/v1/invites', {
    token: ADMIN_TOKEN,
    body: { handle },
  });
  const accepted = await idp.request('POST', body.invite_url.slice(ISSUER.length), {
    body: { password: PASSWORD },
  });
  return { sub: accepted.body.sub, handle: accepted.body.handle, password: PASSWORD };
}

t.test('the administrator adds groups and members and removes them, each with an audit record', async (t) => {
  const idp = await idpApp(t);
  const [ada, agent] = [await idp.makeHuman(), await idp.mintAgent()];
  t.same((await idp.admin('GET', '/v1/groups')).body, { groups: [], next: null });
  const added = await idp.admin('POST', '/v1/groups', { name: 'admins', description: 'May do everything' });
  t.match(added, { status: 201, body: { name: 'admins', description: 'May do everything' } });
  for (const member of [ada.sub, agent.sub, '@Example.org', ada.sub])
    t.equal((await idp.admin('POST', '/v1/groups/admins/members', { member })).status, 204, 'twice is once');
  const { members } = (await idp.admin('GET', '/v1/groups/admins/members')).body;
  t.same(
    members.map(({ handle, kind }: Record<string, string>) => [handle, kind]),
    [
      ['@example.org', 'domain'],
      [agent.handle, 'agent'],
      [ada.handle, 'human'],
    ],
  );
  t.same(await groupsOf(idp, ada), ['admins'], 'known at once in the process that has added it');
  t.equal((await idp.admin('DELETE', `/v1/groups/admins/members/${ada.sub}`)).status, 204);
  t.equal((await idp.admin('DELETE', `/v1/groups/admins/members/${ada.sub}`)).status, 404);
  t.same(await groupsOf(idp, ada), [], 'a member of none gets an empty list');
  t.same(await groupsOf(idp, agent), ['admins']);
  t.equal((await idp.admin('DELETE', '/v1/groups/admins')).status, 204);
  t.equal((await idp.admin('GET', '/v1/groups/admins/members')).status, 404);
  await idp.admin('POST', '/v1/groups', { name: 'admins' });
  t.same(
    await groupsOf(idp, agent),
    [],
    'a new group of the same name has none of the members of the old one',
  );
  const events = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event.startsWith('group.'));
  t.same(
    events.map(({ event, subject, detail }) => [event, subject ?? null, detail]),
    [
      ['group.added', null, 'admins'],
      ['group.member_added', ada.sub, 'admins'],
      ['group.member_added', agent.sub, 'admins'],
      ['group.member_added', null, 'admins @example.org'],
      ['group.member_removed', ada.sub, 'admins'],
      ['group.removed', null, 'admins, members: 2'],
      ['group.added', null, 'admins'],
    ],
  );
});

t.test('a name that could be read as another one, or as several, is refused', async (t) => {
  const idp = await idpApp(t);
  const wrong = [
    ...[
      '',
      'Admins',
      'a b',
      'a,b',
      'a=b',
      'a\nb',
      'a\u0000',
      'a;b',
      'a"b',
      'a\\b',
      'аdmins',
      'ａ',
      '-a',
      '.a',
    ],
    ...['a/b', 'a\u202eb', 'a'.repeat(65), 'constructor\u200b'],
  ];
  for (const name of wrong)
    t.match(await idp.admin('POST', '/v1/groups', { name }), { status: 400 }, JSON.stringify(name));
  for (const description of ['a\nb', ' ', 'x'.repeat(201)])
    t.equal((await idp.admin('POST', '/v1/groups', { name: 'a', description })).status, 400);
  for (const name of ['constructor', '__proto__'.slice(2), 'a'.repeat(64), 'team:dev', 'ops@example.com'])
    t.equal((await idp.admin('POST', '/v1/groups', { name })).status, 201, name);
  t.match((await idp.admin('POST', '/v1/groups', { name: 'team:dev' })).body.details, [
    { path: 'name', message: 'is the name of a group already' },
  ]);
  const members = ['u_0', `u_${'0'.repeat(32)}`, 'ada', '__proto__'];
  for (const member of members)
    t.equal((await idp.admin('POST', '/v1/groups/team:dev/members', { member })).status, 404, member);
  for (const member of ['@', '@com', '@*.example.com', '@a@example.com', '@example.com:25', '@127.0.0.1'])
    t.equal((await idp.admin('POST', '/v1/groups/team:dev/members', { member })).status, 400, member);
  for (const group of ['other', 'Admins', '__proto__', 'a%00b'])
    t.equal((await idp.admin('POST', `/v1/groups/${group}/members`, { member: '@example.com' })).status, 404);
});

t.test('who may only administer cannot change groups if invitations have a token of their own', async (t) => {
  const idp = await idpApp(t, { adminToken: ADMIN_TOKEN, inviteToken: INVITE_TOKEN });
  const ada = await idp.makeHuman();
  await addGroups(t, idp, { admins: [ada.sub] });
  const attempts: [method: string, path: string, body?: object][] = [
    ['POST', '/v1/groups', { name: 'other' }],
    ['DELETE', '/v1/groups/admins'],
    ['POST', '/v1/groups/admins/members', { member: (await idp.mintAgent()).sub }],
    ['DELETE', `/v1/groups/admins/members/${ada.sub}`],
  ];
  for (const [method, path, body] of attempts) {
    t.equal((await idp.admin(method, path, body)).status, 401, `${method} ${path}`);
    t.equal((await idp.request(method, path, { body })).status, 401, 'without a token');
  }
  t.equal((await idp.admin('GET', '/v1/groups/admins/members')).body.members.length, 1, 'it reads them');
  const given = { token: INVITE_TOKEN, body: { name: 'other' } };
  t.equal((await idp.request('POST', '/v1/groups', given)).status, 201);
});

t.test('people join by the domain of a verified address; agents and unverified people do not', async (t) => {
  const idp = await idpApp(t, { trustedEmailDomains: ['example.com', 'münchen.example'] });
  await addGroups(t, idp, {
    staff: ['@example.com', '@xn--mnchen-3ya.example'],
    foreign: ['@other.example'],
  });
  const register = async (handle: string, kind: string): Promise<Credentials> => {
    const { sub } = (
      await idp.request('POST', '/v1/accounts', { body: { handle, kind, password: PASSWORD } })
    ).body;
    return { sub, handle, password: PASSWORD };
  };
  const table: [who: Credentials, groups: string[]][] = [
    [await invited(idp, 'ada@example.com'), ['staff']],
    [await invited(idp, 'bob@münchen.example'), ['staff']],
    [await invited(idp, 'eve@other.example'), []],
    [await invited(idp, 'eve@sub.example.com'), []],
    [await invited(idp, 'eve@example.com.evil.test'), []],
    [await invited(idp, 'example.com'), []],
    [await invited(idp, '@example.com'), []],
    [await register('self@example.com', 'human'), []],
    [await register('bot@example.com', 'agent'), []],
    [await idp.mintAgent({ handle: 'minted@example.com' }), []],
  ];
  for (const [who, groups] of table) t.same(await groupsOf(idp, who), groups, who.handle);
  // As after the link that was mailed to the address.
  const [self] = table[7] ?? [];
  const people = principalCollection(await idpStore(t, idp));
  await people.updateOne({ id: self?.sub ?? '' }, { set: { emailVerifiedAt: idp.clock.now() } });
  t.same(await groupsOf(idp, self as Credentials), ['staff']);
  const bot = table[8]?.[0] as Credentials;
  await people.updateOne({ id: bot.sub }, { set: { emailVerifiedAt: idp.clock.now() } });
  t.same(await groupsOf(idp, bot), [], 'an agent never joins by domain');
});

t.test(
  'a member is in at most 50 groups, and a domain in at most 10, so that the claim is never cut',
  async (t) => {
    const idp = await idpApp(t, { trustedEmailDomains: ['example.com'] });
    const ada = await invited(idp, 'ada@example.com');
    const names = Array.from({ length: 61 }, (_, index) => `group-${String(index).padStart(2, '0')}`);
    const groups = await addGroups(t, idp, Object.fromEntries(names.map((name) => [name, []])));
    const add = (name: string, member: string) =>
      idp.admin('POST', `/v1/groups/${name}/members`, { member }).then(({ status }) => status);
    for (const name of names.slice(0, 50)) t.equal(await add(name, ada.sub), 204);
    t.equal(await add('group-50', ada.sub), 400, 'refused by name, not cut');
    t.equal(await add('group-00', ada.sub), 204, 'it is a member there');
    for (const name of names.slice(50, 60)) t.equal(await add(name, '@example.com'), 204);
    t.equal(await add('group-60', '@example.com'), 400);
    t.same(await groupsOf(idp, ada), names.slice(0, 60));
    await groups.remove('group-00', COMMAND_SOURCE);
    t.equal(await add('group-60', ada.sub), 204);
  },
);

t.test('a deleted principal leaves its groups; a disabled one keeps them', async (t) => {
  const idp = await idpApp(t);
  const agent = await idp.mintAgent();
  const groups = await addGroups(t, idp, { admins: [agent.sub] });
  for (const change of ['disable', 'enable'])
    await idp.admin('POST', `/v1/principals/${agent.sub}/${change}`);
  t.same(await groupsOf(idp, agent), ['admins']);
  await idp.admin('DELETE', `/v1/agents/${agent.sub}`);
  t.same((await groups.members('admins')).items, []);
  t.equal((await idp.admin('POST', '/v1/groups/admins/members', { member: agent.sub })).status, 404);
});

t.test('an invitation gives its groups when it is accepted, and none if it is withdrawn', async (t) => {
  const idp = await idpApp(t);
  const groups = await addGroups(t, idp, { admins: [], staff: [] });
  const invite = (body: object) => idp.admin('POST', '/v1/invites', { handle: 'ada@example.com', ...body });
  const membersOf = async (name: string) => (await groups.members(name)).items.map(({ handle }) => handle);
  for (const wrong of [['other'], ['admins', 'other'], ['Admins'], [''], 'admins', Array(51).fill('x')])
    t.equal((await invite({ groups: wrong })).status, 400, JSON.stringify(wrong).slice(0, 40));
  t.same(
    (await idp.admin('GET', '/v1/principals?prefix=ada')).body.principals,
    [],
    'a refused one invites nobody',
  );
  t.equal((await invite({ groups: ['admins'] })).status, 201);
  t.same(await membersOf('admins'), ['ada@example.com']);
  const [{ sub }] = (await idp.admin('GET', '/v1/principals?prefix=ada')).body.principals;
  const [store, ada] = [await idpStore(t, idp), { handle: 'ada@example.com', password: PASSWORD, sub }];
  const links = linksIn(store, idp, groupsIn(store, idp));
  t.equal(
    (await idp.authorize(await idp.createClient(), ada)).status,
    401,
    'an invited person cannot sign in',
  );
  const { url } = await links.invite({ handle: ada.handle, groups: ['staff'] }, COMMAND_SOURCE);
  t.same(await membersOf('staff'), [ada.handle], 'a second invitation adds to the first');
  await idp.request('POST', new URL(url).pathname, { body: { password: PASSWORD } });
  t.same(await groupsOf(idp, ada), ['admins', 'staff']);
  const many = Array.from({ length: 49 }, (_, index) => `group-${index}`);
  for (const name of many) await groups.add({ name }, COMMAND_SOURCE);
  t.equal((await invite({ handle: 'max@example.com', groups: ['admins', ...many] })).status, 201);
  const over = await invite({ handle: 'max@example.com', groups: ['staff'] });
  t.match(over.body.details, [{ path: 'groups', message: 'must be at most 50 groups' }]);
  t.equal(await links.withdraw(sub, COMMAND_SOURCE), false);
  t.same(await groupsOf(idp, ada), ['admins', 'staff'], 'an accepted invitation cannot be withdrawn');

  await idp.admin('POST', '/v1/invites', { handle: 'eve@example.com', groups: ['admins'] });
  const [eve] = (await idp.admin('GET', '/v1/principals?prefix=eve')).body.principals;
  t.equal(await links.withdraw(eve.sub, COMMAND_SOURCE), true);
  t.same(await membersOf('admins'), [ada.handle, 'max@example.com']);
});

t.test(
  'of 20 requests that add a member while the group is removed, none leaves a member of a group',
  async (t) => {
    const idp = await idpApp(t);
    const [store, ada] = [await idpStore(t, idp), await idp.makeHuman()];
    const groups = groupsIn(store, idp);
    await groups.add({ name: 'admins' }, COMMAND_SOURCE);
    const member = { member: ada.sub, handle: ada.handle, kind: 'human' } as const;
    const adding = Array.from({ length: 20 }, () => groups.addMember('admins', member, COMMAND_SOURCE));
    await Promise.allSettled([
      ...adding.slice(0, 10),
      groups.remove('admins', COMMAND_SOURCE),
      ...adding.slice(10),
    ]);
    await groups.add({ name: 'admins' }, COMMAND_SOURCE);
    idp.clock.advance(1000);
    t.same(await groupsOf(idp, ada), []);
  },
);
