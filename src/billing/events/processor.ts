import type { Clock } from '../../kernel/clock.js';
import { nullIfTaken } from '../../storage/collection.js';
import type { DeleteIfUserIsGone } from '../account-deletion.js';
import { isEntitled, type PastDue, type Projector } from '../entitlement.js';
import {
  type Emit,
  type EnqueueMail,
  invoiceNotification,
  type PendingNotification,
  readInvoice,
  subscriptionNotification,
} from '../notifications.js';
import type {
  BillingUsers,
  Customers,
  EventOutcome,
  Payments,
  Subscriptions,
  WebhookEventDocument,
  WebhookEvents,
} from '../store.js';
import type { EventLease, EventLeases } from './leases.js';
import { type BillingEvent, isInvoice, parseEvent } from './provider-objects.js';
import type { AppliedEvent, ApplyEvent, EventOwner } from './subscription-events.js';
import type { ConcernsLiveData } from './test-mode.js';

/**
 * Processes one leased event and stores its outcome. The order makes a crash harmless: the subscription first, then the
 * user's record, the payment and the mail, then the outcome, and listeners last. Every step before the outcome is
 * repeated by the next delivery and is idempotent.
 */
export interface EventProcessor {
  /** Processes a leased event. Releases the lease on failure. */
  process(lease: EventLease, event: BillingEvent): Promise<EventOutcome>;
  /** Processes an unmatched event if its owner is known now; null otherwise. */
  retryUnmatched(event: BillingEvent): Promise<EventOutcome | null>;
  /** Processes the unmatched events of a customer, or of a subscription if they contain no customer. */
  replayUnmatched(about: string): Promise<void>;
  /** Processes one stored event; null if another worker has the lease. */
  resume(document: WebhookEventDocument): Promise<EventOutcome | null>;
}

export interface EventProcessorDependencies {
  leases: EventLeases;
  events: WebhookEvents;
  payments: Payments;
  subscriptions: Subscriptions;
  customers: Customers;
  users: Pick<BillingUsers, 'find'>;
  deleteIfUserIsGone: DeleteIfUserIsGone;
  applyEvent: ApplyEvent;
  projector: Projector;
  enqueueMail: EnqueueMail;
  emit: Emit;
  concernsLiveData: ConcernsLiveData;
  pastDue: PastDue;
  clock: Clock;
}

const PAGE_SIZE = 50;

interface HandledEvent {
  outcome: EventOutcome;
  notifications: PendingNotification[];
}

/** An event without a subscription, or `trial_will_end`, which only queues a mail. */
const NOT_APPLICABLE: AppliedEvent = { outcome: 'processed', isProjected: true };

/**
 * A failed payment whose invoice was paid before the event arrived. An earlier, interrupted delivery may have applied
 * it.
 */
const OBSOLETE: AppliedEvent = { outcome: 'stale', isProjected: false };

