import t from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import type { AuthService } from '../../../src/saas/auth/service.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { createSuspension, type Suspension } from '../../../src/saas/auth/users/suspension.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { customerCollection, paymentEventCollection } from '../../../src/saas/billing/store.js';
import { deliveryCollection } from '../../../src/saas/webhooks/store.js';
import { billingOn } from '../../kit/billing.js';
import { type FakeClock, fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { STORM_SECRET } from '../../kit/stripe-fixture.js';
import { killableStore, type Life } from '../../kit/stripe-killable-store.js';
import { ADA, linkOf, ORIGIN, serviceOn, setup } from '../auth/explored-service.js';
import { subscriptionEvent } from '../billing/kit.js';
import { OPERATOR, webhooksOn } from './kit.js';

/** A process that ends at any call to the store: an event is delivered if its change was made, and only then. */

/** Webhooks of one process, whose clock the test moves. */
const processOn = async (store: Store, clock: FakeClock = fakeClock(), seed = 'first') =>
  webhooksOn(store, {
    ...{ clock, seed, reach: 'loopback' },
    names: ['user.registered', 'user.suspended', 'user.deleted', 'session.revoked', 'subscription.updated'],
  });

/** Two accounts and an endpoint that receives every event. */
async function prepare(store: Store): Promise<void> {
  await setup(store);
  await customerCollection(store).insert({ id: 'cus_1', userId: ADA, createdAt: 1 });
  await (await receiverOn(store))(subscriptionEvent('created', 0, SUBSCRIPTION));
  await (await processOn(store)).add('http://127.0.0.1:9/');
}

const SUBSCRIPTION = {
  id: 'sub_1',
  customer: 'cus_1',
  status: 'active',
  items: { data: [{ price: { id: 'price_pro', lookup_key: 'pro' } }] },
};

/** Receives the events of the payment provider. */
async function receiverOn(store: Store, events: object = {}): Promise<Accounts['receive']> {
  const clock = fakeClock();
  const config = { paymentWebhookSecret: STORM_SECRET };
  const { webhook } = billingOn(store, clock, { config: config as never, ...events });
  return (event) => {
    const body = JSON.stringify(event);
    const signature = signWebhook(body, STORM_SECRET, clock.now());
    return webhook.receive({ signature, body: Buffer.from(body), ip: ORIGIN.ip });
  };
}

/** The accounts on a store whose process may be killed. */
async function accountsOn(store: Store): Promise<Accounts> {
  const { event, commit } = await processOn(store, fakeClock(), 'worker');
  const events = { event: event as never };
  const suspension = createSuspension({
    users: userCollection(store),
    audit: SILENT_AUDIT,
    commit,
    ...events,
    toManagedUser: () => ({}) as never,
    clock: fakeClock(),
  });
  const receive = await receiverOn(store, events);
  return { ...serviceOn(store, 'worker', events), ...suspension, receive };
}

type Accounts = AuthService & Suspension & { receive(event: Json): Promise<unknown> };

/** What a process does when it is killed. */
interface Work {
  run(accounts: Accounts): Promise<unknown>;
  wasMade(store: Store): Promise<boolean>;
  /** The events of the change. */
  events: string[];
}

const ada = (store: Store) => userCollection(store).findOne({ id: ADA });

/** An event of the payment provider about a change of the subscription. */
const changeOf = (change: Json): Work => ({
  run: ({ receive }) =>
    receive({ ...subscriptionEvent('updated', 1, { ...SUBSCRIPTION, ...change }), id: 'evt_1' }),
  wasMade: async (store) =>
    (await paymentEventCollection(store).findOne({ id: 'evt_1' }))?.outcome === 'processed',
  events: ['subscription.updated'],
});

const WORKS: Record<string, Work> = {
  'a change of the terms of a subscription': changeOf({ cancel_at_period_end: true }),
  'a change of the access': changeOf({ status: 'past_due' }),
  'a sign-up': {
    run: ({ register }) =>
      register({ email: 'new@example.test', password: 'new', name: 'New' } as never, ORIGIN),
    wasMade: async (store) => (await userCollection(store).findOne({ email: 'new@example.test' })) !== null,
    events: ['user.registered'],
  },
  'a reset of a password': {
    run: ({ resetPassword }) => resetPassword({ token: linkOf(ADA), password: 'new' }, ORIGIN),
    wasMade: async (store) => (await ada(store))?.passwordVersion === 2,
    events: ['session.revoked'],
  },
  'the end of all sessions': {
    run: ({ logout }) => logout({ refreshToken: `${ADA} ses_${ADA} first`, scope: 'global' }, ORIGIN),
    wasMade: async (store) => (await ada(store))?.sessionEpoch === 1,
    events: ['session.revoked'],
  },
  'a suspension': {
    run: ({ suspend }) => suspend({ id: ADA }),
    wasMade: async (store) => (await ada(store))?.suspendedAt !== undefined,
    events: ['session.revoked', 'user.suspended'],
  },
  'a password that the host sets': {
    run: ({ update }) => update({ id: ADA }, { password: 'new' }),
    wasMade: async (store) => (await ada(store))?.passwordVersion === 2,
    events: ['session.revoked'],
  },
  'a deletion': {
    run: ({ deleteByOperator }) => deleteByOperator(ADA, OPERATOR),
    wasMade: async (store) => (await ada(store)) === null,
    events: ['session.revoked', 'user.deleted'],
  },
};

/** What another process does later: it completes deletions. */
async function recover(store: Store): Promise<void> {
  const { event } = await processOn(store, fakeClock(), 'second');
  const { deletionJob } = serviceOn(store, 'second', { event: event as never });
  await deletionJob.run({ term: 1, signal: new AbortController().signal });
}

/** What is left of the work of a process that ended at a call, after another process has recovered. */
async function endedAt(work: Work, fuse: number) {
  const store = await openStore('sqlite::memory:');
  await prepare(store);
  const life: Life = { fuse: Number.POSITIVE_INFINITY, isInTime: true, isOver: false };
  const accounts = await accountsOn(killableStore(store, life));
  life.fuse = fuse;
  await work.run(accounts).catch((error: unknown) => {
    if (!life.isOver) throw error;
  });
  await recover(store);
  const { items } = await deliveryCollection(store).page({ sort: 'createdAt', limit: 100 });
  const sent = items.map(({ event }) => event).filter((event) => work.events.includes(event));
  const wasMade = await work.wasMade(store);
  await store.close();
  return { wasKilled: life.isOver, sent: sent.sort(), wasMade };
}

for (const [name, work] of Object.entries(WORKS)) {
  t.test(`${name} that is killed at any moment loses no event, and invents none`, async (t) => {
    let fuse = 0;
    // What is stored before a call is what is stored after the one before.
    for (let isOver = false; !isOver; fuse++) {
      const { wasKilled, sent, wasMade } = await endedAt(work, fuse);
      t.same(sent, wasMade ? work.events : [], `killed after call ${fuse} of the store`);
      isOver = !wasKilled;
      if (isOver) t.ok(wasMade);
    }
  });
}
