import t from 'tap';
import { createSealed } from '../../../src/core/kernel/sealed.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit, effectOf } from '../../../src/core/ops/commit.js';
import { createSignInMethods } from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createEmailLogin, type EmailLogin } from '../../../src/saas/auth/sign-in/email-login.js';
import { LOGIN_CODE_TTL_MS, loginCodeCollection } from '../../../src/saas/auth/sign-in/login-codes.js';
import {
  isSessionValid,
  sessionCollection,
  type UserDocument,
  userCollection,
} from '../../../src/saas/auth/store.js';
import { createSuspension } from '../../../src/saas/auth/users/suspension.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { eventSink } from '../../kit/events.js';
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

/** What signs in to an account beside its password, by the ID of the account. */
const credentialsIn = (store: Store) => store.collection<{ id: string }>('credentials');

/** What webhooks get: events by their names. */
const eventsIn = (store: Store) => store.collection<{ id: string }>('events');

const userIn = (store: Store) => userCollection(store).findOne({ email: EMAIL });

/** One process. */
function processOn(store: Store, seed: string): EmailLogin {
  const signInMethods = createSignInMethods();
  signInMethods.add('passkey', {
    async removal(id) {
      const credentials = credentialsIn(store);
      return (await credentials.findOne({ id })) ? [credentials.deleting({ id })] : [];
    },
  });
  const { emailLogin } = serviceOn(store, seed, {
    clock,
    signInMethods,
    event: async (id) => effectOf(eventsIn(store).inserting({ id })),
    createEmailLogin: (accounts) => createEmailLogin(accounts, loginCodeCollection(store)),
  });
  return emailLogin as EmailLogin;
}

const redeem =
  (seed: string, code = CODE) =>
  (store: Store) =>
    processOn(store, seed).redeem({ ...GIVEN, code }, ORIGIN);

const begin = () => clock.set(NOW);

/** @param account what the account has; `null` for an address without one */
const setup = (account: Partial<UserDocument> | null) => async (store: Store) => {
  await twoAccounts(store);
  eventsIn(store);
  const users = userCollection(store);
  if (account) await users.updateOne({ id: ADA }, { set: account });
  else await users.deleteOne({ id: ADA });
  if (account?.emailVerified === false) await credentialsIn(store).insert({ id: ADA });
  await request(store);
};

/** Mails the code. */
async function request(store: Store) {
  const user = await userIn(store);
  await loginCodeCollection(store).insert({
    id: sha256(SECRET),
    codeHash: sha256(`${SECRET} ${CODE}`),
    attemptsLeft: 5,
    expiresAt: NOW + LOGIN_CODE_TTL_MS,
    ...(user && { userId: user.id, epoch: user.sessionEpoch }),
  });
}

/** The sessions of the account that are valid, without the one from before. */
async function sessionsIn(store: Store): Promise<{ fresh: number; old: number }> {
  const user = await userIn(store);
  const { items } = await sessionCollection(store).page({ where: {}, sort: 'id', limit: 99 });
  const valid = items.filter((session) => user && isSessionValid(user, session, NOW));
  const old = valid.filter(({ id }) => id === `ses_${ADA}`).length;
  return { fresh: valid.length - old, old };
}

const ACCOUNTS: Record<string, { account: Partial<UserDocument> | null; events: string[] }> = {
  'a verified account': { account: {}, events: [] },
  'an account of a stranger': {
    account: { emailVerified: false },
    events: ['session.revoked', 'user.verified'],
  },
  'an address without an account': { account: null, events: [] },
};

for (const [name, { account, events: expected }] of Object.entries(ACCOUNTS)) {
  const isStrangers = account?.emailVerified === false;
  const check = async (store: Store) => {
    const user = await userIn(store);
    insist(user?.emailVerified === true, 'not verified');
    const { fresh, old } = await sessionsIn(store);
    insist(fresh >= 1, 'not signed in');
    if (account) insist(old === (isStrangers ? 0 : 1), `${old} earlier sessions`);
    if (isStrangers) {
      insist(user.passwordHash === undefined && user.resetHash === undefined, 'the stranger can sign in');
      insist((await credentialsIn(store).count()) === 0, 'the stranger has a credential');
    }
    for (const id of expected) insist((await eventsIn(store).findOne({ id })) !== null, `no ${id}`);
  };

  t.test(`of two requests with a code for ${name}, one signs in`, async (t) => {
    const scenario: Scenario = {
      begin,
      setup: setup(account),
      actors: [redeem('one'), redeem('two')],
      async check(store, results) {
        insist(codes(results).sort().join() === 'CODE_EXPIRED,done', codes(results).join());
        await check(store);
        insist((await sessionsIn(store)).fresh === 1, 'two sessions');
      },
    };
    holds(t, await explore(scenario));
  });
}

t.test('no session of a code outlives a reset or a suspension at the same moment', async (t) => {
  const reset = (store: Store) =>
    serviceOn(store, 'reset').resetPassword({ token: linkOf(ADA), password: 'new' }, ORIGIN);
  const suspend = (store: Store) =>
    createSuspension({
      users: userCollection(store),
      audit: SILENT_AUDIT,
      commit: createCommit(store),
      ...eventSink(),
      toManagedUser: () => ({}) as never,
      clock,
    }).suspend({ id: ADA });
  for (const account of [{}, { emailVerified: false }]) {
    const scenario: Scenario = {
      begin,
      setup: setup(account),
      actors: [redeem('code'), reset, suspend],
      async check(store) {
        await userCollection(store).updateOne({ id: ADA }, { unset: ['suspendedAt'] });
        const { fresh, old } = await sessionsIn(store);
        insist(fresh + old === 0, `${fresh} new and ${old} old sessions`);
      },
    };
    holds(t, await explore(scenario));
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
