/** The throughput of the payment provider's webhook. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { signWebhook } from '../kit/sign-webhook.js';
import { subscriptionObject, type WorldSubscription } from '../kit/stripe-objects.js';
import { WEBHOOK_SECRET } from './lab.js';
import { type Client, drive, expectStatus, hammer, request } from './load.js';
import { atMost, type Bench, compareAnew, quantile, type Row, result, serve } from './rounds.js';
import { type Account, jwtFloor, LONG_TURN, register } from './saas-rows.js';

const SENDERS = 128;
/** With `--quick`: each one registers, which costs a password hash. */
const FEW_SENDERS = 16;
const CALM = 200;

/**
 * Distinct signed events, each acknowledged once its subscription and its user's record are on disk.
 *
 * @param least the goal, also for the latency at a steady rate; without it, only the throughput is measured
 */
export function webhook(least?: number): Row {
  return async (bench) => {
    const open = async () => {
      const { url, senders } = await receiver(bench);
      const floor = await jwtFloor(bench, '{"success":true}');
      return {
        measure: (seconds: number) => sendSigned(url, senders, seconds),
        floor: (seconds: number) => hammer(floor.url, 64, seconds, [floor.headers]),
      };
    };
    const applied = result('events applied', 'jwt', await compareAnew(bench, open, LONG_TURN), least);
    if (least === undefined) return [applied];
    bench.progress(`${bench.row}: ${CALM} a second`);
    const { url, senders } = await receiver(bench);
    const latencies = await calmly(url, senders, bench.seconds);
    return [applied, atMost(`p99 at ${CALM} events a second`, 'ms', quantile(latencies, 0.99), 20)];
  };
}

/** A client whose next events can be signed in advance. */
interface Sender extends Client {
  /** Signs events until this many wait to be sent. */
  sign(count: number): void;
}

/** More events per second than any server applies here: 12,000 of a turn take 40 MiB. */
const MOST_PER_SECOND = 8_000;

/** Signs the events before the turn, in which the load generator only sends, as it does to the baseline. */
function sendSigned(url: string, senders: readonly Sender[], seconds: number): Promise<number> {
  const count = Math.ceil((MOST_PER_SECOND * Math.min(seconds, LONG_TURN)) / senders.length);
  for (const sender of senders) sender.sign(count);
  return drive(url, senders, seconds);
}

async function receiver(bench: Bench): Promise<{ url: string; senders: Sender[] }> {
  const { url } = await serve(bench, 'saas-backend');
  return { url, senders: (await register(url, bench.quick ? FEW_SENDERS : SENDERS)).map(sender) };
}

/**
 * The life of one subscription as a sequence of events: mostly changed terms, and each third time a new status,
 * which the user's record follows. Identifiers begin with the time, like the provider's.
 */
function sender({ user: { id: userId } }: Account): Sender {
  const start = Math.floor(Date.now() / 1000);
  const name = Math.random().toString(36).slice(2);
  let count = 0;
  const subscription: WorldSubscription = {
    id: `sub_${name}`,
    customer: `cus_${userId}`,
    userId,
    isSigned: true,
    version: '2026-10-28.endive',
    status: 'active',
    created: start,
    price: 'price_pro',
    quantity: 1,
    periodStart: start,
    periodEnd: start + 2_592_000,
    trialEnd: null,
    cancelAtPeriodEnd: false,
    cancelAt: null,
    canceledAt: null,
    endedAt: null,
    attempts: 0,
    openInvoice: null,
  };
  const signed: Buffer[] = [];
  const create = (): Buffer => {
    subscription.quantity = ++count;
    const before = subscription.status;
    if (count % 3 === 0) subscription.status = before === 'active' ? 'past_due' : 'active';
    const id = `evt_1${Date.now().toString(36)}${name}${count}`;
    const changed = { quantity: count - 1, ...(subscription.status !== before && { status: before }) };
    const body = JSON.stringify({
      id,
      object: 'event',
      api_version: subscription.version,
      created: start + count,
      type: `customer.subscription.${count === 1 ? 'created' : 'updated'}`,
      data: { object: subscriptionObject(subscription), previous_attributes: changed },
    });
    return Buffer.from(request('POST', '/api/billing/webhook', headersOf(body), body));
  };
  return {
    sign(number) {
      // In the order in which they are sent: older events would be stale.
      while (signed.length < number) signed.push(create());
    },
    next: () => signed.shift() ?? create(),
    take(answer) {
      expectStatus(answer, 200);
      if (!answer.body.includes('"processed"')) throw new Error(`not applied: ${answer.body}`);
    },
  };
}

const headersOf = (body: string) => ({
  'content-type': 'application/json',
  'payment-signature': signWebhook(body, WEBHOOK_SECRET, Date.now()),
});

/**
 * Milliseconds of each answer while events arrive at a steady rate, independent of the answers. Only an event of a
 * subscription whose last event is unanswered waits: out of order, it would be stale.
 */
async function calmly(url: string, senders: readonly Client[], seconds: number): Promise<number[]> {
  const latencies: number[] = [];
  const answered = senders.map(() => Promise.resolve());
  const begin = performance.now();
  for (let sent = 0; sent < CALM * seconds; sent++) {
    const due = begin + (sent * 1000) / CALM;
    await sleep(Math.max(0, due - performance.now()));
    const index = sent % senders.length;
    answered[index] = (answered[index] as Promise<void>)
      .then(() => drive(url, [senders[index] as Client], 0))
      .then(() => void latencies.push(performance.now() - due));
  }
  await Promise.all(answered);
  return latencies;
}
