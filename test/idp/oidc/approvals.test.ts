import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import t, { type Test } from 'tap';
import { approvalRequestCollection } from '../../../src/idp/oidc/approvals/store.js';
import { logoutNoticeCollection } from '../../../src/idp/oidc/backchannel/store.js';
import { CIBA_GRANT } from '../../../src/idp/oidc/tokens/request.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { passkeyCollection } from '../../../src/shared/passkeys/store.js';
import { Agent, decodeEntities } from '../../kit/agent.js';
import { agentsIn, agentWithKey } from '../../kit/agent-keys.js';
import { auditOf, basic } from '../../kit/app.js';
import { approvalWorld, DETAILS, PAYMENT, PAYMENTS } from '../../kit/approvals.js';
import { asserted, assertion } from '../../kit/client-keys.js';
import { signInAt } from '../../kit/delegations.js';
import {
  authorizePath,
  CALLBACK,
  claimsOf,
  codeIn,
  comparable,
  type Parameters as Fields,
  type IdpAppOptions,
  ISSUER,
  idpStore,
  search,
} from '../../kit/idp.js';
import { mailSink, readMail } from '../../kit/mail.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, introspect } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';
import { readMails } from '../../saas/auth/kit.js';

/** A person approves one action of an agent (CIBA, RFC 9396). */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const METADATA = '/.well-known/openid-configuration';

t.test('an agent asks, the person allows it on a page, and the agent gets one token for it', async (t) => {
  const { idp, api, agent, human, ask, poll, open } = await approvalWorld(t);
  const { status, body, headers } = await ask({ binding_message: 'Order 7', scope: 'pay' });
  t.equal(status, 200);
  t.match(body, { auth_req_id: /^ar_[0-9a-f]{32}[\w-]{43}$/, expires_in: 300, interval: 5 });
  t.equal(headers['cache-control'], 'no-store');
  t.match(await poll(body.auth_req_id), { status: 400, body: { error: 'authorization_pending' } });
  t.match(await poll(body.auth_req_id), { status: 400, body: { error: 'slow_down' } });

  const { browser, page } = await open(body.auth_req_id);
  t.equal(page.status, 200);
  const text = decodeEntities(page.body.replaceAll(/<[^>]*>/g, ''));
  for (const shown of ['Pay 12.5 EUR to Ada Ltd', 'Order 7', 'Shopper', PAYMENTS, 'Send payments'])
    t.match(text, shown);
  const done = await browser.submit(page, { decision: 'allow' });
  t.match(done.body, sentence('approval-allowed.title'));

  const { body: tokens, status: issued } = await poll(body.auth_req_id);
  t.equal(issued, 200);
  t.match(tokens, { token_type: 'Bearer', scope: 'pay', expires_in: 300, authorization_details: [DETAILS] });
  t.notOk(tokens.refresh_token ?? tokens.id_token);
  const claims = claimsOf(tokens.access_token);
  t.match(claims, {
    ...{ iss: ISSUER, aud: PAYMENTS, sub: human.sub, client_id: agent.sub, scope: 'pay', amr: ['pwd'] },
    act: { sub: agent.sub, sub_profile: 'ai_agent' },
    txn: `gr_${body.auth_req_id.slice(3, 35)}`,
  });
  t.same(claims.authorization_details, [DETAILS]);
  t.notOk(claims.sid ?? claims.delegation, 'it outlives the session in which it was allowed');
  t.match((await introspect(idp, api, tokens.access_token)).body, {
    active: true,
    authorization_details: [DETAILS],
    act: { sub: agent.sub },
  });
  t.match(await poll(body.auth_req_id), { status: 400, body: { error: 'invalid_grant' } }, 'once');

  const audit = await auditOf(await idpStore(t, idp));
  const events = audit.filter(({ event }) => event.startsWith('approval.'));
  t.same(events.map(({ event }) => event).sort(), [
    'approval.approved',
    'approval.requested',
    'approval.used',
  ]);
  const details = new Set(events.map(({ detail }) => detail));
  t.equal(details.size, 1, 'all name the same');
  t.match([...details][0] ?? '', new RegExp(`^${agent.sub} ${PAYMENTS} ${claims.txn} [\\w-]{43}$`));
});

t.test('a denied or expired request gets no token, and a second click says what was decided', async (t) => {
  const { idp, ask, poll, open, decide } = await approvalWorld(t);
  const { body: one } = await ask();
  const { browser, page } = await open(one.auth_req_id);
  t.match((await browser.submit(page, { decision: 'deny' })).body, sentence('approval-denied.title'));
  t.match((await browser.submit(page, { decision: 'allow' })).body, sentence('approval-denied.title'));
  t.match(await poll(one.auth_req_id), { status: 400, body: { error: 'access_denied' } });

  const { body: two } = await ask({ requested_expiry: '60' });
  t.equal(two.expires_in, 60);
  idp.clock.advance(MINUTE);
  t.match((await decide(two.auth_req_id).catch(() => open(two.auth_req_id))).page, { status: 404 });
  t.match(await poll(two.auth_req_id), { status: 400, body: { error: 'expired_token' } });

  const { body: late } = await ask({ requested_expiry: '99999' });
  t.equal(late.expires_in, 600);
  await decide(late.auth_req_id);
  idp.clock.advance(10 * MINUTE);
  t.match(await poll(late.auth_req_id), { body: { error: 'expired_token' } }, 'an approval expires, too');
});

