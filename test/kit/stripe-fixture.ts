import { openStore } from '../../src/core/storage/open.js';
import { type UserDocument, userCollection } from '../../src/saas/auth/store.js';
import type { TestBilling } from './billing.js';
import { fakeClock } from './clock.js';
import { signWebhook } from './sign-webhook.js';
import { stripeApi } from './stripe.js';
import type { Person } from './stripe-expectations.js';
import { World } from './stripe-simulator.js';
import { viewUnsubscribed } from './users.js';

/** The common setup of a webhook storm and an outage: the simulated provider, its API and a store. */

export const STORM_SECRET = 'whsec_storm_Qm7vLd0mXw4RkT9cYb2N';

/** The common fields of users without a purchase. */
export const UNSUBSCRIBED = {
  passwordHash: 'none',
  passwordVersion: 1,
  emailVerified: true,
  sessionEpoch: 0,
  subscriptionStatus: 'none',
  subscriptionPlan: 'free',
};

const START = Date.UTC(2040, 0, 1) / 1000;

export type StripeFixture = Awaited<ReturnType<typeof openStripeFixture>>;

/** @param databaseUri of an empty database; in memory if absent */
export async function openStripeFixture(seed: number, databaseUri = 'sqlite::memory:') {
  const world = new World(seed, START);
  const clock = fakeClock(START * 1000);
  const api = await stripeApi(world);
  const store = await openStore(databaseUri);
  return {
    world,
    clock,
    api,
    store,
    told: { count: 0 },
    async close() {
      await store.close();
      await api.close();
    },
  };
}

/** Delivers an event to a process. */
export function receive(
  billing: TestBilling,
  { clock }: StripeFixture,
  body: string,
  secret = STORM_SECRET,
): Promise<unknown> {
  const signature = signWebhook(body, secret, clock.now());
  return billing.webhook.receive({ signature, body: Buffer.from(body), ip: '192.0.2.1' });
}

export async function insertUser({ world, store }: StripeFixture, number: number): Promise<UserDocument> {
  const user: UserDocument = {
    id: `usr_${String(number).padStart(5, '0')}`,
    email: `person${number}@example.test`,
    ...UNSUBSCRIBED,
    createdAt: world.now * 1000,
  };
  await userCollection(store).insert(user);
  return user;
}

/** Sends a user to checkout, so that the customer is known. */
export async function checkOut(
  billing: TestBilling,
  { world, api }: StripeFixture,
  user: UserDocument,
): Promise<Person> {
  const { sessionId } = await billing.checkout.open(await viewUnsubscribed(user), { mode: 'setup' });
  const customer = String(api.sessions.get(sessionId)?.['customer']);
  return { user, customer, isSigned: world.dice.happens(0.5), sessionId, isLate: false };
}
