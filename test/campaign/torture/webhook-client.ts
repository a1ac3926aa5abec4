/** The payment provider in a campaign: it delivers each event until it is acknowledged, and often twice. */
import { setTimeout as sleep } from 'node:timers/promises';
import { SECRETS } from '../../kit/app.js';
import { readMail } from '../../kit/mail.js';
import { sentence } from '../../kit/sentences.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { type Account, bearer, register, signIn } from './saas-clients.js';
import type { Client, Request, World } from './world.js';

const PRODUCT = 'saas-backend';

/** Events of one subscription; the last one ends it. */
const EVENTS = 8;

/** How long the last e-mails may take. */
const MAIL_TIMEOUT_MS = 20_000;

/** One event of one subscription after the other. */
interface Progress {
  subscription: number;
  /** The number of the event, which is also the quantity of the subscription after it. */
  event: number;
  isAcknowledged: boolean;
}

/** Checks of the final state. */
export interface WebhookClient extends Client {
  checkSubscription(): Promise<void>;
  /** To be called when every e-mail is due. */
  checkMails(): Promise<void>;
}

/** Delivers each event twice at the same time, so that one delivery is processed and the other one is a duplicate. */
export async function webhookLane(world: World): Promise<WebhookClient> {
  const account = await register(world);
  if (!account) throw new Error('no user could be registered');
  const createdAt = Math.floor(Date.now() / 1000) - 50_000;
  const progress: Progress = { subscription: 1, event: 1, isAcknowledged: false };
  const running = world.lane(async () => {
    if (progress.isAcknowledged) advance(progress);
    const { id, payload } = eventOf(account, progress, createdAt);
    const deliver = () =>
      world.ask(PRODUCT, signed(payload), {
        ...{ rule: 'delivery', key: id, kind: 'write', what: `webhook ${id}` },
        read: ({ body }) => body.data.outcome,
      });
    const replies = await Promise.all([deliver(), deliver()]);
    progress.isAcknowledged = replies.some((reply) => reply?.status === 200);
  });
  return {
    running,
    checkSubscription: () => checkSubscription(world, account, progress),
    checkMails: () => checkMails(world, account, progress),
  };
}

function advance(progress: Progress): void {
  progress.isAcknowledged = false;
  progress.event++;
  if (progress.event <= EVENTS) return;
  progress.subscription++;
  progress.event = 1;
}

function eventOf(account: Account, { subscription, event }: Progress, createdAt: number) {
  const object = {
    id: `sub_${subscription}_${account.id}`,
    object: 'subscription',
    customer: `cus_${account.id}`,
    status: event === EVENTS ? 'canceled' : 'active',
    metadata: { userId: account.id },
    items: { data: [{ id: 'si_1', price: { id: 'price_1' }, quantity: event }] },
  };
  const change = event === 1 ? 'created' : event === EVENTS ? 'deleted' : 'updated';
  const id = `evt_${object.id}_${event}`;
  const type = `customer.subscription.${change}`;
  const created = createdAt + subscription * EVENTS + event;
  return { id, payload: JSON.stringify({ id, object: 'event', type, created, data: { object } }) };
}

function signed(payload: string): Request {
  const signature = signWebhook(payload, SECRETS.paymentWebhookSecret, Date.now());
  const headers = { 'payment-signature': signature, 'content-type': 'application/json' };
  return { method: 'POST', path: '/api/billing/webhook', headers, body: payload };
}

/** The subscription is what the last acknowledged event made it. */
async function checkSubscription(
  world: World,
  account: Account,
  { subscription, event, isAcknowledged }: Progress,
): Promise<void> {
  const session = await signIn(world, account);
  // The last event may have taken effect without an acknowledgement.
  const acknowledged = isAcknowledged ? event : event - 1;
  if (!session || acknowledged === 0 || event === EVENTS) return;
  await world.insist(
    PRODUCT,
    () => ({ method: 'GET', path: '/api/billing/subscription', headers: bearer(session.accessToken) }),
    () => ({
      ...{ rule: 'final', key: `subscription ${subscription}`, kind: 'read', what: 'GET subscription' },
      expected: 'the last event',
      read: ({ body: { data } }) =>
        data.quantity >= acknowledged ? 'the last event' : String(data.quantity),
    }),
  );
}

const CANCELED = sentence('mail.subscription-canceled.subject');

/** Each end of a subscription was announced by one e-mail. A message that is sent again has the same Message-ID. */
async function checkMails(world: World, account: Account, progress: Progress): Promise<void> {
  const { subscription, event, isAcknowledged } = progress;
  const ended = subscription - (event === EVENTS && isAcknowledged ? 0 : 1);
  const isUncertain = event === EVENTS && !isAcknowledged;
  const count = () => {
    const mails = world.mails.mails.filter(({ to }) => to.includes(account.email)).map(readMail);
    const ends = mails.filter(({ headers }) => CANCELED.test(headers['subject'] ?? ''));
    return new Set(ends.map(({ headers }) => headers['message-id'])).size;
  };
  const start = world.history.now();
  while (count() < ended && world.history.now() - start < MAIL_TIMEOUT_MS) await sleep(100);
  const found = count();
  const value = String(isUncertain ? Math.min(found, ended) : found);
  world.history.add({
    ...{
      rule: 'final',
      key: `e-mails to ${account.email}`,
      kind: 'read',
      what: 'e-mails about ended subscriptions',
    },
    ...{
      target: 'saas',
      start,
      end: world.history.now(),
      outcome: 'ok',
      detail: `${world.mails.mails.length} e-mails`,
    },
    ...{ value, expected: String(ended) },
  });
}
