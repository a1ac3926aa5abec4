import t from 'tap';
import { type GrantDocument, grantCollection } from '../../../src/idp/oidc/store.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf } from '../../kit/app.js';
import {
  type Credentials,
  claimsOf,
  type IdpApp,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
  SEED,
  search,
} from '../../kit/idp.js';

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const DAY = 24 * HOUR;
const OFFLINE = { scope: 'openid profile offline_access' };
/** Its refresh tokens rotate, because anyone who has one can use it. */
const PUBLIC = { public: true };
const REFUSED = { status: 400, body: { error: 'invalid_grant' } };

/** An application with offline access, and the tokens it received. */
async function family(idp: IdpApp, more: Record<string, unknown> = {}, asked: Parameters = OFFLINE) {
  const [client, agent] = [await idp.createClient(more), await idp.mintAgent()];
  return { client, agent, ...(await tokensOf(idp, client, agent, asked)) };
}

async function tokensOf(idp: IdpApp, client: RegisteredClient, who: Credentials, asked: Parameters) {
  const code = await idp.codeFor(client, who, asked);
  const { body } = await idp.redeem(client, code);
  return { code, tokens: body, refreshToken: body.refresh_token as string };
}

const refresh = async (idp: IdpApp, client: RegisteredClient, token: string) =>
  (await idp.refresh(client, token)).body;

t.test('offline_access issues a refresh token, which renews all tokens', async (t) => {
  const idp = await idpApp(t);
  const { client, agent, tokens, refreshToken } = await family(idp, PUBLIC, { ...OFFLINE, nonce: 'n' });
  t.match(refreshToken, /^rt_[0-9a-f]{32}[\w-]{43}$/);
  t.equal(tokens.scope, 'openid profile offline_access');
  t.notOk('refresh_token' in (await tokensOf(idp, client, agent, { scope: 'openid' })).tokens);

  idp.clock.advance(10 * SECOND);
  const { status, headers, body } = await idp.refresh(client, refreshToken);
  t.equal(status, 200);
  t.match(headers, { 'cache-control': 'no-store', pragma: 'no-cache' });
  t.match(body, { token_type: 'Bearer', expires_in: 3600, scope: tokens.scope });
  t.match(body.refresh_token, /^rt_[0-9a-f]{32}[\w-]{43}$/);
  t.not(body.refresh_token, refreshToken);
  t.not(body.access_token, tokens.access_token);

  const [first, second] = [claimsOf(tokens.id_token), claimsOf(body.id_token)];
  t.equal(first.nonce, 'n');
  t.notOk('nonce' in second);
  const { sub, aud, auth_time, iss } = first;
  t.match(second, { sub, aud, auth_time, iss, name: agent.handle, iat: first.iat + 10 });
  t.not(second.jti, first.jti);
  for (const token of [tokens.access_token, body.access_token]) {
    t.match(await idp.userinfo(token), { status: 200, body: { sub, name: agent.handle } });
  }
  idp.clock.advance(HOUR - 10 * SECOND);
  t.equal((await idp.userinfo(tokens.access_token)).status, 401, 'each lives for an hour of its own');
  t.equal((await idp.userinfo(body.access_token)).status, 200);
});

t.test(
  'an operator chooses how long a used refresh token has the same successor, up to ten minutes',
  async (t) => {
    const idp = await idpApp(t, { refreshTokenReuseWindow: 600 });
    const { client, refreshToken } = await family(idp, PUBLIC);
    const { refresh_token: successor } = await refresh(idp, client, refreshToken);
    idp.clock.advance(600 * SECOND);
    t.equal((await refresh(idp, client, refreshToken)).refresh_token, successor);
    idp.clock.advance(1);
    t.match(await idp.refresh(client, refreshToken), REFUSED);
  },
);

