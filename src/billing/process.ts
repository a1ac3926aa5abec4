import type { Clock } from '../kernel/clock.js';
import { nullIfTaken } from '../storage/collection.js';
import type { Applied, Apply } from './apply.js';
import type { Claim, Claims } from './claims.js';
import { isEntitled, type PastDue } from './entitlement.js';
import { type BillingEvent, HANDLED, isInvoice, readEvent } from './event.js';
import type { ForgetGone } from './forget.js';
import type { MailFor } from './mails.js';
import { type Emit, invoiceTold, readInvoice, subscriptionUpdated, type Telling } from './notices.js';
import type { OwnerOf } from './owner.js';
import type { Projector } from './project.js';
import type { EventOutcome, Payments, WebhookEventDocument, WebhookEvents } from './store.js';

/**
 * One event from its claim to its outcome. The order is what makes a crash harmless: first what it changes, then what
 * follows from that, then the mails, then the mark that it is done, and the listeners last. Whatever comes before the mark
 * is repeated by the next delivery and made to bear that.
 */
export interface Processor {
  /** Works on an event that is claimed. @throws what the store throws; the claim is given up then */
  settle(claim: Claim, event: BillingEvent): Promise<EventOutcome>;
  /** Looks again whose an event is that nobody was known by. Null where nobody is still. */
  retry(event: BillingEvent): Promise<EventOutcome | null>;
  /** Takes up whatever waited for this customer, or for this subscription and names no customer. */
  replay(about: string): Promise<void>;
  /** Takes up one stored event that nobody works on. */
  resume(document: WebhookEventDocument): Promise<EventOutcome | null>;
}

export interface ProcessorDependencies {
  claims: Claims;
  events: WebhookEvents;
  payments: Payments;
  ownerOf: OwnerOf;
  forgetGone: ForgetGone;
  apply: Apply;
  projector: Projector;
  mailFor: MailFor;
  emit: Emit;
  /** Whether our key is one of the provider's live mode, where events of its test mode mean nothing. */
  isLive: boolean;
  pastDue: PastDue;
  clock: Clock;
}

const PAGE = 50;

/** What an event does that is about no terms. */
const NOTHING: Applied = { effect: 'none', isProjected: true };

/** What one does that is over already. It may have changed something before, and not got to its end. */
const PAST: Applied = { effect: 'none', isProjected: false };

export function createProcessor(deps: ProcessorDependencies): Processor {
  const { claims, events, payments, ownerOf, apply, projector, mailFor, emit, isLive, clock } = deps;

  const work = async (event: BillingEvent): Promise<{ outcome: EventOutcome; tellings: Telling[] }> => {
    const isForeign = !HANDLED.has(event.type) || (isLive && event.livemode === false);
    if (isForeign) return { outcome: 'ignored', tellings: [] };
    const owner = await ownerOf(event);
    if (!owner) return { outcome: 'unmatched', tellings: [] };
    const { userId } = owner;
    const { subscriptionId, customerId, created = clock.now() } = event;
    const changesTerms =
      subscriptionId !== undefined && event.type !== 'customer.subscription.trial_will_end';
    const isSettled = await isPaidSince(event);
    const applied = isSettled ? PAST : changesTerms ? await apply(event, subscriptionId, owner) : NOTHING;
    const { effect, isProjected, subscription } = applied;
    if (!isProjected) await projector.project(userId);
    const tellings: Telling[] = [];
    if (effect !== 'none' && subscription)
      tellings.push(
        subscriptionUpdated(event.id, subscription, {
          at: created,
          entitled: isEntitled(subscription, deps.pastDue, clock.now()),
        }),
      );
    if (isInvoice(event)) {
      const telling = await record(event, userId, created);
      if (telling) tellings.push(telling);
    }
    // Whoever was deleted in between must not come back with what was just inserted.
    if ((effect === 'inserted' || isInvoice(event)) && (await deps.forgetGone(userId))) {
      return { outcome: 'unmatched', tellings: [] };
    }
    if (!isSettled) await mailFor(event, userId, subscription ?? owner.subscription);
    if (effect === 'inserted' || effect === 'known') {
      for (const about of [subscriptionId, customerId]) if (about !== undefined) await replay(about);
    }
    const isStale = effect === 'none' && changesTerms && !isInvoice(event);
    return { outcome: isStale ? 'stale' : 'processed', tellings };
  };

  /** Whether a failure is told of after the payment was made: nobody need be asked for it any more. */
  const isPaidSince = async ({ type, objectId }: BillingEvent): Promise<boolean> =>
    type === 'invoice.payment_failed' && (await payments.findOne({ id: objectId }))?.status === 'paid';

  /** Records a payment that was made or failed; what costs nothing is none. */
  const record = async (event: BillingEvent, userId: string, at: number): Promise<Telling | null> => {
    const invoice = readInvoice(event);
    const status = event.type === 'invoice.payment_failed' ? 'failed' : 'paid';
    const { id, subscriptionId, amount, currency, attempt } = invoice;
    if (status === 'paid' && amount === 0) return null;
    const payment = {
      userId,
      ...(subscriptionId !== undefined && { subscriptionId }),
      status,
      ...(amount !== undefined && { amount }),
      ...(currency !== undefined && { currency }),
      attempts: attempt,
      at,
    } as const;
    const inserted = await payments.insert({ id, ...payment }).then(() => true, nullIfTaken);
    // What is paid stays paid, however late a failure before it arrives.
    if (!inserted) {
      const older = status === 'paid' ? {} : { at: { lte: at } };
      await payments.updateOne({ id, status: 'failed', ...older }, { set: payment });
    }
    return invoiceTold(event, userId, invoice, at);
  };

  const settle = async (claim: Claim, event: BillingEvent): Promise<EventOutcome> => {
    const { outcome, tellings } = await work(event).catch(async (error: unknown) => {
      await claims.release(claim);
      throw error;
    });
    const isOurs = await claims.finish(claim, outcome);
    if (!isOurs) return outcome;
    for (const tell of tellings) tell(emit);
    // Its owner may have become known between the look and the mark, where nobody would replay it.
    return outcome === 'unmatched' ? ((await retry(event)) ?? outcome) : outcome;
  };

  const retry = async (event: BillingEvent): Promise<EventOutcome | null> => {
    if ((await ownerOf(event)) === null) return null;
    const claim = await claims.resume({ id: event.id, outcome: 'unmatched' });
    return claim && settle(claim, event);
  };

  const resume = async (document: WebhookEventDocument): Promise<EventOutcome | null> => {
    const event = { ...readEvent(document.payload, document.id), heldSince: document.receivedAt };
    if (document.outcome === 'unmatched') return retry(event);
    const claim = await claims.resume(document);
    return claim && settle(claim, event);
  };

  const replay: Processor['replay'] = async (about) => {
    const query = { where: { about, outcome: 'unmatched' }, sort: 'receivedAt', limit: PAGE } as const;
    let page = await events.page(query);
    for (;;) {
      for (const document of page.items) await resume(document);
      if (page.next === null) return;
      page = await events.page({ ...query, after: page.next });
    }
  };

  return { settle, retry, replay, resume };
}
