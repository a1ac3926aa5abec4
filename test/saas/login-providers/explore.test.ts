import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createSingleUse } from '../../../src/core/ops/single-use.js';
import { createProviderSignIns } from '../../../src/core/outbound/provider-sign-in.js';
import { createSignInMethods } from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { newUserDocument, userCollection } from '../../../src/saas/auth/store.js';
import { createFederation } from '../../../src/saas/login-providers/service.js';
import { identityCollection, usedTicketCollection } from '../../../src/saas/login-providers/store.js';
import { createReadUser } from '../../../src/saas/sign-in-methods.js';
import { createPasskeyService } from '../../../src/shared/passkeys/service.js';
import { passkeyCollection, usedChallengeCollection } from '../../../src/shared/passkeys/store.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { countedRandom } from '../../kit/random.js';
import {
  ADA,
  codes,
  holds,
  insist,
  mailsOf,
  NOW,
  ORIGIN,
  serviceOn,
  silentMails,
} from '../auth/explored-service.js';
import { VERIFIER } from './kit.js';

/** First sign-ins with one account of a provider, and removals, in every order of their calls to the store. */

const EMAIL = 'ada@example.test';
const clock = fakeClock();
const KEYS = { secrets: ['key'], publicUrl: () => 'https://app.test', origins: [] };

/** A ticket of each request, for the same account of the provider. */
function ticketOf(store: Store, seed: string): string {
  const signIns = createProviderSignIns({
    ...{ ...KEYS, clock, random: countedRandom(seed) },
    purpose: 'sign-ins at providers',
    singleUse: createSingleUse(usedTicketCollection(store)),
  });
  const identity = { issuer: 'https://acme.test', subject: 'ada-1', email: EMAIL, emailVerified: true };
  const destination = { returnTo: 'https://app.test/', codeChallenge: sha256(VERIFIER) };
  const proven = { provider: 'acme', identity };
  const address = signIns.addressAfter(new URL('https://app.test/'), destination, { proven, failure: '' });
  return new URL(address).searchParams.get('ticket') ?? '';
}

/** Both domains of one process, as saas-backend connects them. */
function processOn(store: Store, seed: string) {
  const provider = {
    name: 'acme',
    label: 'Acme',
    authorizationUrl: async () => new URL('https://acme.test'),
    identify: async () => null,
  };
  const commit = createCommit(store);
  const signInMethods = createSignInMethods();
  const readUser = createReadUser(userCollection(store), silentMails);
  const context = { store, commit, audit: SILENT_AUDIT, signInMethods, clock, random: countedRandom(seed) };
  const federation = createFederation(context, {
    ...KEYS,
    providers: new Map([['acme', provider]]),
    accounts: serviceOn(store, seed).federated,
    readUser,
    callbackUrl: () => '',
  });
  const passkeys = createPasskeyService({
    passkeys: passkeyCollection(store),
    usedChallenges: usedChallengeCollection(store),
    relyingParty: () => ({ id: 'app.test', origins: ['https://app.test'], name: 'Example' }),
    throttle: { attempt: (_guess, evaluate) => evaluate() },
    audit: SILENT_AUDIT,
    readAccount: readUser,
    commit,
    hasOtherLogin: (userId) => signInMethods.hasOther('passkey', userId),
    verifyCreation: async () => null,
    verifyAssertion: async () => null,
    clock,
  });
  signInMethods.add('identity', { isHeld: federation.isHeld });
  signInMethods.add('passkey', { isHeld: passkeys.has });
  return { federation, passkeys };
}

const setup = async (store: Store): Promise<void> => {
  userCollection(store);
  identityCollection(store);
  usedTicketCollection(store);
  mailsOf(store);
};
const exchange = (seed: string) => (store: Store) =>
  processOn(store, seed).federation.exchange(
    { ticket: ticketOf(store, seed), codeVerifier: VERIFIER },
    undefined,
    ORIGIN,
  );
