import { setImmediate } from 'node:timers/promises';
import { createLocalJWKSet, jwtVerify } from 'jose';
import t, { type Test } from 'tap';
import { type AuditRecord, auditCollection } from '../../../src/core/ops/audit.js';
import { TOKEN_EXCHANGE } from '../../../src/idp/oidc/tokens/request.js';
import { subjectOfGroup } from '../../../src/idp/permissions/store.js';
import { agentUseCollection } from '../../../src/idp/provisioning/agent-uses.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { agentWithKey } from '../../kit/agent-keys.js';
import { auditOf, basic, PASSWORD } from '../../kit/app.js';
import { actorProof, delegationWorld, signInAt, TYPES } from '../../kit/delegations.js';
import { addGroups, memberOf } from '../../kit/groups.js';
import { claimsOf, idpApp, idpStore, search } from '../../kit/idp.js';
import { COMMAND_SOURCE, enterConsole, makeOperator } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';

/** Who let an agent in, what it did, and how it is stopped. */

const HERE = { publicUrl: undefined, limits: false } as const;

/** A delegation that the first agent has handed on to a second one. */
async function chainWorld(t: Test) {
  const world = await delegationWorld(t, HERE);
  const { idp, client, delegate } = world;
  const second = await agentWithKey(t, idp);
  const { access_token: token } = await delegate({ delegation_max_depth: '2' });
  const form = {
    ...{ grant_type: TOKEN_EXCHANGE, client_id: client.id, client_secret: client.secret },
    ...{ subject_token: token, subject_token_type: TYPES.accessToken, resource: FILES },
    ...(await actorProof(idp, second)),
  };
  const { body } = await idp.request('POST', '/token', { form: search(form) });
  const store = await idpStore(t, idp);
  return { ...world, store, second, token, handedOn: body.access_token, txn: claimsOf(token).txn };
}

/** An API, and an agent that asks for tokens with its password. */
async function agentWorld(t: Test) {
  const idp = await idpApp(t, HERE);
  const files = await addResource(t, idp, FILES, { agents: false });
  const agent = await idp.mintAgent();
  const store = await idpStore(t, idp);
  const ask = () =>
    idp.request('POST', '/token', {
      form: search({ grant_type: 'client_credentials', resource: FILES }),
      headers: { authorization: basic(agent.sub, agent.password) },
    });
  const allow = (subject = agent.sub) => files.permissions.allow(subject, FILES, {}, COMMAND_SOURCE);
  const traces = async (event: string) =>
    (await auditOf(store)).flatMap((one) => (one.event === event ? [JSON.parse(one.detail ?? '')] : []));
  return { idp, files, agent, store, ask, allow, traces };
}

t.test(
  'a receipt names who let the agents, for whom, where and what, and its signature is valid',
  async (t) => {
    const { idp, agent, second, human, browser, client, txn, files } = await chainWorld(t);
    const origin = await idp.listen();
    t.match((await browser.open(`${origin}/account`)).body, txn);
    const { body } = await browser.open(`${origin}/account/receipts/${txn}`);
    const { receipt, ...claims } = JSON.parse(body);
    t.match(claims, { iss: idp.server.fastify.idp.issuer(), txn, count: 4, complete: true });
    const actionOf = (event: string) => claims.actions.find((one: { event: string }) => one.event === event);
    const who = { client: client.id, person: human.sub, delegation: /^dlg_/, resource: FILES };
    const scopes = ['files:read'];
    const permissions = [`* ${files.id}`];
    t.match(actionOf('delegation.given'), { agent: agent.sub, ...who, scopes });
    t.match(actionOf('login.continued'), { agent: agent.sub, person: human.sub });
    t.match(actionOf('delegation.used'), { agent: agent.sub, ...who, scopes, permissions });
    const handedOn = { agent: second.sub, chain: [agent.sub], ...who, scopes, permissions };
    t.match(actionOf('delegation.handed_on'), handedOn);
    t.notMatch(body, '127.0.0.1', 'no address');
    const jwks = (await idp.request('GET', '/jwks')).body;
    const { payload } = await jwtVerify(receipt, createLocalJWKSet(jwks), { typ: 'receipt+jwt' });
    t.same(payload, claims);

    const { get } = await enterConsole(idp, await makeOperator(t, idp));
    const page = await get(`/receipts/${txn}`);
    t.match(page.body, 'delegation.handed_on');
    t.match(page.body, receipt.split('.')[0]);
    t.match((await get(`/principals/${agent.sub}?tab=audit`)).body, `receipts/${txn}`);
    t.equal((await get('/receipts/gr_none')).status, 404);
  },
);

