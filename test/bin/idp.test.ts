import { join } from 'node:path';
import t, { type Test } from 'tap';
import { sha256 } from '../../src/core/kernel/secrets.js';
import { clientCollection } from '../../src/idp/provisioning/store.js';
import { auditOf, basic, openAt, PASSWORD } from '../kit/app.js';
import { optionsIn, SoftwareAuthenticator } from '../kit/authenticator.js';
import { fakeClock } from '../kit/clock.js';
import { commandLine } from '../kit/command-line.js';
import { codeAt, FACTOR_KEY } from '../kit/factors.js';
import { claimsOf, idpApp, SEED, search } from '../kit/idp.js';
import { enterAccount, HERE, secretIn } from '../shared/account-pages/kit.js';

/** The commands of idp, as an operator runs them. */

/** A server and commands on one store. */
async function both(t: Test) {
  const probe = commandLine(t);
  const idp = await idpApp(t, {
    databaseUri: `sqlite:${join(probe.cwd, 'idp.db')}`,
    clock: fakeClock(Date.now()),
    publicUrl: 'http://localhost:8080',
  });
  const env = {
    IDP_DATABASE_URI: `sqlite:${join(probe.cwd, 'idp.db')}`,
    IDP_PUBLIC_URL: 'http://localhost:8080',
  };
  const typed: typeof probe.type = (args, { stdin, more } = {}) =>
    probe.type(args, { ...(stdin !== undefined && { stdin }), more: { ...env, ...more } });
  return { idp, type: typed, file: join(probe.cwd, 'idp.db'), cwd: probe.cwd };
}

t.test('clients: ES256 needs the key of the server', async (t) => {
  const { type } = await both(t);
  const create = ['client', 'create', 'https://app.example.test/cb', '--id-token-alg', 'ES256', '--json'];
  const IDP_ES256_KEY = 'c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721';
  t.match(await type(create), { code: 1, err: /IDP_ES256_KEY/ });
  t.match((await type(['client', 'list', '--json'])).json, { clients: [] });
  const made = (await type(create, { more: { IDP_ES256_KEY } })).json;
  t.equal(made.id_token_signed_response_alg, 'ES256');
  const update = (...options: string[]) => type(['client', 'update', made.client_id, ...options, '--json']);
  t.match((await update('--name', 'App')).json, { id_token_signed_response_alg: 'ES256' });
  t.notOk('id_token_signed_response_alg' in (await update('--id-token-alg', 'EdDSA')).json);
  t.match(await update('--id-token-alg', 'ES256'), { code: 1, err: /IDP_ES256_KEY/ });
});

