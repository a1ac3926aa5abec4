import t from 'tap';
import type { Identity } from '../../../src/core/http/identity.js';
import { addressBlock } from '../../../src/core/kernel/addresses.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { effectOf } from '../../../src/core/ops/commit.js';
import { nullIfTaken, type Store } from '../../../src/core/storage/collection.js';
import type { AuthService } from '../../../src/saas/auth/service.js';
import { type UserDocument, userCollection } from '../../../src/saas/auth/store.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import {
  ADA,
  codes,
  holds,
  insist,
  linkOf,
  mailsWith,
  NOW,
  ORIGIN,
  serviceOn,
  setup as twoAccounts,
  untilAnswered,
} from './explored-service.js';

/**
 * Links and password changes whose request gets no answer: in every order, with every lost response of the store and every
 * crash.
 */

const SESSION = `Bearer ${ADA} ses_${ADA} first`;
const IDENTITY = {
  user: { id: ADA, email: `${ADA}@example.test` },
  session: { id: `ses_${ADA}` },
} as Identity;

const THIEF = { ...ORIGIN, ip: '203.0.113.9' };

type Use = (service: AuthService, origin?: typeof ORIGIN) => Promise<unknown>;

interface Flow {
  use: Use;
  /** The link, among the fields of the account that it belongs to. */
  given: Partial<UserDocument>;
  /** What the account has after the link was used, exactly once. */
  expected: Partial<UserDocument>;
  /** The events, audit records and mails of the change. */
  effects: string[];
  /** The same link or session with another outcome. */
  other: Use;
  /** The error of a request that cannot be repeated any more. */
  rejection: 'INVALID_TOKEN' | 'INVALID_CREDENTIALS';
}

const hash = sha256(linkOf(ADA));
const verifyLink = { emailVerified: false, verifyHash: hash, verifyExpiresAt: NOW + 60_000 };
const changeLink = { newEmail: 'new@example.test', changeHash: hash, changeExpiresAt: NOW + 60_000 };
const reset =
  (password: string): Use =>
  (service, origin = ORIGIN) =>
    service.resetPassword({ token: linkOf(ADA), password }, origin);
const confirm =
  (proof: { password?: string; authorization?: string }): Use =>
  (service, origin = ORIGIN) =>
    service.verifyEmail({ token: linkOf(ADA), ...proof }, origin);
const changePassword =
  (newPassword: string): Use =>
  (service, origin = ORIGIN) =>
    service.changePassword(IDENTITY, { currentPassword: 'old', newPassword }, origin);
const [kept, replaced] = [{ passwordVersion: 1 }, { passwordVersion: 2, passwordHash: 'hash of new' }];
const verified = { emailVerified: true };
const moved = { ...verified, email: 'new@example.test', emailVersion: 1 };
const OF_PASSWORD = ['audit password.reset', 'event session.revoked', `mail password-changed:${ADA}:2`];
const OF_VERIFICATION = ['audit email.verified', 'event user.verified'];
const OF_ADDRESS = ['audit email.changed', 'event user.updated', `mail email-changed:${ADA}:1`];

const LINK_FLOWS: Record<string, Omit<Flow, 'rejection'>> = {
  'a reset': {
    use: reset('new'),
    given: { emailVerified: false, resetHash: hash, resetExpiresAt: NOW + 60_000 },
    expected: { ...verified, ...replaced },
    effects: [...OF_PASSWORD, ...OF_VERIFICATION],
    other: reset('another'),
  },
  'a confirmation with the current password': {
    use: confirm({ password: 'old' }),
    given: verifyLink,
    expected: { ...verified, ...kept },
    effects: OF_VERIFICATION,
    other: confirm({ password: 'another' }),
  },
  'a confirmation with a new password': {
    use: confirm({ password: 'new' }),
    given: verifyLink,
    expected: { ...verified, ...replaced },
    effects: [...OF_PASSWORD, ...OF_VERIFICATION],
    other: confirm({ password: 'another' }),
  },
  'a confirmation with a session': {
    use: confirm({ authorization: SESSION }),
    given: verifyLink,
    expected: { ...verified, ...kept },
    effects: OF_VERIFICATION,
    other: confirm({ password: 'another' }),
  },
  'a change of the address': {
    use: confirm({ password: 'old' }),
    given: changeLink,
    expected: { ...moved, ...kept },
    effects: OF_ADDRESS,
    other: confirm({ password: 'another' }),
  },
  'a change of an unconfirmed address with a new password': {
    use: confirm({ password: 'new' }),
    given: { ...changeLink, emailVerified: false },
    expected: { ...moved, ...replaced },
    effects: [...OF_PASSWORD, ...OF_ADDRESS, 'event user.verified'],
    other: confirm({ password: 'another' }),
  },
  'an unlock': {
    use: (service, origin = ORIGIN) => service.unlock(linkOf(ADA), origin),
    given: { unlockHash: hash, unlockExpiresAt: NOW + 60_000 },
    expected: kept,
    effects: ['audit login.unlocked'],
    other: (service) => service.unlock(linkOf(ADA), THIEF),
  },
};

