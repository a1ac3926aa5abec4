import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createUnknownWrites } from '../../../src/core/ops/unknown-writes.js';
import { createSignInMethods } from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createAccountSources } from '../../../src/idp/account.js';
import { createAuthorization } from '../../../src/idp/oidc/authorize/service.js';
import { createBackchannelLogout } from '../../../src/idp/oidc/backchannel/service.js';
import { logoutNoticeCollection } from '../../../src/idp/oidc/backchannel/store.js';
import { covers } from '../../../src/idp/oidc/consents.js';
import { newRefreshToken } from '../../../src/idp/oidc/grant-tokens.js';
import { createSessionService } from '../../../src/idp/oidc/sessions.js';
import { consentCollection, grantCollection, sessionCollection } from '../../../src/idp/oidc/store.js';
import { createTokenService } from '../../../src/idp/oidc/tokens/service.js';
import { createDirectory } from '../../../src/idp/provisioning/directory.js';
import { createPrincipals } from '../../../src/idp/provisioning/principals.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { createAccountService } from '../../../src/shared/account-pages/service.js';
import { fakeClock } from '../../kit/clock.js';
import { explore } from '../../kit/explore.js';
import { grantedIn } from '../../kit/granted.js';
import { SEED } from '../../kit/idp.js';
import { countedRandom } from '../../kit/random.js';
import { NO_DELEGATIONS, NO_RESOURCES } from '../../kit/resources.js';

/** Changes of an account beside its use, in every order of the calls to the store, with crashes. */

const clock = fakeClock();
const NOW = clock.now();
const SUB = `u_${'0'.repeat(32)}`;
const CLIENT = {
  id: 'cid_1',
  name: 'Shop',
  redirectUris: ['https://app.example.test/cb'],
  principalKinds: ['human'],
};
/** The same, and it is notified of ended sessions. */
const TOLD_CLIENT = { ...CLIENT, backchannelLogoutUri: 'https://app.example.test/out' } as never;
const GRANT_ID = `gr_${'1'.repeat(32)}`;
const REFRESH = newRefreshToken(GRANT_ID, countedRandom(), SEED);
/** The session in which the person uses the account page. */
const OPEN = { id: `sid_${'1'.repeat(32)}`, authTime: NOW };
const FROM = { ip: '192.0.2.1', isDisconnected: () => false };
const [CURRENT, OTHER] = [`sid_${'1'.repeat(32)}`, `sid_${'2'.repeat(32)}`];

async function setup(store: Store): Promise<void> {
  await principalCollection(store).insert({
    id: SUB,
    handle: 'ada@example.test',
    kind: 'human',
    state: 'active',
    passwordHash: 'hash of old',
    createdAt: NOW,
    updatedAt: NOW,
  });
  await consentCollection(store).insert({
    id: `${SUB} ${CLIENT.id}`,
    scopes: ['openid', 'offline_access'],
    updatedAt: NOW,
  });
  for (const id of [CURRENT, OTHER]) {
    await sessionCollection(store).insert({
      id,
      tokenHash: 'x',
      sub: SUB,
      authTime: NOW,
      createdAt: NOW,
      expiresAt: NOW + 1000,
    });
  }
  await grantCollection(store).insert({
    id: GRANT_ID,
    codeHash: 'x',
    clientId: CLIENT.id,
    sub: SUB,
    redirectUri: 'https://app.example.test/cb',
    scope: 'openid offline_access',
    authTime: NOW,
    createdAt: NOW,
    codeExpiresAt: NOW,
    consumedAt: NOW,
    refreshHash: sha256(REFRESH),
    refreshExpiresAt: NOW + 1_000_000,
  });
}

