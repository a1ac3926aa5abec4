import t from 'tap';
import { mailCollection } from '../../../src/shared/email/store.js';
import { agentWithKey } from '../../kit/agent-keys.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { clientKey } from '../../kit/client-keys.js';
import { CALLBACK, idpApp, idpStore, SEED } from '../../kit/idp.js';
import { storedValues } from '../../kit/mail.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { addResource, FILES } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';

/** What operators see and change in the console. */

const HERE = { publicUrl: undefined, limits: false } as const;

const ES256_KEY = 'c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721';

/** The readonly fields of a page that shows secrets. */
const secretsOf = (body: string) =>
  [...body.matchAll(/class="secret" value="([^"]*)" readonly/g)].map(([, value = '']) => value);

t.test('principals are searched by user name, ID, kind and state', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp, 'olga');
  const { get } = await enterConsole(idp, operator);
  const [ada, agent] = [await idp.makeHuman({ handle: 'ada' }), await idp.mintAgent({ handle: 'adam' })];
  await idp.makeHuman({ handle: 'bob' });
  await idp.admin('POST', `/v1/principals/${ada.sub}/disable`);
  const handlesOf = async (query: string) =>
    [
      ...(await get(`/principals?${query}`)).body.matchAll(
        /<a href="\.\/principals\/u_\w+"[^>]*>(?:<[^>]*>|[A-Z]+(?=<))*([^<]*)</g,
      ),
    ].map(([, handle]) => handle);
  t.same(await handlesOf(''), ['ada', 'adam', 'bob', 'olga']);
  t.same(await handlesOf('q=AD'), ['ada', 'adam']);
  t.same(await handlesOf('q=ad&kind=agent'), ['adam']);
  t.same(await handlesOf('state=disabled'), ['ada']);
  t.same(await handlesOf('kind=human&state=active'), ['bob', 'olga']);
  t.same(await handlesOf(`q=${agent.sub}`), ['adam']);
  t.equal((await get('/principals?kind=robot')).status, 400);
  t.equal((await get(`/principals/u_${'0'.repeat(32)}`)).status, 404);
  const csv = await get('/principals.csv?kind=agent');
  t.match(csv.body, /^User name,Name,Kind,State,Created,ID\r\nadam,,Agent,active,/);
});

t.test('a principal has a page with sessions, applications and audit records', async (t) => {
  const idp = await idpApp(t, HERE);
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp));
  const client = await idp.createClient({ name: 'Shop' });
  const human = await idp.makeHuman();
  const { browser, page } = await idp.visit(client, { scope: 'openid email' });
  await browser.send(page, { handle: human.handle, password: PASSWORD });
  const tab = (name: string) => get(`/principals/${human.sub}?tab=${name}`);
  const applications = (await tab('applications')).body;
  t.match(applications, /<a href="\.\.\/clients\/cid_[^"]*"[^>]*>Shop<\/a>/);
  t.match(applications, 'openid email');
  t.match((await tab('audit')).body, 'login.succeeded');
  const shown = await tab('sessions');
  const [, end = ''] = /href="\.\.\/(principals\/[^"]*\/end)"/.exec(shown.body) ?? [];
  const ended = await act(`/${end}`);
  t.match(ended.body, sentence('account.done.session-ended'));
  t.match(ended.body, 'Not signed in.');
  t.equal((await get(`/${end}`)).status, 404, 'it is gone');
});

