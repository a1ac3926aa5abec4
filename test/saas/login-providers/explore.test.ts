import t from 'tap';
import { createCommit } from '../../../src/core/ops/commit.js';
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

/** Removals of ways to sign in, in every order of their calls to the store. */

const EMAIL = 'ada@example.test';
const clock = fakeClock();
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
    ...{ secrets: ['key'], publicUrl: () => 'https://app.test', origins: [] },
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
