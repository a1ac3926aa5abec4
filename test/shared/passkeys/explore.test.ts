import t from 'tap';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createSignInMethods } from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { isSessionValid, sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { createReadUser } from '../../../src/saas/sign-in-methods.js';
import { createPasskeyFlows } from '../../../src/shared/passkeys/flows.js';
import {
  createPasskeyService,
  type PasskeyDependencies,
  type PasskeyService,
} from '../../../src/shared/passkeys/service.js';
import {
  contributePasskeys,
  passkeyCollection,
  usedChallengeCollection,
} from '../../../src/shared/passkeys/store.js';
import { addAccount, notices, readAccountOf } from '../../kit/accounts.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import {
  ADA,
  serviceOn as authOn,
  ORIGIN as CLIENT,
  codes,
  holds,
  insist,
  linkOf,
  NOW,
  setup as setupAccounts,
  silentMails,
} from '../../saas/auth/explored-service.js';

/** Passkeys in every order of the calls to the store, with a crash at any of them. */

const ORIGIN = 'https://app.example.test';
const FROM = { ip: '192.0.2.1', isDisconnected: () => false };

/** The service of one process. Every response is valid and names its passkey. */
function serviceOn(
  store: Store,
  readAccount: PasskeyDependencies['readAccount'] = readAccountOf(store),
): PasskeyService {
  const created = { publicKey: 'key', counter: 0, transports: [], backupEligible: true, backedUp: true };
  return createPasskeyService({
    passkeys: passkeyCollection(store),
    usedChallenges: usedChallengeCollection(store),
    relyingParty: () => ({ id: 'app.example.test', origins: [ORIGIN], name: 'Example' }),
    throttle: { attempt: (_guess, evaluate) => evaluate() },
    audit: SILENT_AUDIT,
    readAccount,
    commit: createCommit(store),
    hasOtherLogin: async () => false,
    verifyCreation: async (_rp, _form, credential) => ({ id: credential, ...created }),
    verifyAssertion: async () => ({ counter: 0, backupEligible: true, backedUp: true }),
    clock: fakeClock(),
  });
}

const collections = (store: Store) => {
  passkeyCollection(store);
  usedChallengeCollection(store);
};

const two = async (store: Store): Promise<void> => {
  collections(store);
  await addAccount(store, ADA);
  const fields = { publicKey: 'key', counter: 0, transports: [], backupEligible: true, backedUp: true };
  for (const id of ['one', 'two'])
    await passkeyCollection(store).insert({ id, account: ADA, name: id, createdAt: NOW, ...fields });
};

const remove = (id: string) => (store: Store) => serviceOn(store).remove(ADA, id, FROM);
/** A response of the passkey `one`. */
const response = { clientDataJSON: 'e30', authenticatorData: 'x', signature: 'x' };
const userHandle = Buffer.from(ADA).toString('base64url');
const signed = { id: 'one', type: 'public-key', response: { ...response, userHandle } };
const use = (form: string) => (store: Store) =>
  serviceOn(store).verify({ form, credential: JSON.stringify(signed) }, async (account) => account, FROM);

const left = async (store: Store): Promise<string[]> =>
  (await passkeyCollection(store).page({ sort: 'id', limit: 10 })).items.map(({ id }) => id);

const isDone = (results: Parameters<Scenario['check']>[1]) =>
  insist(
    codes(results).every((one) => one === 'done'),
    codes(results).join(),
  );

t.test('simultaneous removals, in every order and with a crash, leave one passkey', async (t) => {
  const both = [remove('one'), remove('two')];
  for (const actors of [both, [...both, remove('one')], [...both, use('form')]]) {
    const check: Scenario['check'] = async (store, results) => {
      isDone(results);
      const ids = await left(store);
      insist(ids.length === 1 || results.includes(undefined), ids.join() || 'none is left');
      const told = await notices(store);
      insist(told.length === 2 - ids.length, `${told}, and ${ids} are left`);
    };
    holds(t, await explore({ setup: two, actors, crash: actors.length === 2, check }));
  }
});

t.test(
  'a new passkey whose response is sent twice is added once and reported, even with a crash',
  async (t) => {
    const add = (store: Store) =>
      serviceOn(store).add(ADA, { form: 'form', credential: 'three', name: 'Three' }, FROM);
    const check: Scenario['check'] = async (store, results) => {
      isDone(results);
      const added = results.filter(
        (result) => result?.status === 'fulfilled' && result.value !== null,
      ).length;
      const isThere = (await left(store)).includes('three');
      insist(added <= 1, 'added twice');
      insist(isThere || added === 0, 'it is not there');
      insist(isThere || results.includes(undefined), 'refused although nobody added it');
      const told = await notices(store);
      insist(told.join() === (isThere ? 'added' : ''), told.join());
    };
    holds(t, await explore({ setup: two, actors: [add, add], crash: true, check }));
  },
);

