import { setImmediate as turn } from 'node:timers/promises';
import { AppError } from '../../src/core/kernel/errors.js';
import { effectOf } from '../../src/core/ops/commit.js';
import type { Store } from '../../src/core/storage/collection.js';
import type { Json } from '../../src/saas/billing/provider/json.js';
import { billingOn, runJobs, type TestBilling } from './billing.js';
import type { FakeClock } from './clock.js';
import type { Fault } from './stripe.js';
import {
  type Person,
  stormProblems,
  toldEvents,
  toldMails,
  wrongSubscriptions,
} from './stripe-expectations.js';
import {
  checkOut,
  insertUser,
  openStripeFixture,
  receive,
  STORM_SECRET,
  type StripeFixture,
} from './stripe-fixture.js';
import { Killed, killableStore, type Life } from './stripe-killable-store.js';
import type { World } from './stripe-simulator.js';

/**
 * A webhook storm: the events of many subscriptions, delivered late, repeatedly, in any order and sometimes forged,
 * to processes that are killed while they work, by a provider whose API fails at times. In the end everything must
 * match the provider.
 */

export interface StormSize {
  subscriptions: number;
  events: number;
}

export interface StormResult {
  events: number;
  deliveries: number;
  forged: number;
  kills: number;
  /** Calls to the provider's API. */
  calls: number;
  /** Subscriptions left to the background sync. */
  uncertain: number;
  /** Differences from the state of the provider; empty on success. */
  problems: string[];
}

/** Longer than an event's lease, so that the provider's next attempt finds the event free. In seconds. */
const RETRY_AFTER = 40;
const BATCH = 16;

/** Only the calls of webhooks fail. Others are retried after a pause, which would only cost time here. */
const LOOK = /^\/v1\/(subscriptions\/sub_|charges|invoice_payments|checkout\/sessions\/\w+\/line_items)/;
const FAULTS: readonly Fault[] = [
  { status: 500, body: '{}' },
  { status: 429, body: '{}' },
  { status: 404, body: '{"error":{"code":"resource_missing"}}' },
];
const FINAL_FAULT: Fault = { status: 200, body: 'no {' };

interface Delivery {
  due: number;
  body: string;
  isForged: boolean;
}

/** @param databaseUri of an empty database; in memory if absent */
export async function storm(seed: number, size: StormSize, databaseUri?: string): Promise<StormResult> {
  const fixture = await openStripeFixture(seed, databaseUri);
  const { world, clock, api, store, told } = fixture;
  const { dice } = world;
  const result = { events: 0, deliveries: 0, forged: 0, kills: 0, calls: 0, uncertain: 0 };
  const problems: string[] = [];
  const people: Person[] = [];
  let queue: Delivery[] = [];
  let published = 0;
  const start = () => boot(store, clock, api.url, told);
  let { life, billing } = start();

  const publish = () => {
    for (const event of world.events.slice(published)) {
      const body = JSON.stringify(event);
      const late = () => (dice.happens(0.8) ? dice.whole(6) : dice.whole(240));
      for (let copies = 1 + (dice.happens(0.4) ? dice.whole(5) : 0); copies > 0; copies--) {
        queue.push({ due: world.now + late(), body, isForged: false });
      }
      if (dice.happens(0.1)) queue.push({ due: world.now + late(), body: forged(event), isForged: true });
    }
    published = world.events.length;
  };

  const deliver = async (delivery: Delivery): Promise<void> => {
    const { body, isForged } = delivery;
    result.deliveries++;
    const secret = isForged ? `${STORM_SECRET}x` : STORM_SECRET;
    try {
      await receive(billing, fixture, body, secret);
      if (isForged) problems.push('a forged event was accepted');
    } catch (error) {
      if (isForged && codeOf(error) === 'INVALID_SIGNATURE') result.forged++;
      else if (error instanceof Killed || codeOf(error) === 'EVENT_IN_PROGRESS') {
        queue.push({ ...delivery, due: world.now + RETRY_AFTER + dice.whole(60) });
      } else problems.push(`a delivery failed: ${error}`);
    }
  };

  /** Users come back from checkout, or view their subscription. */
  const sync = async ({ user, sessionId }: Person): Promise<void> => {
    try {
      await billing.subscription.sync(user.id, sessionId);
    } catch (error) {
      const isExpected = error instanceof Killed || codeOf(error) === 'PAYMENT_PROVIDER_ERROR';
      if (!isExpected) problems.push(`a sync failed: ${error}`);
    }
  };

  const deliverDue = async () => {
    const due = dice.shuffled(queue.filter((delivery) => delivery.due <= world.now));
    queue = queue.filter((delivery) => delivery.due > world.now);
    for (let first = 0; first < due.length; first += BATCH) {
      if (dice.happens(0.25)) Object.assign(life, { fuse: dice.whole(60), isInTime: dice.happens(0.5) });
      const viewing = dice.happens(0.03) ? [sync(dice.one(people))] : [];
      await Promise.all([...due.slice(first, first + BATCH).map(deliver), ...viewing]);
      if (!life.isOver) continue;
      result.kills++;
      ({ life, billing } = start());
    }
  };

  const pass = (seconds: number) => {
    world.now += seconds;
    clock.set(world.now * 1000);
  };

  try {
    people.push(...(await register(billing, fixture, Math.ceil(size.subscriptions * 0.8))));
    const isOver = () =>
      world.subscriptions.size >= size.subscriptions &&
      [...world.subscriptions.values()].every(({ endedAt }) => endedAt !== null);
    api.fault = ({ path }) => {
      if (!dice.happens(0.15)) return undefined;
      return LOOK.test(path) ? dice.one([...FAULTS, FINAL_FAULT]) : FINAL_FAULT;
    };
    while (world.events.length < size.events && !isOver()) {
      for (let acts = dice.whole(12); acts >= 0; acts--) happen(world, people, size.subscriptions);
      publish();
      await deliverDue();
      pass(dice.whole(3));
    }
    while (queue.length > 0) {
      pass(10);
      await deliverDue();
    }
    api.fault = () => undefined;
    ({ life, billing } = start());
    // Users known only by a checkout session come back from checkout in the end; others need no help.
    for (const person of people) if (person.isLate) await sync(person);
    await settle();
    problems.push(...(await stormProblems(world, store, people)));
    return { ...result, events: world.events.length, calls: api.calls.length, problems };

    async function settle() {
      pass(60);
      const wrong = await wrongSubscriptions(world, store);
      result.uncertain = wrong.filter(({ isUncertain }) => isUncertain).length;
      for (const { problem, isUncertain } of wrong) if (!isUncertain) problems.push(`unnoticed: ${problem}`);
      for (let round = 0; round < 3; round++) {
        await runJobs(billing);
        pass(1);
      }
    }
  } finally {
    await fixture.close();
  }
}

