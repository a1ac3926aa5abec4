import { stringifyCookie } from 'cookie';
import * as oauth from 'oauth4webapi';
import t from 'tap';
import { DAY, MINUTE, SECOND } from '../../../src/core/kernel/clock.js';
import { delegationCollection } from '../../../src/idp/oidc/delegations/store.js';
import { createPurges } from '../../../src/idp/oidc/purge.js';
import { TOKEN_EXCHANGE } from '../../../src/idp/oidc/tokens/request.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { agentWithKey } from '../../kit/agent-keys.js';
import { auditOf, basic, PASSWORD } from '../../kit/app.js';
import { asserted, assertion, clientKey } from '../../kit/client-keys.js';
import { runProgram } from '../../kit/command-line.js';
import { actorProof, delegationWorld, signInAt, TYPES } from '../../kit/delegations.js';
import { skewOf } from '../../kit/fetch.js';
import { claimsOf, codeIn, type IdpApp, ISSUER, idpApp, idpStore, search } from '../../kit/idp.js';
import { COMMAND_SOURCE, enterConsole, makeOperator, rolesOf } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';

/** People let agents act for them (RFC 8693): the page, the code and the token exchange. */

const HERE = { publicUrl: undefined } as const;

t.test('a person lets an agent act for them on a page that says everything', async (t) => {
  const { idp, files, client, agent, human, browser, ask, redeem } = await delegationWorld(t);
  const page = await ask({ scope: 'openid files:read files:write offline_access' });
  for (const shown of [
    agent.handle,
    'Read your files',
    'Change your files',
    'sensitive',
    'files.example.test',
  ])
    t.match(page.body, shown);
  t.notMatch(page.body, /your account ID|pass this on/);
  const landed = await browser.submit(page, { decision: 'allow' });
  const { status, body } = await redeem(codeIn(landed.location));
  t.equal(status, 200);
  t.strictSame(Object.keys(body).sort(), [
    'access_token',
    'delegation_token',
    'expires_in',
    'scope',
    'token_type',
  ]);
  const claims = claimsOf(body.access_token);
  t.match(claims, {
    sub: human.sub,
    client_id: client.id,
    aud: FILES,
    scope: 'files:read files:write',
    kind: 'human',
    act: { sub: agent.sub, sub_profile: 'ai_agent', iss: ISSUER },
    delegation: /^dlg_/,
  });
  t.notOk('sid' in claims, 'a delegation outlives the session');
  const { act, delegation } = claims;
  t.match((await introspect(idp, files, body.access_token)).body, { active: true, act, delegation });
  const records = (await auditOf(await idpStore(t, idp))).filter(({ event }) =>
    event.startsWith('delegation.'),
  );
  const given = records.find(({ event }) => event === 'delegation.given');
  t.equal(given?.subject, human.sub);
  t.match(JSON.parse(given?.detail ?? ''), { txn: claims.txn, agent: agent.sub, delegation });
});

t.test('the page is shown each time, and nothing is allowed without it', async (t) => {
  const { idp, client, agent, human, browser, ask, allow } = await delegationWorld(t);
  await allow();
  t.match((await ask()).body, sentence('delegation.title'), 'again');
  t.match((await ask({ prompt: 'none' })).location, /error=consent_required/);
  const request = { requested_actor: agent.sub, resource: FILES, scope: 'files:read' };
  for (const who of [agent, human]) {
    const { headers } = await idp.authorize(client, who, request);
    t.match(headers['location'], /error=access_denied/, 'HTTP Basic');
  }
  t.match((await browser.submit(await ask(), { decision: 'deny' })).location, /error=access_denied/);
  // The permission is the agent's: the application alone has got none.
  const alone = await ask({ requested_actor: undefined, prompt: 'none' });
  t.match(alone.location, /error=consent_required/);
  await browser.submit(await ask({ requested_actor: undefined }), { decision: 'allow' });
  t.match((await ask()).body, sentence('delegation.title'), 'also if the application has the scopes itself');
});

t.test('the sign-in form leads to the page, and is no decision', async (t) => {
  const { idp, client, agent, human } = await delegationWorld(t);
  const request = { requested_actor: agent.sub, resource: FILES, scope: 'files:read', max_age: '0' };
  const { browser, page } = await idp.visit(client, request);
  const next = await browser.submit(page, { handle: human.handle, password: human.password });
  t.match(next.body, sentence('delegation.title'));
  t.match((await browser.submit(next, { decision: 'allow' })).location, /code=/);
});