t.test(
  'an operator disables, enables and deletes people and agents, with their name in the audit',
  async (t) => {
    const idp = await idpApp(t, HERE);
    const operator = await makeOperator(t, idp);
    const { get, act } = await enterConsole(idp, operator);
    const client = await idp.createClient();
    for (const who of [await idp.makeHuman(), await idp.mintAgent()]) {
      const page = `/principals/${who.sub}`;
      t.match((await act(`${page}/disable`)).body, 'Disabled.');
      t.equal((await idp.authorize(client, who)).status, 401);
      t.match((await act(`${page}/enable`)).body, 'Enabled.');
      t.equal((await idp.authorize(client, who)).status, 302);
      const refused = await act(`${page}/delete`, { confirm: 'yes' });
      t.match([refused.status, refused.body], [400, `must be ${who.handle}`]);
      t.match((await act(`${page}/delete`, { confirm: who.handle })).body, 'Deleted.');
      t.equal((await idp.authorize(client, who)).status, 401);
      const taken = await act('/agents/create', { handle: who.handle });
      t.equal(taken.status, 409, 'the name stays reserved');
      t.match(taken.body, `value="${who.handle}"`, 'and the form keeps it');
      t.equal((await act(`${page}/enable`)).status, 409);
      const records = (await auditOf(await idpStore(t, idp))).filter(({ subject }) => subject === who.sub);
      t.match(
        records
          .filter(({ by }) => by === operator.handle)
          .map(({ event }) => event)
          .sort(),
        [/^(agent|human)\.deleted$/, 'principal.disabled', 'principal.enabled'],
      );
      t.match(JSON.stringify(records), /before.*active.*after.*disabled/);
      const listed = await get(`/audit?q=${who.handle}&event=principal.`);
      t.match(listed.body, '>principal.disabled</td>');
      t.notMatch(listed.body, />(login|agent|human)\.[^<]*<\/td>/);
    }
  },
);

t.test('all agents of a filter are disabled, and operators never', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const { get, act } = await enterConsole(idp, operator);
  const client = await idp.createClient();
  const [one, two, person] = [await idp.mintAgent(), await idp.mintAgent(), await idp.makeHuman()];
  t.match((await get('/principals?kind=agent')).body, 'all/disable?kind=agent');
  const path = '/principals/all/disable';
  t.match((await act(`${path}?kind=agent`, { confirm: '1' })).body, 'must be 2');
  t.match((await act(`${path}?kind=agent`, { confirm: '2' })).body, 'All of them were changed.');
  for (const agent of [one, two]) t.equal((await idp.authorize(client, agent)).status, 401);
  t.equal((await idp.authorize(client, person)).status, 302);
  t.match((await act(`${path}?state=active`, { confirm: '1' })).body, 'All of them were changed.');
  t.equal((await idp.authorize(client, person)).status, 401);
  t.equal((await get('/')).status, 200, 'the operator is still there');
});

t.test('secrets and links are shown once', async (t) => {
  const idp = await idpApp(t, HERE);
  const { get, act, origin } = await enterConsole(idp, await makeOperator(t, idp));
  const client = await idp.createClient();
  const minted = await act('/agents/create', { handle: 'scout', name: 'Scout' });
  const [handle = '', password = ''] = secretsOf(minted.body);
  t.match(minted.headers.get('cache-control'), 'no-store');
  t.equal((await idp.authorize(client, { sub: '', handle, password })).status, 302);
  const [{ sub }] = (await idp.admin('GET', '/v1/principals?prefix=scout')).body.principals;
  const [rotated = ''] = secretsOf((await act(`/principals/${sub}/rotate`)).body);
  t.equal((await idp.authorize(client, { sub, handle, password })).status, 401);
  t.equal((await idp.authorize(client, { sub, handle, password: rotated })).status, 302);
  t.notMatch((await get(`/principals/${sub}`)).body, /agp_/);

  const [invitation = ''] = secretsOf((await act('/invitations/create', { handle: 'ada', days: '2' })).body);
  t.match((await get('/invitations')).body, 'ada');
  const [invited] = (await idp.admin('GET', '/v1/principals?prefix=ada')).body.principals;
  t.match((await act(`/invitations/${invited.sub}/withdraw`)).body, 'The invitation is withdrawn.');
  const path = (url: string) => new URL(url, origin).pathname;
  t.equal((await idp.request('POST', path(invitation), { body: { password: PASSWORD } })).status, 404);
  t.equal((await act('/invitations/create', { handle: 'ada', days: '31' })).status, 400);
  const [again = ''] = secretsOf((await act('/invitations/create', { handle: 'ada' })).body);
  t.equal((await idp.request('POST', path(again), { body: { password: PASSWORD } })).status, 201);
  const [accepted] = (await idp.admin('GET', '/v1/principals?prefix=ada')).body.principals;
  const [reset = ''] = secretsOf((await act(`/principals/${accepted.sub}/reset`)).body);
  t.equal((await idp.request('POST', path(reset), { body: { password: 'another one' } })).status, 201);
});