/** The services of one process on its view of the store; passwords, keys, limits and the audit are stubs. */
function processOn(store: Store, seed = 'a') {
  const shared = grantedIn(store, { clock, random: countedRandom(seed) });
  const { consents } = shared;
  const collection = principalCollection(store);
  const principals = createPrincipals(collection, {
    ...shared,
    passwords: {
      problem: () => null,
      ensureCapacity: async () => undefined,
      hash: async (password: string) => `hash of ${password}`,
      verify: async (stored: string, password: string) => ({ ok: stored === `hash of ${password}` }),
    } as never,
    passwordPolicy: { validate: async () => undefined },
    throttle: {
      attempt: (_: unknown, evaluate: () => unknown) => evaluate(),
      count: async () => undefined,
      trustOnly: async () => undefined,
    } as never,
  });
  const { deleteSelf, isDeleted } = createDirectory(collection, {
    ...shared,
    signInMethods: createSignInMethods(),
  });
  const directory = { findPrincipal: principals.find, findClient: async () => CLIENT, isDeleted } as never;
  const sessions = createSessionService({
    sessionDocuments: sessionCollection(store),
    directory,
    ...shared,
  });
  const grants = grantCollection(store);
  const quiet = { now: clock.now, every: () => () => undefined };
  const tokens = createTokenService({
    ...shared,
    ...NO_DELEGATIONS,
    grants,
    sessionDocuments: sessionCollection(store),
    resources: NO_RESOURCES,
    directory,
    unknownWrites: createUnknownWrites({ clock: quiet, log: { error: () => undefined } }),
    keys: { sign: async () => 'id_token' } as never,
    claimsOf: () => ({}),
    issuer: () => 'https://id.example.test',
    seeds: [SEED],
    reuseWindowMs: 30_000,
  });
  const backchannel = createBackchannelLogout({
    ...shared,
    sessionDocuments: sessionCollection(store),
    directory: { findClient: async () => TOLD_CLIENT },
    keys: { sign: async () => 'logout token' },
    post: async () => 200,
    issuer: () => 'https://id.example.test',
    log: { warn: () => undefined },
  });
  const authorization = createAuthorization({
    ...shared,
    ...NO_DELEGATIONS,
    pushed: () => Promise.reject(new Error('there is no pushed request')),
    grants,
    resources: NO_RESOURCES,
    directory,
    interactionTokens: {} as never,
    sessions,
    backchannel,
    readHint: async () => null,
    issuer: () => 'https://id.example.test',
  });
  const sources = createAccountSources({
    ...{ principals, directory: { deleteSelf, isDeleted }, sessions, consents, audit: shared.audit },
    delegations: { list: async () => [], endOwn: async () => false },
    findClient: async () => CLIENT,
    findResource: NO_RESOURCES.find,
    verification: undefined,
    factors: undefined,
    passkeys: undefined,
    forget: async (sub) => {
      await Promise.all([sessions.forget(sub), consents.forget(sub)]);
    },
  });
  return {
    account: { ...sources.people, ...createAccountService(sources) },
    applications: sources.applications as NonNullable<typeof sources.applications>,
    ownSessions: sources.sessions,
    consents,
    sessions,
    backchannel,
    refresh: () => tokens.refresh(CLIENT as never, { token: REFRESH, scope: undefined }, FROM.ip),
    async redeem(code: string) {
      const grant = await tokens.findByCode(code);
      const redemption = { code, grant, redirectUri: CLIENT.redirectUris[0], verifier: undefined };
      return tokens.redeem(CLIENT as never, redemption, FROM.ip);
    },
    /** A sign-in without a page, as /authorize makes it; `null` where it would ask. */
    async signInSilently(client: object = CLIENT): Promise<string | null> {
      const principal = await principals.find(SUB);
      const session = await sessionCollection(store).findOne({ id: OTHER });
      const consent = await consents.find(SUB, CLIENT.id);
      if (!principal || !session || principal.epoch !== session.epoch || !covers(consent, 'openid'))
        return null;
      const request = {
        client,
        redirectUri: CLIENT.redirectUris[0],
        scope: 'openid',
        parameters: {},
      };
      const { revocations } = consent;
      const { values } = await authorization.approve(
        request as never,
        { principal, session, revocations, isSilent: true },
        FROM.ip,
      );
      return values['code'] ?? null;
    },
  };
}

const PERSON = { id: SUB, handle: 'ada@example.test' };

const isRefused = (call: Promise<unknown>): Promise<boolean> =>
  call.then(
    () => false,
    (error) => error.code === 'invalid_grant',
  );

const resultOf = (result: PromiseSettledResult<unknown> | undefined): unknown =>
  result?.status === 'fulfilled' ? result.value : undefined;

function insist(isRight: boolean, words: string): asserts isRight {
  if (!isRight) throw new Error(words);
}

t.test('in every interleaving, a disconnected application keeps no access', async (t) => {
  const { failure, orders } = await explore({
    setup,
    actors: [
      (store) => processOn(store, 'a').applications.disconnect(PERSON, CLIENT.id, FROM),
      (store) => processOn(store, 'b').refresh(),
      (store) => processOn(store, 'c').signInSilently(),
    ],
    crash: true,
    async check(store, [disconnected, , signedIn]) {
      if (disconnected?.status !== 'fulfilled') return;
      const { refresh, redeem } = processOn(store, 'd');
      insist(await isRefused(refresh()), 'the refresh token works');
      const code = resultOf(signedIn);
      if (typeof code === 'string') insist(await isRefused(redeem(code)), 'a code is redeemed');
      const { items } = await grantCollection(store).page({ sort: 'id', limit: 10 });
      const consent = await processOn(store, 'c').consents.find(SUB, CLIENT.id);
      insist(
        items.every(({ revocations = 0 }) => revocations < consent.revocations),
        'a grant is current',
      );
    },
  });
  t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
  t.ok(orders > 10, `${orders} orders`);
});

