import t from 'tap';
import { clientCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf } from '../../kit/app.js';
import {
  ADMIN_TOKEN,
  type Credentials,
  claimsOf,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type RegisteredClient,
} from '../../kit/idp.js';

/** What the operator stores about people and agents, and the claims that applications get from it. */

const CALLBACKS = { name: 'App', redirect_uris: ['https://app.example.test/cb'] };

const change = (idp: IdpApp, { sub }: Pick<Credentials, 'sub'>, metadata: object, token = ADMIN_TOKEN) =>
  idp.request('PATCH', `/v1/principals/${sub}`, { token, body: { metadata } });

/** The claims of a sign-in, which /userinfo repeats. */
async function signIn(idp: IdpApp, client: RegisteredClient, who: Credentials, scope = 'openid profile') {
  const { body } = await idp.redeem(client, await idp.codeFor(client, who, { scope }));
  const claims = claimsOf(body.id_token);
  const info = (await idp.userinfo(body.access_token)).body;
  const [, repeated] = [delete info.sub, Object.entries(info)];
  for (const [name, value] of repeated) t.same(claims[name], value, `userinfo says the same: ${name}`);
  return claims;
}

t.test('applications get the profile of a person with the scope profile', async (t) => {
  const idp = await idpApp(t);
  const [client, ada] = [await idp.createClient(), await idp.makeHuman({ name: 'Ada Lovelace' })];
  const profile = {
    ...{ given_name: 'Ada', family_name: 'Lovelace', nickname: 'Countess' },
    ...{ picture: 'https://img.example.test/ada.png', locale: 'en-GB' },
  };
  t.match(await change(idp, ada, { ...profile, department: 'Sales' }), {
    status: 200,
    body: { metadata: { given_name: 'Ada', department: 'Sales' } },
  });
  const claims = await signIn(idp, client, ada);
  t.match(claims, { ...profile, name: 'Ada Lovelace', preferred_username: ada.handle });
  t.notOk('department' in claims, 'nothing that was not declared for the application');
  t.notOk('given_name' in (await signIn(idp, client, ada, 'openid email')), 'nothing without the scope');
  await change(idp, ada, { nickname: null });
  const { nickname, given_name: given } = await signIn(idp, client, ada);
  t.same([nickname, given], [undefined, 'Ada'], 'null removes an entry and leaves the others');
  const records = (await auditOf(await idpStore(t, idp))).filter(({ event }) =>
    event.endsWith('metadata_changed'),
  );
  t.same(
    records.map(({ subject, detail }) => [subject, detail]),
    [
      [ada.sub, 'given_name family_name nickname picture locale department'],
      [ada.sub, 'nickname'],
    ],
    'with the names and without the values',
  );
});

t.test('an application gets the claims that are declared for it, each with its type', async (t) => {
  const idp = await idpApp(t);
  const [ada, agent] = [await idp.makeHuman(), await idp.mintAgent()];
  const stored = {
    department: 'Sales',
    grade: 3,
    admin: true,
    teams: ['core', 'web'],
    zip: '0123',
    constructor_: 'x',
  };
  await change(idp, ada, stored);
  await change(idp, agent, { department: 'Machines' });
  const client = await idp.createClient({
    claims: 'department, level:number=grade,admin:boolean,teams:list,zip:number,missing,town=city',
  });
  t.equal(
    (await idp.admin('GET', '/v1/clients')).body.clients[0].claims,
    'department:string=department,level:number=grade,admin:boolean=admin,teams:list=teams,zip:number=zip,missing:string=missing,town:string=city',
  );
  const { department, level, admin, teams, ...others } = await signIn(idp, client, ada);
  t.same([department, level, admin, teams], ['Sales', 3, true, ['core', 'web']]);
  for (const name of ['zip', 'missing', 'town', 'grade', 'constructor_']) t.notOk(name in others, name);
  t.equal((await signIn(idp, client, agent)).department, 'Machines');
  t.notOk('department' in (await signIn(idp, client, ada, 'openid')), 'nothing without the scope profile');
  t.notOk('department' in (await signIn(idp, await idp.createClient(), ada)), 'nor another application');
});