t.test('the page marks an agent that has registered itself, which needs an API that admits it', async (t) => {
  const { idp, files, agent, client, human, ask } = await delegationWorld(t);
  const handle = 'support@anthropic.example.test';
  const body = { handle, password: PASSWORD, name: 'Claude by Anthropic' };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body })).body;
  const MARK = /The agent has registered itself. Its name and its address are not verified./;
  t.match((await ask({ requested_actor: sub })).body, MARK);
  t.notMatch((await ask()).body, MARK, 'one that the operator has created');
  const { page } = await idp.visit(client, {
    requested_actor: agent.sub,
    resource: FILES,
    scope: 'files:read',
  });
  t.notMatch(page.body, /This access ends after|By signing in/, 'the sign-in allows nothing');
  await files.update(FILES, { admitsSelfRegistered: false }, COMMAND_SOURCE);
  t.match((await ask({ requested_actor: sub })).location, /error=access_denied/);
  t.match((await ask()).location, /error=access_denied.*people%20who%20registered/, 'the person, too');
  await (await rolesOf(t, idp)).grant(human.sub, COMMAND_SOURCE);
  t.match((await ask()).body, /Let an agent act for you/);
});

t.test('an exchange asks whether the API still admits the agent', async (t) => {
  const { idp, files, human, delegate, exchange } = await delegationWorld(t);
  await (await rolesOf(t, idp)).grant(human.sub, COMMAND_SOURCE);
  const { delegation_token: token, access_token: accessToken } = await delegate();
  const principals = principalCollection(await idpStore(t, idp));
  await files.update(FILES, { admitsSelfRegistered: false }, COMMAND_SOURCE);
  const next = await exchange(token);
  t.equal(next.status, 200, 'the operator has created the agent');
  const { delegation } = claimsOf(accessToken);
  const stored = await delegationCollection(await idpStore(t, idp)).findOne({ id: delegation });
  await principals.updateOne(
    { id: stored?.agent ?? '' },
    { unset: ['mintedAt', 'vouchedAt'], set: { updatedAt: 0 } },
  );
  t.match(await exchange(next.body.delegation_token), {
    status: 400,
    body: { error: 'invalid_target', error_description: /has no permission/ },
  });
});

t.test('a sensitive scope requires a sign-in of the last five minutes', async (t) => {
  const { idp, human, browser, ask } = await delegationWorld(t);
  const sensitive = { scope: 'files:read files:write' };
  const open = await ask(sensitive);
  idp.clock.advance(5 * MINUTE);
  t.match((await ask()).body, sentence('delegation.title'), 'other scopes do not');
  t.match((await browser.submit(open, { decision: 'allow' })).body, /name="password"/);
  const form = await ask(sensitive);
  t.match(form.body, /name="password"/);
  const next = await browser.submit(form, { handle: human.handle, password: human.password });
  t.match(next.body, sentence('delegation.title'));
});

t.test('requests that are not complete are refused', async (t) => {
  const { idp, human, ask } = await delegationWorld(t);
  const OTHER = 'https://other.example.test';
  await addResource(t, idp, OTHER);
  await addResource(t, idp, 'https://people.example.test', { principalKinds: ['human'] });
  const disabled = await idp.mintAgent();
  await idp.admin('POST', `/v1/principals/${disabled.sub}/disable`);
  const cases: [Record<string, string | undefined>, string][] = [
    [{ resource: undefined, scope: 'openid' }, 'invalid_target'],
    [{ scope: 'openid' }, 'invalid_scope'],
    [{ resource: 'https://people.example.test' }, 'access_denied'],
    [{ requested_actor: human.sub }, 'invalid_request'],
    [{ requested_actor: 'u_unknown' }, 'invalid_request'],
    [{ requested_actor: disabled.sub }, 'invalid_request'],
    [{ delegation_expires_in: '0' }, 'invalid_request'],
    [{ delegation_expires_in: String(90 * 86_400 + 1) }, 'invalid_request'],
    [{ delegation_max_depth: '0' }, 'invalid_request'],
    [{ delegation_max_depth: '4' }, 'invalid_request'],
  ];
  for (const [more, error] of cases)
    t.match((await ask(more)).location, new RegExp(`error=${error}`), JSON.stringify(more));
});

t.test('the code is worth nothing without the agent', async (t) => {
  const { idp, client, agent, allow, redeem } = await delegationWorld(t);
  const other = await agentWithKey(t, idp);
  const code = await allow();
  t.match(await idp.redeem(client, code), { status: 400, body: { error: 'invalid_request' } });
  t.match(await redeem(code, {}, other), { status: 400, body: { error: 'invalid_grant' } });
  for (const more of [
    { actor_token: 'x' },
    { actor_token_type: 'x' },
    { actor_token_type: undefined },
    { actor_token: (await actorProof(idp, { ...agent, key: other.key })).actor_token },
  ])
    t.match(await redeem(code, more), { status: 400 }, JSON.stringify(more));
  const proof = await actorProof(idp, agent);
  t.equal((await redeem(code, proof)).status, 200, 'the code is still valid');
  const again = await allow();
  t.match(
    await redeem(again, proof),
    { status: 400, body: { error: 'invalid_grant' } },
    'an assertion works once',
  );
});

