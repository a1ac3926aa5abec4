import fastify, { type FastifyInstance } from 'fastify';
import t, { type Test } from 'tap';
import { sha256 } from '../../src/core/kernel/secrets.js';
import type { Store } from '../../src/core/storage/collection.js';
import { openStore } from '../../src/core/storage/open.js';
import { principalCollection } from '../../src/idp/provisioning/store.js';
import { identityProvider, saasBackend } from '../../src/index.js';
import { type UserDocument, type Users, userCollection } from '../../src/saas/auth/store.js';
import { type Mongod, onMongod } from '../core/storage/mongod.js';
import { auditOf, PASSWORD } from '../kit/app.js';
import { type FakeClock, fakeClock } from '../kit/clock.js';
import { idpPluginOptions, saasPluginOptions } from '../kit/host.js';
import { ADMIN_TOKEN } from '../kit/idp.js';
import { type LossyMongo, lossyMongo } from '../kit/lossy-mongo.js';
import { waitUntil } from '../kit/wait.js';

/**
 * Links and password changes that take effect in MongoDB, while the response is lost and the client gets a 503. Every order, loss and
 * crash: `test/saas/auth/links-outage.test.ts`.
 */

const NEW = 'a different sentence entirely';

interface Answer {
  status: number;
  body: { message?: string; error?: { code?: string }; data?: never };
  text: string;
}

interface Hosts {
  clock: FakeClock;
  lossy: LossyMongo;
  store: Store;
  /** The first host. */
  host: FastifyInstance;
  /** To one of two hosts that share a database. */
  post(path: string, body: object, more?: { at?: 0 | 1; from?: string; token?: string }): Promise<Answer>;
  get(path: string): Promise<Answer>;
}

async function hosts(
  t: Test,
  server: Mongod,
  prefix: 'saas_' | 'idp_',
  register: (host: FastifyInstance, mongo: LossyMongo['mongo'], clock: FakeClock) => Promise<void>,
): Promise<Hosts> {
  const clock = fakeClock();
  const uri = server.fresh(t);
  const lossy = lossyMongo(server.client(t), uri);
  const both: FastifyInstance[] = [];
  for (let count = 0; count < 2; count++) {
    const host = fastify();
    t.teardown(() => host.close());
    await register(host, lossy.mongo, clock);
    await host.ready();
    both.push(host);
  }
  const store = await openStore({ mongo: lossy.mongo, prefix });
  const answer = async (at: 0 | 1, options: object): Promise<Answer> => {
    // The identifiers of both hosts are derived from the time and the same random bytes.
    clock.advance(1);
    const { statusCode, body } = await (both[at] as FastifyInstance).inject(options);
    return { status: statusCode, body: body.startsWith('{') ? JSON.parse(body) : {}, text: body };
  };
  return {
    clock,
    lossy,
    store,
    host: both[0] as FastifyInstance,
    post: (url, payload, { at = 0, from = '192.0.2.1', token } = {}) =>
      answer(at, {
        method: 'POST',
        url,
        payload,
        remoteAddress: from,
        headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      }),
    get: (url) => answer(1, { method: 'GET', url }),
  };
}

const saasHosts = (t: Test, server: Mongod) =>
  hosts(t, server, 'saas_', async (host, mongo, clock) => {
    const { databaseUri: _, ...options } = saasPluginOptions(t);
    await host.register(saasBackend, { ...options, clock, mongo });
  });

/** An account with a link of each kind, whose request loses a response and gets a 503. */
async function accountWithLinks(t: Test, server: Mongod) {
  const all = await saasHosts(t, server);
  const users: Users = userCollection(all.store);
  const email = 'ada@example.test';
  const signedUp = await all.post('/api/auth/register', { email, password: PASSWORD });
  const { user, accessToken } = signedUp.body.data as unknown as {
    user: { id: string };
    accessToken: string;
  };
  // Written in the background, after the answer.
  const sources = all.store.collection('knownSources');
  await waitUntil('the registration is complete', async () => (await sources.count()) === 1);
  const tokenOf = (kind: string) => `${user.id}.${kind.padEnd(43, 'x')}`;
  const link = async (kind: 'reset' | 'verify' | 'change' | 'unlock', more: Partial<UserDocument> = {}) => {
    const token = tokenOf(kind);
    const expiresAt = all.clock.now() + 3_600_000;
    const set = { [`${kind}Hash`]: sha256(token), [`${kind}ExpiresAt`]: expiresAt, ...more };
    await users.updateOne({ id: user.id }, { set });
    return token;
  };
  return {
    ...all,
    users,
    email,
    id: user.id,
    accessToken,
    link,
    /** A request that takes effect and gets a 503. */
    async unanswered(t: Test, path: string, body: object, token = '') {
      all.lossy.lose('saas_users');
      t.equal((await all.post(path, body, { ...(token && { token }) })).status, 503);
    },
    login: async (password: string, address = email) =>
      (await all.post('/api/auth/login', { email: address, password })).status,
    storedUser: async () => (await users.findOne({ id: user.id })) as UserDocument,
  };
}