t.test('without the option there is no endpoint, no page and no metadata', async (t) => {
  const { idp, ask, poll } = await approvalWorld(t, { approvals: false });
  t.equal((await ask()).status, 404);
  t.equal((await idp.request('GET', '/approve/apr_x')).status, 404);
  t.equal((await poll('ar_x')).status, 401, 'no grant type is for agents but client_credentials');
  t.notMatch((await idp.request('GET', METADATA)).text, /backchannel_auth|ciba|authorization_details/);

  const { idp: other, api } = await approvalWorld(t);
  t.match((await other.request('GET', METADATA)).body, {
    backchannel_authentication_endpoint: `${ISSUER}/bc-authorize`,
    backchannel_token_delivery_modes_supported: ['poll', 'ping'],
    authorization_details_types_supported: ['payment'],
  });
  t.ok((await other.request('GET', METADATA)).body.grant_types_supported.includes(CIBA_GRANT));
  await api.changeApprovals(PAYMENTS, { remove: 'payment' }, COMMAND_SOURCE);
  other.clock.advance(2 * SECOND);
  t.notMatch((await other.request('GET', METADATA)).text, /authorization_details/);
});

t.test('nobody learns whether a person exists, and who may not be asked is not asked', async (t) => {
  const { idp, api, agent, human, ask, poll } = await approvalWorld(t);
  const other = await idp.mintAgent();
  await api.update(PAYMENTS, { admittedGroups: [] }, COMMAND_SOURCE);
  const shape = (answer: Parameters<typeof comparable>[0]) =>
    JSON.stringify(comparable(answer)).replaceAll(/ar_[\w-]+/g, 'ar_');
  const known = shape(await ask());
  for (const login_hint of ['nobody@example.test', other.handle, '\u0000', `${'x'.repeat(5000)}`]) {
    const answer = await ask({ login_hint });
    t.equal(shape(answer), known);
    t.match(await poll(answer.body.auth_req_id), { body: { error: 'authorization_pending' } });
    idp.clock.advance(6 * SECOND);
    t.match(await poll(answer.body.auth_req_id), { body: { error: 'authorization_pending' } });
  }
  t.match(await ask({ login_hint: undefined }), { status: 400, body: { error: 'invalid_request' } });
  t.match(await ask({ login_hint_token: 'x' }), { status: 400, body: { error: 'invalid_request' } });
  t.match(await ask({ login_hint: undefined, login_hint_token: 'x' }), {
    status: 400,
    body: { error: 'expired_login_hint_token' },
  });
  const stored = await approvalRequestCollection(await idpStore(t, idp)).page({ sort: 'id', limit: 20 });
  t.same(
    stored.items.map(({ sub }) => sub).filter((sub) => sub !== undefined),
    [human.sub],
  );
  t.notOk(JSON.stringify(stored.items).includes('nobody@'), 'a name is not stored');
  t.ok(agent);
});

t.test(
  'three undecided requests of an agent for a person are enough, whether or not they exist',
  async (t) => {
    const { human, ask, decide } = await approvalWorld(t);
    for (const login_hint of [human.handle, 'nobody@example.test']) {
      const first = (await ask({ login_hint })).body.auth_req_id;
      t.equal((await ask({ login_hint })).status, 200);
      t.equal((await ask({ login_hint: login_hint.toUpperCase() })).status, 200);
      t.match(await ask({ login_hint }), { status: 400, body: { error: 'access_denied' } });
      if (login_hint !== human.handle) continue;
      await decide(first, 'deny');
      t.equal((await ask({ login_hint })).status, 200);
    }
  },
);