t.test('the agent proves itself with an access token of its own', async (t) => {
  const { idp, client, agent, human, allow, redeem } = await delegationWorld(t);
  const tokenOf = async (by: typeof agent, resource = FILES) => {
    const proof = asserted(
      await assertion(by.key, { clientId: by.sub, issuer: ISSUER, now: idp.clock.now() }),
    );
    const form = search({ grant_type: 'client_credentials', resource, scope: 'files:read', ...proof });
    return (await idp.request('POST', '/token', { form })).body.access_token;
  };
  const OTHER = 'https://other.example.test';
  await addResource(t, idp, OTHER);
  const stranger = await idp.createClient();
  const viaClient = async (one: typeof client) =>
    (await idp.redeem(one, await idp.codeFor(one, agent, { resource: FILES, scope: 'files:read' }))).body
      .access_token;
  const ofPerson = (
    await idp.redeem(client, await idp.codeFor(client, human, { resource: FILES, scope: 'files:read' }))
  ).body.access_token;
  const as = (token: string) => ({ actor_token: token, actor_token_type: TYPES.accessToken });
  const code = await allow();
  for (const [name, token] of [
    ['of another agent', await tokenOf(await agentWithKey(t, idp))],
    ['for another resource', await tokenOf(agent, OTHER)],
    ['that another application has got', await viaClient(stranger)],
    ['of a person', ofPerson],
  ] as const)
    t.match(await redeem(code, as(token)), { status: 400, body: { error: 'invalid_grant' } }, name);
  const { body } = await redeem(code, as(await tokenOf(agent)));
  t.ok(body.access_token);
  t.match(await redeem(await allow(), as(body.access_token)), { status: 400 }, 'not one for a person');
  const later = await redeem(await allow(), as(await viaClient(client)));
  t.equal(later.status, 200, 'one that the application has got for the agent');
});

t.test('the agent gets further access tokens without the person', async (t) => {
  const { idp, files, human, delegate, exchange } = await delegationWorld(t);
  const first = await delegate({ scope: 'files:read files:write' });
  idp.clock.advance(3 * DAY);
  const { status, body } = await exchange(first.delegation_token, { scope: 'files:read', resource: FILES });
  t.equal(status, 200);
  t.match(body, { issued_token_type: TYPES.accessToken, scope: 'files:read', expires_in: 600 });
  t.match(claimsOf(body.access_token), { sub: human.sub, scope: 'files:read', aud: FILES });
  t.equal((await introspect(idp, files, body.access_token)).body.active, true);
  t.equal(body.delegation_token, first.delegation_token);
  const all = (await exchange(body.delegation_token)).body;
  t.equal(all.scope, 'files:read files:write', 'a narrower token narrows nothing else');
  const token = all.delegation_token;
  t.match(await exchange(token, { scope: 'files:delete' }), { body: { error: 'invalid_scope' } });
  t.match(await exchange(token, { resource: ISSUER }), { body: { error: 'invalid_target' } });
  t.match(await exchange(token, { audience: ISSUER }), { body: { error: 'invalid_target' } });
  t.match(
    await exchange(token, { audience: FILES }),
    { body: { error: 'invalid_target' } },
    'without resource',
  );
  t.match(await exchange(token, { actor_token: undefined }), { body: { error: 'invalid_request' } });
  t.match(await exchange(token, { subject_token_type: 'x' }), { body: { error: 'invalid_request' } });
  t.match(await exchange(token, { requested_token_type: 'x' }), { body: { error: 'invalid_request' } });
  t.match(await exchange(token, {}, await agentWithKey(t, idp)), { body: { error: 'invalid_grant' } });
  const spelled = { resource: FILES, audience: `${FILES}/` };
  t.equal((await exchange(token, spelled)).status, 200, 'a refused request uses nothing up');
  const used = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'delegation.used');
  t.match(used[0], { subject: human.sub });
  t.match(used[0]?.detail, claimsOf(body.access_token).txn);
});