t.test(
  'within 30 seconds a reused refresh token has the same successor; later its family is revoked',
  async (t) => {
    const idp = await idpApp(t);
    const { client, agent, tokens, refreshToken } = await family(idp, PUBLIC);
    const answers = await Promise.all(Array.from({ length: 50 }, () => idp.refresh(client, refreshToken)));
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
    t.equal(new Set(answers.map(({ body }) => body.refresh_token)).size, 1);
    t.equal(new Set(answers.map(({ body }) => body.access_token)).size, 1);
    const first = answers[0]?.body;

    idp.clock.advance(30 * SECOND);
    const again = await idp.refresh(client, refreshToken);
    t.match(again.body, { refresh_token: first.refresh_token, access_token: first.access_token });
    t.equal(again.body.expires_in, 3570, 'a repeated answer does not extend its lifetime');
    idp.clock.advance(1);
    t.match(await idp.refresh(client, refreshToken), REFUSED);
    t.match(await idp.refresh(client, first.refresh_token), REFUSED, 'the thief has nothing of it either');
    for (const token of [tokens.access_token, first.access_token]) {
      t.equal((await idp.userinfo(token)).status, 401);
    }
    const reused = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'refresh.reused');
    t.match(reused, [{ subject: agent.sub, detail: client.id }]);
    t.equal(reused.length, 1);
  },
);

t.test('a token older than the previous one counts as reuse at once', async (t) => {
  const idp = await idpApp(t);
  const { client, refreshToken } = await family(idp, PUBLIC);
  const second = await refresh(idp, client, refreshToken);
  const third = await refresh(idp, client, second.refresh_token);
  t.match(await idp.refresh(client, refreshToken), REFUSED);
  t.match(await idp.refresh(client, third.refresh_token), REFUSED);
});

t.test(
  'the refresh token of a client that authenticates stays the same, and nothing ends with a repetition',
  async (t) => {
    const idp = await idpApp(t);
    const { client, tokens, refreshToken } = await family(idp);
    const answers = await Promise.all(Array.from({ length: 50 }, () => idp.refresh(client, refreshToken)));
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
    t.same(new Set(answers.map(({ body }) => body.refresh_token)), new Set([refreshToken]));
    const accessTokens = new Set<string>(answers.map(({ body }) => body.access_token));
    const states = await Promise.all([...accessTokens].map(async (one) => (await idp.userinfo(one)).status));
    t.same(new Set(states), new Set([200]));
    t.equal((await idp.userinfo(tokens.access_token)).status, 200, 'nor the one before');

    idp.clock.advance(DAY);
    const { status, body } = await idp.refresh(client, refreshToken, { scope: 'profile' });
    t.match({ status, body }, { status: 200, body: { refresh_token: refreshToken, scope: 'profile' } });
    t.equal((await refresh(idp, client, refreshToken)).scope, OFFLINE.scope);
    t.equal((await idp.refresh(client, refreshToken, { client_secret: 'wrong' })).status, 401);
    t.match(await idp.refresh(client, refreshToken, { client_secret: undefined }), { status: 401 });
    const store = await idpStore(t, idp);
    t.notMatch((await auditOf(store)).map(({ event }) => event).join(), /reused|revoked/);

    // As a server has left it that still rotated.
    const grants = grantCollection(store);
    const [{ id, refreshHash }] = (await grants.page({ sort: 'id', limit: 1 })).items as [GrantDocument];
    const next = await family(idp);
    await grants.updateOne({ id }, { set: { refreshHash: 'x', previousRefreshHash: refreshHash ?? '' } });
    t.match(await idp.refresh(client, refreshToken), REFUSED);
    await grants.updateOne({ id }, { set: { refreshHash: refreshHash ?? '' } });
    t.equal((await idp.refresh(client, refreshToken)).status, 200, 'a former token ends nothing');
    t.equal((await idp.refresh(next.client, next.refreshToken)).status, 200);
  },
);

