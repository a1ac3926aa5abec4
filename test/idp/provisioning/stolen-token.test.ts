import t, { type Test } from 'tap';
import { delegationCollection } from '../../../src/idp/oidc/delegations/store.js';
import { consentCollection, sessionCollection } from '../../../src/idp/oidc/store.js';
import { setupCollection } from '../../../src/idp/provisioning/first-operator.js';
import { type PrincipalDocument, principalCollection } from '../../../src/idp/provisioning/store.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import { passkeyCollection } from '../../../src/shared/passkeys/store.js';
import { agentsIn, agentWithKey } from '../../kit/agent-keys.js';
import { basic, PASSWORD } from '../../kit/app.js';
import { approvalWorld, PAYMENTS } from '../../kit/approvals.js';
import { asserted, assertion, clientKey } from '../../kit/client-keys.js';
import { delegationWorld } from '../../kit/delegations.js';
import { FACTOR_KEY } from '../../kit/factors.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  CALLBACK,
  type Credentials,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
} from '../../kit/idp.js';
import { mailSink } from '../../kit/mail.js';
import { COMMAND_SOURCE, enterConsole, makeOperator } from '../../kit/operator.js';
import { addResource, FILES } from '../../kit/resources.js';
import { RESET, readMails } from '../../saas/auth/kit.js';
import { linkOf } from './kit.js';

/**
 * The promise: the holder of IDP_ADMIN_TOKEN alone cannot sign in as any existing principal, choose or learn an
 * existing password, add or remove a key or a rule for workloads of an agent, make an agent a client or change where people return to, set up or remove a second factor or a passkey, change a kind, reuse a handle, bring an agent through the form or a reset, let an agent act for a person, declare or decide an approval, become an operator,
 * open the console or create the link of the first operator. With IDP_INVITE_TOKEN set they create no human either.
 */

const INVITE_TOKEN = 'inviter-Wc5rNz8qKm2XvB7dLt4JhYp9';
const MINE = 'a password of the thief';
const STOLEN = clientKey('EdDSA', 'thief');
const RULE = { id: 'wlr_1', issuer: 'https://evil.test', subject: 'thief', addedAt: 0, jwks: [STOLEN.jwk] };

/** The principals that existed before the token was stolen. */
interface Victims {
  human: Credentials;
  agent: Credentials;
  chosen: Credentials;
  disabled: Credentials;
  deleted: Credentials;
  invited: Credentials;
  /** An agent with a key. */
  keyed: Credentials;
}

async function before(
  t: Test,
  more: { inviteToken?: string; emailSmtpUrl?: string; metrics?: boolean } = {},
) {
  const idp = await idpApp(t, { limits: false, ...more });
  const own = { handle: 'chosen@example.test', password: PASSWORD };
  const chosen = { ...own, sub: (await idp.request('POST', '/v1/accounts', { body: own })).body.sub };
  const victims: Victims = {
    human: await idp.makeHuman(),
    agent: await idp.mintAgent(),
    chosen,
    disabled: await idp.makeHuman(),
    deleted: await idp.mintAgent(),
    invited: { sub: '', handle: 'invited@example.test', password: PASSWORD },
    keyed: await agentWithKey(t, idp),
  };
  await idp.admin('POST', `/v1/principals/${victims.disabled.sub}/disable`);
  await idp.admin('DELETE', `/v1/agents/${victims.deleted.sub}`);
  await idp.request('POST', '/v1/invites', {
    token: more.inviteToken ?? ADMIN_TOKEN,
    body: { handle: victims.invited.handle },
  });
  const [invited] = (await idp.admin('GET', '/v1/principals?prefix=invited')).body.principals;
  victims.invited.sub = invited.sub;
  const principals = principalCollection(await idpStore(t, idp));
  const documents = async (): Promise<PrincipalDocument[]> =>
    (await principals.page({ sort: 'handle', limit: 1000 })).items;
  return { idp, victims, documents, client: await idp.createClient() };
}