t.test(
  'the token of a delegation is no refresh token, and a refresh token is none of a delegation',
  async (t) => {
    const { idp, client, human, delegate, exchange } = await delegationWorld(t);
    const { delegation_token: token } = await delegate();
    t.match(await idp.refresh(client, token), { status: 400, body: { error: 'invalid_grant' } });
    t.match(await idp.refresh(client, token.replace('dt_', 'rt_')), { status: 400 });
    const code = await idp.codeFor(client, human, { scope: 'openid offline_access' });
    const { refresh_token: other } = (await idp.redeem(client, code)).body;
    t.match(await exchange(other), { status: 400 });
    t.match(await exchange(other.replace('rt_', 'dt_')), { status: 400 });
    t.equal((await exchange(token)).status, 200);
    t.equal((await idp.refresh(client, other)).status, 200);
  },
);

t.test('the audit names the application whose exchange was refused, and why', async (t) => {
  const { idp, client, delegate, exchange } = await delegationWorld(t);
  const { delegation_token: token } = await delegate();
  await exchange(token, {}, await agentWithKey(t, idp));
  await exchange(`dt_${'x'.repeat(75)}`);
  const refused = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'client.refused');
  t.match(
    refused,
    ['actor_token does not prove the agent of the delegation.', /invalid, expired/].map((detail) => ({
      subject: client.id,
      detail,
    })),
  );
  t.equal(refused.length, 2);
});

t.test(
  'a client that authenticates keeps the token of a delegation, also with many uses at once',
  async (t) => {
    const { idp, files, delegate, exchange } = await delegationWorld(t);
    const { delegation_token: token } = await delegate();
    const answers = await Promise.all(Array.from({ length: 50 }, () => exchange(token)));
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
    t.same(new Set(answers.map(({ body }) => body.delegation_token)), new Set([token]));
    idp.clock.advance(DAY);
    const { body } = await exchange(token);
    t.equal((await introspect(idp, files, body.access_token)).body.active, true);
    const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
    t.equal(events.filter((event) => event === 'delegation.used').length, 52);
    t.notOk(events.includes('delegation.ended') || events.includes('refresh.reused'));
  },
);

t.test('a repetition gets the same answer, and later reuse ends the delegation', async (t) => {
  const { idp, delegate, exchange } = await delegationWorld(t, {}, true);
  const first = await delegate();
  const { body } = await exchange(first.delegation_token);
  const again = await exchange(first.delegation_token);
  t.equal(again.body.delegation_token, body.delegation_token);
  idp.clock.advance(31 * SECOND);
  t.match(await exchange(first.delegation_token), { status: 400, body: { error: 'invalid_grant' } });
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.ok(events.includes('delegation.ended') && events.includes('refresh.reused'));
});

t.test('fifty exchanges of one token have one successor', async (t) => {
  const { idp, files, delegate, exchange } = await delegationWorld(t, {}, true);
  const { delegation_token: handle } = await delegate();
  const answers = await Promise.all(Array.from({ length: 50 }, () => exchange(handle)));
  t.ok(answers.every(({ status }) => status === 200));
  t.equal(new Set(answers.map(({ body }) => body.delegation_token)).size, 1);
  t.not(answers[0]?.body.delegation_token, handle);
  const { body } = await exchange(answers[0]?.body.delegation_token);
  t.equal((await introspect(idp, files, body.access_token)).body.active, true);
});

t.test('an end beside exchanges ends all that they give', async (t) => {
  const { idp, files, browser, delegate, exchange } = await delegationWorld(t, HERE);
  const first = await delegate();
  const page = await browser.open(`${await idp.listen()}/account`);
  const ending = browser.submit(page, {}, '/account/delegations/end');
  const answers = await Promise.all(Array.from({ length: 8 }, () => exchange(first.delegation_token)));
  t.match((await ending).body, sentence('account.done.delegation-ended'));
  for (const { access_token, delegation_token } of [first, ...answers.map(({ body }) => body)]) {
    if (access_token === undefined) continue;
    t.equal((await introspect(idp, files, access_token)).body.active, false);
    t.equal((await exchange(delegation_token)).status, 400);
  }
});

t.test('of permissions at the same time one remains, and only its token works', async (t) => {
  const { idp, browser, ask, redeem, exchange } = await delegationWorld(t);
  const pages = [await ask(), await ask(), await ask()];
  const allowed = await Promise.all(pages.map((page) => browser.submit(page, { decision: 'allow' })));
  const redeemed = await Promise.all(allowed.map(({ location }) => redeem(codeIn(location))));
  t.equal(await delegationCollection(await idpStore(t, idp)).count(), 1);
  const statuses: number[] = [];
  for (const { body } of redeemed)
    if (body.delegation_token) statuses.push((await exchange(body.delegation_token)).status);
  t.equal(statuses.filter((status) => status === 200).length, 1, `${statuses}`);
});

