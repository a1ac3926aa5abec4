import t from 'tap';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { basic } from '../../kit/app.js';
import { addGroups } from '../../kit/groups.js';
import {
  authorizePath,
  type Credentials,
  claimsOf,
  type IdpApp,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
} from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';

/** The claim `groups`: who sees which groups, in which tokens. */

const SCOPE = 'openid groups offline_access';

/** The tokens of a sign-in, and the claim where it is found. */
async function signIn(idp: IdpApp, client: RegisteredClient, who: Credentials, more: Parameters = {}) {
  const code = await idp.codeFor(client, who, { scope: SCOPE, ...more });
  const { body } = await idp.redeem(client, code);
  return { tokens: body, groups: body.id_token && claimsOf(body.id_token).groups };
}

t.test('groups are neither offered, asked for nor granted while there is none', async (t) => {
  const idp = await idpApp(t);
  const metadata = async () => (await idp.request('GET', '/.well-known/openid-configuration')).body;
  const [client, ada] = [await idp.createClient(), await idp.makeHuman()];
  const before = await metadata();
  t.notOk(before.scopes_supported.includes('groups'));
  t.notOk(before.claims_supported.includes('groups'));
  const unused = await signIn(idp, client, ada);
  t.equal(unused.groups, undefined);
  t.equal(unused.tokens.scope, 'openid offline_access', 'an unknown scope is ignored');
  const groups = await addGroups(t, idp, { admins: [ada.sub] });
  const used = await metadata();
  t.ok(used.scopes_supported.includes('groups'));
  t.ok(used.claims_supported.includes('groups'));
  t.same((await signIn(idp, client, ada)).groups, ['admins']);
  t.equal(
    (await signIn(idp, client, ada, { scope: 'openid profile email' })).groups,
    undefined,
    'without the scope',
  );
  const refreshed = (await idp.refresh(client, unused.tokens.refresh_token)).body;
  t.equal(claimsOf(refreshed.id_token).groups, undefined, 'what was granted before stays as it was');
  await groups.remove('admins', COMMAND_SOURCE);
  idp.clock.advance(1000);
  t.notOk((await metadata()).scopes_supported.includes('groups'));
});

t.test(
  'an application gets all groups, none, or some of them under its own names, in every token',
  async (t) => {
    const idp = await idpApp(t);
    const ada = await idp.makeHuman();
    await addGroups(t, idp, { admins: [ada.sub], staff: [ada.sub], secret: [ada.sub], other: [] });
    const table: [filter: string | undefined, groups: string[] | undefined][] = [
      [undefined, ['admins', 'secret', 'staff']],
      ['all', ['admins', 'secret', 'staff']],
      ['none', undefined],
      ['staff,other', ['staff']],
      [' admins = Grafana Admin , other=x', ['Grafana Admin']],
      ['admins=a=b,staff', ['a=b', 'staff']],
    ];
    for (const [filter, groups] of table) {
      const client = await idp.createClient(filter === undefined ? {} : { groups_claim: filter });
      const { tokens, ...first } = await signIn(idp, client, ada);
      t.same(first.groups, groups, `id_token: ${filter}`);
      t.equal(
        tokens.scope.includes('groups'),
        groups !== undefined,
        'a scope without a claim is not granted',
      );
      t.same((await idp.userinfo(tokens.access_token)).body.groups, groups, `userinfo: ${filter}`);
      const refreshed = (await idp.refresh(client, tokens.refresh_token)).body;
      t.same(claimsOf(refreshed.id_token).groups, groups, `refresh: ${filter}`);
    }
  },
);

t.test('a filter that names no group, or could add a claim or a name, is refused', async (t) => {
  const idp = await idpApp(t);
  await addGroups(t, idp, { admins: [] });
  const wrong = [
    ...[
      '',
      ',',
      'admins,',
      'unknown',
      'admins,unknown',
      'admins,admins',
      'Admins',
      '__proto__',
      'all,admins',
    ],
    ...['admins=', 'admins=a"b', 'admins=a\nb', 'admins=a\\b', 'admins=a;b', 'admins=é', 'admins=a\u0000'],
    ...[
      `admins=${'a'.repeat(65)}`,
      Array.from({ length: 201 }, (_, index) => `g${index}`).join(),
      'a'.repeat(9000),
    ],
  ];
  for (const filter of wrong) {
    const body = { name: 'App', redirect_uris: ['https://app.example.test/cb'], groups_claim: filter };
    t.equal((await idp.admin('POST', '/v1/clients', body)).status, 400, JSON.stringify(filter.slice(0, 40)));
  }
  const body = {
    name: 'App',
    redirect_uris: ['https://app.example.test/cb'],
    admitted_groups: ['admins', 'x'],
  };
  t.match((await idp.admin('POST', '/v1/clients', body)).body.details, [
    { path: 'admitted_groups', message: 'names groups that do not exist: x' },
  ]);
});