t.test('no claim of the provider can be declared, or replaced by a stored declaration', async (t) => {
  const idp = await idpApp(t);
  const wrong = [
    ...[
      'sub',
      'iss',
      'aud',
      'exp',
      'iat',
      'nonce',
      'amr',
      'acr',
      'sid',
      'email',
      'email_verified',
      'groups',
      'act',
    ],
    ...['kind', 'sub_profile', 'name', 'x=sub,sub=x', 'cnf', 'scope', 'client_id', 'at_hash', 'constructor'],
    ...['Department', 'a b', 'a,a', 'a:object', 'a:', 'a=', '__proto__', 'a\nb', ',', 'a'.repeat(41)],
    Array.from({ length: 21 }, (_, index) => `c${index}`).join(),
  ];
  for (const claims of wrong) {
    const { status } = await idp.admin('POST', '/v1/clients', { ...CALLBACKS, claims });
    t.equal(status, 400, JSON.stringify(claims.slice(0, 40)));
  }
  const [client, ada] = [await idp.createClient(), await idp.makeHuman()];
  await change(idp, ada, { x: 'forged', y: true });
  const clients = clientCollection(await idpStore(t, idp));
  const forged =
    'sub:string=x,iss:string=x,kind:string=x,name:string=x,acr:string=x,email_verified:boolean=y';
  await clients.updateOne({ id: client.id }, { set: { claims: forged } });
  const { body } = await idp.redeem(
    client,
    await idp.codeFor(client, ada, { scope: 'openid profile email', acr_values: 'mfa' }),
  );
  t.match(claimsOf(body.id_token), {
    ...{ sub: ada.sub, iss: ISSUER, kind: 'human', name: ada.handle, acr: '0', email_verified: false },
  });
  t.equal((await idp.userinfo(body.access_token)).body.sub, ada.sub);
});

t.test('metadata that is no value of a claim, or too much, is refused and changes nothing', async (t) => {
  const idp = await idpApp(t);
  const ada = await idp.makeHuman();
  await change(idp, ada, { department: 'Sales' });
  const wrong: [name: string, value: unknown][] = [
    ...['Department', 'a b', 'a\u0000', '1a', '_a', '', 'a'.repeat(41)].map((name): [string, unknown] => [
      name,
      'x',
    ]),
    ...['', 'a\nb', 'a\u0000', '\ud800', 'x'.repeat(513)].map((value): [string, unknown] => ['note', value]),
    ...[1.5, 1e21, {}, { a: 1 }, [1], [''], [['a']], Array(21).fill('a'), ['a\nb'], ['a,b']].map(
      (value): [string, unknown] => ['note', value],
    ),
    ...[3, ' ', 'a\u202eb', ['Ada']].map((value): [string, unknown] => ['given_name', value]),
    ...['http://x.test/a.png', 'javascript:alert(1)', 'https://', 'x'].map((value): [string, unknown] => [
      'picture',
      value,
    ]),
    ...['EN', 'en_GB', 'english language', 'e'].map((value): [string, unknown] => ['locale', value]),
  ];
  for (const [name, value] of wrong)
    t.equal(
      (await change(idp, ada, { [name]: value })).status,
      400,
      JSON.stringify([name, value]).slice(0, 60),
    );
  const many = Object.fromEntries(Array.from({ length: 32 }, (_, index) => [`n${index}`, 1]));
  t.match((await change(idp, ada, many)).body.details, [{ path: 'metadata' }], 'one with it are 33 entries');
  const large = Object.fromEntries(Array.from({ length: 8 }, (_, index) => [`n${index}`, 'x'.repeat(512)]));
  t.equal((await change(idp, ada, large)).status, 400, 'more than 4096 bytes');
  const own = JSON.parse('{"__proto__": "x", "constructor": "y"}');
  t.equal((await change(idp, ada, own)).status, 400);
  t.same((await idp.admin('GET', `/v1/principals/${ada.sub}`)).body.metadata, { department: 'Sales' });
  t.equal((await change(idp, { sub: `u_${'0'.repeat(32)}` }, {})).status, 404);
});

t.test('of simultaneous changes none is lost, and a deleted principal keeps nothing', async (t) => {
  const idp = await idpApp(t, { limits: false });
  const agent = await idp.mintAgent();
  const names = Array.from({ length: 20 }, (_, index) => `n${index}`);
  await Promise.all(names.map((name, index) => change(idp, agent, { [name]: index })));
  const { metadata } = (await idp.admin('GET', `/v1/principals/${agent.sub}`)).body;
  t.same(metadata, Object.fromEntries(names.map((name, index) => [name, index])));
  await idp.admin('DELETE', `/v1/agents/${agent.sub}`);
  const people = principalCollection(await idpStore(t, idp));
  t.equal((await people.findOne({ id: agent.sub }))?.metadata, undefined);
  t.equal((await change(idp, agent, { a: 1 })).status, 404);
});

t.test(
  'who may only administer cannot change metadata if invitations have a token of their own',
  async (t) => {
    const inviteToken = 'invite-only-9JdK3vXw7QbLr2ZsTn5Gh8';
    const idp = await idpApp(t, { adminToken: ADMIN_TOKEN, inviteToken });
    const ada = await idp.makeHuman();
    t.equal((await change(idp, ada, { admin: true })).status, 401);
    t.equal((await change(idp, ada, { admin: true }, inviteToken)).status, 200);
  },
);

t.test('the page of a sign-in names the claims that the application gets', async (t) => {
  const idp = await idpApp(t, { publicUrl: undefined });
  const client = await idp.createClient({ claims: 'department,level:number=grade' });
  t.match(
    (await idp.visit(client, { scope: 'openid profile' })).page.body,
    /more about you: department, level/,
  );
  t.notMatch((await idp.visit(client, { scope: 'openid' })).page.body, /more about you/);
});
