import t from 'tap';
import type { Identity } from '../../../src/core/http/identity.js';
import { addressBlock } from '../../../src/core/kernel/addresses.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import type { UnknownWritesRegistry } from '../../../src/core/ops/unknown-writes.js';
import { nullIfTaken, type Store } from '../../../src/core/storage/collection.js';
import type { AuthService } from '../../../src/saas/auth/service.js';
import { type UserDocument, userCollection } from '../../../src/saas/auth/store.js';
import { fakeClock } from '../../kit/clock.js';
import { eventSink } from '../../kit/events.js';
import { explore, type Scenario } from '../../kit/explore.js';
import {
  ADA,
  codes,
  holds,
  insist,
  linkOf,
  mailsOf,
  NOW,
  ORIGIN,
  serviceOn,
  storedMails,
  setup as twoAccounts,
  unknownWritesOn,
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
/** After this time, a request without an answer does not run any more. */
const AFTER_CRASH_MS = 10_000;

const THIEF = { ...ORIGIN, ip: '203.0.113.9' };

type Use = (service: AuthService, origin?: typeof ORIGIN) => Promise<unknown>;

interface Flow {
  use: Use;
  /** The link, among the fields of the account that it belongs to. */
  given: Partial<UserDocument>;
  /** What the account has after the link was used, exactly once. */
  expected: Partial<UserDocument>;
  /** The events that the application must receive. */
  events: string[];
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

const LINK_FLOWS: Record<string, Omit<Flow, 'rejection'>> = {
  'a reset': {
    use: reset('new'),
    given: { emailVerified: false, resetHash: hash, resetExpiresAt: NOW + 60_000 },
    expected: { ...verified, ...replaced },
    events: ['session.revoked', 'user.verified'],
    other: reset('another'),
  },
  'a confirmation with the current password': {
    use: confirm({ password: 'old' }),
    given: verifyLink,
    expected: { ...verified, ...kept },
    events: ['user.verified'],
    other: confirm({ password: 'another' }),
  },
  'a confirmation with a new password': {
    use: confirm({ password: 'new' }),
    given: verifyLink,
    expected: { ...verified, ...replaced },
    events: ['session.revoked', 'user.verified'],
    other: confirm({ password: 'another' }),
  },
  'a confirmation with a session': {
    use: confirm({ authorization: SESSION }),
    given: verifyLink,
    expected: { ...verified, ...kept },
    events: ['user.verified'],
    other: confirm({ password: 'another' }),
  },
  'a change of the address': {
    use: confirm({ password: 'old' }),
    given: changeLink,
    expected: { ...moved, ...kept },
    events: [],
    other: confirm({ password: 'another' }),
  },
  'a change of an unconfirmed address with a new password': {
    use: confirm({ password: 'new' }),
    given: { ...changeLink, emailVerified: false },
    expected: { ...moved, ...replaced },
    events: ['session.revoked', 'user.verified'],
    other: confirm({ password: 'another' }),
  },
  'an unlock': {
    use: (service, origin = ORIGIN) => service.unlock(linkOf(ADA), origin),
    given: { unlockHash: hash, unlockExpiresAt: NOW + 60_000 },
    expected: kept,
    events: [],
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
    events: ['session.revoked'],
    other: changePassword('another'),
    rejection: 'INVALID_CREDENTIALS',
  },
};

const trustedIn = (store: Store) => store.collection<{ id: string }>('trusted');

/** One account with the link of a flow, used by processes whose trusted addresses are in the store. */
function accountWith({ given }: Pick<Flow, 'given'>) {
  let registries: UnknownWritesRegistry[] = [];
  let events: string[] = [];
  const clock = fakeClock();
  const processOn = (store: Store): AuthService => {
    const unknownWrites = unknownWritesOn(clock);
    registries.push(unknownWrites);
    const trust = async (account: string, ip: string) =>
      void (await trustedIn(store)
        .insert({ id: `${account} ${addressBlock(ip)}` })
        .catch(nullIfTaken));
    return serviceOn(store, 'client', {
      clock,
      unknownWrites,
      mails: storedMails(store),
      ...eventSink((name) => events.push(name)),
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
  };
  const settleAll = () => Promise.all(registries.map((one) => one.settleAll()));
  return {
    clock,
    processOn,
    events: () => events,
    begin() {
      clock.set(NOW);
      registries = [];
      events = [];
    },
    async setup(store: Store) {
      await twoAccounts(store);
      trustedIn(store);
      await userCollection(store).updateOne(
        { id: ADA },
        {
          unset: ['resetHash', 'resetExpiresAt', 'newEmail', 'changeHash', 'changeExpiresAt'],
        },
      );
      await userCollection(store).updateOne({ id: ADA }, { set: given });
    },
    /** Repeats the request while the answer is 503, each time at another process. */
    repeating: (use: Use) => (store: Store) => untilAnswered(() => use(processOn(store)), settleAll),
    settleAll,
  };
}

const userIn = async (store: Store) => (await userCollection(store).findOne({ id: ADA })) as UserDocument;

const attempt = (use: Promise<unknown>): Promise<string> =>
  use.then(
    () => 'done',
    (error: { code?: string }) => error.code ?? String(error),
  );

/** Each new password is reported by a mail. */
async function insistOnMails(store: Store): Promise<void> {
  const { passwordVersion } = await userIn(store);
  const { items } = await mailsOf(store).page({ sort: 'id', limit: 10 });
  const sent = items.filter(({ id }) => id.startsWith('password-changed:')).length;
  insist(sent === passwordVersion - 1, `${sent} mails of ${passwordVersion - 1} changes`);
}

function insistOn(user: UserDocument, expected: Partial<UserDocument>): void {
  for (const [field, value] of Object.entries(expected)) {
    const found = user[field as keyof UserDocument];
    insist(found === value, `${field} is ${found}`);
  }
}

for (const [name, flow] of Object.entries(FLOWS)) {
  const { use, other, expected, rejection } = flow;

  t.test(`${name} without an answer is repeated with success, and everything is completed`, async (t) => {
    const { clock, begin, setup, processOn, repeating, events, settleAll } = accountWith(flow);
    const check: Scenario['check'] = async (store, results) => {
      insist(codes(results).join() === 'done', codes(results).join());
      const user = await userIn(store);
      insistOn(user, expected);
      for (const event of flow.events) insist(events().includes(event), `no ${event}`);
      const trusted = await trustedIn(store).findOne({ id: `${user.email} ${ORIGIN.ip}` });
      insist(trusted !== null, 'the address is not trusted');
      await settleAll();
      clock.advance(AFTER_CRASH_MS);
      for (const again of [use, other]) {
        const code = await attempt(again(processOn(store)));
        insist(code === rejection, `after the answer: ${code}`);
      }
      insistOn(await userIn(store), expected);
    };
    holds(t, await explore({ begin, setup, actors: [repeating(use)], losses: 2, check }));
  });

  t.test(`${name} is completed by a repetition, whenever its process crashes`, async (t) => {
    const { clock, begin, setup, processOn, events } = accountWith(flow);
    const check: Scenario['check'] = async (store, [result]) => {
      // Before any repetition: the mail is stored before the change.
      await insistOnMails(store);
      if (!result) {
        clock.advance(AFTER_CRASH_MS);
        const code = await attempt(use(processOn(store)));
        // After its last call, the process had only to send the answer.
        insist(code === 'done', code);
      }
      insistOn(await userIn(store), expected);
      await insistOnMails(store);
      for (const event of flow.events) insist(events().includes(event), `no ${event}`);
    };
    const actors = [(store: Store) => use(processOn(store))];
    holds(t, await explore({ begin, setup, actors, crash: true, check }));
  });

  t.test(`${name} has one outcome, even if a thief has the link`, async (t) => {
    const { clock, begin, setup, repeating, settleAll, processOn } = accountWith(flow);
    const check: Scenario['check'] = async (store, results) => {
      const outcomes = codes(results);
      insist(
        outcomes.every((code) => ['done', rejection, 'UNAUTHENTICATED'].includes(code)),
        outcomes.join(),
      );
      insist(outcomes.filter((code) => code === 'done').length === 1, outcomes.join());
      if (outcomes[0] === 'done') insistOn(await userIn(store), expected);
      else insist((await userIn(store)).passwordHash !== 'hash of new', 'both');
      await insistOnMails(store);
      const trusted = await trustedIn(store).count();
      insist(trusted <= 1, `${trusted} addresses are trusted`);
      await settleAll();
      clock.advance(AFTER_CRASH_MS);
      const late = await attempt(other(processOn(store), THIEF));
      insist(late === rejection, `late: ${late}`);
    };
    holds(t, await explore({ begin, setup, actors: [repeating(use), repeating(other)], losses: 1, check }));
  });
}

/** Does not store that the request has no answer yet. */
const forgetful = (store: Store): Store => ({
  ...store,
  collection: ((...args: Parameters<Store['collection']>) => {
    const actual = store.collection(...args);
    const updateOne = (where: never, { set, ...change }: { set?: { unansweredSince?: unknown } }) => {
      const { unansweredSince: _, ...rest } = set ?? {};
      return actual.updateOne(where, { ...change, ...(set && { set: rest }) } as never);
    };
    return { ...actual, updateOne };
  }) as Store['collection'],
});

t.test('a use that leaves no mark is found out', async (t) => {
  const flow = FLOWS['a reset'] as Flow;
  const { begin, setup, repeating } = accountWith(flow);
  const actors = [(store: Store) => repeating(flow.use)(forgetful(store))];
  const check: Scenario['check'] = async (_store, results) =>
    insist(codes(results).join() === 'done', codes(results).join());
  const { failure } = await explore({ begin, setup, actors, losses: 2, check });
  t.equal(failure?.reason, flow.rejection);
});
