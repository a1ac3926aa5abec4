import type { Collection, Store } from '../../src/core/storage/collection.js';
import { pagesOf } from '../../src/core/storage/pages.js';
import { type UserDocument, userCollection } from '../../src/saas/auth/store.js';
import { createSummaryOf } from '../../src/saas/billing/entitlement.js';
import { purchaseCollection } from '../../src/saas/billing/purchases.js';
import {
  paymentCollection,
  paymentEventCollection,
  type SubscriptionDocument,
  subscriptionCollection,
} from '../../src/saas/billing/store.js';
import { PRICES, type WorldSubscription } from './stripe-objects.js';
import { amountOf } from './stripe-purchases.js';
import type { World } from './stripe-simulator.js';

/** Compares the stored data and the notifications with the state of the provider. */

export interface Person {
  user: UserDocument;
  customer: string;
  isSigned: boolean;
  sessionId: string;
  /** Whether only the checkout session links the customer to the user. */
  isLate: boolean;
}

/** An event for integrators, as a document of the commit that it belongs to. */
export interface ToldEvent {
  id: string;
  name: string;
  payload: { id: string } & Record<string, unknown>;
}

export const toldEvents = (store: Store) => store.collection<ToldEvent>('told_events');

/** The e-mails of a commit, by their key. */
export const toldMails = (store: Store) => store.collection<{ id: string; to: string }>('told_mails');

interface Wrong {
  problem: string;
  isUncertain: boolean;
}

/** Subscriptions that differ from the state of the provider. */
export async function wrongSubscriptions(world: World, store: Store): Promise<Wrong[]> {
  const subscriptions = subscriptionCollection(store);
  const wrong: Wrong[] = [];
  for (const truth of world.subscriptions.values()) {
    const stored = await subscriptions.findOne({ id: truth.id });
    const [is, should] = [shownStored(stored), shownTruth(truth)];
    if (is === should) continue;
    const isUncertain = stored?.recheckAt !== undefined && stored.recheckAt <= world.now * 1000;
    wrong.push({ problem: `${truth.id} is ${is} instead of ${should}`, isUncertain });
  }
  return wrong;
}

export async function stormProblems(
  world: World,
  store: Store,
  people: readonly Person[],
): Promise<string[]> {
  return [
    ...(await wrongSubscriptions(world, store)).map(({ problem }) => problem),
    ...(await wrongProjections(world, store, people)),
    ...(await wrongPayments(world, store)),
    ...(await unfinishedEvents(store)),
    ...wrongMails(world, people, await all(toldMails(store))),
    ...wrongEvents(world, await all(toldEvents(store))),
  ];
}

const seconds = (milliseconds: number | undefined) =>
  milliseconds === undefined ? null : milliseconds / 1000;

function shownStored(stored: SubscriptionDocument | null): string {
  if (!stored) return 'unknown';
  return JSON.stringify({
    user: stored.ownerId,
    customer: stored.customerId,
    status: stored.status,
    plan: stored.plan,
    price: stored.priceId,
    quantity: stored.quantity,
    period: [seconds(stored.currentPeriodStart), seconds(stored.currentPeriodEnd)],
    trialEnd: seconds(stored.trialEnd),
    cancel: [stored.cancelAtPeriodEnd, seconds(stored.cancelAt), seconds(stored.canceledAt)],
    endedAt: seconds(stored.endedAt),
    discounts: stored.discountIds ?? [],
  });
}

function shownTruth(truth: WorldSubscription): string {
  return JSON.stringify({
    user: truth.userId,
    customer: truth.customer,
    status: truth.status,
    plan: PRICES[truth.price]?.lookupKey,
    price: truth.price,
    quantity: truth.quantity,
    period: [truth.periodStart, truth.periodEnd],
    trialEnd: truth.trialEnd,
    cancel: [truth.cancelAtPeriodEnd, truth.cancelAt, truth.canceledAt],
    endedAt: truth.endedAt,
    discounts: truth.discount ? [truth.discount] : [],
  });
}

/** The best first. Repeated here, because the expectation must not come from the code under test. */
const BEST_FIRST = 'active trialing past_due unpaid paused incomplete canceled incomplete_expired'.split(' ');