t.test(
  'a person gets receipts of what was done in their name, and an owner those of their agents',
  async (t) => {
    const { idp, store, second, txn } = await chainWorld(t);
    const origin = await idp.listen();
    const [owner, stranger] = [await idp.makeHuman(), await idp.makeHuman()];
    const ask = async (person: typeof owner) =>
      (await (await signInAt(idp, person)).open(`${origin}/account/receipts/${txn}`)).status;
    t.same([await ask(owner), await ask(stranger)], [404, 404]);
    await principalCollection(store).changeOne({ id: second.sub }, { set: { owner: owner.sub } });
    t.same([await ask(owner), await ask(stranger)], [200, 404]);
    const account = await (await signInAt(idp, owner)).open(`${origin}/account`);
    t.match(account.body, txn, 'where it acted');
    t.equal((await idp.request('GET', `/account/receipts/${txn}`)).status, 401, 'nobody else');
  },
);

t.test('what a client has sent is in no receipt', async (t) => {
  const { idp, browser, txn } = await chainWorld(t);
  const detail = JSON.stringify({ txn, client: 'x', agent: `u_${'0'.repeat(32)}` });
  await idp.request('POST', '/token', {
    form: search({ grant_type: 'authorization_code', client_id: detail, code: 'x', redirect_uri: detail }),
  });
  const { body } = await browser.open(`${await idp.listen()}/account/receipts/${txn}`);
  t.equal(JSON.parse(body).count, 4);
});

t.test('a receipt that does not hold all records says so', async (t) => {
  const { idp, store, browser, txn } = await chainWorld(t);
  const [record] = (await auditOf(store)).filter((one) => one.txn === txn);
  const more = Array.from({ length: 1000 }, (_, index) => ({
    ...(record as AuditRecord),
    id: `aud_${'f'.repeat(28)}${index.toString(16).padStart(4, '0')}`,
  }));
  t.equal(await auditCollection(store).insertMany(more), true);
  const { body } = await browser.open(`${await idp.listen()}/account/receipts/${txn}`);
  t.match(JSON.parse(body), { count: 1000, complete: false });
});

t.test('each token of an agent has a record with its permission, owner and chain', async (t) => {
  const { idp, files, agent, store, ask, allow, traces } = await agentWorld(t);
  const owner = await idp.makeHuman();
  await principalCollection(store).changeOne({ id: agent.sub }, { set: { owner: owner.sub } });
  await allow();
  const { txn } = claimsOf((await ask()).body.access_token);
  const by = {
    agent: agent.sub,
    owner: owner.sub,
    resource: FILES,
    permissions: [`${agent.sub} ${files.id}`],
  };
  t.match(await traces('agent.token_issued'), [{ txn, client: agent.sub, ...by }]);

  const client = await idp.createClient();
  const scope = 'openid offline_access files:read';
  const code = await idp.codeFor(client, agent, { scope, resource: FILES });
  const { refresh_token: token, access_token: access } = (await idp.redeem(client, code)).body;
  await idp.refresh(client, token);
  const of = { txn: claimsOf(access).txn, client: client.id, ...by, scopes: ['files:read'] };
  const [, ...later] = await traces('agent.token_issued');
  t.match(later, [of, of], 'the code and the refresh');
  t.match((await traces('login.succeeded')).at(-1), { txn: of.txn, agent: agent.sub, owner: owner.sub });
});

t.test('an API learns that an agent may no longer do what its token permits', async (t) => {
  const { idp, files, agent, ask, allow, traces } = await agentWorld(t);
  const groups = await addGroups(t, idp, { research: [agent.sub] });
  await allow(subjectOfGroup('research'));
  const token = (await ask()).body.access_token;
  t.equal((await introspect(idp, files, token)).body.active, true);
  await groups.removeMember('research', await memberOf(idp, agent.sub), COMMAND_SOURCE);
  t.equal((await introspect(idp, files, token)).body.active, false);
  const refused = { txn: claimsOf(token).txn, agent: agent.sub, resource: FILES, permissions: [] };
  t.match(await traces('agent.token_refused'), [refused]);
});