t.test('what is asked must be one entry of a declared type, with its fields', async (t) => {
  const { ask } = await approvalWorld(t);
  const wrong: unknown[] = [
    ...[{}, [], [DETAILS, DETAILS], [[DETAILS]], [null], ['payment'], [{ ...DETAILS, type: 'transfer' }]],
    ...[[{ ...DETAILS, type: undefined }], [{ ...DETAILS, more: 1 }], [{ ...DETAILS, amount: '12.5' }]],
    ...[
      [{ ...DETAILS, creditor: '' }],
      [{ ...DETAILS, creditor: 'A\u202eB' }],
      [{ ...DETAILS, creditor: 'A\nB' }],
    ],
    ...[[{ ...DETAILS, creditor: 'x'.repeat(201) }], [{ ...DETAILS, urgent: 'yes' }]],
    ...[
      [{ ...DETAILS, amount: 1e300 }],
      [{ ...DETAILS, currency: ['EUR'] }],
      [{ ...DETAILS, currency: null }],
    ],
    [{ type: 'payment' }],
    [{ ...DETAILS, creditor: 'x'.repeat(10_000) }],
  ];
  for (const value of wrong) {
    const answer = await ask({ authorization_details: JSON.stringify(value) });
    t.match(
      answer,
      { status: 400, body: { error: 'invalid_authorization_details' } },
      JSON.stringify(value).slice(0, 80),
    );
  }
  for (const text of [
    'payment',
    '[{"type":"payment","amount":1,"currency":"EUR","creditor":"A","__proto__":{"urgent":true}}]',
    '[{"type":"__proto__"}]',
    '[{"type":"payment","amount":1,"currency":"EUR","creditor":"A","constructor":"x"}]',
    '[{"__proto__":{"type":"payment","amount":1,"currency":"EUR","creditor":"A"}}]',
  ])
    t.match(
      await ask({ authorization_details: text }),
      { body: { error: 'invalid_authorization_details' } },
      text,
    );
  t.match(await ask({ authorization_details: undefined }), { body: { error: 'invalid_target' } });
  t.match(await ask({ authorization_details: undefined, resource: PAYMENTS }), {
    body: { error: 'invalid_request' },
  });
  t.match(await ask({ scope: 'pay other' }), { body: { error: 'invalid_scope' } });
  t.match(await ask({ requested_expiry: '-1' }), { body: { error: 'invalid_request' } });
  for (const binding_message of ['x'.repeat(101), 'A\u2066B', ' '])
    t.match(await ask({ binding_message }), { body: { error: 'invalid_binding_message' } });
});

t.test('the page shows markup as text, and values set apart from each other', async (t) => {
  const { ask, open } = await approvalWorld(t);
  const creditor = '<script>alert(1)</script>{{amount}} & "שלום"';
  const { body } = await ask({ authorization_details: JSON.stringify([{ ...DETAILS, creditor }]) });
  const { page } = await open(body.auth_req_id);
  t.notMatch(page.body, '<script>');
  t.match(
    page.body,
    /<bdi>&lt;script&gt;alert\(1\)&lt;&#x2F;script&gt;\{\{amount\}\} &amp; &quot;שלום&quot;<\/bdi>/,
  );
});

t.test('another person, and a browser without a sign-in, see nothing and decide nothing', async (t) => {
  const { idp, ask, poll, open, pathOf } = await approvalWorld(t);
  const { body } = await ask();
  const stranger = await idp.makeHuman();
  const { page } = await open(body.auth_req_id, stranger);
  t.equal(page.status, 404);
  t.notMatch(page.body, /Shopper|Ada Ltd/);
  const form = search({ form: 'x', decision: 'allow' });
  t.equal((await idp.request('POST', pathOf(body.auth_req_id), { form })).status, 401);
  const browser = await signInAt(idp, stranger);
  const url = (await idp.listen()) + pathOf(body.auth_req_id);
  t.equal((await browser.open(url)).status, 404);
  t.match(await poll(body.auth_req_id), { body: { error: 'authorization_pending' } });
});

t.test('the sign-in must be recent, also when the form is sent', async (t) => {
  const { idp, human, ask, poll, open, pathOf } = await approvalWorld(t);
  const { body } = await ask({ requested_expiry: '600' });
  const { browser, page } = await open(body.auth_req_id);
  idp.clock.advance(5 * MINUTE + SECOND);
  const again = await browser.submit(page, { decision: 'allow' });
  t.equal(again.status, 401);
  t.match(again.body, sentence('approval.sign-in'));
  t.match((await browser.open((await idp.listen()) + pathOf(body.auth_req_id))).status, 401);
  t.match(await poll(body.auth_req_id), { body: { error: 'authorization_pending' } });
  const fresh = await browser.submit(again, { handle: human.handle, password: human.password });
  t.match((await browser.submit(fresh, { decision: 'allow' })).body, sentence('approval-allowed.title'));
});

t.test('a form of another request, or none, decides nothing', async (t) => {
  const { ask, poll, open, pathOf } = await approvalWorld(t);
  const [{ body: one }, { body: two }] = [await ask(), await ask()];
  const { page: first } = await open(one.auth_req_id);
  const { browser, page: second } = await open(two.auth_req_id);
  const { fields } = first.form(pathOf(one.auth_req_id));
  const answer = await browser.submit(second, { form: fields['form'] ?? '', decision: 'allow' });
  t.equal(answer.status, 403);
  t.match(await poll(two.auth_req_id), { body: { error: 'authorization_pending' } });
});

