import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import type { UnknownWritesRegistry } from '../../../src/core/ops/unknown-writes.js';
import { createAccountData } from '../../../src/core/server/contributions.js';
import { nullIfTaken, type Store } from '../../../src/core/storage/collection.js';
import type { AuthService } from '../../../src/saas/auth/service.js';
import { sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { createSuspension } from '../../../src/saas/auth/users/suspension.js';
import {
  customerCollection,
  paymentCollection,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { eventSink } from '../../kit/events.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { STORM_SECRET } from '../../kit/stripe-fixture.js';
import { boot } from '../../kit/stripe-storm.js';
import { viewUnsubscribed } from '../../kit/users.js';
import {
  ADA,
  aliveSessions,
  codes,
  EVE,
  holds,
  insist,
  linkOf,
  NOW,
  ORIGIN,
  serviceOn,
  setup,
  TOKENS,
  unknownWritesOn,
  untilAnswered,
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
const register = (store: Store) =>
  serviceOn(store, 'register').register({ email: 'new@example.test', password: 'old' }, ORIGIN);

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
    const fresh = (seed: string) => {
      let drawn = 0;
      const tokens = { ...TOKENS, nextRefreshId: () => `${seed}${drawn++}` };
      return (store: Store) => serviceOn(store, seed, { tokens }).refresh(`${ADA} ses_${ADA} first`, ORIGIN);
    };
    const wrong = await explore({ ...scenario, actors: [fresh('a'), fresh('b')] });
    t.match(
      wrong.failure?.reason,
      /two successors/,
      'successors that are drawn instead of derived are found out',
    );
  },
);

t.test('a refresh that is overtaken between its read and its write changes nothing', async (t) => {
  const twice = async (store: Store) => {
    const { refreshToken } = await refresh(store, 'twice');
    return serviceOn(store, 'twice').refresh(refreshToken, ORIGIN);
  };
  const check: Scenario['check'] = async (store, results) => {
    const [late = '', last] = codes(results);
    insist(['done', 'REFRESH_TOKEN_REUSED'].includes(late) && last === 'done', codes(results).join());
    const session = await sessionCollection(store).findOne({ id: `ses_${ADA}` });
    insist(session?.currentId === sha256('first++'), 'an earlier token is the current one again');
  };
  holds(t, await explore({ setup, actors: [(store) => refresh(store), twice], check }));
});

/** Time that passes between two calls of a client; a document, so that equal states have equal times. */
function passingTime() {
  const clock = fakeClock();
  const timeOf = (store: Store) => store.collection<{ id: string; ms: number }>('time');
  return {
    clock,
    begin: () => clock.set(NOW),
    async setup(store: Store) {
      await setup(store);
      await timeOf(store).insert({ id: 'now', ms: 0 });
    },
    async pass(store: Store, ms: number) {
      await timeOf(store).updateOne({ id: 'now' }, { inc: { ms } });
      clock.advance(ms);
    },
  };
}

/** A refresh whose outcome the first process cannot know, repeated at another one after the outage. */
function outageOfRefresh() {
  const time = passingTime();
  const { clock } = time;
  let registries: UnknownWritesRegistry[] = [];
  const processOn = (store: Store, seed: string, more: Parameters<typeof serviceOn>[2] = {}) => {
    const unknownWrites = unknownWritesOn(clock);
    registries.push(unknownWrites);
    return { unknownWrites, service: serviceOn(store, seed, { clock, unknownWrites, ...more }) };
  };
  const present = (service: AuthService) => service.refresh(`${ADA} ses_${ADA} first`, ORIGIN);
  return {
    ...time,
    processOn,
    present,
    begin() {
      registries = [];
      time.begin();
    },
    /** Each attempt reaches another process. */
    client(store: Store) {
      return untilAnswered(
        () => present(processOn(store, 'client').service),
        async () => registries.at(-1)?.settleAll(),
        () => time.pass(store, 45_000),
      );
    },
    settleAll: () => Promise.all(registries.map((one) => one.settleAll())),
  };
}

t.test('a refresh that took effect unnoticed in a long outage is repeated without penalty', async (t) => {
  const { begin, setup, client } = outageOfRefresh();
  const check: Scenario['check'] = async (store, results) => {
    insist(codes(results).join() === 'done', codes(results).join());
    insist((await aliveSessions(store)).length === 1, 'the session has ended');
  };
  holds(t, await explore({ begin, setup, actors: [client], losses: 2, check }));
});

t.test('a thief who presents the older token each time is noticed, even in outages', async (t) => {
  const { clock, begin, setup, client, present, processOn, pass, settleAll } = outageOfRefresh();
  const thief = async (store: Store) => {
    for (let times = 0; times < 2; times++) {
      await present(processOn(store, 'thief').service).catch(() => undefined);
      await pass(store, 31_000);
    }
  };
  const checkWith =
    (more?: (store: Store) => Parameters<typeof serviceOn>[2]): Scenario['check'] =>
    async (store) => {
      let last: unknown;
      for (let times = 0; times < 3; times++) {
        await settleAll();
        clock.advance(31_000);
        last = await present(processOn(store, 'last', more?.(store)).service).catch(
          (error: unknown) => error,
        );
      }
      insist(last instanceof Error, 'the older token is accepted again and again');
      insist((await aliveSessions(store)).length === 0, 'the session is alive');
    };
  const scenario: Scenario = { begin, setup, actors: [client, thief], losses: 1, check: checkWith() };
  holds(t, await explore(scenario));

  const answered = async (store: Store) => {
    await present(processOn(store, 'client').service);
    await pass(store, 31_000);
    const { service, unknownWrites } = processOn(store, 'thief');
    await present(service).catch(() => undefined);
    await unknownWrites.settleAll();
    return present(service).then(
      () => 'accepted',
      () => 'noticed',
    );
  };
  const check: Scenario['check'] = async (_store, [result]) =>
    insist(
      result?.status === 'rejected' || result?.value === 'noticed',
      'an outage opens the window of a refresh that was answered',
    );
  holds(t, await explore({ begin, setup, actors: [answered], losses: 1, check }));

  /** Honours every predecessor whose successor was not used. */
  const careless = (store: Store) => {
    const sessions = sessionCollection(store);
    const findOne: typeof sessions.findOne = async (where) => {
      const found = await sessions.findOne(where);
      return found && { ...found, rotatedAt: clock.now() };
    };
    return { sessions: { ...sessions, findOne } };
  };
  const wrong = await explore({ ...scenario, check: checkWith(careless) });
  t.match(wrong.failure?.reason, /again and again/, 'honouring every unused predecessor is found out');
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

    const deleting = async (store: Store) => {
      await userCollection(store).updateOne({ id: ADA }, { set: { passwordHash: 'hash of new' } });
      await sessionCollection(store).deleteMany({ userId: ADA });
    };
    const wrong = await explore({ ...scenario, actors: [deleting, login], crash: false });
    t.match(
      wrong.failure?.reason,
      /alive after the reset: ses_/,
      'deleting the sessions instead is found out',
    );
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

    const careless = (store: Store) => {
      const users = userCollection(store);
      const changing: typeof users.changing = ({ sessionEpoch: _, ...where }, what) =>
        users.changing(where, what);
      return serviceOn(store, 'others', { users: { ...users, changing } }).logout(
        { refreshToken: `${ADA} ses_${ADA} first`, scope: 'others' },
        ORIGIN,
      );
    };
    const wrong = await explore({ setup, actors: [reset, careless], check: checkOldSessionsEnded });
    t.match(wrong.failure?.reason, /alive after the reset/, 'sparing a session of any epoch is found out');
  },
);

t.test('a suspension permanently ends sessions that exist, begin or change at that moment', async (t) => {
  const suspensionOn = (store: Store, users = userCollection(store)) =>
    createSuspension({
      users,
      audit: SILENT_AUDIT,
      commit: createCommit(store),
      ...eventSink(),
      toManagedUser: (user) => ({ ...viewUnsubscribed(user), suspendedAt: null, granted: null }),
      clock: fakeClock(),
    });
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

  const careless = (store: Store) => {
    const users = userCollection(store);
    const changing: typeof users.changing = (where, { inc: _, ...what }) => users.changing(where, what);
    return suspensionOn(store, { ...users, changing }).suspend({ id: ADA });
  };
  const wrong = await explore({ setup, actors: [careless, login], check });
  t.match(wrong.failure?.reason, /alive again/, 'a suspension that ends no sessions is found out');
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

t.test('a deletion during webhook deliveries leaves no billing data', async (t) => {
  const billingFor = (store: Store) => {
    return boot(store, fakeClock(), undefined).billing;
  };
  const object = { customer: 'cus_1', status: 'active', subscription: 'sub_1' };
  const deliverEvent = (type: string, id: string) => (store: Store) => {
    const body = JSON.stringify({ type, data: { object: { ...object, id } } });
    const signature = signWebhook(body, STORM_SECRET, NOW);
    return billingFor(store).webhook.receive({ signature, body: Buffer.from(body), ip: '192.0.2.1' });
  };
  const leave = (store: Store) => {
    const accountData = createAccountData();
    accountData.add({ delete: billingFor(store).deletion.deleteBillingData });
    return serviceOn(store, 'delete', { accountData }).deleteAccount(identityOf(ADA), 'old', ORIGIN);
  };
  const scenario = (event: (store: Store) => Promise<unknown>): Scenario => ({
    async setup(store) {
      await setup(store);
      billingFor(store);
      await customerCollection(store).insert({ id: 'cus_1', userId: ADA, createdAt: NOW });
    },
    actors: [leave, event],
    async check(store) {
      insist((await userCollection(store).findOne({ id: ADA })) === null, 'not gone');
      const of = { userId: ADA };
      const left = [subscriptionCollection(store).count(of), paymentCollection(store).count(of)];
      insist((await Promise.all(left)).join() === '0,0', `left: ${await Promise.all(left)}`);
    },
  });
  holds(t, await explore(scenario(deliverEvent('customer.subscription.created', 'sub_1'))));
  holds(t, await explore(scenario(deliverEvent('invoice.payment_succeeded', 'in_1'))));
});

t.test(
  'of two changes to one address and a registration one succeeds and the others are refused',
  async (t) => {
    const confirm = (id: string) => (store: Store) =>
      serviceOn(store, id).verifyEmail({ token: linkOf(id), password: 'old' }, ORIGIN);
    const scenario: Scenario = {
      setup,
      actors: [confirm(ADA), confirm(EVE), register],
      async check(store, results) {
        const holders = await userCollection(store).count({ email: 'new@example.test' });
        insist(holders === 1, `${holders} have it`);
        const all = codes(results).sort().join();
        insist(all === 'EMAIL_TAKEN,EMAIL_TAKEN,done', all);
      },
    };
    holds(t, await explore(scenario));
  },
);
