import { AppError } from '../../src/core/kernel/errors.js';
import type { TestBilling } from './billing.js';
import type { FakeClock } from './clock.js';
import type { Fault } from './stripe.js';
import { type Person, wrongProjections, wrongSubscriptions } from './stripe-expectations.js';
import { checkOut, insertUser, openStripeFixture, receive } from './stripe-fixture.js';
import type { World } from './stripe-simulator.js';
import { boot } from './stripe-storm.js';

/**
 * An outage of the payment provider's API during which it still delivers events, many of the same second and in any
 * order. The background jobs run at their own intervals on an injected clock, as in a process.
 */
export interface OutageResult {
  people: number;
  /** Duration of the outage in seconds. */
  lasted: number;
  /** Users with wrong data when the provider came back. */
  wrongAtReturn: number;
  /** Users and subscriptions that are still wrong after the time limit. */
  problems: string[];
  /** Seconds after the return at which the last user became correct. */
  settledAfter: number;
  /** Events created during the outage. */
  events: number;
  /** Calls to the provider during the outage. */
  callsWhileDown: number;
}

/** Seconds after the return by which everything must match the provider. */
const SETTLED_WITHIN = 60;
const STEP = 5;

const DOWN: readonly Fault[] = [
  { status: 500, body: '{}' },
  { status: 503, body: 'no' },
  { status: 429, body: '{}' },
  { status: 200, body: 'no {' },
];

/** @param databaseUri of an empty database; in memory if absent */
export async function outage(seed: number, databaseUri?: string): Promise<OutageResult> {
  const fixture = await openStripeFixture(seed, databaseUri);
  const { world, clock, api, store, told } = fixture;
  const { dice } = world;
  const { billing } = boot(store, clock, api.url, told);
  const people: Person[] = [];
  for (let count = 60 + dice.whole(31), number = 0; number < count; number++)
    people.push(await checkOut(billing, fixture, await insertUser(fixture, number)));
  const schedule = createSchedule(billing, world, clock);
  let published = 0;

  /** Delivers all new events within the second, some of them twice, in any order. */
  const deliver = async () => {
    const fresh = world.events.slice(published).map((event) => JSON.stringify(event));
    published = world.events.length;
    const bodies = dice.shuffled(fresh.flatMap((body) => (dice.happens(0.2) ? [body, body] : [body])));
    const deliverOne = async (body: string): Promise<void> => {
      try {
        await receive(billing, fixture, body);
      } catch (error) {
        // The other copy is being processed; the provider delivers this one again.
        if (!(error instanceof AppError && error.code === 'EVENT_IN_PROGRESS')) throw error;
      }
    };
    for (let first = 0; first < bodies.length; first += 8) {
      await Promise.all(bodies.slice(first, first + 8).map(deliverOne));
    }
  };

  try {
    const subscribe = ({ customer, user, isSigned }: Person) => world.subscribe(customer, user.id, isSigned);
    const early = Math.ceil(people.length * 0.6);
    people.slice(0, early).forEach(subscribe);
    await deliver();
    await schedule.pass(60 + dice.whole(600));
    api.fault = () => dice.one(DOWN);
    const [callsBefore, eventsBefore, downAt] = [api.calls.length, world.events.length, world.now];
    people.slice(early).forEach(subscribe);
    const duration = dice.one([5, 30, 120, 900, 3600]);
    for (let bursts = 1 + dice.whole(4); bursts > 0; bursts--) {
      const alive = [...world.subscriptions.values()];
      for (const subscription of alive)
        for (let acts = dice.whole(4); acts > 0; acts--) world.act(subscription);
      await deliver();
      await schedule.pass(dice.whole(duration));
    }
    api.fault = () => undefined;
    const lasted = world.now - downAt;
    const callsWhileDown = api.calls.length - callsBefore;
    const events = world.events.length - eventsBefore;
    const wrong = () => wrongProjections(world, store, people);
    const wrongAtReturn = (await wrong()).length;
    let settledAfter = 0;
    let isSettled = false;
    for (let second = STEP; second <= SETTLED_WITHIN; second += STEP) {
      await schedule.pass(STEP);
      isSettled ||= (await wrong()).length === 0;
      if (!isSettled) settledAfter = second;
    }
    const problems = [
      ...(await wrongSubscriptions(world, store)).map(({ problem }) => problem),
      ...(await wrong()),
    ];
    return { people: people.length, lasted, wrongAtReturn, problems, settledAfter, events, callsWhileDown };
  } finally {
    await fixture.close();
  }
}

/** Runs the jobs as the timers of a process would: each starts at its own time and repeats at its interval. */
function createSchedule(billing: TestBilling, world: World, clock: FakeClock) {
  const due = [billing.jobs.reconcile, billing.jobs.retryUnmatched].map((job) => ({
    job,
    at: world.now + world.dice.whole(job.everySeconds),
  }));
  return {
    async pass(seconds: number): Promise<void> {
      const end = world.now + seconds;
      for (;;) {
        const next = due.toSorted((a, b) => a.at - b.at)[0];
        if (!next || next.at > end) break;
        world.now = Math.max(world.now, next.at);
        clock.set(world.now * 1000);
        await next.job.run({ term: 1, signal: new AbortController().signal });
        next.at += next.job.everySeconds;
      }
      world.now = end;
      clock.set(end * 1000);
    },
  };
}