t.test('oauth4webapi exchanges the token of a delegation, with a bound key', async (t) => {
  const { idp, client, agent, allow } = await delegationWorld(t, HERE);
  const issuer = idp.server.fastify.idp.issuer();
  const as: oauth.AuthorizationServer = { issuer, token_endpoint: `${issuer}/token` };
  const key = await oauth.generateKeyPair('ES256');
  const own: oauth.Client = { client_id: client.id, [oauth.clockSkew]: skewOf(idp) };
  const DPoP = oauth.DPoP(own, key);
  const request = async (grant: string, fields: Record<string, string>, proof?: typeof DPoP) => {
    const method = oauth.ClientSecretBasic(client.secret ?? '');
    const http = { ...(proof && { DPoP: proof }), [oauth.allowInsecureRequests]: true };
    const send = () => oauth.genericTokenEndpointRequest(as, own, method, grant, fields, http);
    const read = async (response: Response) => oauth.processGenericTokenEndpointResponse(as, own, response);
    return send()
      .then(read)
      .catch(async (error) => {
        if (!oauth.isDPoPNonceError(error)) throw error;
        return read(await send());
      });
  };
  const code = { code: await allow({ delegation_max_depth: '2' }), redirect_uri: client.redirectUri };
  const first = await request('authorization_code', { ...code, ...(await actorProof(idp, agent)) }, DPoP);
  t.equal(first.token_type, 'dpop');
  const { cnf } = claimsOf(first.access_token);
  const about = await introspect(idp, client, String(first['delegation_token']));
  t.match(about.body, { active: true, scope: 'files:read', cnf }, 'bound to the same key');
  const exchanging = async () => ({
    subject_token: String(first['delegation_token']),
    subject_token_type: TYPES.delegation,
    ...(await actorProof(idp, agent)),
  });
  const refused = (error: { error?: string }) => error.error;
  t.equal(await request(TOKEN_EXCHANGE, await exchanging()).catch(refused), 'invalid_dpop_proof', 'no key');
  const other = oauth.DPoP(own, await oauth.generateKeyPair('ES256'));
  t.equal(await request(TOKEN_EXCHANGE, await exchanging(), other).catch(refused), 'invalid_grant');
  const next = await request(TOKEN_EXCHANGE, await exchanging(), DPoP);
  t.match(next, { issued_token_type: TYPES.accessToken, token_type: 'dpop' });
  t.match(claimsOf(next.access_token).cnf, cnf);
  const handingOn = {
    subject_token: next.access_token,
    subject_token_type: TYPES.accessToken,
    resource: FILES,
    ...(await actorProof(idp, await agentWithKey(t, idp))),
  };
  t.equal(await request(TOKEN_EXCHANGE, handingOn).catch(refused), 'invalid_grant', 'it stays with its key');
});

t.test('a delegation expires, and its tokens not later', async (t) => {
  const { idp, files, delegate, exchange } = await delegationWorld(t);
  const first = await delegate({ delegation_expires_in: '900' });
  idp.clock.advance(600 * SECOND);
  const { body } = await exchange(first.delegation_token);
  t.equal(body.expires_in, 300);
  idp.clock.advance(299 * SECOND);
  t.equal((await introspect(idp, files, body.access_token)).body.active, true);
  idp.clock.advance(2 * SECOND);
  t.equal((await introspect(idp, files, body.access_token)).body.active, false);
  t.equal((await exchange(body.delegation_token)).status, 400);
});

t.test('disabling either party or removing a key of the agent ends what was given', async (t) => {
  for (const end of ['person', 'agent', 'key'] as const) {
    const { idp, files, agent, human, delegate, exchange } = await delegationWorld(t);
    const second = clientKey('ES256', 'second');
    await agent.keys.add(agent.sub, second);
    const { access_token: token, delegation_token: handle } = await delegate();
    t.equal((await introspect(idp, files, token)).body.active, true);
    if (end === 'person') await idp.admin('POST', `/v1/principals/${human.sub}/disable`);
    if (end === 'agent') await idp.admin('POST', `/v1/principals/${agent.sub}/disable`);
    if (end === 'key') await agent.keys.remove(agent.sub, agent.keyId);
    t.equal((await introspect(idp, files, token)).body.active, false, end);
    const isEnded = (await exchange(handle, {}, { ...agent, key: second })).status === 400;
    t.ok(isEnded, `${end}, although the agent can prove another key`);
  }
});

