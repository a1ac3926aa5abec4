import { SignJWT } from 'jose';
import t, { type Test } from 'tap';
import { HOUR, MINUTE } from '../../../src/core/kernel/clock.js';
import { JWT_BEARER } from '../../../src/idp/oidc/identity-assertions/trust.js';
import { TOKEN_EXCHANGE } from '../../../src/idp/oidc/tokens/request.js';
import type { WorkloadInput } from '../../../src/idp/provisioning/agent-workloads.js';
import { agentKeysIn, agentsIn, agentWithKey } from '../../kit/agent-keys.js';
import { auditOf, basic } from '../../kit/app.js';
import { asserted } from '../../kit/client-keys.js';
import { runProgram } from '../../kit/command-line.js';
import { delegationWorld, TYPES } from '../../kit/delegations.js';
import { foreignIssuer, type IssuerKey, issuerKey } from '../../kit/identity-assertions.js';
import {
  type Credentials,
  claimsOf,
  type IdpAppOptions,
  ISSUER,
  idpApp,
  idpStore,
  search,
} from '../../kit/idp.js';
import { COMMAND_SOURCE, enterConsole, makeOperator } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { SUBJECT, workloadToken } from '../../kit/workloads.js';

/** Agents without any secret: jobs, pods and machines with a token of their platform. */

async function start(
  t: Test,
  rule: Partial<WorkloadInput> | null = {},
  { key = issuerKey('RS256'), ...options }: IdpAppOptions & { key?: IssuerKey } = {},
) {
  const idp = await idpApp(t, { limits: false, loopbackDocuments: true, ...options });
  const files = await addResource(t, idp);
  const platform = await foreignIssuer(t, key);
  const agent = await idp.mintAgent();
  const rules = agentKeysIn(await idpStore(t, idp), idp);
  const trust = (more: Partial<WorkloadInput> = {}, to: Credentials = agent) =>
    rules.trust(to.sub, { issuer: platform.issuer, subject: SUBJECT, ...more });
  const added = rule && (await trust(rule));
  const token = (claims?: Record<string, unknown>, header?: Record<string, unknown>, by = key) =>
    workloadToken({ issuer: platform.issuer, key: by }, idp.clock.now(), claims, header);
  const post = (form: Record<string, string | undefined>) =>
    idp.request('POST', '/token', { form: search({ resource: FILES, ...form }) });
  /** As a client assertion. */
  const ask = async (assertion: string, more: Record<string, string | undefined> = {}) =>
    post({ grant_type: 'client_credentials', client_id: agent.sub, ...asserted(assertion), ...more });
  /** As a grant. */
  const bear = async (assertion: string, more: Record<string, string | undefined> = {}) =>
    post({ grant_type: JWT_BEARER, assertion, ...more });
  const isActive = async (one: string) => (await introspect(idp, files, one)).body.active;
  const reasons = async () =>
    (await auditOf(await idpStore(t, idp))).flatMap(({ event, detail = '' }) =>
      event === 'agent.workload_refused' ? [detail] : [],
    );
  return { idp, files, platform, agent, rules, trust, rule: added, token, ask, bear, isActive, reasons };
}

t.test(
  'a workload gets a token with that of its platform, as a client assertion or as a grant',
  async (t) => {
    for (const algorithm of ['RS256', 'PS256', 'ES256', 'EdDSA'] as const) {
      const key = issuerKey(algorithm);
      const { idp, agent, rule, platform, token, ask, bear, isActive } = await start(t, {}, { key });
      const assertion = await token();
      const answers = [
        await ask(assertion),
        await ask(assertion),
        await bear(assertion),
        await bear(assertion, { client_id: agent.sub, scope: 'files:read' }),
      ];
      for (const { status, body } of answers) {
        t.equal(status, 200, `${algorithm} ${JSON.stringify(body)}`);
        t.strictSame(Object.keys(body).sort(), ['access_token', 'expires_in', 'scope', 'token_type']);
        t.match(claimsOf(body.access_token), {
          sub: agent.sub,
          client_id: agent.sub,
          aud: FILES,
          kind: 'agent',
        });
        t.equal(await isActive(body.access_token), true);
      }
      t.equal(answers[3]?.body.scope, 'files:read');
      const records = (await auditOf(await idpStore(t, idp))).filter(
        ({ event }) => event === 'agent.workload_accepted',
      );
      t.equal(records.length, 4);
      t.match(records[0], { subject: agent.sub, detail: `${rule?.id} ${platform.issuer} ${SUBJECT}` });
      t.same(platform.host.requests.sort(), ['/.well-known/openid-configuration', '/jwks'], 'read once');
      const revoked = await idp.request('POST', '/revoke', {
        form: { token: answers[0]?.body.access_token, client_id: agent.sub, ...asserted(assertion) },
      });
      t.equal(revoked.status, 200);
      t.equal(await isActive(answers[0]?.body.access_token), false);
    }
  },
);

