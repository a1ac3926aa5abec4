import type { Json } from '../../src/saas/billing/provider/json.js';
import {
  chargeObject,
  discountFields,
  disputeObject,
  invoiceObject,
  PRICES,
  subscriptionObject,
  VERSIONS,
  type Version,
  type WorldPayment,
  type WorldSubscription,
} from './stripe-objects.js';
import { amountOf, purchaseChargeObject, sessionObject, type WorldPurchase } from './stripe-purchases.js';

/**
 * A simulation of the payment provider: customers, subscriptions and their changes, decided by a seeded generator. It is
 * independent of the code under test.
 */

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export interface Dice {
  (): number;
  /** An integer from 0 to `below`, exclusive. */
  whole(below: number): number;
  /** Whether an event of this probability happens. */
  happens(probability: number): boolean;
  one<T>(of: readonly T[]): T;
  shuffled<T>(items: readonly T[]): T[];
}

export function diceOf(seed: number): Dice {
  let state = seed >>> 0;
  const roll = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const whole = (below: number) => Math.floor(roll() * below);
  return Object.assign(roll, {
    whole,
    happens: (probability: number) => roll() < probability,
    one: <T>(of: readonly T[]) => of[whole(of.length)] as T,
    shuffled<T>(items: readonly T[]) {
      const mixed = [...items];
      for (let index = mixed.length - 1; index > 0; index--) {
        const other = whole(index + 1);
        [mixed[index], mixed[other]] = [mixed[other] as T, mixed[index] as T];
      }
      return mixed;
    },
  });
}

const MONTH = 30 * 86_400;
const MOST_ATTEMPTS = 4;

export class World {
  readonly dice: Dice;
  /** Epoch seconds. */
  now: number;
  readonly subscriptions = new Map<string, WorldSubscription>();
  readonly schedules = new Map<string, Json>();
  readonly payments = new Map<string, WorldPayment>();
  readonly purchases = new Map<string, WorldPurchase>();
  readonly events: Json[] = [];
  #names = 0;

  constructor(seed: number, now: number) {
    this.dice = diceOf(seed);
    this.now = now;
  }

  name(prefix: string): string {
    return `${prefix}_${(++this.#names).toString(36).padStart(6, '0')}`;
  }

  /** A new subscription, often with several events of one second. */
  subscribe(customer: string, userId: string, isSigned: boolean): WorldSubscription {
    const { dice, now } = this;
    const isTrial = dice.happens(0.3);
    const subscription: WorldSubscription = {
      id: this.name('sub'),
      customer,
      userId,
      isSigned,
      version: dice.one(VERSIONS),
      status: isTrial ? 'trialing' : 'incomplete',
      created: now,
      price: dice.one(Object.keys(PRICES)),
      quantity: 1 + dice.whole(5),
      periodStart: now,
      periodEnd: now + MONTH,
      trialEnd: isTrial ? now + 7 * 86_400 : null,
      cancelAtPeriodEnd: false,
      cancelAt: null,
      canceledAt: null,
      endedAt: null,
      attempts: 0,
      openInvoice: null,
    };
    this.subscriptions.set(subscription.id, subscription);
    this.#tell(subscription, 'created');
    if (isTrial) this.#bill(subscription, 'succeeded', 0);
    else if (dice.happens(0.8)) this.#pay(subscription);
    return subscription;
  }

  /** A random change that is possible in the current status. Ended subscriptions do not change. */
  act(subscription: WorldSubscription): void {
    const { dice } = this;
    // The account or the webhook endpoint is upgraded, or set back.
    if (dice.happens(0.1)) subscription.version = dice.one(VERSIONS);
    const choices = this.#choices(subscription);
    if (choices.length > 0) dice.one(choices).call(this, subscription);
  }

  /** A one-time purchase, whose payment is confirmed at once or later. */
  buyOnce(customer: string, userId: string): void {
    const { dice, now } = this;
    const purchase: WorldPurchase = {
      id: this.name('cs'),
      customer,
      userId,
      version: dice.one(VERSIONS),
      status: dice.happens(0.6) ? 'paid' : 'pending',
      price: dice.one(Object.keys(PRICES)),
      quantity: 1 + dice.whole(3),
      charge: { id: this.name('ch'), intent: this.name('pi'), created: now },
      refunded: 0,
    };
    this.purchases.set(purchase.id, purchase);
    this.#publish('checkout.session.completed', purchase.version, sessionObject(purchase));
  }

  /** The confirmation of a pending purchase, or a refund of a paid one. */
  actOnPurchase(): void {
    const { dice } = this;
    if (this.purchases.size === 0) return;
    const purchase = dice.one([...this.purchases.values()]);
    const { version, status } = purchase;
    if (status === 'pending') {
      purchase.status = dice.happens(0.7) ? 'paid' : 'failed';
      const result = purchase.status === 'paid' ? 'succeeded' : 'failed';
      this.#publish(`checkout.session.async_payment_${result}`, version, sessionObject(purchase));
      return;
    }
    const rest = amountOf(purchase) - purchase.refunded;
    if (status !== 'paid' || rest === 0) return;
    purchase.refunded += dice.happens(0.5) ? rest : Math.ceil(rest / 2);
    this.#publish('charge.refunded', version, purchaseChargeObject(purchase));
  }