const register = (store: Store) =>
  serviceOn(store, 'register').register({ email: EMAIL, password: 'old' }, ORIGIN);

const idsOf = (results: Parameters<Scenario['check']>[1]): string[] =>
  results.flatMap((result) =>
    result?.status === 'fulfilled' ? [(result.value as { user: { id: string } }).user.id] : [],
  );

t.test('two first sign-ins create one user, even if a process ends in between', async (t) => {
  const check: Scenario['check'] = async (store, results) => {
    insist(
      codes(results).every((code) => code === 'done'),
      codes(results).join(),
    );
    const { user } = await exchange('later')(store);
    const ids = [...idsOf(results), user.id];
    insist(new Set(ids).size === 1, `several users: ${ids}`);
    insist((await userCollection(store).count()) === 1, 'a user without a way in');
  };
  holds(t, await explore({ setup, actors: [exchange('one'), exchange('two')], crash: true, check }));
});

t.test(
  'a first sign-in beside a registration with the address: one account, and no connection without it',
  async (t) => {
    const check: Scenario['check'] = async (store, results) => {
      const known = ['done', 'EMAIL_TAKEN', 'ACCOUNT_EXISTS'];
      insist(
        codes(results).every((code) => known.includes(code)),
        codes(results).join(),
      );
      const { items } = await userCollection(store).page({ sort: 'id', limit: 9 });
      insist(items.length <= 1, 'two accounts');
      const connected = await identityCollection(store).page({ sort: 'id', limit: 9 });
      insist(
        connected.items.every(({ userId }) => userId === items[0]?.id),
        'a connection without its user',
      );
    };
    holds(t, await explore({ setup, actors: [exchange('one'), register], crash: true, check }));
  },
);

/** An account without a password, with a passkey and two providers. */
const keyed =
  (...providers: string[]) =>
  async (store: Store): Promise<void> => {
    await setup(store);
    usedChallengeCollection(store);
    const given = { id: ADA, email: EMAIL, emailVerified: true };
    await userCollection(store).insert(newUserDocument(given, NOW, { clock, random: countedRandom('user') }));
    const key = { publicKey: 'key', counter: 0, transports: [], backupEligible: true, backedUp: true };
    await passkeyCollection(store).insert({ id: 'passkey', account: ADA, name: 'x', createdAt: NOW, ...key });
    for (const id of providers)
      await identityCollection(store).insert({
        ...{ id, userId: ADA, provider: 'acme', issuer: 'https://acme.test', subject: id, createdAt: NOW },
      });
  };

const removePasskey = (store: Store) => processOn(store, 'passkey').passkeys.remove(ADA, 'passkey', ORIGIN);
const disconnect = (id: string) => (store: Store) =>
  processOn(store, id).federation.disconnect(ADA, id, ORIGIN);

const ways = async (store: Store): Promise<number> =>
  (await passkeyCollection(store).count({ account: ADA })) +
  (await identityCollection(store).count({ userId: ADA }));

t.test('simultaneous removals of a passkey and of providers leave a way to sign in', async (t) => {
  const check: Scenario['check'] = async (store, results) => {
    const known = ['done', 'LAST_LOGIN_METHOD', 'NOT_FOUND'];
    insist(
      codes(results).every((code) => known.includes(code)),
      codes(results).join(),
    );
    insist((await ways(store)) > 0, 'none is left');
    // The others can be removed one after the other.
    for (const remove of [removePasskey, disconnect('one'), disconnect('two')])
      await Promise.resolve(remove(store)).catch(() => undefined);
    insist((await ways(store)) === 1, 'more than the last one stays');
  };
  const both = [removePasskey, disconnect('one')];
  holds(t, await explore({ setup: keyed('one'), actors: both, crash: true, check }));
  holds(t, await explore({ setup: keyed('one'), actors: [...both, disconnect('one')], check }));
  holds(t, await explore({ setup: keyed('one', 'two'), actors: [...both, disconnect('two')], check }));
});
