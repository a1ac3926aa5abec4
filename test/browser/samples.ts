import type { Test } from 'tap';
import { DAY, MINUTE } from '../../src/core/kernel/clock.js';
import { activityCollection } from '../../src/saas/auth/sessions/activity.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { updateFigures } from '../../src/saas/billing/figures/job.js';
import { figureCollections } from '../../src/saas/billing/figures/store.js';
import { subscriptionCollection } from '../../src/saas/billing/store.js';
import { mailCollection } from '../../src/shared/email/store.js';
import { storeOf } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { mailSink } from '../kit/mail.js';
import { makeOperator } from '../kit/operator.js';
import { words } from '../kit/words.js';
import { invoiceEvent, shop, subscriptionEvent } from '../saas/billing/kit.js';
import { reachableIdp } from './kit.js';

/** Both products with two months of sample data, for pictures. */

const DAYS = 80;
const START = Date.UTC(2026, 8, 6);

/** The start of the times that `subscriptionEvent` and `invoiceEvent` count from. */
const EVENTS_START = Date.UTC(2040, 0, 1);

const FIRST = words('Ada Grace Edsger Barbara Donald Frances Tony Radia Ken Adele Niklaus');
const LAST = ['Lovelace', 'Hopper', 'Dijkstra', 'Liskov', 'Knuth', 'Allen', 'Hoare', 'Perlman', 'Thompson'];

const PRICES = [
  { id: 'price_pro', lookup_key: 'pro', unit_amount: 2900, currency: 'eur' },
  { id: 'price_team', lookup_key: 'team', unit_amount: 9900, currency: 'eur' },
  { id: 'price_pro_usd', lookup_key: 'pro', unit_amount: 3200, currency: 'usd' },
].map((price) => ({ ...price, recurring: { interval: 'month', interval_count: 1 } }));

interface Subscription {
  id: string;
  userId: string;
  price: number;
}

const invoiceOf = ({ id, userId, price }: Subscription) => {
  const { unit_amount: amount, currency } = PRICES[price] ?? {};
  return { customer: `cus_${userId}`, subscription: id, currency, amount_due: amount, amount_paid: amount };
};

/** More on some days than on others, and more towards the end. */
const countOf = (day: number): number => 4 + ((day * 5) % 7) + Math.floor(day / 4);

/** A backend with users, subscriptions, payments and e-mails. */
export async function sampleShop(t: Test, options: Parameters<typeof shop>[1] = {}) {
  const clock = fakeClock(START);
  const { url: emailSmtpUrl } = await mailSink(t);
  const given = { clock, emailSmtpUrl, logLevel: 'silent', limits: false, ...options } as const;
  const { app, deliver } = await shop(t, given);
  const store = await storeOf(t, app);
  const users = userCollection(store);
  const activity = activityCollection(store);
  const subscriptions = subscriptionCollection(store);
  const { signal } = new AbortController();
  const seconds = () => Math.floor((clock.now() - EVENTS_START) / 1000);
  const send = async (what: string, object: Subscription & { status: string }) => {
    const { id, status, userId } = object;
    const now = Math.floor(clock.now() / 1000);
    const items = { data: [{ quantity: 1, price: PRICES[object.price] }] };
    const trial = status === 'trialing' ? { trial_start: now, trial_end: now + (7 * DAY) / 1000 } : {};
    const body = {
      id,
      status,
      customer: `cus_${userId}`,
      metadata: { userId },
      start_date: now,
      current_period_end: now + (30 * DAY) / 1000,
      items,
      ...trial,
    };
    await deliver(subscriptionEvent(what, seconds(), body));
  };
  const active: Subscription[] = [];
  let count = 0;
  let userId = '';
  for (let day = 0; day < DAYS; day++) {
    for (let index = 0; index < countOf(day); index++, count++) {
      clock.advance(37 * MINUTE);
      const [first = '', last = ''] = [FIRST[count % FIRST.length], LAST[(count * 4) % LAST.length]];
      const email = `${first}.${last}${count > 40 ? count : ''}@example.com`.toLowerCase();
      ({ id: userId } = await app.signUp({ email, name: `${first} ${last}` }));
      if (count % 9 > 0) await users.updateOne({ id: userId }, { set: { emailVerified: true } });
      if (count % 3 > 0) continue;
      const subscription = { id: `sub_1Qm${String(count).padStart(5, '0')}`, userId, price: (count / 3) % 3 };
      const status = count % 5 === 0 ? 'trialing' : 'active';
      await send('created', { ...subscription, status });
      if (status === 'trialing') continue;
      active.push(subscription);
      await deliver(invoiceEvent('succeeded', seconds(), invoiceOf(subscription)));
    }
    const [renewed, ended] = [active[day], active[day * 2]];
    if (renewed && day % 4 === 1) await send('updated', { ...renewed, price: 1, status: 'active' });
    if (ended && day % 5 === 3) await send('deleted', { ...ended, status: 'canceled' });
    if (renewed && day % 6 === 2) {
      await deliver(invoiceEvent('failed', seconds(), { ...invoiceOf(renewed), amount_paid: 0 }));
    }
    const date = new Date(START + day * DAY).toISOString().slice(0, 10);
    // The server has counted the first day when it started.
    await activity.deleteOne({ id: date });
    await activity.insert({ id: date, users: Math.round(20 + count * 0.6 + ((day * 3) % 5)) });
    await updateFigures({ ...figureCollections(store), subscriptions, clock }, { term: 100 + day, signal });
    if (day < DAYS - 1) clock.set(START + (day + 1) * DAY);
  }
  // The clock jumps over the time in which some can be sent.
  await mailCollection(store).deleteMany({ status: { in: ['queued', 'failed', 'expired'] } });
  return { app, userId: active.at(-2)?.userId ?? userId };
}

/** A provider with people, agents and sign-ins. */
export async function sampleProvider(t: Test) {
  const clock = fakeClock(START);
  const { idp, origin } = await reachableIdp(t, { clock, limits: false, brandName: 'Example Identity' });
  const operator = await makeOperator(t, idp, 'olga@example.com');
  const client = await idp.createClient({ name: 'Example Notes', redirect_uris: `${origin}/health` });
  await idp.createClient({ name: 'Example Wiki' });
  const people = [];
  for (const [index, first] of FIRST.entries()) {
    const name = `${first} ${LAST[(index * 4) % LAST.length]}`;
    people.push(await idp.makeHuman({ handle: `${first.toLowerCase()}@example.com`, name }));
  }
  for (const name of ['Release Notes', 'Support Triage', 'Invoice Reader']) {
    people.push(await idp.mintAgent({ handle: name.toLowerCase().replace(' ', '-'), name }));
  }
  for (let day = 0; day < DAYS; day++) {
    clock.set(START + day * DAY + 9 * 60 * MINUTE);
    for (let index = 0; index < countOf(day); index++) {
      const who = people[(index * 3 + day) % people.length];
      if (who) await idp.authorize(client, index % 8 === 7 ? { ...who, password: 'wrong' } : who);
    }
  }
  return { origin, operator, personId: people[0]?.sub ?? '', clientId: client.id };
}