export async function wrongProjections(
  world: World,
  store: Store,
  people: readonly Person[],
): Promise<string[]> {
  const users = userCollection(store);
  const problems: string[] = [];
  const plans = { familyOf: () => 'plans' };
  const summaryOf = createSummaryOf({
    pastDue: 'entitled',
    plans,
    counts: () => true,
    clock: { now: () => world.now * 1000 },
  });
  for (const { user } of people) {
    const bought = [...world.subscriptions.values()].filter(({ userId }) => userId === user.id);
    const best = Math.min(...bought.map(({ status }) => BEST_FIRST.indexOf(status)));
    const candidates = bought.filter(({ status }) => BEST_FIRST.indexOf(status) === best);
    const newest = Math.max(...candidates.map(({ created }) => created));
    const held = candidates
      .filter(({ created }) => created === newest)
      .map(({ price }) => PRICES[price]?.lookupKey);
    const stored = await users.findOne({ id: user.id });
    const status = BEST_FIRST[best] ?? 'none';
    const isRight =
      stored?.subscriptionStatus === status &&
      (bought.length === 0 ? stored.subscriptionPlan === 'free' : held.includes(stored.subscriptionPlan));
    const { entitled } = summaryOf(stored ?? user);
    const mayEnter = bought.some(
      ({ status, trialEnd }) =>
        ['active', 'past_due'].includes(status) ||
        (status === 'trialing' && (trialEnd === null || world.now < trialEnd)),
    );
    if (entitled !== mayEnter) problems.push(`${user.id} is ${entitled ? '' : 'not '}entitled`);
    if (!isRight) {
      problems.push(
        `${user.id} has ${stored?.subscriptionStatus}/${stored?.subscriptionPlan} instead of ${status}/${plans}`,
      );
    }
  }
  return problems;
}

/** Payments that differ from the state of the provider. */
async function wrongPayments(world: World, store: Store): Promise<string[]> {
  const payments = paymentCollection(store);
  const problems: string[] = [];
  for (const { invoice, subscription, status, amount, refunded, dispute } of world.payments.values()) {
    const stored = await payments.findOne({ id: invoice });
    const [disputed] = stored?.disputes ?? [];
    const is = stored && [
      stored.ownerId,
      stored.subscriptionId,
      stored.status,
      stored.amount,
      stored.refundedAmount ?? 0,
      disputed?.status,
      disputed?.closedAt !== undefined,
    ];
    const isClosed = dispute !== undefined && dispute.status !== 'needs_response';
    const { id, userId } = subscription;
    const should = [userId, id, status, amount, refunded, dispute?.status, isClosed];
    if (JSON.stringify(is) !== JSON.stringify(should))
      problems.push(`${invoice} is ${JSON.stringify(is)} instead of ${JSON.stringify(should)}`);
  }
  const purchases = purchaseCollection(store);
  let sold = 0;
  for (const truth of world.purchases.values()) {
    const stored = await purchases.findOne({ id: truth.id });
    const payment = await payments.findOne({ id: truth.charge.intent });
    const is = stored && [stored.ownerId, stored.status, stored.items, stored.plan, stored.amount];
    const { userId, status, price, quantity } = truth;
    const plan = PRICES[price]?.lookupKey;
    const should = [userId, status, [{ priceId: price, quantity }], plan, amountOf(truth)];
    const isPaid = status === 'paid';
    if (isPaid) sold++;
    const isRefunded = (payment?.refundedAmount ?? 0) === truth.refunded && (payment !== null) === isPaid;
    if (JSON.stringify(is) !== JSON.stringify(should) || !isRefunded)
      problems.push(`${truth.id} is ${JSON.stringify(is)} instead of ${JSON.stringify(should)}`);
  }
  const [count, expected] = [await payments.count(), world.payments.size + sold];
  if (count !== expected) problems.push(`${count} payments instead of ${expected}`);
  return problems;
}

async function unfinishedEvents(store: Store): Promise<string[]> {
  const events = paymentEventCollection(store);
  const [open, unmatched] = await Promise.all([
    events.count({ outcome: null }),
    events.count({ outcome: 'unmatched' }),
  ]);
  return [
    ...(open > 0 ? [`${open} events were left incomplete`] : []),
    ...(unmatched > 0 ? [`${unmatched} unmatched events belong to a known user`] : []),
  ];
}

interface WorldEvent {
  id: string;
  type: string;
  data: { object: Record<string, unknown> };
}

async function all<T extends { id: string }>(collection: Collection<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const page of pagesOf(collection, { sort: 'id' as never })) found.push(...page);
  return found;
}

const eventsOf = (world: World) => world.events as unknown as WorldEvent[];