t.test('a token that was never issued revokes nothing', async (t) => {
  const idp = await idpApp(t);
  const publicFamily = await family(idp, { public: true });
  for (const { client, code, refreshToken } of [publicFamily, await family(idp)]) {
    // The part of the grant visible in the redirect that contained its code.
    const name = code.slice(3, 35);
    const other = (await tokensOf(idp, client, publicFamily.agent, OFFLINE)).refreshToken;
    const forgeries = [
      `rt_${name}${'x'.repeat(43)}`,
      `rt_${name}${other.slice(35)}`,
      `rt_${name}${code.slice(35)}`,
      `rt_${name}${refreshToken.slice(35, 57)}${'A'.repeat(21)}`,
    ];
    for (const forged of forgeries) {
      t.match(await idp.refresh(client, forged), REFUSED);
      t.equal(
        (
          await idp.request('POST', '/revoke', {
            form: search({ token: forged, client_id: client.id, client_secret: client.secret }),
          })
        ).status,
        200,
      );
      t.match(await idp.redeem(client, `ac_${name}${forged.slice(35, -1)}_`), REFUSED);
    }
    t.match(await idp.refresh(client, refreshToken), { status: 200 }, 'the family lives');
    t.match(await idp.refresh(client, forgeries[0] as string), REFUSED);
    const next = await refresh(idp, client, refreshToken);
    t.match(await idp.refresh(client, next.refresh_token), { status: 200 }, 'also after an exchange');
  }
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.notMatch(events.join(), /reused|replayed|revoked/);
});

t.test('refresh tokens slide for 30 days, and end after 90', async (t) => {
  for (const more of [{}, PUBLIC]) {
    const idp = await idpApp(t);
    const lazy = await family(idp, more);
    idp.clock.advance(30 * DAY);
    t.match(await idp.refresh(lazy.client, lazy.refreshToken), REFUSED, '30 days unused');

    const { client, refreshToken } = await family(idp, more);
    let current = refreshToken;
    for (let day = 29; day <= 87; day += 29) {
      idp.clock.advance(29 * DAY);
      current = (await refresh(idp, client, current)).refresh_token;
    }
    idp.clock.advance(3 * DAY - 1);
    current = (await refresh(idp, client, current)).refresh_token;
    idp.clock.advance(1);
    t.match(await idp.refresh(client, current), REFUSED, '90 days altogether');
  }
});

t.test('scope may be narrowed and never widened; the refresh token keeps all of it', async (t) => {
  const idp = await idpApp(t);
  const { client, agent, refreshToken } = await family(idp, PUBLIC);
  for (const scope of ['openid email', 'email', 'openid unknown', 'OPENID']) {
    t.match(await idp.refresh(client, refreshToken, { scope }), {
      status: 400,
      body: { error: 'invalid_scope' },
    });
  }
  const { body } = await idp.refresh(client, refreshToken, { scope: 'openid  openid' });
  t.equal(body.scope, 'openid');
  t.notOk('name' in claimsOf(body.id_token));
  const about = { sub: agent.sub, kind: 'agent', sub_profile: 'ai_agent' };
  t.strictSame((await idp.userinfo(body.access_token)).body, about);
  t.equal(
    (await refresh(idp, client, refreshToken)).scope,
    'openid',
    'the concurrent refresh has the same scope',
  );

  const bare = (await idp.refresh(client, body.refresh_token, { scope: 'profile' })).body;
  t.notOk('id_token' in bare);
  t.match((await idp.userinfo(bare.access_token)).body, { name: agent.handle });
  t.equal((await idp.refresh(client, bare.refresh_token, { scope: '' })).body.scope, OFFLINE.scope);
});

t.test('concurrent refreshes with different scopes all receive the scope of the first', async (t) => {
  const idp = await idpApp(t);
  const { client, refreshToken } = await family(idp, PUBLIC);
  const scopes = ['openid', 'profile', 'openid profile', undefined];
  const answers = await Promise.all(scopes.map((scope) => idp.refresh(client, refreshToken, { scope })));
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
  t.equal(new Set(answers.map(({ body }) => body.scope)).size, 1);
  t.equal(new Set(answers.map(({ body }) => body.access_token)).size, 1);
});