t.test(
  'in every interleaving of a disconnection and a new consent, what was granted afterwards works',
  async (t) => {
    const remember = (store: Store, scope: string) =>
      processOn(store, 'c').consents.remember(SUB, CLIENT.id, scope);
    const { failure, orders } = await explore({
      setup,
      actors: [
        (store) => processOn(store, 'a').applications.disconnect(PERSON, CLIENT.id, FROM),
        (store) => remember(store, 'openid email'),
      ],
      crash: true,
      async check(store, [disconnected, remembered]) {
        const consent = await processOn(store, 'c').consents.find(SUB, CLIENT.id);
        const granted = resultOf(remembered) as { revocations: number } | undefined;
        if (!granted || disconnected?.status !== 'fulfilled') return;
        const isLater = granted.revocations === consent.revocations;
        insist(isLater === covers(consent, 'email'), 'a grant is current exactly if its consent is stored');
        insist(!covers(consent, 'offline_access'), 'what was revoked is not restored');
      },
    });
    t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
    t.ok(orders > 3, `${orders} orders`);
  },
);

t.test('in every interleaving, a deleted account has no access, even when a process crashes', async (t) => {
  const { failure, orders } = await explore({
    setup,
    actors: [
      (store) => processOn(store, 'a').account.delete(PERSON, 'old', FROM),
      (store) => processOn(store, 'b').signInSilently(),
    ],
    crash: true,
    async check(store, [deleted, signedIn]) {
      const person = await principalCollection(store).findOne({ id: SUB });
      const { refresh, redeem, account, sessions } = processOn(store, 'd');
      if (person?.state === 'active') {
        insist(resultOf(deleted) === undefined, 'the account is deleted as reported');
        insist(!(await isRefused(refresh())), 'what is not deleted works');
        insist((await account.delete(PERSON, 'old', FROM)) === true, 'and can be deleted again');
      }
      const after = await principalCollection(store).findOne({ id: SUB });
      insist(after?.state === 'deleted', 'it is deleted');
      insist(after.passwordHash === undefined, 'without its password');
      insist(after.handle === PERSON.handle, 'the user name stays taken');
      insist(await isRefused(refresh()), 'the refresh token works');
      const code = resultOf(signedIn);
      if (typeof code === 'string') insist(await isRefused(redeem(code)), 'a code is redeemed');
      insist(
        (await sessions.list({ id: SUB })).every(({ epoch }) => epoch !== after.epoch),
        'a session is valid',
      );
    },
  });
  t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
  t.ok(orders > 10, `${orders} orders`);
});

t.test('in every interleaving of deletion and password change one succeeds', async (t) => {
  const { failure, orders } = await explore({
    setup,
    actors: [
      (store) => processOn(store, 'a').account.delete(PERSON, 'old', FROM),
      (store) =>
        processOn(store, 'b').account.changePassword(PERSON, { current: 'old', chosen: 'new' }, OPEN, FROM),
    ],
    async check(store, [deleted, changed]) {
      const person = await principalCollection(store).findOne({ id: SUB });
      insist((resultOf(deleted) === true) !== (resultOf(changed) === true), 'one of them succeeds');
      insist(
        (person?.state === 'deleted') === (resultOf(deleted) === true),
        'the response says what happened',
      );
    },
  });
  t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
  t.ok(orders > 3, `${orders} orders`);
});

t.test('in every interleaving, a session that was ended is not renewed', async (t) => {
  const other = { id: OTHER, tokenHash: 'x', sub: SUB, authTime: NOW, createdAt: NOW, expiresAt: NOW + 1000 };
  for (const end of [
    (store: Store) => processOn(store, 'a').ownSessions.end(PERSON, OTHER, FROM),
    (store: Store) => processOn(store, 'a').ownSessions.endOthers(PERSON, OPEN, FROM),
  ]) {
    const { failure, orders } = await explore({
      setup,
      actors: [
        end,
        (store) => createCommit(store)([processOn(store, 'b').sessions.extending(other)]),
        (store) => processOn(store, 'c').signInSilently(),
      ],
      async check(store) {
        insist((await sessionCollection(store).findOne({ id: OTHER })) === null, 'the session is there');
        insist(
          (await sessionCollection(store).findOne({ id: CURRENT })) !== null,
          'the own session has ended',
        );
      },
    });
    t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
    t.ok(orders > 3, `${orders} orders`);
  }
});

t.test(
  'in every interleaving, an application that gets a code is notified of the end of its session',
  async (t) => {
    const { failure, orders } = await explore({
      setup,
      actors: [
        (store) => processOn(store, 'a').ownSessions.end(PERSON, OTHER, FROM),
        (store) => processOn(store, 'b').signInSilently(TOLD_CLIENT),
      ],
      crash: true,
      async check(store, [, signedIn]) {
        const isNotified = typeof resultOf(signedIn) === 'string';
        const notices = logoutNoticeCollection(store);
        if (isNotified) insist((await notices.count()) === 1, 'there is no notice');
        const { jobs } = processOn(store, 'c').backchannel;
        await jobs.send.run({ term: 1, signal: new AbortController().signal });
        const hasEnded = (await sessionCollection(store).findOne({ id: OTHER })) === null;
        if (hasEnded) insist((await notices.count()) === 0, 'a notice is not sent');
        else if (isNotified) insist((await notices.count()) === 1, 'a notice is sent too early');
      },
    });
    t.equal(failure, undefined, failure?.calls.join(', ') ?? 'in every order');
    t.ok(orders > 3, `${orders} orders`);
  },
);