  /** A refund of a random payment, or a dispute about it. */
  actOnPayment(): void {
    const { dice } = this;
    const charged = [...this.payments.values()].filter(({ charge }) => charge !== undefined);
    if (charged.length === 0) return;
    const payment = dice.one(charged);
    if (dice.happens(0.7)) this.#refund(payment);
    else this.#dispute(payment);
  }

  #refund(payment: WorldPayment): void {
    const rest = payment.amount - payment.refunded;
    if (rest === 0) return;
    this.refund(payment, this.dice.happens(0.5) ? rest : Math.ceil(rest / 2));
  }

  /** What the seller refunds of a payment. */
  refund(payment: WorldPayment, amount: number): void {
    payment.refunded += amount;
    this.#publish('charge.refunded', payment.subscription.version, chargeObject(payment));
  }

  #dispute(payment: WorldPayment): void {
    const isNew = payment.dispute === undefined;
    const { id, created } = payment.dispute ?? { id: this.name('dp'), created: this.now };
    const status = isNew ? 'needs_response' : this.dice.one(['won', 'lost']);
    if (payment.dispute && payment.dispute.status !== 'needs_response') return;
    payment.dispute = { id, status, created };
    const what = isNew ? 'created' : 'closed';
    this.#publish(`charge.dispute.${what}`, payment.subscription.version, disputeObject(payment));
  }

  /** A change that the user asked for. An invoice follows if the price or quantity differs. */
  change(subscription: WorldSubscription, fields: Partial<WorldSubscription>): void {
    const before = { ...subscription };
    Object.assign(subscription, fields);
    const changed = Object.keys(fields) as (keyof WorldSubscription)[];
    if (changed.every((field) => before[field] === subscription[field])) return;
    if (subscription.status === 'canceled') this.#tell(subscription, 'deleted');
    else this.#tell(subscription, 'updated', { items: {} });
    const isInvoiced = before.price !== subscription.price || before.quantity !== subscription.quantity;
    if (isInvoiced) this.#bill(subscription, 'succeeded', 700);
  }

  #choices({ status }: WorldSubscription): ((subscription: WorldSubscription) => void)[] {
    const changes = [this.#switchPrice, this.#count, this.#toggleEnd, this.#toggleDiscount];
    switch (status) {
      case 'incomplete':
        return [this.#pay, this.#pay, this.#fail, this.#expire];
      case 'trialing':
        return [this.#endTrial, this.#warn, this.#cancel, this.#pause, ...changes];
      case 'active':
        return [this.#renew, this.#renew, this.#fail, this.#fail, this.#flicker, this.#cancel, ...changes];
      case 'past_due':
        return [this.#pay, this.#pay, this.#fail, this.#fail, this.#giveUp, this.#void];
      case 'unpaid':
        return [this.#pay, this.#cancel, this.#void];
      case 'paused':
        return [this.#pay, this.#cancel];
      default:
        return [];
    }
  }

  #pay(subscription: WorldSubscription): void {
    const isBilledFirst = this.dice.happens(0.5);
    const bill = () => this.#bill(subscription, 'succeeded', PRICES[subscription.price]?.amount ?? 0);
    subscription.attempts = 0;
    if (isBilledFirst) bill();
    this.#become(subscription, 'active');
    if (!isBilledFirst) bill();
  }

  #renew(subscription: WorldSubscription): void {
    const { periodStart: current_period_start, periodEnd: current_period_end } = subscription;
    subscription.periodStart = this.now;
    subscription.periodEnd = this.now + MONTH;
    this.#tell(subscription, 'updated', { current_period_start, current_period_end });
    this.#bill(subscription, 'succeeded', PRICES[subscription.price]?.amount ?? 0);
  }

  #fail(subscription: WorldSubscription): void {
    subscription.attempts = Math.min(MOST_ATTEMPTS, subscription.attempts + 1);
    this.#bill(subscription, 'failed', PRICES[subscription.price]?.amount ?? 0);
    if (subscription.status === 'active') this.#become(subscription, 'past_due');
  }

  /** A payment that fails and succeeds within one second. */
  #flicker(subscription: WorldSubscription): void {
    this.#fail(subscription);
    this.#pay(subscription);
  }

  #giveUp(subscription: WorldSubscription): void {
    if (this.dice.happens(0.5)) this.#become(subscription, 'unpaid');
    else this.#cancel(subscription);
  }

  #endTrial(subscription: WorldSubscription): void {
    this.#become(subscription, 'active');
    if (this.dice.happens(0.3)) this.#fail(subscription);
    else this.#bill(subscription, 'succeeded', PRICES[subscription.price]?.amount ?? 0);
  }

  #warn(subscription: WorldSubscription): void {
    this.#tell(subscription, 'trial_will_end');
  }

  #pause(subscription: WorldSubscription): void {
    this.#become(subscription, 'paused');
  }

  /** The seller forgoes an open invoice. */
  #void(subscription: WorldSubscription): void {
    const { openInvoice } = subscription;
    const payment = this.payments.get(openInvoice ?? '');
    if (!payment) return;
    payment.status = 'voided';
    const { attempts } = subscription;
    Object.assign(subscription, { openInvoice: null, attempts: 0 });
    const details = { attempts, isLast: true, now: this.now };
    this.#publish('invoice.voided', subscription.version, invoiceObject(payment, details));
    this.#become(subscription, 'active');
  }

  #expire(subscription: WorldSubscription): void {
    subscription.endedAt = this.now;
    this.#become(subscription, 'incomplete_expired');
  }

  #cancel(subscription: WorldSubscription): void {
    // Most users stay, so that enough subscriptions remain.
    if (this.dice.happens(0.7)) return;
    subscription.status = 'canceled';
    subscription.canceledAt ??= this.now;
    subscription.endedAt = this.now;
    this.#tell(subscription, 'deleted');
  }

  #switchPrice(subscription: WorldSubscription): void {
    const previous = subscription.price;
    subscription.price = this.dice.one(Object.keys(PRICES));
    this.#tell(subscription, 'updated', { items: { data: [{ price: { id: previous } }] } });
    if (this.dice.happens(0.3)) this.#tell(subscription, 'pending_update_applied');
  }

  #count(subscription: WorldSubscription): void {
    const { quantity } = subscription;
    subscription.quantity = 1 + this.dice.whole(9);
    this.#tell(subscription, 'updated', { quantity });
  }

  #toggleDiscount(subscription: WorldSubscription): void {
    const previous = discountFields(subscription);
    subscription.discount = subscription.discount ? null : this.name('di');
    this.#tell(subscription, 'updated', previous);
  }

  #toggleEnd(subscription: WorldSubscription): void {
    const { cancelAtPeriodEnd: cancel_at_period_end } = subscription;
    subscription.cancelAtPeriodEnd = !cancel_at_period_end;
    subscription.cancelAt = subscription.cancelAtPeriodEnd ? subscription.periodEnd : null;
    subscription.canceledAt = subscription.cancelAtPeriodEnd ? this.now : null;
    this.#tell(subscription, 'updated', { cancel_at_period_end });
  }

  #become(subscription: WorldSubscription, status: string): void {
    const previous = subscription.status;
    if (previous === status) return;
    subscription.status = status;
    const more = status === 'paused' ? 'paused' : previous === 'paused' ? 'resumed' : undefined;
    const isFirst = this.dice.happens(0.5);
    if (more && isFirst) this.#tell(subscription, more);
    this.#tell(subscription, 'updated', { status: previous });
    if (more && !isFirst) this.#tell(subscription, more);
  }

  #bill(subscription: WorldSubscription, how: 'succeeded' | 'failed', amount: number): void {
    const { version, attempts } = subscription;
    const invoice = subscription.openInvoice ?? this.name('in');
    const isPaid = how === 'succeeded';
    const isOutside = isPaid && amount > 0 && this.dice.happens(0.1);
    const payment: WorldPayment = {
      invoice,
      subscription,
      status: isPaid ? 'paid' : 'failed',
      amount,
      ...(isPaid &&
        amount > 0 &&
        !isOutside && { charge: { id: this.name('ch'), intent: this.name('pi'), created: this.now } }),
      refunded: 0,
    };
    subscription.openInvoice = isPaid ? null : invoice;
    if (amount > 0) this.payments.set(invoice, payment);
    const details = {
      attempts: Math.max(1, attempts),
      isLast: attempts === MOST_ATTEMPTS,
      isOutside,
      now: this.now,
    };
    const publish = (type: string) => this.#publish(type, version, invoiceObject(payment, details));
    if (!isPaid) publish('invoice.payment_failed');
    else if (isOutside) publish('invoice.paid');
    else for (const type of this.dice.shuffled(['invoice.paid', 'invoice.payment_succeeded'])) publish(type);
  }

  #tell(subscription: WorldSubscription, what: string, previous?: Json): void {
    const { version } = subscription;
    this.#publish(`customer.subscription.${what}`, version, subscriptionObject(subscription), previous);
  }

  #publish(type: string, version: Version, object: Json, previous_attributes?: Json): void {
    this.events.push({
      id: this.name('evt'),
      object: 'event',
      api_version: version,
      created: this.now,
      livemode: false,
      pending_webhooks: 1,
      type,
      data: { object, ...(previous_attributes && { previous_attributes }) },
    });
  }
}