function happen(world: World, people: Person[], most: number): void {
  const { dice, subscriptions } = world;
  if (subscriptions.size < most && (subscriptions.size < 10 || dice.happens(0.3))) {
    const { customer, user, isSigned } = dice.one(people);
    world.subscribe(customer, user.id, isSigned);
    return;
  }
  if (dice.happens(0.15)) world.actOnPayment();
  if (dice.happens(0.15)) world.actOnPurchase();
  if (dice.happens(0.1) && people.length > 0) {
    const { customer, user } = dice.one(people);
    world.buyOnce(customer, user.id);
  }
  const alive = [...subscriptions.values()].filter(({ endedAt }) => endedAt === null);
  if (alive.length > 0) world.act(dice.one(alive));
}

/**
 * A process on the store, until it is killed. Its events and e-mails are documents of the store (`stripe-expectations.ts`).
 * @param apiUrl of the provider; without one there is no key, either
 * @param told how many events the processes on the store have had
 */
export function boot(
  store: Store,
  clock: FakeClock,
  apiUrl: string | undefined,
  told = { count: 0 },
): { life: Life; billing: TestBilling } {
  const life: Life = { fuse: Number.POSITIVE_INFINITY, isInTime: false, isOver: false };
  const mine = killableStore(store, life);
  const [events, mails] = [toldEvents(mine), toldMails(mine)];
  const billing = billingOn(mine, clock, {
    config: {
      ...(apiUrl !== undefined && { paymentSecretKey: 'sk_test_storm', paymentApiUrl: apiUrl }),
      paymentWebhookSecret: STORM_SECRET,
      billingReturnUrlRelative: '/settings/billing',
      pastDue: 'entitled',
    },
    outbox: { mail: ({ key: id, to }) => effectOf(mails.ensuring({ id, to })) },
    event: async (name, payload) =>
      effectOf(events.inserting({ id: String(++told.count), name, payload: { ...payload } as never })),
    wait: () => turn(),
  });
  return { life, billing };
}

/** Some users have a customer from the start, some only a subscription that names them, some only a session. */
async function register(billing: TestBilling, fixture: StripeFixture, count: number): Promise<Person[]> {
  const { world, api } = fixture;
  const people: Person[] = [];
  for (let number = 0; number < count; number++) {
    const user = await insertUser(fixture, number);
    const kind = world.dice.one(['customer', 'customer', 'signed', 'session'] as const);
    if (kind === 'customer') {
      people.push(await checkOut(billing, fixture, user));
      continue;
    }
    const [customer, sessionId] = [world.name('cus'), world.name('cs')];
    const session = { id: sessionId, customer, client_reference_id: user.id, metadata: { userId: user.id } };
    api.sessions.set(sessionId, session);
    people.push({ user, customer, isSigned: kind === 'signed', sessionId, isLate: kind === 'session' });
  }
  return people;
}

/** Events that an attacker without the secret would forge. */
function forged(event: Json): string {
  return JSON.stringify({ ...event, id: `${event['id']}_forged` }).replace(
    /"status":"\w+"/,
    '"status":"active"',
  );
}

const codeOf = (error: unknown) => (error instanceof AppError ? error.code : undefined);