const code = ({ status, body }: Answer) => body.error?.code ?? status;

await onMongod((server) => {
  t.test('an unanswered reset is repeated at another process with the same password only', async (t) => {
    const account = await accountWithLinks(t, server);
    const { post, link, unanswered, login, storedUser, store } = account;
    const path = '/api/auth/reset-password';
    const token = await link('reset');
    await unanswered(t, path, { token, password: NEW });
    t.equal((await storedUser()).passwordVersion, 2, 'it took effect');

    const other = { token, password: 'the password of a thief' };
    t.equal(code(await post(path, other, { at: 1 })), 'INVALID_TOKEN');
    t.equal(code(await post('/api/auth/verify-email', { token, password: NEW })), 'INVALID_TOKEN');
    const repeated = await post(path, { token, password: NEW }, { at: 1 });
    t.match(repeated, { status: 200, body: { message: /has been changed/ } });
    const records = (await auditOf(store)).map(({ event }) => event);
    for (const event of ['password.reset', 'email.verified'])
      t.equal(records.filter((one) => one === event).length, 1, `${event} once`);
    t.match(await storedUser(), { passwordVersion: 2, emailVerified: true });
    t.equal(await login(NEW), 200);
    t.equal((await post(path, { token, password: NEW })).status, 200, 'also after the answer');
    t.equal((await storedUser()).passwordVersion, 2, 'once');
  });

  t.test('guesses at the password of an unanswered reset are limited', async (t) => {
    const account = await accountWithLinks(t, server);
    const { post, link, unanswered } = account;
    const token = await link('reset');
    await unanswered(t, '/api/auth/reset-password', { token, password: NEW });
    for (let count = 0; count < 10; count++) {
      const guess = { token, password: `guess number ${count}` };
      t.equal(code(await post('/api/auth/reset-password', guess)), 'INVALID_TOKEN');
    }
    const from = '203.0.113.9';
    t.equal(code(await post('/api/auth/reset-password', { token, password: NEW }, { from })), 'RATE_LIMITED');
  });

  t.test('an unanswered reset is not repeated after its time, a suspension or a new password', async (t) => {
    const account = await accountWithLinks(t, server);
    const { post, link, unanswered, clock, login, host, id } = account;
    const path = '/api/auth/reset-password';
    const repeat = async (token: string) => code(await post(path, { token, password: NEW }));
    const late = await link('reset');
    await unanswered(t, path, { token: late, password: NEW });
    clock.advance(3_600_000);
    t.equal(await repeat(late), 'INVALID_TOKEN');

    const suspended = await link('reset');
    await unanswered(t, path, { token: suspended, password: NEW });
    await host.saas.users.suspend({ id });
    await host.saas.users.unsuspend({ id });
    t.equal(await repeat(suspended), 'INVALID_TOKEN');

    const token = await link('reset');
    await unanswered(t, path, { token, password: NEW });
    const { accessToken } = (await post('/api/auth/login', { email: account.email, password: NEW })).body
      .data as unknown as { accessToken: string };
    const change = { currentPassword: NEW, newPassword: PASSWORD };
    t.equal((await post('/api/user/password', change, { token: accessToken })).status, 200);
    t.equal(await repeat(token), 'INVALID_TOKEN');
    t.equal(await login(PASSWORD), 200);
  });

  t.test('an unanswered confirmation is repeated with the same proof', async (t) => {
    const account = await accountWithLinks(t, server);
    const { post, link, unanswered, storedUser, accessToken, store } = account;
    const path = '/api/auth/verify-email';
    const token = await link('verify');
    await unanswered(t, path, { token, password: PASSWORD });
    t.equal((await storedUser()).emailVerified, true, 'it took effect');
    t.equal(code(await post(path, { token })), 'VALIDATION_ERROR', 'the link alone proves nothing');
    t.equal(code(await post(path, { token, password: NEW })), 'INVALID_TOKEN');
    t.equal(code(await post('/api/auth/reset-password', { token, password: NEW })), 'INVALID_TOKEN');
    const repeated = await post(path, { token }, { at: 1, token: accessToken });
    t.match(repeated, { status: 200, body: { message: 'Your address has been confirmed.' } });
    const records = await auditOf(store);
    t.equal(records.filter(({ event }) => event === 'email.verified').length, 1, 'once');
  });

  t.test('an unanswered change of the password is repeated by the same session only', async (t) => {
    const account = await accountWithLinks(t, server);
    const { post, unanswered, storedUser, login, email, accessToken: token, store } = account;
    const path = '/api/user/password';
    const change = { currentPassword: PASSWORD, newPassword: NEW };
    await unanswered(t, path, change, token);
    t.equal((await storedUser()).passwordVersion, 2, 'it took effect');

    const second = (await post('/api/auth/login', { email, password: NEW })).body.data as unknown as {
      accessToken: string;
    };
    t.equal(code(await post(path, change, { token: second.accessToken })), 'INVALID_CREDENTIALS');
    const guess = { ...change, newPassword: 'the password of a thief' };
    t.equal(code(await post(path, guess, { token })), 'INVALID_CREDENTIALS');
    t.equal((await post(path, change, { token, at: 1 })).status, 200);
    const records = (await auditOf(store)).map(({ event }) => event);
    t.equal(
      records.filter((event) => event === 'password.change-refused').length,
      2,
      'of the other requests',
    );
    t.equal(records.filter((event) => event === 'password.changed').length, 1, 'once');
    t.equal((await storedUser()).passwordVersion, 2, 'once');
    t.equal(await login(NEW), 200);
  });

  t.test('guesses at the password of an unanswered change are counted as any other', async (t) => {
    const { post, unanswered, accessToken: token } = await accountWithLinks(t, server);
    const path = '/api/user/password';
    const change = { currentPassword: PASSWORD, newPassword: NEW };
    await unanswered(t, path, change, token);
    for (let count = 0; count < 10; count++) {
      const guess = { currentPassword: PASSWORD, newPassword: `guess number ${count}` };
      t.equal(code(await post(path, guess, { token })), 'INVALID_CREDENTIALS');
    }
    t.equal(code(await post(path, change, { token })), 'RATE_LIMITED');
  });

  t.test('an unanswered unlock is repeated from the same address only', async (t) => {
    const { post, link, unanswered } = await accountWithLinks(t, server);
    const token = await link('unlock');
    await unanswered(t, '/api/auth/unlock', { token });
    const from = '203.0.113.9';
    t.equal(code(await post('/api/auth/unlock', { token }, { from })), 'INVALID_TOKEN');
    t.equal((await post('/api/auth/unlock', { token }, { at: 1 })).status, 200);
  });

  t.test('an unanswered invitation, reset or verification of idp is repeated', async (t) => {
    const { post, lossy, store, clock } = await hosts(t, server, 'idp_', async (host, mongo, clock) => {
      const { databaseUri: _, ...options } = idpPluginOptions(t);
      const emailSmtpUrl = 'smtp://127.0.0.1:9';
      await host.register(identityProvider, { ...options, clock, mongo, emailSmtpUrl });
    });
    const handle = 'ada@example.test';
    const principals = principalCollection(store);
    const invited = await post('/idp/v1/invites', { handle }, { token: ADMIN_TOKEN });
    const { invite_url: url } = invited.body as unknown as { invite_url: string };
    let path = new URL(url).pathname;
    const nextLink = async (path: string, hash: 'linkHash' | 'mailedLinkHash' | 'verifyHash') => {
      const { id = '' } = (await principals.findOne({ handle })) ?? {};
      const next = `${id.slice('u_'.length)}${hash.padEnd(43, 'x')}`;
      const until = clock.now() + 3_600_000;
      const times = { linkExpiresAt: until, mailedLinkExpiresAt: until, verifyExpiresAt: until };
      await principals.updateOne({ id }, { set: { [hash]: sha256(next), ...times } });
      return `/idp/${path}/${next}`;
    };
    const unanswered = async (form: { password: string }) => {
      lossy.lose('idp_principals');
      t.equal((await post(path, form)).status, 503);
    };
    for (const [round, event] of ['invitation.accepted', 'password.reset', 'password.reset'].entries()) {
      const password = `${PASSWORD} ${round}`;
      await unanswered({ password });
      const { epoch, state } = (await principals.findOne({ handle })) ?? {};
      t.same([state, epoch], ['active', round + 1], 'it took effect');
      t.equal((await post(path, { password: NEW }, { at: 1 })).status, 410);
      t.match(await post(path, { password }, { at: 1 }), { status: 201, body: { handle } });
      t.equal((await principals.findOne({ handle }))?.epoch, round + 1, 'once');
      t.equal((await auditOf(store)).filter((record) => record.event === event).length, Math.max(1, round));
      path = await nextLink('invite', round === 0 ? 'linkHash' : 'mailedLinkHash');
    }
    const password = `${PASSWORD} 2`;
    path = await nextLink('verify', 'verifyHash');
    await principals.updateOne({ handle }, { unset: ['emailVerifiedAt'] });
    await unanswered({ password });
    const verifiedAt = (await principals.findOne({ handle }))?.emailVerifiedAt;
    t.ok(verifiedAt, 'it took effect');
    t.equal((await post(path, { password: NEW }, { at: 1 })).status, 401, 'with a valid proof only');
    t.equal((await post(path.replace('verify', 'invite'), { password }, { at: 1 })).status, 410);
    t.match(await post(path, { password }, { at: 1 }), { status: 303 });
    t.equal((await principals.findOne({ handle }))?.emailVerifiedAt, verifiedAt, 'once');
  });
});