t.test('applications are created, changed, rotated and deleted', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const { get, act } = await enterConsole(idp, operator);
  const agent = await idp.mintAgent();
  const wrong = await act('/clients/create', { redirect_uris: `${CALLBACK}\nhttp://x.test/*` });
  t.equal(wrong.status, 400);
  t.match(wrong.body, 'in line 2 must not contain');
  t.match(wrong.body, CALLBACK, 'the form keeps its values');
  t.equal((await act('/clients/create', { redirect_uris: '' })).status, 400);
  const created = await act('/clients/create', {
    name: 'Shop',
    redirect_uris: `${CALLBACK}\r\ncom.example.app:/cb`,
    kinds: 'both',
  });
  const [id = '', secret = ''] = secretsOf(created.body);
  const signIn = async (secret: string) => {
    const client = { id, secret, redirectUri: CALLBACK };
    return (await idp.redeem(client, await idp.codeFor(client, agent))).status;
  };
  t.equal(await signIn(secret), 200);
  const form = (await get(`/clients/${id}/update`)).form();
  t.match(form.fields, { name: 'Shop', trusted: undefined });
  const changed = await act(`/clients/${id}/update`, {
    name: 'New shop',
    redirect_uris: CALLBACK,
    post_logout_redirect_uris: 'https://app.example.test/bye',
    kinds: 'both',
    trusted: 'yes',
    logo_uri: 'https://app.example.test/logo.png',
  });
  t.match(changed.body, 'Saved.');
  const refused = await act(`/clients/${id}/update`, { redirect_uris: CALLBACK, logo_uri: 'http://x.test/' });
  t.match(refused.body, 'must be an https address');
  const [listed] = (await idp.admin('GET', '/v1/clients')).body.clients;
  t.match(listed, {
    client_name: 'New shop',
    trusted: true,
    redirect_uris: [CALLBACK],
    logo_uri: 'https://app.example.test/logo.png',
  });
  const unset = { name: 'New shop', redirect_uris: CALLBACK, kinds: 'both', trusted: 'yes', logo_uri: '' };
  t.match((await act(`/clients/${id}/update`, unset)).body, 'Saved.');
  t.notOk('logo_uri' in (await idp.admin('GET', '/v1/clients')).body.clients[0], 'an empty field removes it');
  const [next = ''] = secretsOf((await act(`/clients/${id}/rotate`, { at_once: 'yes' })).body).slice(1);
  t.same([await signIn(secret), await signIn(next)], [401, 200]);
  t.match((await act(`/clients/${id}/delete`, { confirm: id })).body, 'Deleted.');
  t.equal((await get(`/clients/${id}`)).status, 404);
  const records = (await auditOf(await idpStore(t, idp))).filter(({ by }) => by === operator.handle);
  t.match(records.map(({ event }) => event).sort(), [
    ...['client.created', 'client.deleted', 'client.rotated', 'client.updated', 'client.updated'],
  ]);
  const update = records.find(({ event }) => event === 'client.updated');
  t.match(update?.detail, /"before":.*Shop.*"after":.*New shop/);
});

t.test('an application for devices needs no redirect URI, and keys are shown', async (t) => {
  const idp = await idpApp(t, HERE);
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp));
  t.notMatch((await get('/clients/create')).body, /<textarea[^>]*name="redirect_uris"[^>]*required/);
  const refused = await act('/clients/create', { name: 'TV' });
  t.match(refused.body, /id="problem-redirect_uris"[^>]*>[^<]*must contain at least one URI/);
  const [id = ''] = secretsOf((await act('/clients/create', { name: 'TV', device: 'yes' })).body);
  t.match((await get(`/clients/${id}`)).body, /Sign-in on devices/);
  t.match((await act(`/clients/${id}/update`, { name: 'TV 2', device: 'yes' })).body, 'Saved.');
  t.match(
    (await act(`/clients/${id}/update`, { name: 'TV 2', device: 'no' })).body,
    'must contain at least one',
  );
  const uri = { name: 'TV 2', redirect_uris: CALLBACK };
  t.match((await act(`/clients/${id}/update`, { ...uri, device: 'no' })).body, 'Saved.');
  t.notMatch((await get(`/clients/${id}`)).body, /Sign-in on devices/);

  const agent = await agentWithKey(t, idp);
  t.match((await get(`/principals/${agent.sub}`)).body, new RegExp(`Public key[\\s\\S]*${agent.keyId}`));
  const jwks = { keys: [clientKey('ES256', 'k1').jwk] };
  const keyed = await idp.createClient({ jwks });
  t.match((await get(`/clients/${keyed.id}`)).body, /Public key[\s\S]*P-256, k1/);
});