t.test('a token that a rule does not accept exactly is refused, and only operators learn why', async (t) => {
  const { idp, agent, rule, token, ask, bear, reasons } = await start(t, {
    subject: 'repo:acme/app:ref:refs/tags/v*',
    claims: { repository_id: '42', run_attempt: '1' },
  });
  const seconds = () => Math.floor(idp.clock.now() / 1000);
  const fits = { sub: 'repo:acme/app:ref:refs/tags/v1', repository_id: '42', run_attempt: 1 };
  const cases: [string, Record<string, unknown>, string, Record<string, number>?][] = [
    ['another issuer', { iss: 'https://evil.example' }, 'issuer'],
    ['an issuer with a slash', { iss: `${String(rule?.issuer)}/` }, 'issuer'],
    ['no issuer', { iss: undefined }, 'issuer'],
    ['another audience', { aud: 'https://other.example' }, 'audience'],
    ['a part of the audience', { aud: `${ISSUER}/token` }, 'audience'],
    ['no audience', { aud: undefined }, 'audience'],
    ['another branch', { sub: 'repo:acme/app:ref:refs/heads/v1' }, 'subject'],
    ['something before', { sub: `x${fits.sub}` }, 'subject'],
    ['a pattern as text', { sub: ['repo:acme/app:ref:refs/tags/v1'] }, 'subject'],
    ['no subject', { sub: undefined }, 'subject'],
    ['another value', { repository_id: '43' }, 'claim repository_id'],
    ['no value', { repository_id: undefined }, 'claim repository_id'],
    ['an array', { repository_id: ['42'] }, 'claim repository_id'],
    ['no exp', { exp: undefined }, 'expired'],
    ['expired', {}, 'expired', { exp: 0 }],
    ['too long', {}, 'more than a day', { exp: 86_401 }],
    ['issued later', {}, 'iat', { iat: 61 }],
    ['not yet valid', {}, 'not valid now', { nbf: 61 }],
  ];
  for (const [name, claims, reason, times = {}] of cases) {
    // The audit has a few failures of an address in an hour, and then their number.
    idp.clock.advance(HOUR);
    const before = (await reasons()).length;
    const given = Object.entries(times).map(([claim, ahead]) => [claim, seconds() + ahead] as const);
    const assertion = await token({ ...fits, ...claims, ...Object.fromEntries(given) });
    t.match(
      await ask(assertion),
      { status: 401, body: { error: 'invalid_client', error_description: 'Client authentication failed.' } },
      name,
    );
    t.match(
      await bear(assertion, { client_id: agent.sub }),
      {
        status: 400,
        body: { error: 'invalid_grant', error_description: 'The assertion does not prove an agent.' },
      },
      name,
    );
    for (const detail of (await reasons()).slice(before)) t.match(detail, reason, name);
    t.equal((await reasons()).length, before + 2, name);
  }
  const [head = '', payload = '', signature = ''] = (await token(fits)).split('.');
  const none = Buffer.from('{"alg":"none"}').toString('base64url');
  const secret = Buffer.from('secret secret secret secret secret');
  const symmetric = await new SignJWT({ ...claimsOf(`${head}.${payload}.`) })
    .setProtectedHeader({ alg: 'HS256', kid: 'key-RS256' })
    .sign(secret);
  for (const [name, assertion] of Object.entries({
    unsigned: `${none}.${payload}.`,
    symmetric,
    'another key': await token(fits, {}, issuerKey('RS256')),
    'another type': await token(fits, { typ: 'at+jwt' }),
    'an identity assertion': await token(fits, { typ: 'oauth-id-jag+jwt' }),
    'no signature': `${head}.${payload}.`,
    garbage: 'x.y.z',
    long: `${head}.${payload}.${signature}${'A'.repeat(8192)}`,
  })) {
    t.equal((await ask(assertion)).status, 401, name);
    t.equal((await bear(assertion)).status, 400, name);
  }
  t.equal((await ask(await token({ ...fits, aud: ['https://x.example', ISSUER] }))).status, 200, 'a member');
  t.equal(
    (await ask(await token({ ...fits, exp: seconds() + 86_400 }), { scope: 'files:read' })).status,
    200,
  );
});

