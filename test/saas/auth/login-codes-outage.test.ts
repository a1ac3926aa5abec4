import t from 'tap';
import { createSealed } from '../../../src/core/kernel/sealed.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createEmailLogin, type EmailLogin } from '../../../src/saas/auth/sign-in/email-login.js';
import { LOGIN_CODE_TTL_MS, loginCodeCollection } from '../../../src/saas/auth/sign-in/login-codes.js';
import {
  isSessionValid,
  sessionCollection,
  type UserDocument,
  userCollection,
} from '../../../src/saas/auth/store.js';
import { fakeClock } from '../../kit/clock.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { countedRandom } from '../../kit/random.js';
import {
  ADA,
  codes,
  holds,
  insist,
  linkOf,
  NOW,
  ORIGIN,
  serviceOn,
  suspensionOn,
  setup as twoAccounts,
} from './explored-service.js';

/** Mailed codes in every order of the calls to the store. */

const EMAIL = `${ADA}@example.test`;
const SECRET = 's'.repeat(43);
const CODE = '7KQM3XWT';

const clock = fakeClock();
const loginTokens = createSealed('sign-ins by e-mail', {
  ...{ keys: ['secret'], lifetimeMs: LOGIN_CODE_TTL_MS, clock, random: countedRandom('seal') },
});
const GIVEN = { loginToken: loginTokens.seal({ email: EMAIL, secret: SECRET }), code: CODE };

const userIn = (store: Store) => userCollection(store).findOne({ email: EMAIL });

/** One process. */
const processOn = (store: Store, seed: string) =>
  serviceOn(store, seed, {
    clock,
    createEmailLogin: (accounts) => createEmailLogin(accounts, loginCodeCollection(store)),
  }).emailLogin as EmailLogin;

const redeem = (seed: string) => (store: Store) => processOn(store, seed).redeem(GIVEN, ORIGIN);

const begin = () => clock.set(NOW);

/** @param account what the account has; `null` for an address without one */
const setup = (account: Partial<UserDocument> | null) => async (store: Store) => {
  await twoAccounts(store);
  const users = userCollection(store);
  if (account) await users.updateOne({ id: ADA }, { set: account });
  else await users.deleteOne({ id: ADA });
  const user = await userIn(store);
  await loginCodeCollection(store).insert({
    id: sha256(SECRET),
    codeHash: sha256(`${SECRET} ${CODE}`),
    attemptsLeft: 5,
    expiresAt: NOW + LOGIN_CODE_TTL_MS,
    ...(user && { userId: user.id, epoch: user.sessionEpoch }),
  });
};

/** The sessions of the account that are valid, without the one from before. */
async function sessionsIn(store: Store): Promise<{ fresh: number; old: number }> {
  const user = await userIn(store);
  const { items } = await sessionCollection(store).page({ where: {}, sort: 'id', limit: 99 });
  const valid = items.filter((session) => user && isSessionValid(user, session, NOW));
  const old = valid.filter(({ id }) => id === `ses_${ADA}`).length;
  return { fresh: valid.length - old, old };
}

t.test('of two requests with a code, one signs in', async (t) => {
  for (const account of [{}, { emailVerified: false }, null]) {
    const scenario: Scenario = {
      begin,
      setup: setup(account),
      actors: [redeem('one'), redeem('two')],
      async check(store, results) {
        insist(codes(results).sort().join() === 'CODE_EXPIRED,done', codes(results).join());
        insist((await sessionsIn(store)).fresh === 1, 'two sessions');
      },
    };
    holds(t, await explore(scenario));
  }
});

t.test('no session of a code outlives a reset or a suspension at the same moment', async (t) => {
  const reset = (store: Store) =>
    serviceOn(store, 'reset').resetPassword({ token: linkOf(ADA), password: 'new' }, ORIGIN);
  const suspend = (store: Store) => suspensionOn(store).suspend({ id: ADA });
  for (const account of [{}, { emailVerified: false }]) {
    for (const end of [reset, suspend]) {
      const scenario: Scenario = {
        begin,
        setup: setup(account),
        actors: [redeem('code'), end],
        async check(store, results) {
          // The link of a reset ends when the owner of the address takes the account over.
          if (codes(results)[1] !== 'done') return;
          await userCollection(store).updateOne({ id: ADA }, { unset: ['suspendedAt'] });
          const { fresh, old } = await sessionsIn(store);
          insist(fresh + old === 0, `${fresh} new and ${old} old sessions`);
        },
      };
      const { failure } = await explore(scenario);
      t.equal(failure, undefined);
    }
  }
});

t.test('a stranger who registers the address at the same moment gets nothing', async (t) => {
  const register = (store: Store) =>
    serviceOn(store, 'stranger').register({ email: EMAIL, password: 'theirs' }, ORIGIN);
  const scenario: Scenario = {
    begin,
    setup: setup(null),
    actors: [redeem('code'), register],
    async check(store, results) {
      insist(codes(results)[0] === 'done', codes(results).join());
      const user = await userIn(store);
      insist(user?.emailVerified === true && user.passwordHash === undefined, 'the password of the stranger');
      insist((await sessionsIn(store)).fresh === 1, 'a session of the stranger');
    },
  };
  const { failure } = await explore(scenario);
  t.equal(failure, undefined);
});