t.test('an agent hands its token on, as far as the person has permitted', async (t) => {
  const { idp, files, client, agent, human, ask, delegate } = await delegationWorld(t);
  const [second, third] = [await agentWithKey(t, idp), await agentWithKey(t, idp)];
  const handOn = async (token: string, by: typeof agent, to: typeof agent, more = {}) =>
    idp.request('POST', '/token', {
      form: search({
        grant_type: TOKEN_EXCHANGE,
        ...asserted(await assertion(by.key, { clientId: by.sub, issuer: ISSUER, now: idp.clock.now() })),
        subject_token: token,
        subject_token_type: TYPES.accessToken,
        resource: FILES,
        ...(await actorProof(idp, to)),
        ...more,
      }),
    });
  const one = await delegate();
  t.match(await handOn(one.access_token, agent, second), { status: 400, body: { error: 'invalid_grant' } });

  t.match((await ask({ delegation_max_depth: '2' })).body, /pass this on to other agents: at most 1/);
  const two = await delegate({ scope: 'files:read files:write', delegation_max_depth: '2' });
  idp.clock.advance(200 * SECOND);
  const { status, body } = await handOn(two.access_token, agent, second, { scope: 'files:read' });
  t.equal(status, 200);
  t.match(body, { issued_token_type: TYPES.accessToken, scope: 'files:read', expires_in: 400 });
  t.notOk('delegation_token' in body);
  const claims = claimsOf(body.access_token);
  t.match(claims, {
    sub: human.sub,
    client_id: client.id,
    scope: 'files:read',
    act: { sub: second.sub, act: { sub: agent.sub } },
    exp: claimsOf(two.access_token).exp,
    txn: claimsOf(two.access_token).txn,
  });
  t.notOk('act' in claims.act.act);
  t.equal((await introspect(idp, files, body.access_token)).body.active, true);
  t.match(await handOn(body.access_token, second, third), { status: 400 }, 'the depth is bounded');
  t.match(await handOn(two.access_token, second, third), { status: 400 }, 'only the current agent hands on');
  t.match(await handOn(two.access_token, agent, agent), { status: 400 }, 'not to itself');
  t.match(await handOn(two.access_token, agent, second, { scope: 'files:delete' }), {
    body: { error: 'invalid_scope' },
  });
  t.match(await handOn(two.access_token, agent, second, { resource: ISSUER }), { status: 400 });
  await idp.admin('POST', `/v1/principals/${second.sub}/disable`);
  t.equal((await introspect(idp, files, body.access_token)).body.active, false);
  t.equal((await introspect(idp, files, two.access_token)).body.active, true);
});

t.test('the person sees what agents may do and ends it on the account page', async (t) => {
  const { idp, files, human, browser, delegate, exchange } = await delegationWorld(t, HERE);
  const origin = await idp.listen();
  const account = () => browser.open(`${origin}/account`);
  t.notMatch((await account()).body, sentence('account.delegations'));
  const { access_token: token, delegation_token: handle } = await delegate();
  const page = await account();
  t.match(page.body, /Agents that act for you[\s\S]*agent1@example\.test[\s\S]*Not used yet/);
  t.match(page.body, /Read your files/);
  t.notMatch(page.body, /files:read/, 'the words of the permission');
  const { body } = await exchange(handle);
  t.match((await account()).body, sentence('account.last-used'));
  const { delegation } = claimsOf(token);

  const stranger = await signInAt(idp, await idp.makeHuman());
  const theirs = await stranger.open(`${origin}/account`);
  const { form = '' } = theirs.form('/account/name').fields;
  const tried = await fetch(`${origin}/account/delegations/end`, {
    method: 'POST',
    headers: { cookie: stringifyCookie(stranger.cookies('/account')) },
    body: new URLSearchParams({ form, delegation }),
    redirect: 'manual',
  });
  t.equal(tried.status, 303);
  t.equal((await introspect(idp, files, token)).body.active, true, 'of another person');

  const ended = await browser.submit(page, {}, '/account/delegations/end');
  t.match(ended.body, sentence('account.done.delegation-ended'));
  t.notMatch(ended.body, sentence('account.delegations'));
  for (const one of [token, body.access_token])
    t.equal((await introspect(idp, files, one)).body.active, false);
  t.equal((await exchange(body.delegation_token)).status, 400);
  const records = await auditOf(await idpStore(t, idp));
  const [last] = records.filter(({ event }) => event === 'delegation.ended');
  t.match(last, { subject: human.sub, detail: new RegExp(delegation) });
});