t.test('the pattern is compared with the whole subject', async (t) => {
  const { trust, token, ask } = await start(t, null);
  await trust({ subject: 'system:serviceaccount:*:bot-*-x' });
  for (const [sub, expected] of [
    ['system:serviceaccount:a:bot-1-x', 200],
    ['system:serviceaccount::bot--x', 200],
    ['system:serviceaccount:a/b:c:bot-1-x', 200],
    ['system:serviceaccount:a:bot-x', 401],
    ['system:serviceaccount:a:bot-1-x:y', 401],
    ['system:serviceaccount:a:bot-1-X', 401],
    ['System:serviceaccount:a:bot-1-x', 401],
  ] as const)
    t.equal((await ask(await token({ sub }))).status, expected, sub);
});

t.test('a rule that would accept the workloads of others is refused', async (t) => {
  const { trust, agent } = await start(t, null);
  for (const subject of ['', '*', '**', 'repo:*', 'repo:acme*', '*:main', '*/app', 'a\0b', 'x'.repeat(513)])
    await t.rejects(trust({ subject }), { code: 'VALIDATION_ERROR' }, subject);
  for (const issuer of [ISSUER, 'x', 'http://platform.example', 'https://u:p@platform.example'])
    await t.rejects(trust({ issuer }), { code: 'VALIDATION_ERROR' }, issuer);
  const many = Object.fromEntries(Array.from({ length: 11 }, (_, index) => [`claim${index}`, 'x']));
  await t.rejects(trust({ claims: many }), { code: 'VALIDATION_ERROR' });
  await t.rejects(trust({ jwks: { keys: [{ kty: 'oct', k: 'AAAA' }] } }), { code: 'VALIDATION_ERROR' });
  await t.rejects(trust({ jwks: 'x' }), { code: 'VALIDATION_ERROR' });
  t.ok(agent);
  const added = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      trust({ subject: `repo:acme/${index}` }).then(
        () => true,
        () => false,
      ),
    ),
  );
  t.equal(added.filter(Boolean).length, 10, 'also of many at once');
});

t.test('without a client_id, the rules of exactly one agent must match', async (t) => {
  const { idp, agent, trust, token, bear, reasons } = await start(t);
  const other = await idp.mintAgent();
  await trust({ subject: 'repo:acme/other' }, other);
  t.equal(claimsOf((await bear(await token())).body.access_token).sub, agent.sub);
  t.equal(claimsOf((await bear(await token({ sub: 'repo:acme/other' }))).body.access_token).sub, other.sub);
  t.equal((await bear(await token({ sub: 'repo:acme/none' }))).status, 400);
  t.match((await reasons()).at(-1), /repo:acme\/none: no rule matches/);
  await trust({ subject: 'repo:acme/app:*' }, other);
  t.match(await bear(await token()), { status: 400, body: { error: 'invalid_grant' } });
  t.match((await reasons()).at(-1), /rules of several agents match: send client_id/);
  for (const { sub } of [agent, other])
    t.equal(claimsOf((await bear(await token(), { client_id: sub })).body.access_token).sub, sub);
  const client = await idp.createClient({ public: true });
  t.match(await bear(await token(), { client_id: client.id }), {
    status: 400,
    body: { error: 'unauthorized_client' },
  });
  t.match(await bear('', { client_id: agent.sub }), { status: 401 });
  await idp.admin('POST', `/v1/principals/${other.sub}/disable`);
  t.equal(claimsOf((await bear(await token())).body.access_token).sub, agent.sub);
});