export function createEventProcessor(deps: EventProcessorDependencies): EventProcessor {
  const { leases, events, payments, applyEvent, projector, enqueueMail, emit, concernsLiveData, clock } =
    deps;
  const findOwner = createOwnerLookup(deps);

  const handle = async (event: BillingEvent): Promise<HandledEvent> => {
    if (await concernsLiveData(event)) return { outcome: 'ignored', notifications: [] };
    const owner = await findOwner(event);
    if (!owner) return { outcome: 'unmatched', notifications: [] };
    const { userId } = owner;
    const { subscriptionId, customerId, created = clock.now() } = event;
    const isApplicable =
      subscriptionId !== undefined && event.type !== 'customer.subscription.trial_will_end';
    const isObsolete = await isAlreadyPaid(event);
    const applied = isObsolete
      ? OBSOLETE
      : isApplicable
        ? await applyEvent(event, subscriptionId, owner)
        : NOT_APPLICABLE;
    const { change, isProjected, subscription } = applied;
    if (!isProjected) await projector.project(userId);
    const notifications: PendingNotification[] = [];
    if (change !== undefined && subscription)
      notifications.push(
        subscriptionNotification(event.id, subscription, {
          at: created,
          entitled: isEntitled(subscription, deps.pastDue, clock.now()),
        }),
      );
    if (isInvoice(event)) {
      const notification = await recordPayment(event, userId, created);
      if (notification) notifications.push(notification);
    }
    // If the user was deleted concurrently, the data inserted above must be deleted as well.
    if ((change === 'inserted' || isInvoice(event)) && (await deps.deleteIfUserIsGone(userId))) {
      return { outcome: 'unmatched', notifications: [] };
    }
    // Only failed payments, deleted subscriptions and ending trials queue a mail.
    if (!isObsolete) await enqueueMail(event, userId, subscription ?? owner.subscription);
    if (change === 'inserted' || change === 'repeated') {
      for (const about of [subscriptionId, customerId]) if (about !== undefined) await replayUnmatched(about);
    }
    return { outcome: isInvoice(event) ? 'processed' : applied.outcome, notifications };
  };

  /** Whether an event reports a failure of an invoice that has been paid since. */
  const isAlreadyPaid = async ({ type, objectId }: BillingEvent): Promise<boolean> =>
    type === 'invoice.payment_failed' && (await payments.findOne({ id: objectId }))?.status === 'paid';

  /** Stores a successful or failed payment. Invoices with amount 0 are not payments. */
  const recordPayment = async (
    event: BillingEvent,
    userId: string,
    at: number,
  ): Promise<PendingNotification | null> => {
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
    // A paid invoice stays paid, however late an earlier failure arrives.
    if (!inserted) {
      const older = status === 'paid' ? {} : { at: { lte: at } };
      await payments.updateOne({ id, status: 'failed', ...older }, { set: payment });
    }
    return invoiceNotification(event, userId, invoice, at);
  };

  const process: EventProcessor['process'] = async (lease, event) => {
    const { outcome, notifications } = await handle(event).catch(async (error: unknown) => {
      await leases.release(lease);
      throw error;
    });
    const isCompleted = await leases.complete(lease, outcome);
    if (!isCompleted) return outcome;
    for (const notify of notifications) notify(emit);
    // The owner may have become known between the lookup and the storing of the outcome, before a replay finds the
    // event.
    return outcome === 'unmatched' ? ((await retryUnmatched(event)) ?? outcome) : outcome;
  };

  const retryUnmatched: EventProcessor['retryUnmatched'] = async (event) => {
    if ((await findOwner(event)) === null) return null;
    const lease = await leases.reacquire({ id: event.id, outcome: 'unmatched' });
    return lease && process(lease, event);
  };

  const resume: EventProcessor['resume'] = async (document) => {
    const parsed = parseEvent(document.payload, document.id);
    const event = parsed && { ...parsed, receivedAt: document.receivedAt };
    if (event && document.outcome === 'unmatched') return retryUnmatched(event);
    const lease = await leases.reacquire(document);
    if (event) return lease && process(lease, event);
    // Stored by a version that did not ignore it.
    if (lease) await leases.complete(lease, 'ignored');
    return lease && 'ignored';
  };

  const replayUnmatched: EventProcessor['replayUnmatched'] = async (about) => {
    const query = { where: { about, outcome: 'unmatched' }, sort: 'receivedAt', limit: PAGE_SIZE } as const;
    let page = await events.page(query);
    for (;;) {
      for (const document of page.items) await resume(document);
      if (page.next === null) return;
      page = await events.page({ ...query, after: page.next });
    }
  };

  return { process, retryUnmatched, replayUnmatched, resume };
}

type OwnerLookupDependencies = Pick<
  EventProcessorDependencies,
  'subscriptions' | 'customers' | 'users' | 'clock'
>;

/**
 * Finds the user of an event by the subscription, else by the customer, else by the user ID that checkout wrote into the
 * metadata. Never by the e-mail address, because anyone can enter any address at the provider.
 */
function createOwnerLookup({ subscriptions, customers, users, clock }: OwnerLookupDependencies) {
  return async (event: BillingEvent): Promise<EventOwner | null> => {
    const { subscriptionId, customerId, metadataUserId } = event;
    const subscription = subscriptionId && (await subscriptions.findOne({ id: subscriptionId }));
    if (subscription) return { userId: subscription.userId, subscription };
    const customer = customerId && (await customers.findOne({ customerId }));
    if (customer) return { userId: customer.id };
    if (metadataUserId === undefined || !(await users.find(metadataUserId))) return null;
    if (customerId !== undefined) {
      // A user with another customer keeps that customer; the subscription belongs to the user in either case.
      await customers.insert({ id: metadataUserId, customerId, createdAt: clock.now() }).catch(nullIfTaken);
    }
    return { userId: metadataUserId };
  };
}
