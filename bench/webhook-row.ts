/** What the payment provider's webhook can take. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { signWebhook } from '../test/kit/sign-webhook.js';
import { subscriptionObject, type WorldSubscription } from '../test/kit/stripe-world.js';
import { WEBHOOK_SECRET } from './lab.js';
import { type Client, drive, expectStatus, request } from './load.js';
import type { Result } from './report.js';
import { type Bench, below, median, quantile } from './rounds.js';
import { type Account, register } from './saas-rows.js';

const SENDERS = 128;
const GOAL = 5_000;
const CALM = 200;

/** Signed events, each another one, each acknowledged once its subscription and its user's record are on disk. */
export async function webhook(bench: Bench): Promise<Result[]> {
  const { lab, row, seconds, rounds, progress } = bench;
  const { url } = await lab.unbound('saas-backend', row);
  const senders = (await register(url, SENDERS)).map(sender);
  progress(`${row}: warming up`);
  await drive(url, senders, Math.min(1, seconds));
  const rates: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    progress(`${row}: round ${round} of ${rounds}`);
    rates.push(await drive(url, senders, seconds));
  }
  progress(`${row}: ${CALM} a second`);
  const latencies = await calmly(url, senders, seconds * rounds);
  const value = median(rates);
  return [
    {
      what: 'events applied',
      value,
      unit: '/s',
      goal: { text: `≥ ${GOAL.toLocaleString('en')}/s`, met: value >= GOAL },
    },
    below(`p99 at ${CALM} events a second`, 'ms', quantile(latencies, 0.99), 500),
  ];
}

/** The life of one subscription, one event after the other. */
function sender({ user: { id: userId } }: Account): Client {
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
  };
  return {
    next() {
      subscription.quantity = ++count;
      const body = JSON.stringify({
        id: `evt_${name}_${count}`,
        object: 'event',
        api_version: subscription.version,
        created: start + count,
        type: `customer.subscription.${count === 1 ? 'created' : 'updated'}`,
        data: { object: subscriptionObject(subscription), previous_attributes: { quantity: count - 1 } },
      });
      return request('POST', '/api/billing/webhook', headersOf(body), body);
    },
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

/** Milliseconds of each answer while events come at a steady pace, however long the answers take. */
async function calmly(url: string, senders: readonly Client[], seconds: number): Promise<number[]> {
  const latencies: number[] = [];
  const under: Promise<unknown>[] = [];
  const begin = performance.now();
  for (let sent = 0; sent < CALM * seconds; sent++) {
    const due = begin + (sent * 1000) / CALM;
    await sleep(Math.max(0, due - performance.now()));
    const one = senders[sent % senders.length] as Client;
    const answered = drive(url, [one], 0).then(() => latencies.push(performance.now() - due));
    under.push(answered);
  }
  await Promise.all(under);
  return latencies;
}