t.test('a token of a workload replaces no other proof', async (t) => {
  const { idp, agent, token, ask, bear } = await start(t);
  const keyed = await agentWithKey(t, idp);
  t.equal((await ask(await token(), { client_id: keyed.sub })).status, 401, 'an agent without a rule');
  t.equal((await ask(await token(), { client_id: (await idp.createClient()).id })).status, 401);
  t.equal((await ask(await token(), { client_id: undefined })).status, 401);
  t.equal((await ask(await token(), { client_secret: agent.password })).status, 400, 'two proofs');
  const clients = agentsIn(await idpStore(t, idp), idp);
  await clients.change(agent.sub, { redirectUris: ['https://app.example.test/cb'] }, COMMAND_SOURCE);
  const both = await idp.request('POST', '/token', {
    form: search({ grant_type: JWT_BEARER, assertion: 'x', resource: FILES }),
    headers: { authorization: basic(agent.sub, agent.password) },
  });
  t.match(
    both,
    { status: 400, body: { error: 'unauthorized_client' } },
    'nobody has looked at the assertion',
  );
  t.equal((await bear(await token(), { client_id: agent.sub, resource: 'https://x.example' })).status, 400);
  t.equal((await ask(await token(), { client_assertion_type: 'x' })).status, 400);
  for (const grant_type of ['authorization_code', 'refresh_token'])
    t.equal(
      (await ask(await token(), { grant_type, code: 'ac_x', refresh_token: 'rt_x' })).body.error,
      'invalid_grant',
      'an agent that is a client',
    );
});

t.test('keys that were given with a rule replace those of the issuer', async (t) => {
  const key = issuerKey('ES256');
  const svid = {
    keys: [
      { ...key.jwk, use: 'jwt-svid' },
      { kty: 'EC', use: 'x509-svid' },
    ],
  };
  const issuer = 'https://spire.example.test';
  const { idp, trust, agent, ask } = await start(t, null);
  await trust({ issuer, subject: 'spiffe://acme.test/ns/*', jwks: svid });
  const token = (by: IssuerKey) =>
    workloadToken({ issuer, key: by }, idp.clock.now(), { sub: 'spiffe://acme.test/ns/a' }, { typ: 'JOSE' });
  t.equal((await ask(await token(key))).status, 200);
  t.equal((await ask(await token(issuerKey('ES256')))).status, 401);
  t.ok(agent);
});

t.test('a new key of the issuer is found, at most once a minute, and an outage has a reason', async (t) => {
  const { idp, platform, token, ask, reasons } = await start(t);
  t.equal((await ask(await token())).status, 200);
  const next = issuerKey('ES256');
  platform.publish(next);
  for (let attempt = 0; attempt < 3; attempt++) t.equal((await ask(await token({}, {}, next))).status, 401);
  t.equal(platform.host.requests.length, 2, 'not again within a minute');
  idp.clock.advance(MINUTE + 1);
  const answers = await Promise.all(
    Array.from({ length: 20 }, async () => (await ask(await token({}, {}, next))).status),
  );
  t.same(new Set(answers), new Set([200]));
  t.equal(platform.host.requests.length, 3, 'one request for all');
  platform.host.answer = (_, response) => void response.writeHead(503).end();
  idp.clock.advance(25 * HOUR);
  t.equal((await ask(await token({}, {}, next))).status, 401);
  t.match((await reasons()).at(-1), /the keys of the issuer cannot be read/);
});

t.test('removing a rule ends the tokens of the agent, however many are issued at once', async (t) => {
  const { idp, agent, rules, rule, trust, token, ask, bear, isActive } = await start(t);
  const assertion = await token();
  const before = (await ask(assertion)).body.access_token;
  const [issued] = await Promise.all([
    Promise.all(Array.from({ length: 50 }, (_, index) => (index % 2 ? ask : bear)(assertion))),
    rules.distrust(agent.sub, rule?.id ?? ''),
  ]);
  for (const { body } of issued)
    if (body.access_token !== undefined) t.equal(await isActive(body.access_token), false);
  t.equal(await isActive(before), false);
  t.equal((await ask(assertion)).status, 401);
  t.equal((await bear(assertion)).body.error, 'invalid_client', 'no agent has a rule');
  t.equal(await rules.distrust(agent.sub, rule?.id ?? ''), null);
  await trust();
  t.equal((await ask(assertion)).status, 200);
  t.equal(await isActive(before), false);
  await idp.admin('POST', `/v1/principals/${agent.sub}/disable`);
  t.equal((await ask(assertion)).status, 401, 'a disabled agent');
});

t.test('the grant type exists while an agent has a rule', async (t) => {
  const { idp, trust, token, bear } = await start(t, null);
  const supported = async () =>
    (await idp.request('GET', '/.well-known/openid-configuration')).body.grant_types_supported;
  t.notOk((await supported()).includes(JWT_BEARER));
  const client = await idp.createClient();
  const own = { client_id: client.id, client_secret: client.secret };
  t.match(await bear(await token(), own), { body: { error: 'unsupported_grant_type' } });
  await trust();
  t.match(await bear(await token(), own), { body: { error: 'unauthorized_client' } }, 'for agents');
  t.ok((await supported()).includes(JWT_BEARER));
});