/** Every request that the token allows, with everything a thief might send. */
async function everythingTheTokenDoes(idp: IdpApp, victims: Partial<Victims>) {
  const answers = [];
  const bodies = (handle: string, sub: string) => [
    { handle },
    { handle, name: 'Mine' },
    { handle, kind: 'human' },
    { handle, kind: 'agent' },
    { handle, password: MINE },
    { handle, password: MINE, kind: 'human' },
    { handle, sub, id: sub, state: 'active', passwordHash: 'x', secretHash: 'x', epoch: 0 },
    { handle: handle.toUpperCase() },
    { handle, email: 'thief@evil.test' },
    { handle, email: 'thief@evil.test', kind: 'human', send: true },
    { handle: 'thief@evil.test', email: handle },
    { handle, days: 30 },
    { handle, key: STOLEN.jwk, keys: [STOLEN.jwk], jwks: { keys: [STOLEN.jwk] } },
    { handle, redirect_uris: ['https://evil.test/cb'], redirectUris: ['https://evil.test/cb'] },
    { handle, client_metadata: 'https://evil.test/c', clientMetadata: 'https://evil.test/c' },
    { handle, workloads: [RULE], workloadRules: 1, trust: [RULE] },
  ];
  for (const { handle, sub } of Object.values(victims)) {
    for (const body of bodies(handle, sub)) {
      for (const path of ['/v1/agents', '/v1/invites']) answers.push(await idp.admin('POST', path, body));
    }
    for (const method of ['PUT', 'PATCH', 'POST', 'DELETE']) {
      const body = {
        password: MINE,
        kind: 'human',
        handle: 'other',
        state: 'active',
        email: 'thief@evil.test',
      };
      answers.push(await idp.admin(method, `/v1/principals/${sub}`, body));
    }
    for (const verb of ['keys', 'key', 'jwks', 'trust', 'workloads', 'rules']) {
      for (const method of ['PUT', 'PATCH', 'POST', 'DELETE'])
        answers.push(await idp.admin(method, `/v1/agents/${sub}/${verb}`, { ...STOLEN.jwk, ...RULE }));
    }
    for (const field of ['redirect_uris', 'client_metadata'])
      for (const method of ['PUT', 'PATCH', 'POST'])
        for (const path of [`/v1/agents/${sub}`, `/v1/principals/${sub}`, `/v1/agents/${sub}/client`])
          answers.push(await idp.admin(method, path, { [field]: 'https://evil.test/c' }));
    answers.push(await idp.admin('PATCH', `/v1/principals/${sub}`, { workloads: [RULE], workloadRules: 1 }));
    for (const email of ['thief@evil.test', ''])
      answers.push(await idp.admin('PATCH', `/v1/principals/${sub}`, { email }));
    answers.push(await idp.admin('DELETE', `/v1/invites/${sub}`));
    for (const verb of ['reset', 'rotate', 'password', 'invite', 'kind', 'email']) {
      answers.push(await idp.admin('POST', `/v1/principals/${sub}/${verb}`, { password: MINE }));
      answers.push(await idp.admin('POST', `/v1/agents/${sub}/${verb}`, { password: MINE }));
    }
    answers.push(await idp.admin('POST', '/v1/agents/self/rotate', { handle, sub }));
    answers.push(await idp.admin('GET', `/v1/principals/${sub}`));
  }
  answers.push(await idp.admin('GET', '/v1/principals'), await idp.admin('GET', '/v1/clients'));
  return answers;
}