t.test('a refresh token is bound to its client, with a secret or without', async (t) => {
  const idp = await idpApp(t);
  for (const more of [{}, { public: true }]) {
    const { client, tokens, refreshToken } = await family(idp, more);
    const others = [await idp.createClient(), await idp.createClient({ public: true })];
    for (const other of others) t.match(await idp.refresh(other, refreshToken), REFUSED);
    t.equal((await idp.refresh(client, refreshToken, { client_secret: 'wrong' })).status, 401);
    for (const wrong of ['', undefined]) {
      const answer = await idp.refresh(client, refreshToken, { refresh_token: wrong });
      t.match(answer, { status: 400, body: { error: 'invalid_request' } });
    }
    for (const wrong of [
      ...['rt_', `${refreshToken}x`, `rt_${'0'.repeat(32)}${'x'.repeat(43)}`, '\0', '{"$ne":1}'],
      ...[refreshToken.replace('rt_', 'at_'), tokens.access_token, tokens.id_token],
    ]) {
      t.match(await idp.refresh(client, wrong), REFUSED, wrong);
    }
    t.equal((await idp.refresh(client, refreshToken)).status, 200, 'none of that has harmed it');
  }
  const { client, tokens } = await family(idp, {}, { scope: 'openid' });
  const made = tokens.access_token.replace('at_', 'rt_');
  t.match(await idp.refresh(client, made), REFUSED, 'there is none');
  t.equal((await idp.userinfo(tokens.access_token)).status, 200, 'so nothing was stolen');
});

t.test('disabling a principal or changing its password ends its refresh tokens', async (t) => {
  const idp = await idpApp(t);
  const locked = await family(idp);
  await idp.admin('POST', `/v1/principals/${locked.agent.sub}/disable`);
  t.match(await idp.refresh(locked.client, locked.refreshToken), REFUSED);
  await idp.admin('POST', `/v1/principals/${locked.agent.sub}/enable`);
  t.match(await idp.refresh(locked.client, locked.refreshToken), REFUSED, 'it is dead for good');

  const replayed = await family(idp);
  t.match(await idp.redeem(replayed.client, replayed.code), REFUSED);
  t.match(await idp.refresh(replayed.client, replayed.refreshToken), REFUSED, 'a replayed code ends it, too');
});

t.test('a kind that a client no longer admits receives no more tokens there', async (t) => {
  const idp = await idpApp(t);
  const { client, agent, refreshToken } = await family(idp);
  const code = await idp.codeFor(client, agent);
  const clients = clientCollection(await idpStore(t, idp));
  await clients.updateOne({ id: client.id }, { set: { principalKinds: ['human'] } });
  t.match(await idp.redeem(client, code), REFUSED);
  t.match(await idp.refresh(client, refreshToken), REFUSED);
  await clients.updateOne({ id: client.id }, { set: { principalKinds: ['human', 'agent'] } });
  t.equal((await idp.refresh(client, refreshToken)).status, 200, 'the family is not revoked');
});

t.test('a new seed keeps token families and recognizes tokens issued under the old one', async (t) => {
  const first = await idpApp(t);
  const { client, refreshToken } = await family(first, PUBLIC);
  const given = await refresh(first, client, refreshToken);
  await first.server.stop();
  const seeds = { ed25519Seed: 'ab34'.repeat(16), databaseUri: first.databaseUri, clock: first.clock };
  const stranger = await idpApp(t, seeds);
  t.match(await stranger.refresh(client, refreshToken), REFUSED, 'it cannot tell the successor');

  const second = await idpApp(t, { ...seeds, ed25519SeedPrevious: SEED });
  t.equal((await refresh(second, client, refreshToken)).refresh_token, given.refresh_token);
  t.equal((await second.refresh(client, given.refresh_token)).status, 200);
});

t.test('a grant has at most 64 live access tokens', async (t) => {
  const idp = await idpApp(t);
  const { client, tokens, refreshToken } = await family(idp, PUBLIC);
  const issued = [tokens.access_token];
  let current = refreshToken;
  for (let count = 0; count < 64; count++) {
    const next = await refresh(idp, client, current);
    issued.push(next.access_token);
    current = next.refresh_token;
  }
  const statuses = await Promise.all(issued.map(async (token) => (await idp.userinfo(token)).status));
  t.same(statuses, [401, ...Array(64).fill(200)]);
});