t.test('whatever ends a delegation ends its tokens, and all its records name the chain', async (t) => {
  const disable = (idp: IdpApp, { sub }: { sub: string }) =>
    idp.admin('POST', `/v1/principals/${sub}/disable`);
  type World = Awaited<ReturnType<typeof delegationWorld>>;
  const ends: Record<string, (world: World, used: { code: string; handle: string }) => Promise<unknown>> = {
    'another one replaces it': ({ allow }) => allow(),
    'the code is used again': ({ redeem }, { code }) => redeem(code),
    'its token is used again': async ({ idp, exchange }, { handle }) => {
      idp.clock.advance(31 * SECOND);
      return exchange(handle);
    },
    'its client revokes it': async ({ idp, client, exchange }, { handle }) =>
      idp.request('POST', '/revoke', {
        form: search({ token: (await exchange(handle)).body.delegation_token }),
        headers: { authorization: basic(client.id, client.secret ?? '') },
      }),
    'its client is deleted': async ({ idp, client }) =>
      (await enterConsole(idp, await makeOperator(t, idp, 'olga'))).act(`/clients/${client.id}/delete`, {
        confirm: client.id,
      }),
    'the agent is disabled': ({ idp, agent }) => disable(idp, agent),
    'the agent is deleted': ({ idp, agent }) => idp.admin('DELETE', `/v1/agents/${agent.sub}`),
    'the agent gets another password': ({ idp, agent }) =>
      idp.request('POST', '/v1/agents/self/rotate', {
        headers: { authorization: basic(agent.handle, agent.password) },
      }),
    'the person who answers for the agent leaves': async ({ idp, agent }) => {
      const owner = await idp.makeHuman();
      const people = principalCollection(await idpStore(t, idp));
      await people.changeOne({ id: agent.sub }, { set: { owner: owner.sub } });
      await disable(idp, owner);
    },
    'the person is disabled': ({ idp, human }) => disable(idp, human),
  };
  for (const [name, end] of Object.entries(ends)) {
    const world = await delegationWorld(t, HERE, name === 'its token is used again');
    const { idp, files, client, agent, human, allow, redeem, exchange } = world;
    const store = await idpStore(t, idp);
    const second = await agentWithKey(t, idp);
    const before = new Set((await auditOf(store)).map(({ id }) => id));
    const begun = idp.clock.now();
    const code = await allow({ delegation_max_depth: '2' });
    const { access_token: token, delegation_token: handle } = (await redeem(code)).body;
    const { txn, delegation } = claimsOf(token);
    const { body } = await exchange(handle);
    const form = {
      ...{ grant_type: TOKEN_EXCHANGE, client_id: client.id, client_secret: client.secret },
      ...{ subject_token: body.access_token, subject_token_type: TYPES.accessToken, resource: FILES },
      ...(await actorProof(idp, second)),
    };
    t.equal((await idp.request('POST', '/token', { form: search(form) })).status, 200);
    t.equal((await introspect(idp, files, token)).body.active, true, name);
    await end(world, { code, handle });
    for (const one of [token, body.access_token])
      t.equal((await introspect(idp, files, one)).body.active, false, name);
    t.ok((await exchange(body.delegation_token)).status >= 400, name);
    const hasEnded = async () => (await auditOf(store)).some(({ event }) => event === 'delegation.ended');
    await waitUntil(`the record of the end: ${name}`, hasEnded);
    const records = (await auditOf(store)).filter(
      ({ id, subject }) => subject === human.sub && !before.has(id),
    );
    const events = records.map(({ event }) => event);
    for (const event of ['given', 'used', 'handed_on', 'ended'])
      t.ok(events.includes(`delegation.${event}`), `${name}: ${event}`);
    const given = records.find(({ event }) => event === 'delegation.given');
    t.equal(JSON.parse(given?.detail ?? '').until, new Date(begun + 30 * DAY).toISOString());
    const ended = records.filter(({ event }) => event === 'delegation.ended');
    const by = name === 'its client is deleted' ? 'olga' : undefined;
    t.match(
      ended,
      [{ by, detail: new RegExp(`"txn":"${txn}".*"agent":"${agent.sub}".*"${delegation}"`) }],
      name,
    );
    t.equal(ended.length, 1, name);
    const others = records.filter(({ detail }) => !detail?.includes(txn)).map(({ event }) => event);
    const next: Record<string, string[]> = {
      'another one replaces it': ['delegation.given', 'login.continued'],
      'the person is disabled': ['principal.disabled'],
    };
    t.same(others.sort(), next[name] ?? [], `${name}: ${events.join(' ')}`);
  }
});

t.test('a delegation ends with its API, also if that is registered again', async (t) => {
  const { idp, files, browser, delegate, exchange } = await delegationWorld(t, HERE);
  const { access_token: token, delegation_token: handle } = await delegate();
  await addResource(t, idp, 'https://other.example.test');
  const origin = await idp.listen();
  await files.remove(FILES, COMMAND_SOURCE);
  t.match(await exchange(handle), { status: 400, body: { error: 'invalid_grant' } });
  const again = await addResource(t, idp);
  t.match(await exchange(handle), { status: 400, body: { error: 'invalid_grant' } });
  t.equal((await introspect(idp, again, token)).body.active, false);
  t.notMatch((await browser.open(`${origin}/account`)).body, sentence('account.delegations'));
});

