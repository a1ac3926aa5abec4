import type { Test } from 'tap';
import type { Clock } from '../../../src/core/kernel/clock.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createUnknownWrites, type UnknownWritesRegistry } from '../../../src/core/ops/unknown-writes.js';
import { createAccountData, createSignInMethods } from '../../../src/core/server/contributions.js';
import { type Store, StoreUnavailable } from '../../../src/core/storage/collection.js';
import { type AccountOutbox, createAccountMails } from '../../../src/saas/auth/mails.js';
import { type AuthService, createAuthService } from '../../../src/saas/auth/service.js';
import type { SessionTokens } from '../../../src/saas/auth/sessions/tokens.js';
import { isSessionValid, sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { createSuspension } from '../../../src/saas/auth/users/suspension.js';
import { fakeClock } from '../../kit/clock.js';
import { NO_EFFECT, SILENT_AUDIT } from '../../kit/effects.js';
import { eventSink } from '../../kit/events.js';
import type { Exploration, Scenario } from '../../kit/explore.js';
import { countedRandom } from '../../kit/random.js';
import { viewUnsubscribed } from '../../kit/users.js';

/** The real services in every order of their storage calls; passwords, tokens and counters are stubs. */

export const NOW = fakeClock().now();
export const ORIGIN = { ip: '127.0.0.1', isDisconnected: () => false };
const SECRET = 'x'.repeat(43);
export const [ADA, EVE] = ['usr_ada', 'usr_eve'];

export const linkOf = (userId: string) => `${userId}.${SECRET}`;

/** Tokens with readable content, without signatures. */
export const TOKENS: SessionTokens = {
  accessTtl: 900,
  refreshTtl: 604_800,
  issueAccess: () => ({ accessToken: 'access', expiresIn: 900 }),
  forCookie: (refreshToken) => refreshToken,
  newRefreshId: () => 'first',
  nextRefreshId: (_sid, id) => `${id}+`,
  refreshExpiry: ({ createdAt }) => createdAt + 604_800_000,
  issue: ({ userId, id }, jti) => ({
    accessToken: 'access',
    refreshToken: [userId, id, jti].join(' '),
    expiresIn: 900,
  }),
  verifyBearer: (text) => readClaims(text.replace('Bearer ', '')),
  verifyRefresh: (text) => readClaims(text),
};

function readClaims(text: string) {
  const [sub = '', sid = '', jti = ''] = text.split(' ');
  return { claims: { sub, sid, jti }, isExpired: false, isOfCookie: false };
}

/** By the keys of the mails. */
export const mailsOf = (store: Store) => store.collection<{ id: string }>('mails');

/** What a process remembers of writes without a known outcome; settled by the tests themselves. */
export const unknownWritesOn = (clock: Clock): UnknownWritesRegistry =>
  createUnknownWrites({
    clock: { now: clock.now, every: () => () => undefined },
    log: { error: () => undefined },
  });

/** Repeats a request while the answer is 503. */
export async function untilAnswered<T>(request: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
    }
  }
}

/** The service of one process on its view of the store. */
export function serviceOn(
  store: Store,
  seed: string,
  more: Partial<Parameters<typeof createAuthService>[0]> = {},
): AuthService {
  const clock = fakeClock();
  return createAuthService({
    users: userCollection(store),
    sessions: sessionCollection(store),
    tokens: TOKENS,
    profileMark: () => ({}),
    passwords: {
      prepare: () => undefined,
      problem: () => null,
      ensureCapacity: async () => undefined,
      accepts: () => true,
      foreignWork: () => null,
      hash: async (password) => `hash of ${password}`,
      verify: async (stored, password) => ({ ok: stored === `hash of ${password}`, outdated: false }),
    },
    passwordPolicy: { validate: async () => undefined },
    foreignHashes: { decoys: async () => [], removing: async () => undefined },
    throttle: {
      count: async () => undefined,
      countKey: async () => undefined,
      tryCountKey: async () => true,
      attempt: (_guess, evaluate) => evaluate(),
      trust: async () => undefined,
      trustOnly: async () => undefined,
      isTrusted: async () => false,
    },
    audit: SILENT_AUDIT,
    commit: createCommit(store),
    presentUser: viewUnsubscribed,
    mails: silentMails,
    backgroundTasks: { run: () => undefined },
    accountData: createAccountData(),
    signInMethods: createSignInMethods(),
    ...eventSink(),
    unknownWrites: unknownWritesOn(clock),
    clock,
    random: countedRandom(seed),
    registrationAllowed: async () => true,
    verificationRequired: false,
    siteName: async () => 'SaaS',
    secrets: ['secret'],
    profileChanged: NO_EFFECT,
    refreshReuseWindow: 30,
    ...more,
  });
}

const pages = {
  reset: () => 'http://app.example.test/r',
  verify: () => 'http://app.example.test/v',
  unlock: () => 'http://app.example.test/u',
};
/** Mails in the given outbox. */
export const mailsWith = (outbox: AccountOutbox) => createAccountMails({ outbox, pages, clock: fakeClock() });
export const silentMails = mailsWith({ mail: () => NO_EFFECT });

/** Two accounts, each with a session, a reset link, and a pending change to `new@example.test`. */
export async function setup(store: Store): Promise<void> {
  for (const id of [ADA, EVE]) {
    await userCollection(store).insert({
      id,
      email: `${id}@example.test`,
      passwordHash: 'hash of old',
      passwordVersion: 1,
      emailVerified: true,
      sessionEpoch: 0,
      resetHash: sha256(linkOf(id)),
      resetExpiresAt: NOW + 1000,
      newEmail: 'new@example.test',
      changeHash: sha256(linkOf(id)),
      changeExpiresAt: NOW + 1000,
      subscriptionStatus: 'none',
      subscriptionPlan: 'free',
      createdAt: NOW,
    });
    await sessionCollection(store).insert({
      id: `ses_${id}`,
      userId: id,
      epoch: 0,
      currentId: sha256('first'),
      rotatedAt: NOW,
      createdAt: NOW,
      expiresAt: NOW + 1_000_000,
    });
  }
  mailsOf(store);
}

export const suspensionOn = (store: Store) =>
  createSuspension({
    users: userCollection(store),
    audit: SILENT_AUDIT,
    commit: createCommit(store),
    ...eventSink(),
    toManagedUser: (user) => ({ ...viewUnsubscribed(user), suspendedAt: null, granted: null }),
    clock: fakeClock(),
  });

export const codes = (results: Parameters<Scenario['check']>[1]) =>
  results.map((result) =>
    result?.status === 'rejected' ? String(result.reason.code ?? result.reason) : 'done',
  );

export function insist(isRight: boolean, words: string): asserts isRight {
  if (!isRight) throw new Error(words);
}

export async function aliveSessions(store: Store): Promise<string[]> {
  const user = await userCollection(store).findOne({ id: ADA });
  const { items } = await sessionCollection(store).page({ where: { userId: ADA }, sort: 'id', limit: 100 });
  return items.filter((session) => user && isSessionValid(user, session, NOW)).map(({ id }) => id);
}

export const holds = (t: Test, { failure, orders }: Exploration) => {
  t.equal(failure, undefined);
  t.ok(orders > 3, `${orders} orders`);
};
