import t from 'tap';
import { createSealed } from '../../../src/core/kernel/sealed.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createSingleUse } from '../../../src/core/ops/single-use.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { createFederation, type Federation } from '../../../src/saas/login-providers/service.js';
import { identityCollection, usedTicketCollection } from '../../../src/saas/login-providers/store.js';
import { LIFETIME_MS, type Ticket } from '../../../src/saas/login-providers/tickets.js';
import { createPasskeyService } from '../../../src/shared/passkeys/service.js';
import { passkeyCollection, usedChallengeCollection } from '../../../src/shared/passkeys/store.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { countedRandom } from '../../kit/random.js';
import { ADA, codes, holds, insist, mailsOf, NOW, ORIGIN, serviceOn } from '../auth/explored-service.js';
import { VERIFIER } from './kit.js';

/** First sign-ins with one account of a provider, and removals, in every order of their calls to the store. */

const EMAIL = 'ada@example.test';
const clock = fakeClock();
const sealed = <T extends object>(purpose: string) =>
  createSealed<T>(purpose, { keys: ['key'], lifetimeMs: LIFETIME_MS, clock, random: countedRandom('seal') });

/** A ticket of each request, for the same account of the provider. */
const ticketOf = (id: string) =>
  sealed<Ticket>('tickets').seal({
    id,
    provider: 'acme',
    identity: { issuer: 'https://acme.test', subject: 'ada-1', email: EMAIL, emailVerified: true },
    codeChallenge: sha256(VERIFIER),
  });

/** The domain of one process. */
function federationOn(store: Store, seed: string, hasOtherLogin = async () => false): Federation {
  const provider = {
    name: 'acme',
    label: 'Acme',
    authorizationUrl: async () => new URL('https://acme.test'),
    identify: async () => null,
  };
  return createFederation({
    providers: new Map([['acme', provider]]),
    identities: identityCollection(store),
    accounts: { ...serviceOn(store, seed).federated, hasOtherLogin, announce: async () => undefined },
    logins: sealed('logins'),
    tickets: sealed('tickets'),
    singleUse: createSingleUse(usedTicketCollection(store)),
    callbackUrl: () => '',
    publicUrl: () => 'https://app.test',
    origins: [],
    commit: createCommit(store),
    audit: { record: async () => undefined },
    clock,
    random: countedRandom(seed),
  });
}

const setup = async (store: Store): Promise<void> => {
  userCollection(store);
  identityCollection(store);
  usedTicketCollection(store);
  mailsOf(store);
};
const exchange = (seed: string) => (store: Store) =>
  federationOn(store, seed).exchange({ ticket: ticketOf(seed), codeVerifier: VERIFIER }, undefined, ORIGIN);
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
  'a first sign-in beside a registration with the address: one account, and no claim is left',
  async (t) => {
    const check: Scenario['check'] = async (store, results) => {
      const known = ['done', 'EMAIL_TAKEN', 'ACCOUNT_EXISTS'];
      insist(
        codes(results).every((code) => known.includes(code)),
        codes(results).join(),
      );
      const { items } = await userCollection(store).page({ sort: 'id', limit: 9 });
      insist(items.length <= 1, 'two accounts');
      const claims = await identityCollection(store).page({ sort: 'id', limit: 9 });
      const isOrphan = claims.items.some(({ userId }) => items.length > 0 && userId !== items[0]?.id);
      // What a crash leaves behind is removed by the next attempt.
      insist(!isOrphan || results.includes(undefined), 'a claim without its user');
    };
    holds(t, await explore({ setup, actors: [exchange('one'), register], crash: true, check }));
  },
);

t.test('a claim with another user for each request is found out', async (t) => {
  const { failure } = await explore({
    setup,
    actors: ['one', 'two'].map((seed) => async (store: Store) => {
      const accounts = serviceOn(store, seed).federated;
      const id = accounts.newId();
      await identityCollection(store).updateOne({ id: 'key' }, { set: { userId: id } });
      return accounts.register(
        { id, email: `${seed}@example.test`, locale: undefined, authenticatedAt: undefined },
        ORIGIN,
      );
    }),
    async check(store) {
      insist((await userCollection(store).count()) === 1, 'two users');
    },
  });
  t.equal(failure?.reason, 'two users');
});

/** An account without a password, with a passkey and two providers. */
const keyed =
  (...providers: string[]) =>
  async (store: Store): Promise<void> => {
    await setup(store);
    usedChallengeCollection(store);
    const key = { publicKey: 'key', counter: 0, transports: [], backupEligible: true, backedUp: true };
    await passkeyCollection(store).insert({ id: 'passkey', account: ADA, name: 'x', createdAt: NOW, ...key });
    for (const id of providers)
      await identityCollection(store).insert({
        ...{ id, userId: ADA, provider: 'acme', issuer: 'https://acme.test', subject: id, createdAt: NOW },
      });
  };

/** Both domains of one process, as saas-backend connects them. */
function loginsOn(store: Store, seed: string) {
  const passkeys = createPasskeyService({
    passkeys: passkeyCollection(store),
    usedChallenges: usedChallengeCollection(store),
    relyingParty: () => ({ id: 'app.test', origins: ['https://app.test'], name: 'Example' }),
    throttle: { attempt: (_guess, evaluate) => evaluate() },
    audit: SILENT_AUDIT,
    verifyCreation: async () => null,
    verifyAssertion: async () => null,
    clock,
    random: countedRandom(`passkeys ${seed}`),
  });
  const federation = federationOn(store, seed, () => passkeys.keepsOne(ADA));
  const rule = { keepsOne: true, hasOtherLogin: () => federation.keepsOne(ADA) };
  return {
    removePasskey: () => passkeys.remove(ADA, 'passkey', ORIGIN, rule),
    disconnect: (id: string) => federation.disconnect(ADA, id, ORIGIN),
  };
}

const removePasskey = (seed: string) => (store: Store) => loginsOn(store, seed).removePasskey();
const disconnect = (id: string, seed: string) => (store: Store) => loginsOn(store, seed).disconnect(id);

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
    // Whatever a crash has left behind, the others can be removed one after the other.
    for (const remove of [removePasskey('later'), disconnect('one', 'later'), disconnect('two', 'later')])
      await Promise.resolve(remove(store)).catch(() => undefined);
    for (const remove of [removePasskey('last'), disconnect('one', 'last'), disconnect('two', 'last')])
      await Promise.resolve(remove(store)).catch(() => undefined);
    insist((await ways(store)) === 1, 'a mark stays');
  };
  const both = [removePasskey('a'), disconnect('one', 'b')];
  holds(t, await explore({ setup: keyed('one'), actors: both, crash: true, check }));
  holds(t, await explore({ setup: keyed('one'), actors: [...both, disconnect('one', 'c')], check }));
  holds(t, await explore({ setup: keyed('one', 'two'), actors: [...both, disconnect('two', 'c')], check }));
});

t.test('a sign-in at a provider ends a removal that has crashed', async (t) => {
  const stale = async (store: Store) => {
    await keyed('two')(store);
    const { user } = await exchange('first')(store);
    await identityCollection(store).updateOne({ userId: user.id }, { set: { leaving: 'stale' } });
  };
  const check: Scenario['check'] = async (store) => {
    insist((await identityCollection(store).count({ leaving: null })) === 2, 'the mark stays');
  };
  const { failure } = await explore({ setup: stale, actors: [exchange('again')], check });
  t.equal(failure, undefined);
});