t.test('only the agent that has asked gets the token', async (t) => {
  const { idp, ask, poll, decide } = await approvalWorld(t);
  const { body } = await ask();
  await decide(body.auth_req_id);
  const other = await idp.mintAgent();
  t.match(await poll(body.auth_req_id, {}, other), { body: { error: 'invalid_grant' } });
  t.match(await poll(`${body.auth_req_id.slice(0, -1)}_`), { body: { error: 'invalid_grant' } });
  t.match(await poll(''), { body: { error: 'invalid_request' } });
  const client = await idp.createClient();
  const form = search({ login_hint: 'x', client_id: client.id, client_secret: client.secret });
  t.match(await idp.request('POST', '/bc-authorize', { form }), { body: { error: 'unauthorized_client' } });
  const polling = search({
    grant_type: CIBA_GRANT,
    auth_req_id: body.auth_req_id,
    client_id: client.id,
    client_secret: client.secret,
  });
  t.match(await idp.request('POST', '/token', { form: polling }), { body: { error: 'unauthorized_client' } });
  t.equal((await poll(body.auth_req_id)).status, 200);
});

async function approved(t: Test) {
  const world = await approvalWorld(t);
  const { body } = await world.ask();
  await world.decide(body.auth_req_id);
  const isActive = async (token: string) => (await introspect(world.idp, world.api, token)).body.active;
  return { ...world, code: body.auth_req_id as string, isActive };
}

t.test('a permission decides, at the request and when the token is issued', async (t) => {
  const { api, agent, ask, poll, code } = await approved(t);
  await api.permissions.withdraw('*', await withId(api), COMMAND_SOURCE);
  t.match(await ask(), { status: 400, body: { error: 'invalid_target' } });
  t.match(await poll(code), { status: 400, body: { error: 'invalid_target' } });
  await api.permissions.allow(agent.sub, PAYMENTS, {}, COMMAND_SOURCE);
  t.equal((await poll(code)).status, 200);
});

const withId = async ({ id, identifier }: { id: string; identifier: string }) => ({ id, identifier });

t.test('a disabled agent or person ends it, before and after the token', async (t) => {
  for (const who of ['agent', 'human'] as const) {
    const one = await approved(t);
    const { access_token: token } = (await one.poll(one.code)).body;
    t.equal(await one.isActive(token), true);
    t.equal((await one.idp.admin('POST', `/v1/principals/${one[who].sub}/disable`)).status, 200);
    t.equal(await one.isActive(token), false, who);

    const two = await approved(t);
    await two.idp.admin('POST', `/v1/principals/${two[who].sub}/disable`);
    t.equal((await two.poll(two.code)).status, who === 'agent' ? 401 : 400, who);
    await two.idp.admin('POST', `/v1/principals/${two[who].sub}/enable`);
    if (who === 'human') t.match(await two.poll(two.code), { body: { error: 'invalid_grant' } });
  }
});

t.test('the agent revokes its token', async (t) => {
  const { idp, agent, poll, code, isActive } = await approved(t);
  const { access_token: token } = (await poll(code)).body;
  const headers = { authorization: basic(agent.sub, agent.password) };
  await idp.request('POST', '/revoke', { form: search({ token }), headers });
  t.equal(await isActive(token), false);
});

t.test('the account page lists what waits', async (t) => {
  const { idp, human, ask, decide, pathOf } = await approvalWorld(t);
  const { body } = await ask();
  const browser = await signInAt(idp, human);
  const account = `${await idp.listen()}/account`;
  const page = await browser.open(account);
  t.match(page.body, sentence('account.approvals'));
  t.match(decodeEntities(page.body), pathOf(body.auth_req_id));
  await decide(body.auth_req_id);
  t.notMatch((await browser.open(account)).body, sentence('account.approvals'));
});

t.test('of many decisions at once one counts, and of many polls one gets a token', async (t) => {
  const { ask, poll, open } = await approvalWorld(t);
  const { body } = await ask();
  const { browser, page } = await open(body.auth_req_id);
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, n) => browser.submit(page, { decision: n % 2 ? 'allow' : 'deny' })),
  );
  const titles = new Set(answers.map((answer) => /<h1>([^<]*)/.exec(answer.body)?.[1]));
  t.equal(titles.size, 1, 'all pages say the same');
  const isAllowed = titles.has('Allowed');
  const polls = await Promise.all(Array.from({ length: 50 }, () => poll(body.auth_req_id)));
  t.equal(polls.filter(({ status }) => status === 200).length, isAllowed ? 1 : 0);

  const { body: two } = await ask();
  const tab = await open(two.auth_req_id);
  await tab.browser.submit(tab.page, { decision: 'allow' });
  const many = await Promise.all(Array.from({ length: 50 }, () => poll(two.auth_req_id)));
  t.equal(many.filter(({ status }) => status === 200).length, 1);
});