t.test('a name for a group replaces no other claim', async (t) => {
  const idp = await idpApp(t);
  const ada = await idp.makeHuman();
  await addGroups(t, idp, { sub: [ada.sub], iss: [ada.sub], constructor: [ada.sub] });
  const client = await idp.createClient({ groups_claim: 'sub=aud,iss=__proto__,constructor' });
  const { tokens, groups } = await signIn(idp, client, ada);
  t.same(groups, ['aud', '__proto__', 'constructor']);
  t.match(claimsOf(tokens.id_token), { sub: ada.sub, aud: client.id, iss: 'https://id.example.test' });
});

t.test('an application that registered itself sees no group', async (t) => {
  const idp = await idpApp(t);
  const ada = await idp.makeHuman();
  await addGroups(t, idp, { admins: [ada.sub] });
  const client = await idp.createClient();
  const clients = clientCollection(await idpStore(t, idp));
  await clients.updateOne({ id: client.id }, { set: { origin: 'dynamic' } });
  const { tokens, groups } = await signIn(idp, client, ada);
  t.same([groups, tokens.scope], [undefined, 'openid offline_access']);
  await clients.updateOne({ id: client.id }, { set: { groupsClaim: 'all' } });
  t.same((await signIn(idp, client, ada)).groups, ['admins'], 'unless the operator says so');
});

t.test(
  'a member that is added or removed counts from the next refresh on, and at once at /userinfo',
  async (t) => {
    const idp = await idpApp(t);
    const [client, ada] = [await idp.createClient(), await idp.makeHuman()];
    const groups = await addGroups(t, idp, { admins: [ada.sub], staff: [] });
    const { tokens } = await signIn(idp, client, ada);
    const member = { member: ada.sub, handle: ada.handle, kind: 'human' } as const;
    await groups.removeMember('admins', member, COMMAND_SOURCE);
    t.same((await idp.userinfo(tokens.access_token)).body.groups, []);
    await groups.addMember('staff', member, COMMAND_SOURCE);
    t.same(claimsOf((await idp.refresh(client, tokens.refresh_token)).body.id_token).groups, ['staff']);
  },
);

t.test('the page of a sign-in says that the application sees the groups', async (t) => {
  const idp = await idpApp(t, { publicUrl: undefined });
  const ada = await idp.makeHuman();
  await addGroups(t, idp, { admins: [ada.sub] });
  const { page, browser } = await idp.visit(await idp.createClient(), { scope: 'openid groups' });
  t.match(page.body, /your groups/);
  const other = await idp.createClient({ groups_claim: 'none' });
  const hidden = await browser.open((await idp.listen()) + authorizePath(other, { scope: 'openid groups' }));
  t.notMatch(hidden.body, /your groups/);
});

t.test(
  'an access token has the groups that its API is shown, unless the application may not see any',
  async (t) => {
    const idp = await idpApp(t);
    const [ada, agent] = [await idp.makeHuman(), await idp.mintAgent()];
    await addGroups(t, idp, { admins: [ada.sub, agent.sub], staff: [ada.sub] });
    const files = await addResource(t, idp, FILES, { groupsClaim: 'admins=ops' });
    const scope = 'openid groups files:read';
    const accessOf = async (client: RegisteredClient, more: Parameters) =>
      claimsOf((await signIn(idp, client, ada, { resource: FILES, ...more })).tokens.access_token).groups;
    const direct = async () => {
      const form = { grant_type: 'client_credentials', resource: FILES, scope: 'files:read' };
      const headers = { authorization: basic(agent.sub, agent.password) };
      return claimsOf((await idp.request('POST', '/token', { form, headers })).body.access_token).groups;
    };
    t.same(await accessOf(await idp.createClient(), { scope }), ['ops']);
    t.same(
      await accessOf(await idp.createClient({ groups_claim: 'staff' }), { scope }),
      ['ops'],
      'names of the API',
    );
    t.equal(
      await accessOf(await idp.createClient(), { scope: 'openid files:read' }),
      undefined,
      'without the scope',
    );
    t.equal(await accessOf(await idp.createClient({ groups_claim: 'none' }), { scope }), undefined);
    t.same(await direct(), ['ops'], 'an agent for itself');
    const client = await idp.createClient();
    const { tokens } = await signIn(idp, client, ada, { resource: FILES, scope });
    t.same((await introspect(idp, files, tokens.access_token)).body.groups, ['ops']);
    await files.update(FILES, { groupsClaim: 'none' }, COMMAND_SOURCE);
    t.equal(await accessOf(await idp.createClient(), { scope }), undefined);
    t.equal(await direct(), undefined);
    await t.rejects(files.update(FILES, { groupsClaim: 'unknown' }, COMMAND_SOURCE), {
      code: 'VALIDATION_ERROR',
    });
  },
);