t.test('an operator changes the metadata of a person and the claims of an application', async (t) => {
  const idp = await idpApp(t, HERE);
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp));
  const ada = await idp.makeHuman({ handle: 'ada' });
  const page = `/principals/${ada.sub}`;
  const metadata = 'department=Sales\r\ngrade:number=3\r\nteams:list=core,web';
  t.match((await act(`${page}/metadata`, { metadata })).body, 'Saved.');
  t.match((await get(page)).body, /department<[\s\S]*Sales[\s\S]*teams<[\s\S]*core,web/);
  t.match((await get(`${page}/metadata`)).body, /department=Sales\ngrade:number=3\nteams:list=core,web/);
  const wrong = await act(`${page}/metadata`, { metadata: 'Department=x' });
  t.match(wrong.body, /id="problem-metadata"[^>]*>[^<]*Department must be 1 to 40 lower-case letters/);
  t.match((await act(`${page}/metadata`, { metadata: 'grade:number=4' })).body, 'Saved.');
  t.same((await idp.admin('GET', `/v1${page}`)).body.metadata, { grade: 4 }, 'what is left out is removed');
  const fields = { name: 'Shop', redirect_uris: CALLBACK, kinds: 'both' };
  const refused = await act('/clients/create', { ...fields, claims: 'sub' });
  t.match(refused.body, /id="problem-claims"[^>]*>[^<]*must not contain sub/);
  const [id = ''] = secretsOf(
    (await act('/clients/create', { ...fields, claims: 'level:number=grade' })).body,
  );
  t.match((await get(`/clients/${id}`)).body, 'level:number=grade');
  t.match((await act(`/clients/${id}/update`, { ...fields, claims: '' })).body, 'Saved.');
  t.notMatch((await get(`/clients/${id}`)).body, 'level:number=grade');
});

t.test('an operator manages groups, their members and what an application does with them', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const { get, act } = await enterConsole(idp, operator);
  const ada = await idp.makeHuman({ handle: 'ada' });
  t.match((await get('/groups')).body, 'There are no groups yet.');
  t.match(
    (await act('/groups/create', { name: 'Admins' })).body,
    'must be a name of 1 to 64 lower-case letters',
  );
  t.match((await act('/groups/create', { name: 'admins', description: 'All' })).body, 'Group added.');
  t.match((await act('/groups/admins/add', { member: 'ada' })).body, 'The member is in the group.');
  t.match((await act('/groups/admins/add', { member: '@example.org' })).body, '@example.org');
  t.match(
    (await act('/groups/admins/add', { member: 'bob' })).body,
    'must be a user name, an ID or a domain',
  );
  t.match((await get('/groups/admins/members')).body, `principals/${ada.sub}`);
  t.match((await get(`/principals/${ada.sub}`)).body, /Groups<[\s\S]*admins/);
  const fields = { name: 'Shop', redirect_uris: CALLBACK, kinds: 'both', groups_claim: 'admins=Ops' };
  const [id = ''] = secretsOf((await act('/clients/create', { ...fields, admitted_groups: 'admins' })).body);
  t.match((await get(`/clients/${id}`)).body, /admins=Ops/);
  t.match((await get(`/clients/${id}/update`)).form().fields, {
    groups_claim: 'admins=Ops',
    admitted_groups: 'admins',
  });
  const wrong = await act(`/clients/${id}/update`, { ...fields, admitted_groups: 'other' });
  t.match(wrong.body, /id="problem-admitted_groups"[^>]*>[^<]*names groups that do not exist: other/);
  t.match((await act('/groups/admins/remove', { member: ada.sub })).body, 'The member is removed.');
  t.match((await act('/groups/admins/remove', { member: ada.sub })).body, 'is not in the group');
  t.match((await act('/groups/admins/delete', { confirm: 'admins' })).body, 'The group is removed.');
  t.equal((await get('/groups/admins/members')).status, 404);
  const records = (await auditOf(await idpStore(t, idp))).filter(({ by }) => by === operator.handle);
  t.match(
    records.map(({ event }) => event),
    [
      'group.added',
      'group.member_added',
      'group.member_added',
      'client.created',
      'group.member_removed',
      'group.removed',
    ],
  );
});