t.test('the commands declare types, and refuse what no page could show', async (t) => {
  const { idp, api } = await approvalWorld(t);
  const add = (type: object) =>
    api.changeApprovals(PAYMENTS, { add: { ...PAYMENT, name: 'other', ...type } }, COMMAND_SOURCE);
  const cases: [object, string][] = [
    [{ name: 'payment' }, 'approvals'],
    [{ name: '1x' }, 'type 1x'],
    [{ sentence: 'Pay {amount' }, 'sentence'],
    [{ sentence: 'Pay {nobody}' }, 'sentence {nobody}'],
    [{ sentence: 'If {urgent}' }, 'sentence {urgent}'],
    [{ sentence: 'A\u202eB' }, 'sentence'],
    [{ sentence: 'Pay', fields: [{ name: 'locations', kind: 'text' }] }, 'fields locations'],
    [{ sentence: 'Pay', fields: [{ name: 'constructor', kind: 'text' }] }, 'fields constructor'],
    [{ sentence: 'Pay', fields: [{ name: '__proto__', kind: 'text' }] }, 'fields __proto__'],
    [{ sentence: 'Pay', fields: [PAYMENT.fields[0], PAYMENT.fields[0]] }, 'fields'],
  ];
  for (const [type, path] of cases)
    await t.rejects(add(type), { code: 'VALIDATION_ERROR', details: [{ path }] }, path);
  await t.rejects(api.changeApprovals(PAYMENTS, { remove: 'none' }, COMMAND_SOURCE), {
    code: 'VALIDATION_ERROR',
  });
  t.equal(await api.changeApprovals('https://none.example.test', { remove: 'x' }, COMMAND_SOURCE), null);
  await add({});
  const { resources } = (await idp.admin('GET', '/v1/resources')).body;
  t.match(resources[0].approval_types, [
    { type: 'payment', fields: 'amount=number,currency=text,creditor=text,urgent=boolean?' },
    { type: 'other' },
  ]);
});

t.test('a type that two resources have needs the parameter resource', async (t) => {
  const { idp, ask } = await approvalWorld(t);
  const second = await addResource(t, idp, 'https://bank.example.test');
  await second.changeApprovals(second.identifier, { add: PAYMENT }, COMMAND_SOURCE);
  idp.clock.advance(2 * SECOND);
  t.match(await ask(), { body: { error: 'invalid_authorization_details' } });
  t.equal((await ask({ resource: PAYMENTS })).status, 200);
  t.match(await ask({ resource: 'https://files.example.test' }), {
    body: { error: 'invalid_authorization_details' },
  });
});

t.test('a type that is removed is neither shown nor issued', async (t) => {
  const { api, ask, open } = await approvalWorld(t);
  const { body } = await ask();
  await api.changeApprovals(PAYMENTS, { remove: 'payment' }, COMMAND_SOURCE);
  t.equal((await open(body.auth_req_id)).page.status, 404);
});

/** An application that asks the person itself, on a page after a redirect. */
async function application(t: Test, options: IdpAppOptions = {}) {
  const world = await approvalWorld(t, options);
  const { idp, human } = world;
  const client = await idp.createClient();
  await clientCollection(await idpStore(t, idp)).updateOne({ id: client.id }, { set: { trusted: true } });
  const browser = await signInAt(idp, human);
  const authorization_details = JSON.stringify([DETAILS]);
  const ask = async (more: Fields = {}, by: { id: string; secret?: string } = client, from = browser) =>
    from.open(
      (await idp.listen()) +
        authorizePath(
          { ...by, redirectUri: CALLBACK },
          { authorization_details, resource: PAYMENTS, ...more },
        ),
    );
  return { ...world, client, browser, ask, authorization_details };
}

t.test('a person approves one action for an application in the browser, each time', async (t) => {
  const { idp, api, human, client, browser, ask } = await application(t);
  const page = await ask({ scope: 'openid pay offline_access' });
  t.equal(page.status, 200, 'also of a trusted application');
  const text = decodeEntities(page.body.replaceAll(/<[^>]*>/g, ''));
  for (const shown of ['Pay 12.5 EUR to Ada Ltd', PAYMENTS, 'Send payments']) t.match(text, shown);
  const code = codeIn((await browser.submit(page, { decision: 'allow' })).location);
  const { status, body } = await idp.redeem(client, code);
  t.equal(status, 200);
  t.match(body, { scope: 'pay', expires_in: 300, authorization_details: [DETAILS] });
  t.notOk(body.refresh_token ?? body.id_token ?? body.delegation_token);
  const claims = claimsOf(body.access_token);
  t.match(claims, { aud: PAYMENTS, sub: human.sub, client_id: client.id });
  t.same(claims.authorization_details, [DETAILS]);
  t.notOk(claims.act ?? claims.sid);
  t.equal((await introspect(idp, api, body.access_token)).body.active, true);
  t.match((await idp.redeem(client, code)).body, { error: 'invalid_grant' }, 'once');
  t.equal((await ask()).status, 200, 'the page is shown again');
  t.match((await ask({ prompt: 'none' })).location ?? '', /error=consent_required/);
  const denied = await browser.submit(await ask(), { decision: 'deny' });
  t.match(denied.location ?? '', /error=access_denied/);

  const audit = await auditOf(await idpStore(t, idp));
  const events = audit.filter(({ event }) => event.startsWith('approval.'));
  t.same(events.map(({ event }) => event).sort(), ['approval.approved', 'approval.used']);
  t.match(events[0]?.detail ?? '', new RegExp(`^${client.id} ${PAYMENTS} ${claims.txn} [\\w-]{43}$`));
  t.equal(events[0]?.detail, events[1]?.detail);
});