function wrongMails(
  world: World,
  people: readonly Person[],
  told: readonly { id: string; to: string }[],
): string[] {
  const mails = new Map(told.map(({ id, to }) => [id, to]));
  const addresses = new Map(people.map(({ customer, user }) => [customer, user.email]));
  const expected = new Map<string, string | undefined>();
  const optional = new Set<string>();
  for (const { type, data } of eventsOf(world)) {
    const { id, attempt_count: attempt, next_payment_attempt: next, trial_end: trialEnd } = data.object;
    const to = addresses.get(String(data.object['customer']));
    const which = attempt === 1 ? 'first' : next === null ? 'last' : undefined;
    const receipt = receiptOf(type, data.object);
    if (receipt !== undefined) expected.set(`receipt:${receipt}`, to);
    if (type === 'invoice.payment_failed' && which) {
      expected.set(`payment-failed:${id}:${which}`, to);
      // The mail is not sent if the failure arrives after the payment.
      if (world.payments.get(String(id))?.status !== 'failed') optional.add(`payment-failed:${id}:${which}`);
    } else if (type === 'customer.subscription.deleted') expected.set(`subscription-canceled:${id}`, to);
    else if (type === 'customer.subscription.trial_will_end' && !data.object['cancel_at_period_end']) {
      expected.set(`trial-ending:${id}:${Number(trialEnd) * 1000}`, to);
    }
  }
  const keys = new Set([...mails.keys(), ...expected.keys()]);
  return [...keys]
    .filter((key) => mails.get(key) !== expected.get(key) && (mails.has(key) || !optional.has(key)))
    .map((key) => `mail ${key} went to ${mails.get(key)} instead of ${expected.get(key)}`);
}

/** The payment of which an event queues a receipt. */
function receiptOf(type: string, object: Record<string, unknown>): unknown {
  const { id, amount_due: due, amount_total: total, payment_status: status, payment_intent: intent } = object;
  if (/^invoice\.(paid|payment_succeeded)$/.test(type)) return due === 0 ? undefined : id;
  const isPaid = type === 'checkout.session.async_payment_succeeded' || status === 'paid';
  return /^checkout\.session\./.test(type) && isPaid && total !== 0 ? (intent ?? id) : undefined;
}

/** Each fact notifies once, whichever of its events arrives first. */
function wrongEvents(world: World, told: readonly ToldEvent[]): string[] {
  const counts = new Map<string, number>();
  const count = (key: string) => counts.set(key, (counts.get(key) ?? 0) + 1);
  for (const { name, payload } of told) {
    count(`${name} ${payload.id}`);
    const fact = factOf(name, payload);
    if (fact) count(fact);
  }
  const problems = [...counts].filter(([, times]) => times > 1).map(([key]) => `${key} was emitted twice`);
  const expected = new Set(eventsOf(world).flatMap((event) => expectedFact(world, event) ?? []));
  for (const fact of expected) if (!counts.has(fact)) problems.push(`${fact} was not emitted`);
  return problems;
}

function factOf(name: string, payload: ToldEvent['payload']): string | undefined {
  const { invoiceId, attempt, paymentId, refundedAmount, disputeId, purchaseId } = payload;
  if (purchaseId !== undefined) return `${name} of ${purchaseId}`;
  if (disputeId !== undefined) return `${name} of ${disputeId}`;
  if (refundedAmount !== undefined) return `${name} ${refundedAmount} of ${paymentId}`;
  return invoiceId === undefined ? undefined : `${name} ${attempt ?? ''} of ${invoiceId}`;
}

/** The fact that an event must lead to a notification about; undefined if it depends on the order. */
function expectedFact(world: World, { type, data: { object } }: WorldEvent): string | undefined {
  const { id, attempt_count: attempt } = object;
  const payment = world.payments.get(String(id));
  switch (type) {
    case 'invoice.paid':
    case 'invoice.payment_succeeded':
      return payment && `invoice.paid  of ${id}`;
    case 'invoice.voided':
      return `invoice.voided  of ${id}`;
    case 'invoice.payment_failed':
      return payment?.status === 'failed' ? `payment.failed ${attempt} of ${id}` : undefined;
    case 'checkout.session.completed':
    case 'checkout.session.async_payment_succeeded':
      return world.purchases.get(String(id))?.status === 'paid' ? `purchase.completed of ${id}` : undefined;
    case 'charge.dispute.closed':
      return `payment.dispute_closed of ${id}`;
    default:
      return undefined;
  }
}