t.test('/revoke revokes tokens of the calling client and reveals nothing about others', async (t) => {
  const idp = await idpApp(t);
  for (const more of [{}, { public: true }]) {
    const { client, agent, tokens, refreshToken } = await family(idp, more);
    const other = await idp.createClient(more);
    const revoke = (by: RegisteredClient, token?: string, hint?: string) =>
      idp.request('POST', '/revoke', {
        form: JSON.parse(
          JSON.stringify({ token, token_type_hint: hint, client_id: by.id, client_secret: by.secret }),
        ),
      });
    for (const token of [tokens.access_token, refreshToken, 'unknown', '\0', tokens.id_token]) {
      t.match(await revoke(other, token), { status: 200, text: '' });
    }
    t.match(await revoke(client), { status: 400, body: { error: 'invalid_request' } });
    t.match(await idp.request('POST', '/revoke', { form: { token: refreshToken } }), { status: 401 });
    t.equal((await idp.userinfo(tokens.access_token)).status, 200);

    t.equal((await revoke(client, tokens.access_token, 'refresh_token')).status, 200);
    t.equal((await idp.userinfo(tokens.access_token)).status, 401);
    const next = await refresh(idp, client, refreshToken);
    t.equal((await idp.userinfo(next.access_token)).status, 200, 'the family lives on');

    t.equal((await revoke(client, next.refresh_token)).status, 200);
    t.equal((await idp.userinfo(next.access_token)).status, 401);
    t.match(await idp.refresh(client, next.refresh_token), REFUSED);
    t.equal((await revoke(client, next.refresh_token)).status, 200, 'and again');
    const records = (await auditOf(await idpStore(t, idp))).filter(
      ({ event, detail }) => event === 'grant.revoked' && detail?.includes(client.id),
    );
    t.match(records, [{ subject: agent.sub }]);
    t.equal(records.length, 1);
  }
});

t.test('an access token that is revoked during a refresh stays revoked', async (t) => {
  const idp = await idpApp(t);
  const { client, tokens, refreshToken } = await family(idp);
  const form = { token: tokens.access_token, client_id: client.id, client_secret: client.secret as string };
  const [, { body }] = await Promise.all([
    idp.request('POST', '/revoke', { form }),
    idp.refresh(client, refreshToken),
    idp.request('POST', '/revoke', { form }),
  ]);
  t.equal((await idp.userinfo(tokens.access_token)).status, 401);
  t.equal((await idp.userinfo(body.access_token)).status, 200);
});

t.test('/introspect describes to a confidential client its own tokens and no others', async (t) => {
  const idp = await idpApp(t);
  const { client, agent, tokens, refreshToken } = await family(idp);
  const other = await idp.createClient();
  const spa = await idp.createClient({ public: true });
  const introspect = (by: RegisteredClient, token: string) =>
    idp.request('POST', '/introspect', {
      form: { token, client_id: by.id, ...(by.secret !== undefined && { client_secret: by.secret }) },
    });
  const now = idp.clock.now() / SECOND;
  const { status, headers, body } = await introspect(client, tokens.access_token);
  t.equal(status, 200);
  t.match(headers, { 'cache-control': 'no-store' });
  const about = {
    active: true,
    scope: tokens.scope,
    client_id: client.id,
    iss: claimsOf(tokens.id_token).iss,
    sub: agent.sub,
    aud: client.id,
    iat: now,
  };
  t.strictSame(body, { ...about, token_type: 'Bearer', exp: now + 3600 });
  t.strictSame((await introspect(client, refreshToken)).body, { ...about, exp: now + (30 * DAY) / SECOND });
  for (const [by, token] of [
    [other, tokens.access_token],
    [other, refreshToken],
    [client, tokens.id_token],
    [client, `${refreshToken}x`],
    [client, 'unknown'],
  ] as const) {
    t.strictSame((await introspect(by, token)).body, { active: false });
  }
  t.match(await introspect(spa, tokens.access_token), { status: 401, body: { error: 'invalid_client' } });
  t.match(await idp.request('POST', '/introspect', { form: { token: refreshToken } }), { status: 401 });
  t.match(await idp.request('POST', '/introspect', { token: tokens.access_token }), { status: 401 });

  const narrow = (await idp.refresh(client, refreshToken, { scope: 'openid' })).body;
  t.equal((await introspect(client, narrow.access_token)).body.scope, 'openid');
  t.equal((await introspect(client, refreshToken)).body.active, true, 'it stays');
  idp.clock.advance(HOUR);
  t.strictSame((await introspect(client, narrow.access_token)).body, { active: false });
  t.equal((await introspect(client, narrow.refresh_token)).body.active, true);
  await idp.admin('POST', `/v1/principals/${agent.sub}/disable`);
  t.strictSame((await introspect(client, narrow.refresh_token)).body, { active: false });
});