for (const inviteToken of [undefined, INVITE_TOKEN]) {
  const lock = inviteToken === undefined ? 'without' : 'with';
  const more = inviteToken === undefined ? {} : { inviteToken };

  t.test(`${lock} IDP_INVITE_TOKEN, a stolen admin token changes no existing principal`, async (t) => {
    const { idp, victims, documents, client } = await before(t, more);
    const { invited, ...existing } = victims;
    const then = await documents();
    const answers = await everythingTheTokenDoes(idp, existing);
    t.strictSame(await documents(), then, 'no password, kind or handle has changed, and no principal is new');
    for (const { status, text } of answers) {
      t.ok(status === 200 || (status >= 400 && status < 500), `${status}`);
      t.notMatch(text, /agp_|csec_|argon2|Hash":|invite\//, 'no secret is revealed');
    }
    for (const who of [victims.human, victims.agent, victims.chosen]) {
      t.equal((await idp.authorize(client, who)).status, 302, 'existing principals sign in as before');
    }
    for (const { handle } of Object.values(victims)) {
      for (const password of [MINE, ADMIN_TOKEN]) {
        t.equal(
          (await idp.authorize(client, { sub: '', handle, password })).status,
          401,
          'with no other password',
        );
      }
    }
  });

  t.test(
    `${lock} IDP_INVITE_TOKEN, disabling and enabling principals gives a stolen admin token no account`,
    async (t) => {
      const { idp, victims, documents, client } = await before(t, more);
      const { invited, ...existing } = victims;
      for (const { sub } of Object.values(existing)) {
        await idp.admin('POST', `/v1/principals/${sub}/disable`);
      }
      const then = await documents();
      await everythingTheTokenDoes(idp, existing);
      t.strictSame(await documents(), then);
      for (const { sub } of Object.values(existing)) {
        await idp.admin('POST', `/v1/principals/${sub}/enable`);
      }
      for (const who of [victims.human, victims.agent, victims.chosen]) {
        t.equal((await idp.authorize(client, who)).status, 302, 'the password is still their own');
      }
      for (const { sub } of Object.values(existing)) await idp.admin('DELETE', `/v1/agents/${sub}`);
      const gone = await documents();
      await everythingTheTokenDoes(idp, existing);
      t.strictSame(await documents(), gone, 'a deleted handle is not reassigned');
      t.equal((await idp.authorize(client, victims.human)).status, 302, 'and people cannot be deleted');
    },
  );
}

t.test(
  'with IDP_INVITE_TOKEN, a stolen admin token can neither create a human nor accept an invitation',
  async (t) => {
    const { idp, victims, documents } = await before(t, { inviteToken: INVITE_TOKEN });
    const humans = async () => (await documents()).filter(({ kind }) => kind === 'human');
    const then = await humans();
    await everythingTheTokenDoes(idp, victims);
    await everythingTheTokenDoes(idp, { human: { sub: 'u_0', handle: 'new@example.test', password: MINE } });
    t.strictSame(await humans(), then);
    const friend = { token: INVITE_TOKEN, body: { name: 'admins' } };
    t.equal((await idp.request('POST', '/v1/groups', friend)).status, 201);
    const member = { member: victims.agent.sub };
    t.equal((await idp.admin('POST', '/v1/groups/admins/members', member)).status, 401, 'nor join groups');
    const refused = await idp.admin('POST', '/v1/invites', { handle: 'friend@example.test' });
    t.match(refused, { status: 401, body: { error: 'invalid_token' } });
    const call = { token: INVITE_TOKEN, body: { handle: 'friend@example.test' } };
    t.equal((await idp.request('POST', '/v1/invites', call)).status, 201);
    for (const [method, path] of [
      ['POST', '/v1/agents'],
      ['GET', '/v1/principals'],
      ['POST', '/v1/clients'],
    ] as const) {
      t.equal((await idp.request(method, path, { ...call })).status, 401, 'which opens nothing else');
    }
  },
);

t.test('an agent that a stolen admin token creates has no key, and no key of the thief works', async (t) => {
  const { idp, victims } = await before(t);
  await addResource(t, idp);
  const mine = { handle: 'mine@example.test', key: STOLEN.jwk, keys: [{ id: 'x', jwk: STOLEN.jwk }] };
  const made = await idp.admin('POST', '/v1/agents', mine);
  const subs = [...Object.values(victims).map(({ sub }) => sub), made.body.sub ?? 'u_0'];
  for (const sub of subs) {
    const text = await assertion(STOLEN, { clientId: sub, issuer: ISSUER, now: idp.clock.now() });
    const form = {
      grant_type: 'client_credentials',
      resource: FILES,
      scope: 'files:read',
      ...asserted(text),
    };
    t.equal((await idp.request('POST', '/token', { form })).status, 401);
  }
});

t.test('a stolen token makes no agent a client, and changes none that is one', async (t) => {
  const { idp, victims, client } = await before(t, { inviteToken: INVITE_TOKEN });
  await addResource(t, idp);
  const agents = agentsIn(await idpStore(t, idp), idp);
  const { keyed } = victims;
  await agents.change(keyed.sub, { redirectUris: [client.redirectUri] }, COMMAND_SOURCE);
  const evil = ['https://evil.test/cb'];
  const mine = { handle: 'mine@example.test', redirect_uris: evil, client_metadata: 'https://evil.test/c' };
  t.match(await idp.admin('POST', '/v1/agents', mine), { status: 400 });
  const { sub } = (await idp.admin('POST', '/v1/agents', { handle: 'mine@example.test' })).body;
  const request = { resource: FILES, scope: 'files:read' };
  for (const token of [ADMIN_TOKEN, INVITE_TOKEN])
    for (const one of [sub, keyed.sub])
      for (const [method, path] of [
        ['PATCH', `/v1/principals/${one}`],
        ['PATCH', `/v1/agents/${one}`],
        ['POST', '/v1/clients'],
      ] as const) {
        const body = { client_id: one, name: 'Mine', redirect_uris: evil, redirectUris: evil, metadata: {} };
        await idp.request(method, path, { token, body });
        const landed = await idp.authorize({ id: one, redirectUri: evil[0] ?? '' }, undefined, request);
        t.equal(landed.status, 400, `${method} ${path}`);
      }
  t.match((await idp.admin('GET', `/v1/principals/${keyed.sub}`)).body.redirect_uris, [client.redirectUri]);
  // Its thief can disable it, and that ends what it is.
  await idp.admin('POST', `/v1/principals/${keyed.sub}/disable`);
  const known = { id: keyed.sub, redirectUri: client.redirectUri };
  t.equal((await idp.authorize(known, undefined, request)).status, 400);
});

t.test('a stolen token declares no kind of approval, decides none and hears of none', async (t) => {
  const { idp, api, agent, ask, poll, pathOf } = await approvalWorld(t);
  const { body } = await ask();
  const evil = { name: 'payment', sentence: 'Nothing', fields: [] };
  for (const path of [PAYMENTS, api.id].map(encodeURIComponent))
    for (const method of ['PUT', 'PATCH', 'POST', 'DELETE'])
      for (const end of ['', '/approvals', '/approval_types', '/approvals/payment'])
        await idp.admin(method, `/v1/resources/${path}${end}`, { approvals: [evil], approval_types: [evil] });
  const { resources } = (await idp.admin('GET', '/v1/resources')).body;
  t.match(resources[0].approval_types, [
    { type: 'payment', sentence: 'Pay {amount} {currency} to {creditor}' },
  ]);
  for (const method of ['GET', 'POST'])
    t.not((await idp.admin(method, pathOf(body.auth_req_id), { form: 'x', decision: 'allow' })).status, 200);
  t.match(await poll(body.auth_req_id), { body: { error: 'authorization_pending' } });
  const endpoint = 'https://evil.test/told';
  const fields = { backchannel_client_notification_endpoint: endpoint, notificationEndpoint: endpoint };
  await idp.admin('POST', '/v1/agents', { handle: 'mine@example.test', ...fields });
  for (const path of [`/v1/agents/${agent.sub}`, `/v1/principals/${agent.sub}`])
    for (const method of ['PUT', 'PATCH', 'POST']) await idp.admin(method, path, fields);
  t.notMatch((await idp.admin('GET', '/v1/principals')).text, 'evil.test');
});

t.test('a client created with a stolen token is not trusted, and no client can be changed', async (t) => {
  const { idp, client } = await before(t);
  const mine = { name: 'Mine', redirect_uris: 'https://evil.test/cb' };
  t.match((await idp.admin('POST', '/v1/clients', mine)).body, { trusted: false });
  const trusted = await idp.admin('POST', '/v1/clients', { ...mine, trusted: true });
  t.match(trusted, { status: 400, body: { error: 'invalid_client_metadata' } });
  for (const method of ['PUT', 'PATCH', 'POST', 'DELETE']) {
    t.equal((await idp.admin(method, `/v1/clients/${client.id}`, mine)).status, 404, method);
  }
});

t.test('the link of a reset that a thief starts reaches the mailbox of the person alone', async (t) => {
  const sink = await mailSink(t);
  const { idp, victims, documents, client } = await before(t, { emailSmtpUrl: sink.url, metrics: true });
  const mail = readMails(sink, idp.clock).mail;
  const passwords = async () =>
    (await documents()).map(({ passwordHash, secretHash }) => [passwordHash, secretHash]);
  const then = await passwords();
  for (const { handle } of Object.values(victims)) {
    const call = { token: ADMIN_TOKEN, headers: { accept: 'text/html' }, form: { handle } };
    t.equal((await idp.request('POST', '/account/forgot-password', call)).status, 303);
  }
  const { to, text } = await mail(RESET);
  t.same(to, [victims.human.handle], 'and neither an agent nor a disabled, deleted or invited principal');
  const path = linkOf(text);
  const { sub } = victims.human;
  const answers = await everythingTheTokenDoes(idp, { human: victims.human });
  for (const page of [
    '/metrics',
    '/v1/mails',
    '/admin/mails',
    `/v1/principals/${sub}/mails`,
    '/admin/api/mails',
  ]) {
    answers.push(await idp.admin('GET', page));
  }
  for (const answer of answers)
    t.notMatch(answer.text, path.slice('/invite/'.length), 'no answer has the link');
  t.match((await idp.admin('GET', '/metrics')).text, 'idp_mail_outbox_mails');
  t.same(await passwords(), then, 'no password has changed');
  const { mailedLinkHash = '' } = (await documents()).find(({ id }) => id === sub) ?? {};
  const guess = `/invite/${sub.slice('u_'.length)}${mailedLinkHash}`;
  t.equal(
    (await idp.request('POST', guess, { body: { password: MINE } })).status,
    404,
    'the hash is no link',
  );
  t.equal((await idp.authorize(client, victims.human)).status, 302);
  t.equal((await idp.request('POST', path, { body: { password: MINE } })).status, 201, 'the mailbox has it');
});

type Call = [method: string, path: string, fields?: Record<string, string>];

/** Every page and change of the console, about this principal and this client. */
const consoleCalls = (sub: string, clientId: string): Call[] => {
  const pages = ['', '/', '/principals', '/principals.csv', '/invitations', '/clients', '/keys', '/audit'];
  const changes = [
    ...['disable', 'enable', 'delete', 'reset', 'rotate', 'email', 'allow', 'details'].map(
      (verb) => `/principals/${sub}/${verb}`,
    ),
    ...['update', 'rotate', 'delete'].map((verb) => `/clients/${clientId}/${verb}`),
    ...['/agents/create', '/invitations/create', '/clients/create', `/invitations/${sub}/withdraw`],
    `/invitations/${sub}/resend`,
  ];
  return [
    ...[...pages, '/audit.csv', ...changes].map((path): Call => ['GET', `/admin${path}`]),
    ...changes.map((path): Call => ['POST', `/admin${path}`, { handle: 'mine@example.test' }]),
  ];
};

/** Every account page and its changes, about this session and this client. */
const accountCalls = (sid: string, clientId: string): Call[] => [
  ['GET', '/'],
  ['GET', '/.well-known/change-password'],
  ['GET', '/account'],
  ['GET', '/account/receipts/gr_1'],
  ['GET', '/account/password'],
  ['GET', '/account/delete'],
  ['POST', '/account/name', { name: 'Mine' }],
  ['POST', '/account/password', { current_password: MINE, password: MINE, password_confirm: MINE }],
  ['POST', '/account/sessions/end', { sid }],
  ['POST', '/account/sessions/end-others', {}],
  ['POST', '/account/applications/disconnect', { client_id: clientId }],
  ['POST', '/account/delegations/end', { delegation: `dlg_${'0'.repeat(32)}` }],
  ['POST', '/account/agents/stop', { agent: `u_${'0'.repeat(32)}` }],
  ['POST', '/account/delete', { password: MINE }],
];

for (const [name, token] of [
  ['admin', ADMIN_TOKEN],
  ['invite', INVITE_TOKEN],
] as const) {
  t.test(
    `a stolen ${name} token opens no page of the console or of an account, and grants no operator role`,
    async (t) => {
      const { idp, victims, documents, client } = await before(t, { inviteToken: INVITE_TOKEN });
      const operator = await makeOperator(t, idp);
      const { browser, page } = await idp.visit(client);
      await browser.submit(page, { handle: victims.human.handle, password: victims.human.password });
      const store = await idpStore(t, idp);
      const [sessions, consents] = [sessionCollection(store), consentCollection(store)];
      const [session] = (await sessions.page({ sort: 'id', limit: 10 })).items;
      const then = await documents();
      const clients = (await idp.admin('GET', '/v1/clients')).text;
      for (const who of [operator, victims.human, victims.agent, victims.chosen]) {
        const calls = [...consoleCalls(who.sub, client.id), ...accountCalls(session?.id ?? '', client.id)];
        for (const [method, path, fields] of calls) {
          for (const authorization of [`Bearer ${token}`, basic('admin', token), basic(who.handle, token)]) {
            const form = { form: token, token, confirm: who.handle, redirect_uris: CALLBACK, ...fields };
            const answer = await idp.request(method, path, {
              headers: { authorization, accept: 'text/html' },
              ...(method === 'POST' && { form }),
            });
            t.notMatch(answer.text, /agp_|csec_|invite\/|argon2/);
            const isRedirect = path === '/' || path.startsWith('/.well-known');
            t.equal(answer.status, isRedirect ? 302 : 401, `${method} ${path}`);
            const area = path.startsWith('/admin') ? 'the console' : 'your account';
            if (!isRedirect) t.match(answer.text, `to continue to ${area}`);
          }
        }
      }
      for (const verb of ['operator', 'grant', 'promote', 'role']) {
        for (const path of [`/v1/principals/${victims.human.sub}/${verb}`, '/v1/operators', `/v1/${verb}`]) {
          const body = { handle: victims.human.handle, operator: true, operatorSince: 1 };
          t.equal((await idp.request('POST', path, { token, body })).status, 404);
        }
      }
      t.strictSame(await documents(), then, 'no principal has changed');
      t.equal((await idp.admin('GET', '/v1/clients')).text, clients, 'nor a client');
      t.equal(await sessions.count(), 1, 'no session has ended or begun');
      t.equal(await consents.count(), 1, 'nor a consent');
    },
  );
}

t.test('a stolen token lets no agent act for a person', async (t) => {
  const { idp, client, agent, human, ask } = await delegationWorld(t, { inviteToken: INVITE_TOKEN });
  const delegations = delegationCollection(await idpStore(t, idp));
  const request = { requested_actor: agent.sub, resource: FILES, scope: 'files:read' };
  // The thief has agents and clients, and can neither act as the person nor show the page to anyone else.
  const mine = (await idp.admin('POST', '/v1/agents', { handle: 'thief@example.test' })).body;
  for (const token of [ADMIN_TOKEN, INVITE_TOKEN]) {
    for (const authorization of [`Bearer ${token}`, basic(human.handle, token), basic('admin', token)]) {
      const path = authorizePath(client, { ...request, requested_actor: mine.sub });
      const { headers, text } = await idp.request('GET', path, { headers: { authorization } });
      t.notMatch(`${headers['location']} ${text}`, /code=|delegation/);
    }
    for (const path of ['/v1/delegations', `/v1/principals/${human.sub}/delegations`]) {
      const body = { person: human.sub, agent: mine.sub, resource: FILES, scopes: ['files:read'] };
      t.equal((await idp.request('POST', path, { token, body })).status, 404);
    }
    const { interaction = '' } = (await ask()).form().fields;
    const form = { interaction, decision: 'allow' };
    for (const headers of [{}, { authorization: `Bearer ${token}` }, { cookie: `__Host-idp=${token}` }]) {
      const answer = await idp.request('POST', '/authorize/consent', { form, headers });
      t.equal(answer.status, 403, 'a form belongs to its browser');
    }
  }
  const own = await idp.authorize(client, { ...mine, sub: mine.sub }, request);
  t.match(own.headers['location'], /error=access_denied/);
  t.equal(await delegations.count(), 0);
});

t.test('with a stolen token, sign-up gives no more than it gives to anyone', async (t) => {
  const { idp, victims, documents, client } = await before(t, { inviteToken: INVITE_TOKEN });
  const then = await documents();
  const { browser, page } = await idp.visit(client, { prompt: 'create' });
  const { interaction = '' } = page.form().fields;
  const cookie = `__Host-idp=${browser.cookies()['__Host-idp']}`;
  const role = { kind: 'agent', operatorSince: '1', operator: 'true', sub: victims.human.sub };
  for (const authorization of [`Bearer ${ADMIN_TOKEN}`, `Bearer ${INVITE_TOKEN}`]) {
    for (const { handle } of Object.values(victims)) {
      const form = { interaction, handle, password: MINE, password_confirm: MINE, ...role };
      const answer = await idp.request('POST', '/authorize/sign-up', {
        form,
        headers: { cookie, authorization },
      });
      t.equal(answer.status, 409, 'no existing handle, whatever its state');
    }
    for (const headers of [{ authorization }, { authorization, cookie: `__Host-idp=${ADMIN_TOKEN}` }]) {
      const form = { interaction, handle: 'mine@example.test', password: MINE, password_confirm: MINE };
      t.equal((await idp.request('POST', '/authorize/sign-up', { form, headers })).status, 403);
    }
  }
  t.strictSame(await documents(), then);
  const form = { interaction, handle: 'mine@example.test', password: MINE, password_confirm: MINE, ...role };
  t.equal((await idp.request('POST', '/authorize/sign-up', { form, headers: { cookie } })).status, 303);
  const [mine] = (await documents()).filter(({ handle }) => handle === 'mine@example.test');
  t.match(mine, { kind: 'human', operatorSince: undefined });
  const closed = await idpApp(t, { inviteToken: INVITE_TOKEN, disableSignup: true });
  for (const token of [ADMIN_TOKEN, INVITE_TOKEN]) {
    t.equal((await closed.request('POST', '/authorize/sign-up', { token, form })).status, 403);
    t.equal((await closed.request('GET', '/account/sign-up', { token })).status, 403);
  }
});

t.test('no field of a request over HTTP grants the role of an operator', async (t) => {
  const { idp, documents } = await before(t, { inviteToken: INVITE_TOKEN });
  const role = { operatorSince: 1, operatorLinkHash: 'x', operator: true, role: 'operator' };
  const handle = 'straw-man@example.test';
  const invite = (body: object) => idp.request('POST', '/v1/invites', { token: INVITE_TOKEN, body });
  t.equal((await invite({ handle, ...role })).status, 400);
  const { body } = await invite({ handle });
  const path = new URL(body.invite_url).pathname;
  t.equal((await idp.request('POST', path, { body: { password: MINE, ...role } })).status, 201);
  const mine = { handle: 'mine@example.test', password: MINE, kind: 'human', ...role };
  t.equal((await idp.request('POST', '/v1/accounts', { body: mine })).status, 400);
  const agent = { handle: 'agent-of-mine@example.test', ...role };
  t.equal((await idp.admin('POST', '/v1/agents', agent)).status, 400);
  for (const { operatorSince, operatorLinkHash } of await documents()) {
    t.same([operatorSince, operatorLinkHash], [undefined, undefined]);
  }
  t.equal((await enterConsole(idp, { handle, password: MINE })).page.status, 403);
});

t.test(
  'a stolen token cannot create the link of the first operator, not even on an empty store',
  async (t) => {
    const idp = await idpApp(t, { inviteToken: INVITE_TOKEN });
    const setup = setupCollection(await idpStore(t, idp));
    for (const token of [ADMIN_TOKEN, INVITE_TOKEN]) {
      for (const path of [
        '/admin',
        '/admin/operators',
        '/v1/operators',
        '/invite/first-operator',
        '/invite',
      ]) {
        for (const method of ['GET', 'POST']) {
          const { text, status } = await idp.request(method, path, { token, body: {} });
          t.ok(status >= 400 && status < 500, `${method} ${path}: ${status}`);
          t.notMatch(text, /invite\/[0-9a-f]{32}/);
        }
      }
    }
    t.equal(await setup.count(), 0);
  },
);

t.test('IDP_INVITE_TOKEN must be strong and differ from IDP_ADMIN_TOKEN', async (t) => {
  await t.rejects(
    idpApp(t, { inviteToken: ADMIN_TOKEN }),
    /IDP_INVITE_TOKEN is the same as IDP_ADMIN_TOKEN\. Set IDP_INVITE_TOKEN to a different secret/,
  );
  const env = { NODE_ENV: 'production' };
  await t.rejects(idpApp(t, { env, inviteToken: 'short' }), /IDP_INVITE_TOKEN is shorter than 32 bytes/);
  const alone = await idpApp(t, { env, adminToken: undefined, inviteToken: INVITE_TOKEN });
  const call = { token: INVITE_TOKEN, body: { handle: 'ada@example.test' } };
  t.equal((await alone.request('POST', '/v1/invites', call)).status, 201);
  t.equal((await alone.request('POST', '/v1/agents', call)).status, 501);
});

t.test('a stolen token changes neither the second factor nor the passkeys of a person', async (t) => {
  const idp = await idpApp(t, { limits: false, factorEncryptionKey: FACTOR_KEY, passkeys: true });
  const [human, other] = [await idp.makeHuman(), await idp.makeHuman()];
  const store = await idpStore(t, idp);
  const [factors, passkeys] = [factorCollection(store), passkeyCollection(store)];
  await factors.insert({
    ...{ id: human.sub, secret: 'v1.x', confirmedAt: 1, lastStep: 0 },
    ...{ recovery: [], version: 1, rev: 1, updatedAt: 1 },
  });
  await passkeys.insert({
    ...{ id: 'theirs', account: human.sub, publicKey: 'x', counter: 0, transports: [] },
    ...{ backupEligible: true, backedUp: true, name: 'Laptop', createdAt: 1 },
  });
  const stored = async () =>
    JSON.stringify([
      await factors.page({ sort: 'id', limit: 10 }),
      await passkeys.page({ sort: 'id', limit: 10 }),
    ]);
  const then = await stored();
  const pages = [
    ...['begin', 'confirm', 'recovery-codes', 'remove'].map((verb) => `second-factor/${verb}`),
    ...['add', 'rename', 'remove'].map((verb) => `passkeys/${verb}`),
  ];
  for (const page of pages) {
    for (const { sub } of [human, other]) {
      const given = { sub, code: '000000', password: MINE, form: 'x' };
      const body = { ...given, id: 'theirs', name: 'Mine', credential: '{}' };
      const answer = await idp.request('POST', `/account/${page}`, { token: ADMIN_TOKEN, body });
      t.ok([401, 403].includes(answer.status), `${page}: ${answer.status}`);
    }
  }
  for (const path of ['', ...pages, 'passkeys', 'passkeys/theirs']) {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'])
      t.equal((await idp.admin(method, `/v1/principals/${human.sub}/${path}`, {})).status, 404);
  }
  t.equal(await stored(), then);
});