t.test('operators see the APIs and who has allowed access to them, and change none', async (t) => {
  const idp = await idpApp(t, HERE);
  const { get } = await enterConsole(idp, await makeOperator(t, idp));
  t.match((await get('/clients')).body, 'href="./resources"');
  t.match((await get('/resources')).body, 'No API is registered');
  await addResource(t, idp, FILES, { sensitive: ['files:write'], principalKinds: ['agent'] });
  const { body } = await get('/resources');
  for (const shown of ['Files', 'files.example.test', 'files:read, files:write (sensitive)', '600'])
    t.match(body, shown);
  t.notMatch(body, /<form method="post" action="[^"]*resources/);
  t.match((await get('/resources.csv')).body, /^Name,Identifier,Scopes,[\s\S]*Files,https:\/\/files/);
});

t.test('operators see which applications were not told that a session has ended, and retry', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const { get, act } = await enterConsole(idp, operator);
  t.notMatch((await get('/')).body, 'ailed logout notices');
  t.match((await get('/logout-failures')).body, 'Every application has been told so far.');
  // Nothing listens there.
  const address = 'http://127.0.0.1:9/out';
  const client = await idp.createClient({ name: 'Shop', backchannel_logout_uri: address });
  const human = await idp.makeHuman();
  const { browser, page } = await idp.visit(client);
  await browser.submit(page, { handle: human.handle, password: human.password });
  await idp.admin('POST', `/v1/principals/${human.sub}/disable`);
  await waitUntil('a failure', async () => (await get('/logout-failures')).body.includes('ECONNREFUSED'));

  t.match((await get('/')).body, /href="\.\/logout-failures"/);
  t.match((await get(`/clients/${client.id}`)).body, 'href="../logout-failures"');
  const { body } = await get('/logout-failures');
  for (const shown of ['Shop', address, human.sub, 'Retrying']) t.match(body, shown);
  t.match((await get('/logout-failures.csv')).body, /^Application,Address,Person,[\s\S]*Shop,.*ECONNREFUSED/);

  const [, path = ''] = /href="[./]*(logout-failures\/[^"]*\/retry)"/.exec(body) ?? [];
  const again = await act(`/${path}`);
  t.match([again.status, again.url], [200, /\/logout-failures\?done=/]);
  await waitUntil('another attempt', async () =>
    /<td[^>]*class="number"[^>]*>2</.test((await get('/logout-failures')).body),
  );
  const [record] = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'logout.retried');
  t.match(record, { subject: human.sub, by: operator.handle, detail: client.id });
  t.equal((await get('/logout-failures/none/retry')).status, 404);
});

t.test(
  'the console names a wrong signature of id_tokens at its field, and keeps one it is not given',
  async (t) => {
    const idp = await idpApp(t, { ...HERE, es256Key: ES256_KEY });
    const { act } = await enterConsole(idp, await makeOperator(t, idp));
    const fields = { name: 'Shop', redirect_uris: CALLBACK };
    const wrong = await act('/clients/create', { ...fields, id_token_alg: 'RS256' });
    t.equal(wrong.status, 400);
    t.match(wrong.body, /id="problem-id_token_alg"[^>]*>[^<]*must be EdDSA or ES256/);
    const [id = ''] = secretsOf((await act('/clients/create', { ...fields, id_token_alg: 'ES256' })).body);
    const algorithm = async () =>
      (await idp.admin('GET', '/v1/clients')).body.clients[0].id_token_signed_response_alg;
    t.equal(await algorithm(), 'ES256');
    t.match((await act(`/clients/${id}/update`, fields)).body, 'Saved.');
    t.equal(await algorithm(), 'ES256', 'a form without the field changes nothing');
    t.equal((await act(`/clients/${id}/update`, { ...fields, id_token_alg: 'none' })).status, 400);
    t.equal(await algorithm(), 'ES256');
    t.match((await act(`/clients/${id}/update`, { ...fields, id_token_alg: 'EdDSA' })).body, 'Saved.');
    t.equal(await algorithm(), undefined);
  },
);

