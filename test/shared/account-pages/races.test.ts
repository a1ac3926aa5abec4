import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createAuthorization } from '../../../src/idp/oidc/authorize/service.js';
import { createBackchannelLogout } from '../../../src/idp/oidc/backchannel/service.js';
import { logoutNoticeCollection } from '../../../src/idp/oidc/backchannel/store.js';
import { covers } from '../../../src/idp/oidc/consents.js';
import { newRefreshToken } from '../../../src/idp/oidc/grant-tokens.js';
import { createSessionService } from '../../../src/idp/oidc/sessions.js';
import { consentCollection, grantCollection, sessionCollection } from '../../../src/idp/oidc/store.js';
import { findByCode, redeemCode } from '../../../src/idp/oidc/tokens/redeem.js';
import { refreshTokens } from '../../../src/idp/oidc/tokens/refresh.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { fakeClock } from '../../kit/clock.js';
import { NO_EFFECT } from '../../kit/effects.js';
import { explore } from '../../kit/explore.js';
import { grantedIn } from '../../kit/granted.js';
import { SEED } from '../../kit/idp.js';
import { oidcOn } from '../../kit/oidc.js';
import { countedRandom } from '../../kit/random.js';
import { holds, insist } from '../../saas/auth/explored-service.js';

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
const IP = '192.0.2.1';
/** The session in which the person uses the account page, and another one. */
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

/** The services of one process on its view of the store; keys and the audit are stubs. */
function processOn(store: Store, seed = 'a') {
  const shared = grantedIn(store, { clock, random: countedRandom(seed) });
  const { consents } = shared;
  const findPrincipal = (id: string) => principalCollection(store).findOne({ id });
  const directory = { findPrincipal, findClient: async () => CLIENT } as never;
  const deps = oidcOn(store, shared, { directory });
  const sessions = createSessionService(deps);
  const told = oidcOn(store, shared, { directory: { findClient: async () => TOLD_CLIENT } });
  const backchannel = createBackchannelLogout({ ...told, post: async () => 200, postPing: async () => 204 });
  const authorization = createAuthorization({
    ...{ ...deps, sessions, backchannel },
    directory: { recordUse: async () => undefined } as never,
    interactionTokens: {} as never,
    approvals: undefined,
  });
  const request = { fields: {}, resources: [], prove: undefined, ip: IP };
  return {
    consents,
    sessions,
    backchannel,
    refresh: () => refreshTokens(CLIENT as never, REFRESH, request, deps),
    async redeem(code: string) {
      const fields = { code, redirect_uri: CLIENT.redirectUris[0] as string };
      const grant = await findByCode(code, deps);
      return redeemCode(CLIENT as never, grant, { ...request, fields }, deps);
    },
    /** A sign-in without a page, as /authorize makes it; `null` where it would ask. */
    async signInSilently(client: object = CLIENT): Promise<string | null> {
      const principal = await findPrincipal(SUB);
      const session = await sessionCollection(store).findOne({ id: OTHER });
      const consent = await consents.find(SUB, CLIENT.id);
      if (!principal || !session || principal.epoch !== session.epoch || !covers(consent, 'openid'))
        return null;
      const request = {
        client,
        redirectUri: CLIENT.redirectUris[0],
        scope: 'openid',
        parameters: {},
        targets: [],
      };
      const { values } = await authorization.approve(
        request as never,
        { principal: { ...principal, groups: [] }, session, consent, isSilent: true },
        IP,
      );
      return values['code'] ?? null;
    },
  };
}

const isRefused = (call: Promise<unknown>): Promise<boolean> =>
  call.then(
    () => false,
    (error) => error.code === 'invalid_grant',
  );

const resultOf = (result: PromiseSettledResult<unknown> | undefined): unknown =>
  result?.status === 'fulfilled' ? result.value : undefined;

t.test('in every interleaving, a disconnected application keeps no access', async (t) => {
  holds(
    t,
    await explore({
      setup,
      actors: [
        (store) => processOn(store, 'a').consents.revoke(SUB, CLIENT.id, IP),
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
    }),
  );
});

t.test('in every interleaving, a session that was ended is not renewed', async (t) => {
  const other = { id: OTHER, tokenHash: 'x', sub: SUB, authTime: NOW, createdAt: NOW, expiresAt: NOW + 1000 };
  for (const end of [
    (store: Store) => processOn(store, 'a').sessions.endOwn(SUB, OTHER, NO_EFFECT),
    (store: Store) => processOn(store, 'a').sessions.endOthers(SUB, CURRENT, NO_EFFECT),
  ]) {
    holds(
      t,
      await explore({
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
      }),
    );
  }
});

t.test(
  'in every interleaving, an application that gets a code is notified of the end of its session',
  async (t) => {
    holds(
      t,
      await explore({
        setup,
        actors: [
          (store) => processOn(store, 'a').sessions.endOwn(SUB, OTHER, NO_EFFECT),
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
      }),
    );
  },
);