t.test('agents are listed, and principals are deleted after their handle is confirmed', async (t) => {
  const { idp, type, file } = await both(t);
  const agent = await idp.mintAgent();
  const human = await idp.makeHuman();
  const handles = async (args: string[], name: string) =>
    (await type([...args, '--json'])).json[name].map(({ handle }: { handle: string }) => handle);
  t.same(await handles(['agent', 'list'], 'agents'), [agent.handle]);
  t.same(await handles(['agent', 'list', 'zz'], 'agents'), []);
  t.match(await type(['principal', 'delete', human.handle]), { code: 2, err: /no terminal .* --yes/ });
  t.match(await type(['principal', 'delete', 'nobody', '--yes']), { code: 1, err: /No principal/ });
  for (const { handle } of [agent, human]) {
    const remove = ['principal', 'delete', handle, '--yes', '--json'];
    t.match((await type(remove)).json, { handle, state: 'deleted' });
    t.match(await type(remove), { code: 1, err: /^{"error":.*deleted already/ });
  }
  const records = (await auditOf(await openAt(t, `sqlite:${file}`))).filter(
    ({ event }) => event === 'human.deleted',
  );
  t.match(records, [{ ip: 'cli' }]);
});

t.test('clients: every change to the trust in applications happens on the host', async (t) => {
  const { idp, type, file } = await both(t);
  const uris = 'https://app.example.test/cb,http://127.0.0.1/cb';
  const made = (await type(['client', 'create', uris, '--name', 'App', '--kinds', 'agent', '--json'])).json;
  t.match(made, {
    client_name: 'App',
    redirect_uris: uris.split(','),
    principal_kinds: ['agent'],
    trusted: false,
    client_secret: /^csec_/,
  });
  const client = {
    id: made.client_id,
    secret: made.client_secret,
    redirectUri: 'https://app.example.test/cb',
  };
  const agent = await idp.mintAgent();
  const human = await idp.makeHuman();
  t.match((await idp.authorize(client, human)).headers['location'], /error=access_denied/, 'agents only');
  const signIn = async (secret: string) =>
    (await idp.redeem({ ...client, secret }, await idp.codeFor(client, agent))).status;
  t.equal(await signIn(client.secret), 200);

  t.match(
    (await type(['client', 'update', client.id, '--kinds', 'both', '--trusted', 'yes', '--json'])).json,
    {
      trusted: true,
      client_name: 'App',
      principal_kinds: ['agent', 'human'],
    },
  );
  t.equal((await idp.authorize(client, human)).status, 302);
  t.match((await idp.admin('GET', '/v1/clients')).body.clients, [{ trusted: true }]);
  t.match((await type(['client', 'update', client.id, '--trusted', 'no', '--name', 'New', '--json'])).json, {
    trusted: false,
    client_name: 'New',
  });

  const store = await openAt(t, `sqlite:${file}`);
  const clients = clientCollection(store);
  const before = Date.now();
  const second = (await type(['client', 'rotate', client.id, '--json'])).json.client_secret;
  const after = Date.now();
  t.equal(await signIn(client.secret), 200, 'the old secret works');
  t.equal(await signIn(second), 200);
  const day = 24 * 3600 * 1000;
  const until = (await clients.findOne({ id: client.id }))?.previousSecretUntil ?? 0;
  t.ok(until >= before + day && until <= after + day, 'for a day');
  idp.clock.set(until);
  t.equal(await signIn(client.secret), 401, 'and not after it');
  const third = (await type(['client', 'rotate', client.id, '--at-once', '--json'])).json.client_secret;
  t.equal(await signIn(second), 401);
  t.equal(await signIn(third), 200);
  t.equal((await clients.findOne({ id: client.id }))?.secretHash, sha256(third));

  t.match(await type(['client', 'list']), { code: 0, out: new RegExp(`^${client.id}  New  https`) });
  t.equal((await type(['client', 'delete', client.id])).code, 0);
  t.equal((await idp.authorize(client, agent)).status, 400);
  t.match(await type(['client', 'delete', client.id]), { code: 1, err: /There is no client cid_/ });
  const open = await type(['client', 'create', 'com.example.app:/cb', '--public', '--json']);
  t.notOk('client_secret' in open.json);
  t.match(await type(['client', 'rotate', open.json.client_id]), { code: 1, err: /is public/ });

  t.match(await type(['client', 'create']), { code: 2, err: /redirect URIs are missing/ });
  const device = (await type(['client', 'create', '--device', '--public', '--json'])).json;
  const grant = 'urn:ietf:params:oauth:grant-type:device_code';
  t.match(device, { redirect_uris: [], grant_types: ['authorization_code', 'refresh_token', grant] });
  t.match(await type(['client', 'update', device.client_id, '--redirect-uris', ',']), { code: 0 });
  const ended = (await type(['client', 'update', device.client_id, '--device', 'no', '--json'])).json;
  t.notOk('grant_types' in ended);

  const records = (await auditOf(store)).filter(({ ip }) => ip === 'cli').map(({ event }) => event);
  t.same(records.sort(), [
    ...['client.created', 'client.created', 'client.created', 'client.deleted'],
    ...['client.rotated', 'client.rotated'],
    ...['client.updated', 'client.updated', 'client.updated', 'client.updated'],
  ]);
});

t.test('metadata: entries are set with their types and removed', async (t) => {
  const { idp, type } = await both(t);
  const ada = await idp.makeHuman({ handle: 'ada' });
  const update = (...args: string[]) => type(['principal', 'update', 'ada', ...args, '--json']);
  const set = ['--set', 'department=a=b:c', '--set', 'grade:number=-3', '--set', 'admin:boolean=false'];
  t.match((await update(...set, '--set', 'teams:list=core, web', '--set', 'zip=0123')).json.metadata, {
    ...{ department: 'a=b:c', grade: -3, admin: false, teams: ['core', 'web'], zip: '0123' },
  });
  t.match((await update('--set', 'constructor=x')).json.metadata, { constructor: 'x' });
  t.same(
    (await update('--unset', 'constructor', '--unset', 'teams', '--unset', 'zip', '--unset', 'other')).json
      .metadata,
    {
      ...{ department: 'a=b:c', grade: -3, admin: false },
    },
  );
  const refused: [string[], RegExp][] = [
    [['--set', 'grade:number=x'], /metadata must be entries like department=Sales/],
    [['--set', 'grade:constructor=1'], /metadata must be entries like/],
    [['--set', 'department'], /metadata must be entries like/],
    [['--set', 'Department=x'], /metadata.Department must be 1 to 40 lower-case letters/],
  ];
  for (const [args, err] of refused) t.match(await update(...args), { code: 1, err }, args.join(' '));
  t.match(await update(), { code: 2, err: /no change is given/ });
  t.match((await type(['principal', 'disable', 'ada'])).out, /metadata +\{"department":"a=b:c"/);
  t.match((await idp.admin('GET', `/v1/principals/${ada.sub}`)).body.metadata, { grade: -3 });
});

t.test(
  'groups: members by handle, sub and domain, and what applications and APIs do with them',
  async (t) => {
    const { idp, type } = await both(t);
    const [ada, agent] = [await idp.makeHuman({ handle: 'ada' }), await idp.mintAgent()];
    t.match(await type(['group', 'list']), { code: 0, err: /There are no groups/ });
    const added = await type(['group', 'add', 'admins', '--description', 'All', '--json']);
    t.match(added.json, { name: 'admins', description: 'All' });
    const given = ['admins', 'ada', agent.sub, '@Example.org'];
    t.match((await type(['group', 'member', 'add', ...given, '--json'])).json, { group: 'admins', added: 3 });
    t.match((await type(['group', 'member', 'add', 'admins', 'ada', '--json'])).json, { added: 0 });
    t.match(await type(['group', 'member', 'list', 'admins']), {
      code: 0,
      out: new RegExp(`^@example.org +domain[^\n]*\nada +human +${ada.sub}[^\n]*\n${agent.handle} +agent`),
    });
    const uri = 'https://app.example.test/cb';
    const create = ['client', 'create', uri, '--groups', 'admins=Ops', '--admit-groups', 'admins', '--json'];
    const client = (await type(create)).json;
    t.match(client, { groups_claim: 'admins=Ops', admitted_groups: ['admins'] });
    const update = ['client', 'update', client.client_id, '--groups', 'none', '--admit-groups', '', '--json'];
    const updated = (await type(update)).json;
    t.equal(updated.groups_claim, 'none');
    t.notOk('admitted_groups' in updated, 'an empty list admits all');
    const api = 'https://files.example.test';
    const resource = ['resource', 'add', api, '--groups', 'admins', '--admit-groups', 'admins', '--json'];
    t.match((await type(resource)).json, { groups_claim: 'admins', admitted_groups: ['admins'] });
    const open = (await type(['resource', 'update', api, '--groups', 'none', '--admit-groups', '', '--json']))
      .json;
    t.match(open, { groups_claim: 'none', admitted_groups: [] });
    t.match((await type(['group', 'member', 'remove', 'admins', 'ada', '--json'])).json, { removed: 1 });
    const refused: [string[], RegExp][] = [
      [['group', 'add', 'admins'], /name is the name of a group already/],
      [['group', 'add', 'Admins'], /name must be a name of 1 to 64 lower-case letters/],
      [['group', 'add', 'x', '--description', 'a\nb'], /description must be/],
      [['group', 'remove', 'other'], /There is no such group/],
      [['group', 'member', 'add', 'other', 'ada'], /There is no such group/],
      [['group', 'member', 'list', 'other'], /There is no such group/],
      [['group', 'member', 'add', 'admins', 'ada', 'bob'], /No principal has the handle bob/],
      [['group', 'member', 'add', 'admins', '@com'], /must be a domain like @example.com/],
      [['client', 'create', uri, '--groups', 'other'], /groups_claim names groups that do not exist: other/],
      [
        ['client', 'create', uri, '--admit-groups', 'other'],
        /admitted_groups names groups that do not exist/,
      ],
      [['resource', 'update', api, '--groups', 'a;b'], /groups must be all, none/],
    ];
    for (const [args, err] of refused) t.match(await type(args), { code: 1, err }, args.join(' '));
    t.match(
      await type(['group', 'member', 'list', 'admins']),
      { out: /^@example.org[^\n]*\nagent/ },
      'no bob, no ada',
    );
    t.match((await type(['group', 'remove', 'admins', '--json'])).json, { name: 'admins' });
  },
);

t.test('permissions, owners and receipts of agents', async (t) => {
  const { idp, type } = await both(t);
  const uri = 'https://files.example.test';
  await type(['resource', 'add', uri, '--scopes', 'files:read,files:write']);
  await type(['group', 'add', 'research']);
  const minted = ['agent', 'mint', 'scout@agents.example', '--owner', 'group:research', '--json'];
  const agent = (await type(minted)).json;
  const terms = [
    '--scopes',
    'files:read',
    '--until',
    '2099-01-31',
    '--from',
    '192.0.2.0/24',
    '--delegated-only',
  ];
  const allowed = await type(['agent', 'allow', agent.handle, uri, ...terms, '--per-hour', '60', '--json']);
  t.match(allowed.json, {
    ...{ agent: agent.handle, resource: uri, scopes: ['files:read'], until: '2099-02-01T00:00:00.000Z' },
    ...{ networks: ['192.0.2.0/24'], tokens_per_hour: 60, delegated_only: true },
  });
  await type(['agent', 'allow', 'group:research', uri]);
  await type(['agent', 'allow', '*', uri]);
  const listed = (await type(['agent', 'permissions', '--json'])).json.permissions;
  t.same(listed.map((one: { agent: string }) => one.agent).sort(), ['*', 'group:research', agent.handle]);
  const { body } = await idp.request('POST', '/token', {
    form: search({ grant_type: 'client_credentials', resource: uri }),
    headers: {
      authorization: basic(
        agent.sub,
        (await type(['agent', 'rotate', agent.handle, '--json'])).json.password,
      ),
    },
  });
  const { txn } = claimsOf(body.access_token);
  t.match(await type(['agent', 'receipt', txn]), { code: 1, err: /Set IDP_ED25519_SEED/ });
  const more = { IDP_ED25519_SEED: SEED };
  const receipt = (await type(['agent', 'receipt', txn, '--json'], { more })).json;
  t.match(receipt, { txn, count: 1, actions: [{ event: 'agent.token_issued', owner: 'group:research' }] });
  const { receipt: signed, ...claims } = receipt;
  t.same(claimsOf(signed), claims);
  t.match(await type(['agent', 'receipt', 'gr_1'], { more }), { code: 1, err: /has no record of an agent/ });
  t.match((await type(['agent', 'disallow', agent.handle, uri, '--json'])).json, { withdrawn: true });
  t.match(await type(['agent', 'disallow', agent.handle, uri]), { code: 1, err: /has no permission for/ });
  const changes = ['--owner', '', '--purpose', 'Reports', '--expires', '2099-01-31', '--json'];
  t.match(await type(['agent', 'update', agent.handle, ...changes]), {
    json: { purpose: 'Reports', expires_at: '2099-02-01T00:00:00.000Z' },
  });
  for (const [args, err] of [
    [['agent', 'allow', 'nobody', uri], /No principal has the handle nobody/],
    [['agent', 'allow', 'group:nothing', uri], /There is no group nothing/],
    [['agent', 'allow', agent.handle, 'https://x.test'], /resource is not registered/],
    [['agent', 'allow', agent.handle, uri, '--until', '2099-02-31'], /2099-02-31/],
    [['agent', 'update', agent.handle, '--owner', 'nobody'], /No principal has the handle nobody/],
  ] as const)
    t.match(await type([...args]), { code: /1|2/, err }, args.join(' '));
});

t.test('resources: only the host adds, changes and removes them', async (t) => {
  const { idp, type, file } = await both(t);
  const uri = 'https://files.example.test';
  t.match(await type(['resource', 'list']), { code: 0, err: /There are no resources/ });
  const scopes = 'files:read=Read, and list your files,files:write=Change a=b,files:admin';
  const given = ['--name', 'Files', '--scopes', scopes, '--sensitive', 'files:write', '--kinds', 'agent'];
  const added = (await type(['resource', 'add', uri, ...given, '--lifetime', '300', '--json'])).json;
  t.match(added, {
    resource: uri,
    client_id: /^res_/,
    client_secret: /^rsec_/,
    name: 'Files',
    scopes: [
      { name: 'files:read', description: 'Read, and list your files', sensitive: false },
      { name: 'files:write', description: 'Change a=b', sensitive: true },
      { name: 'files:admin', description: 'files:admin', sensitive: false },
    ],
    token_lifetime_seconds: 300,
    principal_kinds: ['agent'],
    self_registered: false,
  });
  const { client_secret: secret, ...listed } = added;
  t.strictSame((await idp.admin('GET', '/v1/resources')).body.resources, [listed]);
  const statusOf = async (id: string, password: string) => {
    const headers = { authorization: basic(id, password) };
    return (await idp.request('POST', '/introspect', { form: { token: 'x' }, headers })).status;
  };
  t.equal(await statusOf(added.client_id, secret), 200);

  t.match(await type(['resource', 'list']), {
    code: 0,
    out: `${uri}  Files  files:read files:write files:admin  agent  no\n`,
  });
  const update = (...options: string[]) => type(['resource', 'update', uri, ...options, '--json']);
  const changed = (await update('--scopes', 'files:write=Change', '--kinds', 'both')).json;
  t.match(changed, {
    scopes: [{ name: 'files:write', description: 'Change', sensitive: true }],
    principal_kinds: ['agent', 'human'],
    name: 'Files',
  });
  t.match((await update('--sensitive', '')).json.scopes, [{ sensitive: false }]);
  t.equal((await update('--self-registered', 'yes')).json.self_registered, true);
  t.equal((await update('--lifetime', '60')).json.self_registered, true);
  t.equal((await update('--self-registered', 'no')).json.self_registered, false);
  t.match(await update(), { code: 2, err: /no change is given/ });

  const next = (await type(['resource', 'rotate', uri, '--json'])).json;
  t.same(
    [await statusOf(next.client_id, secret), await statusOf(next.client_id, next.client_secret)],
    [200, 200],
  );
  await type(['resource', 'rotate', uri, '--at-once']);
  t.equal(await statusOf(next.client_id, next.client_secret), 401);

  const refused: [string[], RegExp][] = [
    [['add', uri], /resource is registered already/],
    [['add', 'files'], /must be an absolute URI/],
    [['add', `${uri}?a=1`], /must be an absolute URI/],
    [['add', `${uri}#a`], /must be an absolute URI/],
    [['add', 'https://FILES.example.test'], /must be written as https:\/\/files\.example\.test\//],
    [['add', 'https://a:b@files.example.test'], /must not contain a user name/],
    [['add', 'http://files.example.test'], /must be https/],
    [['add', 'https://x.test', '--scopes', 'openid'], /openid is a scope of the provider itself/],
    [['add', 'https://x.test', '--scopes', 'a,a'], /each scope once/],
    [['add', 'https://x.test', '--sensitive', 'a'], /sensitive a is not a scope/],
    [['add', 'https://x.test', '--scopes', 'a"b'], /printable ASCII/],
    [['remove', 'https://x.test'], /There is no resource/],
    [['remove', ''], /There is no resource/],
    [['rotate', 'https://x.test'], /There is no resource/],
    [['update', 'https://x.test', '--lifetime', '60'], /There is no resource/],
  ];
  for (const [args, err] of refused)
    t.match(await type(['resource', ...args]), { code: 1, err }, args.join(' '));
  for (const lifetime of ['0', '601', 'x']) {
    t.match(await update('--lifetime', lifetime), { code: 2, err: /from 30 to 600/ });
  }
  t.equal((await type(['resource', 'add', 'http://127.0.0.1:9/api'])).code, 0, 'in development');
  const more = { NODE_ENV: 'production' };
  t.match(await type(['resource', 'add', 'http://127.0.0.1:9/b'], { more }), {
    code: 1,
    err: /must be https/,
  });

  t.equal((await type(['resource', 'remove', uri])).code, 0);
  t.equal(await statusOf(next.client_id, next.client_secret), 401);
  const records = (await auditOf(await openAt(t, `sqlite:${file}`))).filter(({ subject }) => subject === uri);
  t.same(records.map(({ event }) => event).sort(), [
    ...['resource.added', 'resource.removed', 'resource.rotated', 'resource.rotated'],
    ...Array.from({ length: 5 }, () => 'resource.updated'),
  ]);
  t.notOk(records.some(({ detail = '' }) => detail.includes('rsec_')));
});

t.test('principals: created, rotated, invited, disabled and enabled', async (t) => {
  const { idp, type } = await both(t);
  const client = await idp.createClient();
  const agent = (await type(['agent', 'mint', 'Scout@agents.example', '--name', 'Scout', '--json'])).json;
  t.match(agent, { handle: 'scout@agents.example', kind: 'agent', name: 'Scout', password: /^agp_/ });
  t.equal((await idp.authorize(client, agent)).status, 302);
  const { json: renewed } = await type(['agent', 'rotate', 'scout@agents.example', '--json']);
  t.equal((await idp.authorize(client, agent)).status, 401);
  t.equal((await idp.authorize(client, { ...agent, password: renewed.password })).status, 302);

  t.match((await type(['principal', 'disable', 'scout@agents.example', '--json'])).json, {
    state: 'disabled',
  });
  t.equal((await idp.authorize(client, { ...agent, password: renewed.password })).status, 401);
  t.match(await type(['agent', 'rotate', 'scout@agents.example']), {
    code: 1,
    err: /is not an active agent: its kind is agent, its state disabled/,
  });
  t.match((await type(['principal', 'enable', 'SCOUT@agents.example', '--json'])).json, { state: 'active' });
  t.equal((await idp.authorize(client, { ...agent, password: renewed.password })).status, 302);

  const invitation = (await type(['invite', 'ada@example.test', '--days', '2', '--name', 'Ada', '--json']))
    .json;
  t.match(invitation, { handle: 'ada@example.test', invite_url: 'http://localhost:8080/invite/' });
  t.match((await type(['principal', 'list', 'ada'])).out, /^ada@example\.test +human +invited/);
  const path = new URL(invitation.invite_url).pathname;
  t.match(await idp.request('POST', path, { body: { password: PASSWORD } }), { status: 201 });
  const listed = (await type(['principal', 'list', '--json'])).json.principals;
  t.same(
    listed.map(({ handle, state }: { handle: string; state: string }) => [handle, state]),
    [
      ['ada@example.test', 'active'],
      ['scout@agents.example', 'active'],
    ],
  );
});

t.test('a person who forgot the password gets a link; agents and disabled people do not', async (t) => {
  const { idp, type } = await both(t);
  const client = await idp.createClient();
  const human = await idp.makeHuman();
  const reset = () => type(['principal', 'reset', human.handle, '--json']);
  const path = new URL((await reset()).json.reset_url).pathname;
  t.equal((await idp.authorize(client, human)).status, 302, 'nothing has changed yet');
  const password = 'another sentence';
  t.equal((await idp.request('POST', path, { body: { password } })).status, 201);
  t.equal((await idp.authorize(client, { ...human, password })).status, 302);
  await type(['principal', 'disable', human.handle]);
  t.match(await reset(), { code: 1, err: /is disabled\. Enable the account first/ });
  const agent = await idp.mintAgent();
  t.match(await type(['principal', 'reset', agent.handle]), { code: 1, err: /idp agent rotate/ });
});

t.test('in development links point to the address where the server last listened', async (t) => {
  const { type, cwd } = commandLine(t);
  const databaseUri = `sqlite:${join(cwd, 'idp.db')}`;
  const linkFor = async (handle: string, more = {}) =>
    (await type(['invite', handle, '--json'], { more: { IDP_DATABASE_URI: databaseUri, ...more } })).json
      .invite_url;
  const idp = await idpApp(t, { databaseUri, publicUrl: undefined, prefix: '/idp' });
  const { port } = new URL(await idp.listen());
  // Committed after what the start has written.
  await idp.makeHuman();
  t.ok((await linkFor('grace')).startsWith(`http://localhost:${port}/idp/invite/`));
  const named = await linkFor('mary', { IDP_PUBLIC_URL: 'http://localhost:7000' });
  t.ok(named.startsWith('http://localhost:7000/invite/'));
});

t.test('failures print one sentence, invalid arguments the usage', async (t) => {
  const { type } = await both(t);
  await type(['agent', 'mint', 'taken']);
  const failing: [string[], RegExp][] = [
    [['agent', 'mint', 'taken'], /^This handle is already taken\.\n$/],
    [['agent', 'mint', 'a b'], /^The request is invalid\.\n {2}handle must contain no colon/],
    // An id that looks like an option.
    [['agent', 'key', 'remove', 'taken', `-${'k'.repeat(42)}`], /^taken has no key -k{42}\.\n$/],
    [['agent', 'rotate', 'nobody'], /^No principal has the handle nobody\.\n$/],
    [['client', 'create', ','], /redirect_uris must contain at least one URI, like https:/],
    [['client', 'create', 'https://x.test/,http://*'], /redirect_uris\.1 must not contain/],
  ];
  const wrong: [string[], RegExp][] = [
    [['agent', 'fire'], /unknown command 'fire'/],
    [['agent', 'mint', 'new', '--name', 'a\nb'], /--name must be a name of 1 to 200 characters/],
    [
      ['invite', 'new', '--days', '31'],
      /--days <number>' argument '31' is invalid\. Use a number from 1 to 30/,
    ],
    [
      ['client', 'create', 'https://x.test/cb', '--kinds', 'cats'],
      /--kinds <kinds>' argument 'cats' is invalid\. Use human, agent or both/,
    ],
    [['client', 'update', 'cid_x'], /no change is given/],
    [['login'], /--issuer is missing/],
    [
      ['login', '--issuer', 'http://127.0.0.1', '--client', 'x', '--handle', 'x'],
      /--password-stdin or IDP_LOGIN_PASSWORD is missing/,
    ],
  ];
  for (const [args, err] of failing) t.match(await type(args), { code: 1, out: '', err }, args.join(' '));
  for (const [args, reason] of wrong) {
    const { code, err } = await type(args);
    t.equal(code, 2, args.join(' '));
    t.match(err, reason);
    t.match(err, /Usage/);
  }
  const broken = { IDP_DATABASE_URI: 'sqlite:/dev/null/x', IDP_PUBLIC_URL: 'http://localhost' };
  t.match(await type(['principal', 'list'], { more: broken }), {
    code: 1,
    err: /^idp cannot use the store that IDP_DATABASE_URI names: .*\n$/,
  });
});

t.test('operators: granted, revoked, invited and listed on the host', async (t) => {
  const { idp, type, file } = await both(t);
  const human = await idp.makeHuman();
  const agent = await idp.mintAgent();
  const granted = await type(['operator', 'grant', human.handle.toUpperCase(), '--json']);
  t.match(granted.json, { handle: human.handle, operator: true, operator_since: String });
  t.match((await type(['operator', 'list'])).out, new RegExp(`^${human.handle} +active +u_`));
  t.match(await type(['operator', 'grant', agent.handle]), { code: 1, err: /is an agent\. Only people/ });
  t.match(await type(['operator', 'grant', 'nobody@example.test']), { code: 1, err: /No principal has/ });
  t.match(await type(['operator', 'invite', human.handle]), {
    code: 1,
    err: `idp operator grant ${human.handle}`,
  });
  t.match(await type(['operator', 'revoke']), { code: 2, err: /missing required argument/ });
  t.match((await type(['operator', 'revoke', human.handle, '--json'])).json, { operator: false });
  t.match(await type(['operator', 'list']), { code: 0, err: 'There are no operators.' });

  const invited = (await type(['operator', 'invite', 'ada@example.test', '--name', 'Ada', '--json'])).json;
  t.match(await type(['operator', 'grant', 'ada@example.test']), { code: 1, err: /idp operator invite ada/ });
  const path = new URL(invited.operator_url).pathname;
  t.equal((await idp.request('POST', path, { body: { password: PASSWORD } })).status, 201);
  t.match((await type(['operator', 'list', '--json'])).json.operators, [
    { handle: 'ada@example.test', state: 'active', operator: true },
  ]);
  await type(['principal', 'disable', 'ada@example.test']);
  t.match(await type(['operator', 'grant', 'ada@example.test']), {
    code: 1,
    err: /idp principal enable ada/,
  });
  t.same((await type(['operator', 'list', '--json'])).json.operators, []);

  const records = (await auditOf(await openAt(t, `sqlite:${file}`))).filter(({ event }) =>
    event.startsWith('operator.'),
  );
  t.same(records.map(({ event, ip }) => `${event} ${ip}`).sort(), [
    'operator.granted 127.0.0.1',
    'operator.granted cli',
    'operator.invited cli',
    'operator.revoked cli',
  ]);
});

t.test('idp principal remove-factor lets a person in who has lost the app, without the key', async (t) => {
  const idp = await idpApp(t, { ...HERE, factorEncryptionKey: FACTOR_KEY });
  const { type } = commandLine(t, { IDP_DATABASE_URI: idp.databaseUri });
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  t.match(await type(['principal', 'remove-factor', human.handle]), { code: 1, err: /no second factor/ });
  const { browser, get } = await enterAccount(idp, human);
  const begun = await browser.submit(await get('/second-factor'), {}, '/begin');
  await browser.submit(begun, { code: codeAt(secretIn(begun.body), idp.clock.now()) }, '/confirm');
  t.equal((await idp.authorize(client, human)).status, 401);

  const removed = await type(['principal', 'remove-factor', human.handle, '--json']);
  t.match(removed, { code: 0, json: { handle: human.handle, removed: true } });
  t.equal((await idp.authorize(client, human)).status, 302);
  t.match(await type(['principal', 'remove-factor', 'nobody']), { code: 1, err: /No principal has/ });
  const records = await auditOf(await openAt(t, idp.databaseUri));
  t.match(
    records.find(({ event }) => event === 'factor.removed'),
    { subject: human.sub, ip: 'cli' },
  );
});

t.test('idp principal remove-passkeys ends the use of a stolen device, without the option', async (t) => {
  const idp = await idpApp(t, { ...HERE, passkeys: true });
  const { type } = commandLine(t, { IDP_DATABASE_URI: idp.databaseUri });
  const human = await idp.makeHuman();
  t.match(await type(['principal', 'remove-passkeys', human.handle]), { code: 1, err: /has no passkey/ });
  const { browser, get } = await enterAccount(idp, human);
  const page = await get('/passkeys');
  const authenticator = new SoftwareAuthenticator(idp.server.fastify.idp.issuer());
  await browser.submit(page, { credential: authenticator.create(optionsIn(page.body)) }, '/add');

  const removed = await type(['principal', 'remove-passkeys', human.handle, '--json']);
  t.match(removed, { code: 0, json: { handle: human.handle, removed: 1 } });
  t.notMatch((await get('/passkeys')).body, 'class="entries"');
  t.match(await type(['principal', 'remove-passkeys', 'nobody']), { code: 1, err: /No principal has/ });
  const records = await auditOf(await openAt(t, idp.databaseUri));
  t.match(
    records.find(({ event }) => event === 'passkey.removed'),
    { subject: human.sub, ip: 'cli' },
  );
});