/** The API of one process. */
function flowsOn(store: Store, seed: string) {
  const signInMethods = createSignInMethods();
  contributePasskeys({ store, audit: SILENT_AUDIT, signInMethods });
  const auth = authOn(store, seed, { signInMethods });
  const service = serviceOn(store, createReadUser(userCollection(store), silentMails));
  const flows = createPasskeyFlows({
    service,
    accounts: { ...auth.passkey, proveOwner: auth.proveOwner },
    ceremonies: { seal: JSON.stringify, open: JSON.parse },
  });
  return { auth, flows };
}

const signUp = (account: string, email: string) => (store: Store) => {
  const ceremony = JSON.stringify({ kind: 'sign-up', account, email });
  // The verification of this test takes the credential for the ID.
  return flowsOn(store, account).flows.signUp({ ceremony, credential: account as never }, undefined, CLIENT);
};
const EMAIL = 'new@example.test';

t.test(
  'a sign-up with a passkey, with a crash or unknown outcomes, makes no account without it',
  async (t) => {
    const setup = async (store: Store) => {
      collections(store);
      userCollection(store);
      sessionCollection(store);
    };
    const check: Scenario['check'] = async (store, results) => {
      const known = ['done', 'EMAIL_TAKEN', 'StoreUnavailable: no response'];
      insist(
        codes(results).every((code) => known.includes(code)),
        codes(results).join(),
      );
      const users = (await userCollection(store).page({ sort: 'id', limit: 9 })).items;
      insist(users.length <= 1, 'two accounts');
      const passkeys = (await passkeyCollection(store).page({ sort: 'id', limit: 9 })).items;
      for (const { id } of users)
        insist(
          passkeys.some(({ account }) => account === id),
          'an account that nobody can open',
        );
      insist(passkeys.length === users.length, 'a passkey of no account');
    };
    const actors = [signUp('usr_1', EMAIL), signUp('usr_2', EMAIL)];
    holds(t, await explore({ setup, actors, crash: true, check }));
    const { failure } = await explore({ setup, actors: actors.slice(0, 1), losses: 2, check });
    t.equal(failure, undefined);
  },
);

/** Someone else has signed up with Ada's address and a passkey; she has a link to choose a password. */
const hijacked = async (store: Store): Promise<void> => {
  await setupAccounts(store);
  await userCollection(store).updateOne(
    { id: ADA },
    { set: { emailVerified: false }, unset: ['passwordHash', 'changeHash', 'newEmail'] },
  );
  await two(store);
};

t.test(
  'after the owner of an address has taken the account over, no passkey of before opens it',
  async (t) => {
    const takeOver = (store: Store) =>
      flowsOn(store, 'owner').auth.resetPassword({ token: linkOf(ADA), password: 'new' }, CLIENT);
    const stranger = (store: Store) => {
      const ceremony = JSON.stringify({ kind: 'sign-in' });
      return flowsOn(store, 'stranger').flows.signIn({ ceremony, credential: signed }, CLIENT);
    };
    const check: Scenario['check'] = async (store, results) => {
      const user = await userCollection(store).findOne({ id: ADA });
      if (user?.passwordHash === undefined) return insist(results[0] === undefined, 'not taken over');
      insist((await passkeyCollection(store).count({ account: ADA })) === 0, 'a passkey is left');
      const { items } = await sessionCollection(store).page({ where: { userId: ADA }, sort: 'id', limit: 9 });
      insist(!items.some((session) => isSessionValid(user, session, NOW)), 'a session is left');
    };
    holds(t, await explore({ setup: hijacked, actors: [takeOver, stranger], crash: true, check }));
  },
);

t.test('a passkey that is added while its session ends does not stay', async (t) => {
  const verified = async (store: Store) => {
    await setupAccounts(store);
    await two(store);
  };
  const identity = {
    user: { id: ADA, email: 'ada@example.test', name: '', emailVerified: true },
    session: { id: `ses_${ADA}` },
  } as never;
  const add = (store: Store) => {
    const ceremony = JSON.stringify({ kind: 'add', account: ADA });
    return flowsOn(store, 'add').flows.add(identity, { ceremony, credential: 'three' as never }, CLIENT);
  };
  /** Redeems a link to a new address of somebody else, who chooses a password. */
  const takeOver = (store: Store) =>
    flowsOn(store, 'owner').auth.verifyEmail({ token: linkOf(ADA), password: 'new' }, CLIENT);
  const check: Scenario['check'] = async (store, results) => {
    const known = ['done', 'UNAUTHENTICATED', 'INVALID_TOKEN'];
    insist(
      codes(results).every((code) => known.includes(code)),
      codes(results).join(),
    );
    const user = await userCollection(store).findOne({ id: ADA });
    if (user?.passwordHash !== 'hash of new') return;
    insist((await passkeyCollection(store).count({ account: ADA })) === 0, 'a passkey is left');
  };
  holds(t, await explore({ setup: verified, actors: [add, takeOver], check }));
});