const FLOWS: Record<string, Flow> = {
  ...Object.fromEntries(
    Object.entries(LINK_FLOWS).map(
      ([name, flow]) => [name, { ...flow, rejection: 'INVALID_TOKEN' }] as const,
    ),
  ),
  'a change of the password': {
    use: changePassword('new'),
    given: {},
    expected: { ...replaced, keptSession: `ses_${ADA}` },
    effects: ['audit password.changed', 'event session.revoked', `mail password-changed:${ADA}:2`],
    other: changePassword('another'),
    rejection: 'INVALID_CREDENTIALS',
  },
};

const trustedIn = (store: Store) => store.collection<{ id: string }>('trusted');
const effectsIn = (store: Store) => store.collection<{ id: string }>('effects');

/** The service of one process, whose trusted addresses and effects are in the store. A second effect of one kind is a violation. */
function processOn(store: Store): AuthService {
  const trust = async (account: string, ip: string) =>
    void (await trustedIn(store)
      .insert({ id: `${account} ${addressBlock(ip)}` })
      .catch(nullIfTaken));
  const effect = (id: string) => effectOf(effectsIn(store).inserting({ id }));
  return serviceOn(store, 'client', {
    mails: mailsWith({ mail: ({ key }) => effect(`mail ${key}`) }),
    event: async (name) => effect(`event ${name}`),
    audit: { ...SILENT_AUDIT, entry: ({ event }) => effect(`audit ${event}`) },
    throttle: {
      count: async () => undefined,
      countKey: async () => undefined,
      tryCountKey: async () => true,
      attempt: (_guess, evaluate) => evaluate(),
      trust,
      trustOnly: trust,
      isTrusted: async () => false,
    },
  });
}

/** One account with the link of a flow. */
const accountWith =
  ({ given }: Flow) =>
  async (store: Store): Promise<void> => {
    await twoAccounts(store);
    trustedIn(store);
    effectsIn(store);
    await userCollection(store).updateOne(
      { id: ADA },
      { unset: ['resetHash', 'resetExpiresAt', 'newEmail', 'changeHash', 'changeExpiresAt'] },
    );
    if (Object.keys(given).length > 0) await userCollection(store).updateOne({ id: ADA }, { set: given });
  };

/** Each repetition reaches another process. */
const repeating =
  (use: Use, origin = ORIGIN) =>
  (store: Store) =>
    untilAnswered(() => use(processOn(store), origin));

const userIn = async (store: Store) => (await userCollection(store).findOne({ id: ADA })) as UserDocument;

const attempt = (use: Promise<unknown>): Promise<string> =>
  use.then(
    () => 'done',
    (error: { code?: string }) => error.code ?? String(error),
  );

/** The change was made once, with everything that follows from it. */
async function insistOnChange(store: Store, { expected, effects }: Flow): Promise<void> {
  const user = await userIn(store);
  for (const [field, value] of Object.entries(expected)) {
    const found = user[field as keyof UserDocument];
    insist(found === value, `${field} is ${found}`);
  }
  const { items } = await effectsIn(store).page({ sort: 'id', limit: 10 });
  const found = items.map(({ id }) => id).join();
  insist(found === [...effects].sort().join(), `effects: ${found}`);
  const trusted = await trustedIn(store).findOne({ id: `${user.email} ${ORIGIN.ip}` });
  insist(trusted !== null, 'the address is not trusted');
}

for (const [name, flow] of Object.entries(FLOWS)) {
  const { use, other, rejection } = flow;
  const setup = accountWith(flow);

  t.test(`${name} has one outcome, even if a thief has the link`, async (t) => {
    const check: Scenario['check'] = async (store, results) => {
      const outcomes = codes(results);
      insist(
        outcomes.every((code) => ['done', rejection, 'UNAUTHENTICATED'].includes(code)),
        outcomes.join(),
      );
      insist(outcomes.filter((code) => code === 'done').length === 1, outcomes.join());
      const trusted = await trustedIn(store).count();
      insist(trusted === 1, `${trusted} addresses are trusted`);
      if (outcomes[0] !== 'done') {
        insist((await userIn(store)).passwordHash !== 'hash of new', 'both');
        return;
      }
      await insistOnChange(store, flow);
      const late = await attempt(other(processOn(store)));
      insist(late === rejection, `another outcome: ${late}`);
      const again = await attempt(use(processOn(store)));
      insist(again === 'done', `after the answer: ${again}`);
      await insistOnChange(store, flow);
    };
    const actors = [repeating(use), repeating(other, THIEF)];
    holds(t, await explore({ setup, actors, losses: 1, check }));
    // The response is lost twice.
    holds(t, await explore({ setup, actors: [repeating(use)], losses: 2, check }));
  });
}