t.test('at /authorize, the sign-in must be recent, and a password alone approves nothing', async (t) => {
  const { idp, human, agent, browser, client, ask } = await application(t);
  const page = await ask();
  idp.clock.advance(5 * MINUTE + SECOND);
  const again = await browser.submit(page, { decision: 'allow' });
  t.match(again.body, sentence('approval.sign-in'), 'also when the form is sent');
  const asked = await browser.submit(again, { handle: human.handle, password: human.password });
  t.match(decodeEntities(asked.body.replaceAll(/<[^>]*>/g, '')), 'Pay 12.5 EUR to Ada Ltd');
  const { location } = await browser.submit(asked, { decision: 'allow' });
  t.equal((await idp.redeem(client, codeIn(location))).status, 200);

  const stranger = new Agent({ origin: await idp.listen() });
  const form = await ask({}, client, stranger);
  t.notMatch(form.body, 'Ada Ltd', 'before the sign-in, nothing is shown');
  const entered = await stranger.submit(form, { handle: human.handle, password: human.password });
  t.equal(entered.status, 200);
  t.match(entered.body, sentence('approval.title'));
  t.equal((await stranger.submit(entered, { decision: 'allow' })).status, 303);

  const path = authorizePath(client, {
    authorization_details: JSON.stringify([DETAILS]),
    resource: PAYMENTS,
  });
  const headers = { authorization: basic(agent.handle, agent.password) };
  const inRequest = await idp.request('GET', path, { headers });
  t.match(String(inRequest.headers['location']), /error=access_denied/, 'no agent approves for itself');
});

t.test('an agent that is a client asks for its approval with the code flow', async (t) => {
  const { idp, api, human, browser, ask } = await application(t);
  const agent = await agentWithKey(t, idp);
  const agents = agentsIn(await idpStore(t, idp), idp);
  await agents.change(agent.sub, { redirectUris: [CALLBACK] }, COMMAND_SOURCE);
  const page = await ask({}, { id: agent.sub });
  t.match(decodeEntities(page.body.replaceAll(/<[^>]*>/g, '')), 'Pay 12.5 EUR to Ada Ltd');
  const code = codeIn((await browser.submit(page, { decision: 'allow' })).location);
  const proof = asserted(
    await assertion(agent.key, { clientId: agent.sub, issuer: ISSUER, now: idp.clock.now() }),
  );
  const { status, body } = await idp.redeem({ id: agent.sub, redirectUri: CALLBACK }, code, proof);
  t.equal(status, 200);
  t.notOk(body.delegation_token ?? body.refresh_token);
  const claims = claimsOf(body.access_token);
  t.match(claims, { sub: human.sub, act: { sub: agent.sub }, authorization_details: [DETAILS] });
  t.equal((await introspect(idp, api, body.access_token)).body.active, true);
  await api.permissions.withdraw('*', await withId(api), COMMAND_SOURCE);
  t.match((await ask({}, { id: agent.sub })).location ?? '', /error=access_denied/);
});

t.test('at /authorize and /par, what is asked must be valid; a pushed request works, too', async (t) => {
  const { idp, browser, client, ask, authorization_details } = await application(t);
  for (const value of ['x', '[]', '[{"type":"transfer"}]', JSON.stringify([{ ...DETAILS, more: 1 }])])
    t.match(
      (await ask({ authorization_details: value })).location ?? '',
      /error=invalid_authorization_details/,
    );
  const both = { requested_actor: 'agt_0123456789abcdef0123456789abcdef' };
  t.match((await ask(both)).location ?? '', /error=invalid_request/);
  const push = (details: string) =>
    idp.request('POST', '/par', {
      form: search({
        ...{ client_id: client.id, client_secret: client.secret, response_type: 'code' },
        ...{ redirect_uri: CALLBACK, resource: PAYMENTS, authorization_details: details },
      }),
    });
  t.match(await push('[]'), { status: 400, body: { error: 'invalid_authorization_details' } });
  const { body, status } = await push(authorization_details);
  t.equal(status, 201);
  const query = search({ client_id: client.id, request_uri: body.request_uri });
  const page = await browser.open(`${await idp.listen()}/authorize?${query}`);
  t.match(decodeEntities(page.body.replaceAll(/<[^>]*>/g, '')), 'Pay 12.5 EUR to Ada Ltd');
  t.equal((await browser.submit(page, { decision: 'allow' })).status, 303);

  const off = await application(t, { approvals: false });
  t.match((await off.ask()).location ?? '', /[?&]code=/, 'without the option, the parameter is ignored');
});