t.test('a job ends delegations whose client or API has disappeared', async (t) => {
  const { idp, client, delegate } = await delegationWorld(t);
  const stored = delegationCollection(await idpStore(t, idp));
  const ended: string[] = [];
  const run = async (...resources: string[]) => {
    const jobs = createPurges({
      delegationDocuments: stored,
      delegations: { end: async (id: string) => ended.push(id) > 0 },
      directory: { findClient: async (id: string) => (id === client.id ? { id } : null) },
      resources: { find: async (one: string) => (resources.includes(one) ? {} : null) },
    } as never);
    await jobs['orphaned-delegations']?.run({ signal: new AbortController().signal } as never);
  };
  const { delegation: id } = claimsOf((await delegate()).access_token);
  await run(FILES);
  t.same(ended, []);
  await run();
  t.same(ended.splice(0), [id], 'without its API');
  await stored.updateOne({ id }, { set: { clientId: 'https://app.example.test/client' } });
  await run(FILES);
  t.same(ended, [], 'a client that names itself may return');
  await stored.updateOne({ id }, { set: { clientId: 'cid_deleted' } });
  await run(FILES);
  t.same(ended, [id], 'without its client');
});

t.test('operators see and end delegations in the console', async (t) => {
  const { idp, files, human, delegate } = await delegationWorld(t, HERE);
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp, 'olga'));
  const { access_token: token } = await delegate();
  const { body } = await get(`/principals/${human.sub}?tab=agents-that-act-for-this-person`);
  t.match(body, /Agents that act for this person[\s\S]*files:read/);
  const [, end = ''] = /href="\.\.\/(principals\/[^"]*\/delegations\/[^"]*\/end)"/.exec(body) ?? [];
  t.match((await act(`/${end}`)).body, 'The delegation has ended.');
  t.equal((await get(`/${end}`)).status, 404, 'it is gone');
  t.equal((await introspect(idp, files, token)).body.active, false);
  const records = await auditOf(await idpStore(t, idp));
  const [last] = records.filter(({ event }) => event === 'delegation.ended');
  t.match(last, { subject: human.sub, by: 'olga' });
});

t.test('commands on the host list and end delegations', async (t) => {
  const { idp, files, agent, human, delegate } = await delegationWorld(t);
  const type = (...args: string[]) =>
    runProgram('idp', ['delegation', ...args], { IDP_DATABASE_URI: idp.databaseUri });
  t.match(await type('list'), { code: 0, err: /There are no delegations/ });
  const { access_token: token } = await delegate();
  const { delegation: id } = claimsOf(token);
  // The clock of the command is the real one.
  const stored = delegationCollection(await idpStore(t, idp));
  const { expiresAt } = (await stored.findOne({ id })) ?? { expiresAt: 0 };
  await stored.updateOne({ id }, { set: { expiresAt: Date.now() + DAY } });
  t.match((await type('list', '--json')).json, {
    delegations: [{ id, person: human.handle, agent: agent.handle, resource: FILES, scopes: ['files:read'] }],
  });
  await stored.updateOne({ id }, { set: { expiresAt } });
  t.equal((await introspect(idp, files, token)).body.active, true);
  t.match(await type('revoke', 'dlg_unknown'), { code: 1, err: /There is no delegation dlg_unknown/ });
  t.equal((await type('revoke', id)).code, 0);
  t.match(await type('revoke', id), { code: 1 });
  t.equal((await introspect(idp, files, token)).body.active, false);
});

t.test(
  'without a resource, requests for a delegation are ignored and the grant type is unknown',
  async (t) => {
    const idp = await idpApp(t);
    const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
    t.ok(await idp.codeFor(client, agent, { requested_actor: agent.sub }));
    const form = { grant_type: TOKEN_EXCHANGE, client_id: client.id, client_secret: client.secret ?? '' };
    t.match(await idp.request('POST', '/token', { form }), { body: { error: 'unsupported_grant_type' } });
    const named = async () =>
      (await idp.request('GET', '/.well-known/openid-configuration')).body.grant_types_supported;
    t.notOk((await named()).includes(TOKEN_EXCHANGE));
    await addResource(t, idp);
    idp.clock.advance(2 * SECOND);
    t.ok((await named()).includes(TOKEN_EXCHANGE));
  },
);