t.test('where an agent acted is noted once a minute', async (t) => {
  const { idp, agent, store, ask, allow, files } = await agentWorld(t);
  await allow();
  const uses = agentUseCollection(store);
  const settle = async (minutes: number) => {
    while ((await uses.findOne({ agent: agent.sub }))?.minutes !== minutes) await setImmediate();
  };
  const begun = idp.clock.now();
  const tokens = await Promise.all(Array.from({ length: 50 }, ask));
  await settle(1);
  idp.clock.advance(60_000);
  await introspect(idp, files, tokens[0]?.body.access_token);
  await settle(2);
  t.match(await uses.findOne({ agent: agent.sub }), {
    ...{ resource: FILES, minutes: 2, firstUsedAt: begun, lastUsedAt: begun + 60_000 },
    txn: claimsOf(tokens[0]?.body.access_token).txn,
  });
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp));
  const tab = async (name: string) => (await get(`/principals/${agent.sub}?tab=${name}`)).body;
  t.match(await tab('where-it-acted'), 'https://files.example.test');
  t.match(await tab('may-use-apis'), /Given by[\s\S]*cli/);
  t.match(await tab(''), 'Created by');
  await act(`/principals/${agent.sub}/delete`, { confirm: agent.handle });
  t.equal(await uses.findOne({ agent: agent.sub }), null);
});

t.test('one button stops an agent with everything below it, and says what ends', async (t) => {
  const { idp, files, agent, human, handedOn, token, exchange } = await chainWorld(t);
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp));
  const page = `/principals/${agent.sub}/disable`;
  t.match((await get(page)).body, new RegExp(`Stop[\\s\\S]*${human.handle} at ${FILES}[\\s\\S]*handed on`));
  t.equal((await introspect(idp, files, handedOn)).body.active, true);
  await act(page);
  for (const one of [token, handedOn]) t.equal((await introspect(idp, files, one)).body.active, false);
  t.ok((await exchange('dt_')).status >= 400);
  await act(`/principals/${agent.sub}/enable`);
  t.equal((await introspect(idp, files, handedOn)).body.active, false, 'what has ended stays ended');
});

t.test('each page that names an agent says whether it has registered itself', async (t) => {
  const { idp, human, files, browser, ask } = await delegationWorld(t, HERE);
  const own = { handle: 'own@example.test', password: PASSWORD };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body: own })).body;
  await files.permissions.allow(sub, FILES, {}, COMMAND_SOURCE);
  await addGroups(t, idp, { research: [sub] });
  const store = await idpStore(t, idp);
  await principalCollection(store).changeOne({ id: sub }, { set: { owner: human.sub } });
  await browser.submit(await ask({ requested_actor: sub }), { decision: 'allow' });
  const { get } = await enterConsole(idp, await makeOperator(t, idp));
  const MARK = 'registered itself, not verified';
  const actions = ['allow', 'details', 'disable', 'delete', 'rotate'].map(
    (name) => `/principals/${sub}/${name}`,
  );
  const ofPerson = `/principals/${human.sub}?tab=agents-that-act-for-this-person`;
  const paths = ['/principals', `/principals/${sub}`, ofPerson, '/groups/research/members'];
  for (const path of [...paths, ...actions]) t.match((await get(path)).body, MARK, path);
  const account = (await browser.open(`${await idp.listen()}/account`)).body;
  t.equal(account.split(sentence('account.agent-unverified')).length, 3, 'the agent and the delegation');
});

t.test('an end on a page of the console includes its day', async (t) => {
  const { idp, agent, files } = await agentWorld(t);
  const { act, get } = await enterConsole(idp, await makeOperator(t, idp));
  const page = `/principals/${agent.sub}`;
  const until = '2040-01-31';
  await act(`${page}/allow`, { resource: FILES, until });
  await act(`${page}/details`, { expires: until });
  const [permission] = (await files.permissions.list({ subject: agent.sub })).items;
  t.equal(permission?.until, Date.parse('2040-01-31T23:59:59.999Z'));
  t.match((await get(`${page}/details`)).body, `value="${until}"`);
  for (const day of ['2040-02-31', 'soon'])
    t.match(await act(`${page}/allow`, { resource: FILES, until: day }), {
      status: 400,
      body: /must be a day like/,
    });
});