/** An agent that is told, and what it gets. `status` is what it answers. */
async function pinged(t: Test) {
  const world = await approvalWorld(t);
  const { idp, agent } = world;
  const received: { authorization: string | undefined; body: string }[] = [];
  const answering = { status: 204 };
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    received.push({ authorization: request.headers.authorization, body });
    response.writeHead(answering.status, { location: '/elsewhere' }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const notificationEndpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}/told`;
  const agents = agentsIn(await idpStore(t, idp), idp);
  await agents.change(agent.sub, { notificationEndpoint }, COMMAND_SOURCE);
  const told = (count: number) => waitUntil(`${count} pings`, () => received.length >= count);
  return { ...world, agents, received, answering, told };
}

t.test(
  'an agent with a notification endpoint is told that a person has decided, and polls once',
  async (t) => {
    const { idp, ask, poll, decide, received, told } = await pinged(t);
    for (const wrong of [undefined, '', 'a b', 'ä', 'x'.repeat(1025)])
      t.match(await ask({ client_notification_token: wrong }), { body: { error: 'invalid_request' } });
    for (const [n, decision] of (['allow', 'deny'] as const).entries()) {
      const { body } = await ask({ client_notification_token: `token-${n}` });
      t.equal(received.length, n, 'nothing before the decision');
      await decide(body.auth_req_id, decision);
      await told(n + 1);
      t.match(received[n], { authorization: `Bearer token-${n}` });
      t.same(JSON.parse(received[n]?.body ?? ''), { auth_req_id: body.auth_req_id });
      const answer = await poll(body.auth_req_id);
      t.equal(answer.status, decision === 'allow' ? 200 : 400);
    }
    const { items } = await approvalRequestCollection(await idpStore(t, idp)).page({ sort: 'id', limit: 9 });
    t.notMatch(JSON.stringify(items), 'token-0', 'what the agent gets is stored sealed');
  },
);

t.test('a ping that fails is repeated until the request ends, and shows in no list of logouts', async (t) => {
  const { idp, ask, decide, received, answering, told } = await pinged(t);
  const notices = logoutNoticeCollection(await idpStore(t, idp));
  answering.status = 302;
  const { body } = await ask({ client_notification_token: 'token' });
  await decide(body.auth_req_id);
  await told(1);
  /** The result of each attempt is stored: with a time of the next one, counted from now. */
  const stored = (...seconds: number[]) =>
    waitUntil('the next attempt', async () => {
      const { items } = await notices.page({ sort: 'id', limit: 9 });
      return isDeepStrictEqual(
        items.map(({ dueAt = 0 }) => dueAt - idp.clock.now()),
        seconds.map((one) => one * SECOND),
      );
    });
  await stored(30);
  idp.clock.advance(31 * SECOND);
  const another = async () => decide((await ask({ client_notification_token: 'other' })).body.auth_req_id);
  await another();
  await told(3);
  t.equal(received.filter(({ authorization }) => authorization === 'Bearer token').length, 2);
  // Of the third as well: otherwise its next attempt would be counted from the later time.
  await stored(90, 30);
  t.equal(await notices.count({ failingSince: { gt: 0 } }, 9), 0);
  idp.clock.advance(6 * MINUTE);
  answering.status = 200;
  await another();
  await waitUntil('the end of all', async () => (await notices.count({}, 9)) === 0);
  t.equal(received.length, 4, 'what has expired is not sent, and no redirect was followed');
});

t.test('an endpoint must be https, and without it there is no ping', async (t) => {
  const { idp, agent, agents, ask, decide, received, poll } = await pinged(t);
  for (const notificationEndpoint of ['com.example:/x', 'https://a:b@example.com/x', 'nothing', '/x'])
    await t.rejects(agents.change(agent.sub, { notificationEndpoint }, COMMAND_SOURCE), {
      code: 'VALIDATION_ERROR',
    });
  const { body } = await ask({ client_notification_token: 'token' });
  await agents.change(agent.sub, { notificationEndpoint: null }, COMMAND_SOURCE);
  await decide(body.auth_req_id);
  const notices = logoutNoticeCollection(await idpStore(t, idp));
  await waitUntil('the end of the notice', async () => (await notices.count({}, 9)) === 0);
  t.equal((await poll(body.auth_req_id)).status, 200);
  t.equal(received.length, 0);
});

t.test('id_token_hint and login_hint_token name the person', async (t) => {
  const { idp, agent, human, ask, poll, decide } = await approvalWorld(t);
  const client = await idp.createClient();
  const browser = await signInAt(idp, human);
  const consent = await browser.open((await idp.listen()) + authorizePath(client));
  const { location } = await browser.submit(consent, { decision: 'allow' });
  const { id_token } = (await idp.redeem(client, codeIn(location))).body;
  const hinted = await ask({ login_hint: undefined, id_token_hint: id_token });
  await decide(hinted.body.auth_req_id);
  const { body } = await poll(hinted.body.auth_req_id);
  t.equal(claimsOf(body.access_token).sub, human.sub);
  t.match(await ask({ login_hint: undefined, id_token_hint: 'x' }), { body: { error: 'invalid_request' } });
  t.match(await ask({ id_token_hint: id_token }), { body: { error: 'invalid_request' } }, 'one hint only');

  const byToken = await ask({ login_hint: undefined, login_hint_token: body.access_token });
  t.equal(byToken.status, 200, 'a token with which the agent acts for the person');
  await decide(byToken.body.auth_req_id);
  t.equal(claimsOf((await poll(byToken.body.auth_req_id)).body.access_token).sub, human.sub);
  const other = await idp.mintAgent();
  t.match(await ask({ login_hint: undefined, login_hint_token: body.access_token }, other), {
    body: { error: 'expired_login_hint_token' },
  });
  t.ok(agent);
});

t.test('who has a passkey decides with it, on both pages', async (t) => {
  const { idp, human, browser, ask } = await application(t, { passkeys: true });
  await passkeyCollection(await idpStore(t, idp)).insert({
    ...{ id: 'theirs', account: human.sub, publicKey: 'x', counter: 0, transports: [] },
    ...{ backupEligible: true, backedUp: true, name: 'Laptop', createdAt: 1 },
  });
  t.match((await ask()).body, sentence('approval.sign-in'));
  const form = await ask();
  t.match(
    (await browser.submit(form, { handle: human.handle, password: human.password })).body,
    sentence('approval.sign-in'),
    'a password is not enough',
  );
  const world = await approvalWorld(t, { passkeys: true });
  const asked = await world.ask();
  const { browser: other, page } = await world.open(asked.body.auth_req_id);
  await passkeyCollection(await idpStore(t, world.idp)).insert({
    ...{ id: 'theirs', account: world.human.sub, publicKey: 'x', counter: 0, transports: [] },
    ...{ backupEligible: true, backedUp: true, name: 'Laptop', createdAt: 1 },
  });
  t.match((await other.submit(page, { decision: 'allow' })).body, sentence('approval.sign-in'));
  t.match(await world.poll(asked.body.auth_req_id), { body: { error: 'authorization_pending' } });
});

t.test('the mail names agent and API with a link, and no details; a person gets twenty a day', async (t) => {
  const sink = await mailSink(t);
  const { idp, human, ask, pathOf } = await approvalWorld(t, { limits: true, emailSmtpUrl: sink.url });
  const browser = await signInAt(idp, human);
  const deny = async (code: string) => {
    const page = await browser.open((await idp.listen()) + pathOf(code));
    await browser.submit(page, { decision: 'deny' });
  };
  const { mail } = readMails(sink, idp.clock);
  const { body } = await ask({ binding_message: 'Order 7' });
  const { to, text } = await mail(sentence('mail.approval-requested.subject'));
  t.same(to, [human.handle]);
  t.match(text, pathOf(body.auth_req_id));
  for (const shown of ['Shopper', 'Payments']) t.match(text, shown);
  t.notMatch(text, /Ada Ltd|12\.5|Order 7/);
  await deny(body.auth_req_id);
  const store = await idpStore(t, idp);
  for (let n = 0; n < 24; n++) {
    idp.clock.advance(10 * SECOND);
    await deny((await ask()).body.auth_req_id);
  }
  const events = (await auditOf(store)).filter(({ event }) => event === 'approval.requested');
  t.equal(events.length, 25, 'further requests are on the account page');
  for (let n = 1; n < 20; n++) await mail(sentence('mail.approval-requested.subject'));
  const asking = sink.offered.filter((one) => readMail(one).text.includes('/approve/'));
  t.equal(asking.length, 20);
});

t.test('of a decision and the end of the request, one counts', async (t) => {
  const { idp, ask, poll, open } = await approvalWorld(t);
  for (let n = 0; n < 5; n++) {
    const { body } = await ask({ requested_expiry: '60' });
    const { browser, page } = await open(body.auth_req_id);
    const deciding = browser.submit(page, { decision: 'allow' });
    idp.clock.advance(MINUTE);
    const { body: shown } = await deciding;
    t.match(shown, /<h1>/);
    t.match(await poll(body.auth_req_id), { status: 400, body: { error: 'expired_token' } });
  }
});