t.test('a workload is an agent wherever it proves itself: also for a person', async (t) => {
  const world = await delegationWorld(t, { loopbackDocuments: true });
  const { idp, agent, allow, redeem, exchange } = world;
  const platform = await foreignIssuer(t, issuerKey('RS256'));
  const rules = agentKeysIn(await idpStore(t, idp), idp);
  await rules.trust(agent.sub, { issuer: platform.issuer, subject: SUBJECT });
  const actor = async (claims = {}) => ({
    actor_token: await workloadToken(platform, idp.clock.now(), claims),
    actor_token_type: TYPES.jwt,
  });
  const { status, body } = await redeem(await allow({ delegation_max_depth: '2' }), await actor());
  t.equal(status, 200);
  const next = await exchange(body.delegation_token, await actor());
  t.match(claimsOf(next.body.access_token), { act: { sub: agent.sub } });
  const wrong = await exchange(body.delegation_token, await actor({ sub: 'repo:acme/other' }));
  t.match(wrong, { status: 400, body: { error: 'invalid_grant' } });
  const second = await idp.mintAgent();
  await rules.trust(second.sub, { issuer: platform.issuer, subject: 'repo:acme/second' });
  const own = await workloadToken(platform, idp.clock.now(), { sub: 'repo:acme/second' });
  const handedOn = await idp.request('POST', '/token', {
    form: search({
      ...{ grant_type: TOKEN_EXCHANGE, client_id: agent.sub, ...asserted((await actor()).actor_token) },
      ...{ subject_token: next.body.access_token, subject_token_type: TYPES.accessToken, resource: FILES },
      ...{ actor_token: own, actor_token_type: TYPES.jwt },
    }),
  });
  t.match(claimsOf(handedOn.body.access_token), { act: { sub: second.sub, act: { sub: agent.sub } } });
});

t.test('failures of an address are limited, correct tokens are not', async (t) => {
  const { token, ask, bear } = await start(t, {}, { limits: true });
  const wrong = await token({ sub: 'repo:acme/none' });
  const statuses = [];
  for (let attempt = 0; attempt < 62; attempt++)
    statuses.push((await (attempt % 2 ? ask : bear)(wrong)).status);
  t.equal(statuses.at(-1), 429);
  t.equal((await ask(await token())).status, 200);
});

t.test('commands on the host add, list and remove rules, and the console shows them', async (t) => {
  const { idp, agent, token, platform, ask } = await start(t, null, { publicUrl: undefined });
  const type = (...args: string[]) =>
    runProgram('idp', ['agent', 'trust', ...args], { IDP_DATABASE_URI: idp.databaseUri });
  const { handle } = agent;
  t.match(await type('add', handle, '--issuer', platform.issuer), { code: 2, err: /--subject/ });
  const rule = ['--issuer', platform.issuer, '--subject', SUBJECT];
  t.match(await type('add', handle, ...rule.slice(0, 3), 'repo:*'), { code: 1, err: /two whole parts/ });
  t.match(await type('add', handle, ...rule, '--claim', 'x'), { code: 2, err: /name=value/ });
  const added = await type('add', handle, ...rule, '--audience', 'api', '--claim', 'ref=main', '--json');
  t.match(added.json, { sub: agent.sub, audience: 'api', claims: { ref: 'main' }, stored_keys: 0 });
  t.equal((await ask(await token({ aud: 'api', ref: 'main' }))).status, 200);
  t.match((await type('list', handle, '--json')).json, { rules: [{ id: added.json.id, subject: SUBJECT }] });
  const { get } = await enterConsole(idp, await makeOperator(t, idp, 'olga'));
  t.match((await get(`/principals/${agent.sub}`)).body, `${SUBJECT} aud=api ref=main`);
  t.match(await type('remove', handle, 'wlr_x'), { code: 1, err: /no rule wlr_x/ });
  t.equal((await type('remove', handle, added.json.id)).code, 0);
  t.equal((await ask(await token({ aud: 'api', ref: 'main' }))).status, 401);
  const records = (await auditOf(await idpStore(t, idp))).filter(({ subject }) => subject === agent.sub);
  const events = records.map(({ event }) => event);
  for (const event of ['agent.trust_added', 'agent.workload_accepted', 'agent.trust_removed'])
    t.ok(events.includes(event), event);
});