t.test('the audit is searched by event, subject and day, page by page, and exported as CSV', async (t) => {
  const idp = await idpApp(t, HERE);
  const operator = await makeOperator(t, idp);
  const agent = await idp.mintAgent();
  const client = await idp.createClient();
  for (let count = 0; count < 60; count++) {
    idp.clock.advance(1);
    await idp.codeFor(client, agent);
  }
  idp.clock.advance(24 * 3600 * 1000);
  const { get } = await enterConsole(idp, operator);
  const rows = (body: string) => body.match(/<td[^>]*><time/g)?.length ?? 0;
  const first = await get(`/audit?event=login.succeeded&q=${agent.handle}`);
  t.equal(rows(first.body), 50);
  const [, next = ''] = /href="([^"]*)" rel="next"/.exec(first.body) ?? [];
  t.equal(rows((await get(`/${next}`)).body), 10);
  t.equal(rows((await get('/audit?event=login.&from=2040-01-02')).body), 1);
  t.equal(rows((await get('/audit?event=login.&until=2040-01-01')).body), 50);
  t.equal(rows((await get('/audit?event=nothing')).body), 0);
  for (const query of ['from=x', 'from=2040-13-01', 'event=%00', 'after=x']) {
    t.equal((await get(`/audit?${query}`)).status, 400, query);
  }
  const csv = await get(`/audit.csv?event=login.succeeded&q=${agent.sub}`);
  t.equal(csv.body.trimEnd().split('\r\n').length, 61);
});

t.test('the overview counts sign-ins by day, and the keys page shows public keys only', async (t) => {
  const idp = await idpApp(t, { ...HERE, es256Key: ES256_KEY, ed25519SeedNext: `${'ab'.repeat(31)}cd` });
  const operator = await makeOperator(t, idp);
  const { get } = await enterConsole(idp, operator);
  await idp.authorize(await idp.createClient(), { ...operator, password: 'wrong' });
  // Records of another process may come a little later.
  idp.clock.advance(61_000);
  const { body: overview } = await get('/');
  const day = /<td[^>]*>2040-01-01<\/td>(.*?)<\/tr>/.exec(overview)?.[1];
  t.same(day?.match(/(?<=>)\d+/g), ['1', '1'], 'one succeeded and one failed');
  const keys = (await get('/keys')).body;
  const { body } = await idp.request('GET', '/.well-known/jwks.json');
  for (const { kid } of body.keys) t.match(keys, kid);
  t.notMatch(keys, /abab|c9afa9/);
});

t.test(
  'with a mail server, the console lists e-mails by status and person, without their links',
  async (t) => {
    const down = { ...HERE, emailSmtpUrl: 'smtp://127.0.0.1:9' };
    const idp = await idpApp(t, down);
    const { get } = await enterConsole(idp, await makeOperator(t, idp));
    const ada = await idp.makeHuman({ handle: 'ada@example.test' });
    await idp.request('POST', '/account/forgot-password', { form: { handle: ada.handle } });
    const mails = mailCollection(await idpStore(t, idp));
    await waitUntil('the link is queued', async () => (await mails.count({ userId: ada.sub })) === 2);
    const { items } = await mails.page({ sort: 'id', limit: 10 });
    t.equal(items.length, 3);
    const pages = [
      await get('/mails'),
      await get(`/mails?q=${ada.handle}`),
      await get(`/mails?q=${ada.sub}`),
    ];
    for (const page of pages) {
      t.equal(page.status, 200);
      t.match(page.body, `href="./principals/${ada.sub}"`);
      for (const mail of items) {
        const { link = '' } = storedValues(mail, SEED);
        const token = new URL(link).pathname.split('/').at(-1) ?? '';
        t.notMatch(page.body, token);
      }
    }
    t.match((await get('/mails.csv?q=ada@example.test')).body, /password-reset,ada@example\.test/);
    for (const query of ['status=failed', 'q=nobody']) {
      t.notMatch((await get(`/mails?${query}`)).body, ada.sub, query);
    }
    const without = await idpApp(t, HERE);
    const other = await enterConsole(without, await makeOperator(t, without));
    t.notMatch(other.page.body, 'E-mails');
    t.equal((await other.get('/mails')).status, 404, 'and there is no such page without one');
  },
);
