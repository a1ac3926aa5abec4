import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createAccountData } from '../../../src/core/server/contributions.js';
import { nullIfTaken, type Store } from '../../../src/core/storage/collection.js';
import type { AuthService } from '../../../src/saas/auth/service.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { testRefreshesInOutages } from '../../kit/refresh-outage.js';
import {
  ADA,
  aliveSessions,
  codes,
  holds,
  insist,
  linkOf,
  NOW,
  ORIGIN,
  serviceOn,
  setup,
  suspensionOn,
} from './explored-service.js';

/** The real services in every order of their storage calls; passwords, tokens and counters are stubs. */

const sessionOf = (id: string) => ({
  user: { id, email: `${id}@example.test` },
  session: { id: `ses_${id}` },
});
const identityOf = (id: string) => sessionOf(id) as unknown as Parameters<AuthService['deleteAccount']>[0];

const refresh = (store: Store, seed = 'refresh') =>
  serviceOn(store, seed).refresh(`${ADA} ses_${ADA} first`, ORIGIN);
const login = (store: Store) =>
  serviceOn(store, 'login').login({ email: `${ADA}@example.test`, password: 'old' }, ORIGIN);
const reset = (store: Store) =>
  serviceOn(store, 'reset').resetPassword({ token: linkOf(ADA), password: 'new' }, ORIGIN);

/** After the new password is set, no session started with the old one is valid. */
async function checkOldSessionsEnded(store: Store): Promise<void> {
  const user = await userCollection(store).findOne({ id: ADA });
  if (user?.passwordHash !== 'hash of new') return;
  const alive = await aliveSessions(store);
  insist(alive.length === 0, `alive after the reset: ${alive}`);
}

t.test(
  'in every interleaving of refreshes a token has one successor, even when a process crashes',
  async (t) => {
    const one = (seed: string) => (store: Store) => refresh(store, seed);
    const scenario: Scenario = {
      setup,
      actors: [one('a'), one('b'), one('c')],
      crash: true,
      async check(store, results) {
        insist(!codes(results).some((code) => code !== 'done'), `refused: ${codes(results)}`);
        const given = results.flatMap((result) =>
          result?.status === 'fulfilled' ? [result.value as { refreshToken: string }] : [],
        );
        insist(new Set(given.map(({ refreshToken }) => refreshToken)).size <= 1, 'two successors');
        insist((await aliveSessions(store)).length === 1, 'the session has ended');
      },
    };
    holds(t, await explore(scenario));
  },
);

testRefreshesInOutages({
  setup,
  present: (store, process) =>
    serviceOn(store, 'refresh', process).refresh(`${ADA} ses_${ADA} first`, ORIGIN),
  isEnded: async (store) => (await aliveSessions(store)).length === 0,
  reused: 'REFRESH_TOKEN_REUSED',
});

t.test(
  'in every interleaving of reset, login and refresh no access by the old password survives',
  async (t) => {
    const scenario = {
      setup,
      actors: [reset, login, (store: Store) => refresh(store)],
      crash: true,
      check: checkOldSessionsEnded,
    };
    holds(t, await explore(scenario));
  },
);

t.test(
  'a session that ends meanwhile can neither revoke other sessions nor change the password',
  async (t) => {
    const endOthers = (store: Store) =>
      serviceOn(store, 'others').logout({ refreshToken: `${ADA} ses_${ADA} first`, scope: 'others' }, ORIGIN);
    const change = (store: Store) =>
      serviceOn(store, 'change').changePassword(
        identityOf(ADA),
        { currentPassword: 'old', newPassword: 'thief' },
        ORIGIN,
      );
    holds(t, await explore({ setup, actors: [reset, endOthers, change], check: checkOldSessionsEnded }));

    const endAll = (store: Store) =>
      serviceOn(store, 'all').logout({ refreshToken: `${ADA} ses_${ADA} first`, scope: 'global' }, ORIGIN);
    const check = async (store: Store) => {
      const alive = await aliveSessions(store);
      insist(alive.length === 0, `alive after all have ended: ${alive}`);
    };
    holds(t, await explore({ setup, actors: [endAll, change], check }));
  },
);

t.test('the link of a former address does not verify the address that a host sets', async (t) => {
  const scenario: Scenario = {
    async setup(store) {
      await setup(store);
      await userCollection(store).updateOne(
        { id: ADA },
        {
          set: { emailVerified: false, verifyHash: sha256(linkOf(ADA)), verifyExpiresAt: NOW + 1000 },
          unset: ['changeHash', 'changeExpiresAt', 'newEmail'],
        },
      );
    },
    actors: [
      (store) => serviceOn(store, 'host').update({ id: ADA }, { email: 'moved@example.test' }),
      (store) => serviceOn(store, 'link').verifyEmail({ token: linkOf(ADA), password: 'old' }, ORIGIN),
    ],
    async check(store) {
      const user = await userCollection(store).findOne({ id: ADA });
      insist(user?.email === 'moved@example.test', 'not moved');
      insist(!user.emailVerified, 'verified without a link');
    },
  };
  holds(t, await explore(scenario));
});

t.test('a suspension permanently ends sessions that exist, begin or change at that moment', async (t) => {
  const suspend = (store: Store) => suspensionOn(store).suspend({ id: ADA });
  const change = (store: Store) =>
    serviceOn(store, 'change').changePassword(
      identityOf(ADA),
      { currentPassword: 'old', newPassword: 'other' },
      ORIGIN,
    );
  const check = async (store: Store) => {
    insist((await aliveSessions(store)).length === 0, 'alive while suspended');
    await suspensionOn(store).unsuspend({ id: ADA });
    const alive = await aliveSessions(store);
    insist(alive.length === 0, `alive again: ${alive}`);
    const user = await userCollection(store).findOne({ id: ADA });
    insist(user?.suspendedAt === undefined, 'still suspended');
    insist(user?.resetHash === undefined && user?.changeHash === undefined, 'a link holds again');
  };
  holds(t, await explore({ setup, actors: [suspend, login, (store) => refresh(store)], check }));
  holds(t, await explore({ setup, actors: [suspend, suspend, change], check }));
});

t.test(
  'in every interleaving of deletion, login and refresh the account is deleted and never charged again',
  async (t) => {
    const cancelled = (store: Store) => store.collection<{ id: string }>('cancelled');
    const service = (store: Store) => {
      const accountData = createAccountData();
      accountData.add({
        close: async (id) => void (await cancelled(store).insert({ id }).catch(nullIfTaken)),
      });
      return serviceOn(store, 'delete', { accountData });
    };
    const scenario: Scenario = {
      async setup(store) {
        await setup(store);
        cancelled(store);
      },
      actors: [
        (store) => service(store).deleteAccount(identityOf(ADA), 'old', ORIGIN),
        login,
        (store) => refresh(store),
      ],
      crash: true,
      recover: async (store) =>
        void (await service(store).deletionJob.run({ term: 1, signal: new AbortController().signal })),
      async check(store, results) {
        const user = await userCollection(store).findOne({ id: ADA });
        insist(user !== null || (await cancelled(store).count()) === 1, 'gone, but charged');
        insist(user === null || user.deletingAt === undefined, 'half deleted');
        insist(user === null || results[0]?.status !== 'fulfilled', 'said to be deleted');
        insist(user !== null || (await aliveSessions(store)).length === 0, 'still in');
      },
    };
    holds(t, await explore(scenario));
  },
);
