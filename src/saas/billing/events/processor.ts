import type { BillingDeletion } from '../account-deletion.js';
import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import { isEntitled, type Projector } from '../entitlement.js';
import type { EnqueueMail, PendingNotification } from '../notifications.js';
import { type EventOutcome, listSubscriptions, type PaymentEventDocument } from '../store.js';
import { subscriptionNotification } from '../subscription/writer.js';
import type { ChargeRecorder, LocatedCharge } from './charges.js';
import type { EventLease, EventLeases } from './leases.js';
import type { PaymentRecorder } from './payments.js';
import {
  isCharge,
  isCustomer,
  isInvoice,
  isSession,
  type PaymentEvent,
  parseEvent,
  readChargeReference,
} from './provider-objects.js';
import type { PurchaseRecorder } from './purchase-recorder.js';
import type { AppliedEvent, SubscriptionEvents, SubscriptionOwner } from './subscription-events.js';

/**
 * Processes one leased event and stores its outcome. The order makes a crash harmless: the subscription first, then the
 * user's record, the payment and the mail, then the events for webhooks, then the outcome, and listeners last. Every step before
 * the outcome is repeated by the next delivery and is idempotent.
 */
export type EventProcessor = ReturnType<typeof createEventProcessor>;

export interface EventProcessorDependencies {
  leases: EventLeases;
  deletion: BillingDeletion;
  subscriptionEvents: SubscriptionEvents;
  recorder: PaymentRecorder;
  charges: ChargeRecorder;
  purchaseRecorder: PurchaseRecorder;
  links: CustomerLinks;
  projector: Projector;
  enqueueMail: EnqueueMail;
}

const PAGE_SIZE = 50;

interface HandledEvent {
  outcome: EventOutcome;
  notifications: PendingNotification[];
}

/** An event without a subscription, or `trial_will_end`, which only queues a mail. */
const NOT_APPLICABLE: AppliedEvent = { outcome: 'processed', isProjected: true };

/**
 * A failed payment whose invoice was paid or voided before the event arrived. An earlier, interrupted delivery may have applied
 * it.
 */
const OBSOLETE: AppliedEvent = { outcome: 'stale', isProjected: false };

export function createEventProcessor(context: BillingContext, deps: EventProcessorDependencies) {
  const { paymentEvents, payments, pastDue, emit, recordForWebhooks, clock } = context;
  const { leases, recorder, charges, subscriptionEvents, projector, enqueueMail, links } = deps;
  const findOwner = createOwnerLookup(context, { links, charges });
  const concernsLiveData = createLiveDataCheck(context);

  const assignedOwner = async (event: PaymentEvent, userId: string): Promise<EventOwner | null> => {
    if (event.customerId !== undefined) await links.link(userId, event.customerId);
    return isCharge(event) ? findOwner(event) : { userId };
  };

  const handle = async (event: PaymentEvent, assignedTo?: string): Promise<HandledEvent> => {
    if (await concernsLiveData(event)) return { outcome: 'ignored', notifications: [] };
    const known = await findOwner(event);
    const owner = known ?? (assignedTo === undefined ? null : await assignedOwner(event, assignedTo));
    // Most customers are unknown until they buy, and each change of one is an event.
    if (!owner) return { outcome: isCustomer(event) ? 'ignored' : 'unmatched', notifications: [] };
    const { userId } = owner;
    const { subscriptionId, customerId } = event;
    const isApplicable =
      subscriptionId !== undefined &&
      !isSession(event) &&
      event.type !== 'customer.subscription.trial_will_end';
    const isObsolete = await isAlreadySettled(event);
    const applied = isObsolete
      ? OBSOLETE
      : isApplicable
        ? await subscriptionEvents.apply(event, subscriptionId, owner)
        : NOT_APPLICABLE;
    const { change, isProjected, subscription } = applied;
    if (!isProjected) await projector.project(userId);
    const notifications = notificationsOf(event, applied);
    const isPayment = isInvoice(event) || isCharge(event) || isSession(event);
    const payment = isPayment && (await recordPayment(event, owner, timeOf(event)));
    if (payment) notifications.push(payment);
    // If the user was deleted concurrently, the data inserted above must be deleted as well.
    const isLink = isSession(event) || isCustomer(event);
    if ((change === 'inserted' || isPayment || isLink) && (await deps.deletion.deleteIfUserIsGone(userId))) {
      return { outcome: 'unmatched', notifications: [] };
    }
    // Only failed payments, deleted subscriptions and ending trials queue a mail.
    if (payment || !isPayment) await enqueueMail(event, userId, subscription ?? owner.subscription);
    if (change === 'inserted' || change === 'repeated' || isLink) {
      for (const about of [subscriptionId, customerId]) if (about !== undefined) await replayUnmatched(about);
    }
    return { outcome: isPayment ? 'processed' : applied.outcome, notifications };
  };

  const timeOf = ({ created = clock.now() }: PaymentEvent): number => created;

  const notificationsOf = (
    event: PaymentEvent,
    { change, subscription }: AppliedEvent,
  ): PendingNotification[] => {
    if (change === undefined || !subscription) return [];
    const entitled = isEntitled(subscription, pastDue, clock.now());
    const notification = subscriptionNotification(event.id, subscription, { at: timeOf(event), entitled });
    return [(emit) => emit('subscription.updated', notification)];
  };

  /** Whether an event reports a failure of an invoice that has been paid or voided since. */
  const isAlreadySettled = async ({ type, objectId }: PaymentEvent): Promise<boolean> => {
    if (type !== 'invoice.payment_failed') return false;
    const stored = await payments.findOne({ id: objectId });
    return stored !== null && stored.status !== 'failed';
  };

  const recordPayment = async (event: PaymentEvent, { userId, charge }: EventOwner, at: number) => {
    const { id: eventId, type, object } = event;
    if (isSession(event)) return deps.purchaseRecorder.recordSession(object, { userId, eventId, type, at });
    if (!charge) return recorder.recordInvoice(event, userId, at);
    const notification = await charges.record(event, userId, charge, at);
    // A full refund or a lost dispute ends the access that a purchase gives.
    await projector.project(userId);
    return notification;
  };

  /**
   * Processes a leased event. Releases the lease on failure.
   * @param assignedTo the user to whom the operator assigns it, if no other is known
   */
  const process = async (
    lease: EventLease,
    event: PaymentEvent,
    assignedTo?: string,
  ): Promise<EventOutcome> => {
    const handleAndRecord = async () => {
      const handled = await handle(event, assignedTo);
      // Before the outcome, after which a delivery would not repeat it.
      for (const notify of handled.notifications) await notify(recordForWebhooks);
      return handled;
    };
    const { outcome, notifications } = await handleAndRecord().catch(async (error: unknown) => {
      await leases.release(lease);
      throw error;
    });
    const isCompleted = await leases.complete(lease, outcome);
    if (!isCompleted) return outcome;
    for (const notify of notifications) await notify(emit);
    // The owner may have become known between the lookup and the storing of the outcome, before a replay finds the
    // event.
    return outcome === 'unmatched' ? ((await retryUnmatched(event)) ?? outcome) : outcome;
  };

  /** Processes an unmatched event if its owner is known now; null otherwise. */
  const retryUnmatched = async (event: PaymentEvent): Promise<EventOutcome | null> => {
    if ((await findOwner(event)) === null) return null;
    const lease = await leases.reacquire({ id: event.id, outcome: 'unmatched' });
    return lease && process(lease, event);
  };

  /** Processes one stored event; null if another worker has the lease. */
  const resume = async (document: PaymentEventDocument): Promise<EventOutcome | null> => {
    const { payload, receivedAt, outcome } = document;
    // Completed since it was read.
    if (payload === undefined) return null;
    const parsed = parseEvent(payload, document.id);
    const event = parsed && { ...parsed, receivedAt };
    if (event && outcome === 'unmatched') return retryUnmatched(event);
    const lease = await leases.reacquire(document);
    if (!lease) return null;
    if (event) return process(lease, event);
    // Stored by a version that handles its type: otherwise it would be read again in every run.
    await leases.complete(lease, 'ignored');
    return 'ignored';
  };

  /** Processes the unmatched events of a customer, or of a subscription if they contain no customer. */
  const replayUnmatched = async (about: string) => {
    const query = { where: { about, outcome: 'unmatched' }, sort: 'receivedAt', limit: PAGE_SIZE } as const;
    let page = await paymentEvents.page(query);
    for (;;) {
      for (const document of page.items) await resume(document);
      if (page.next === null) return;
      page = await paymentEvents.page({ ...query, after: page.next });
    }
  };

  return { process, retryUnmatched, replayUnmatched, resume };
}

interface EventOwner extends SubscriptionOwner {
  /** The charge that a refund or a dispute is about. */
  charge?: LocatedCharge;
}

/**
 * Finds the user of an event by the subscription, else by the customer, else by the user ID that checkout wrote into the
 * metadata, else by the reference of a checkout session, which the buyer may have chosen. Never by the e-mail address, because anyone can enter any address at the provider.
 */
function createOwnerLookup(
  { subscriptions, users }: BillingContext,
  { links, charges }: { links: CustomerLinks; charges: ChargeRecorder },
) {
  const findOwner = async (event: PaymentEvent): Promise<EventOwner | null> => {
    const { subscriptionId, customerId, metadataUserId, referenceUserId } = event;
    const subscription = subscriptionId && (await subscriptions.findOne({ id: subscriptionId }));
    if (subscription) return { userId: subscription.userId, subscription };
    const linked = customerId === undefined ? null : await links.findUser(customerId);
    if (linked !== null) return { userId: linked };
    const userId = metadataUserId ?? referenceUserId;
    if (userId === undefined || !(await users.find(userId))) return null;
    if (customerId !== undefined) await links.link(userId, customerId);
    return { userId };
  };

  /** By the payment; else by the customer, whom only the provider knows if the event is about a dispute. */
  const findChargeOwner = async (event: PaymentEvent): Promise<EventOwner | null> => {
    const charge = { ...readChargeReference(event), isUnattributed: false };
    const payment = await charges.findPayment(charge);
    if (payment) return { userId: payment.userId, charge };
    const known = event.customerId === undefined ? null : await findOwner(event);
    if (!known && event.customerId !== undefined) return null;
    const located = await charges.lookUp(event);
    const { customerId } = located;
    const owner = known ?? (await findOwner({ ...event, ...(customerId !== undefined && { customerId }) }));
    return owner && { userId: owner.userId, charge: located };
  };

  return (event: PaymentEvent) => (isCharge(event) ? findChargeOwner(event) : findOwner(event));
}

/**
 * Whether an event of the provider's test mode is about a live subscription, or about a user who has one. Such events
 * have no effect: anyone with access to the test mode can create them without a payment, for any user. Events of live
 * mode, and events that state no mode, are always applied.
 */
function createLiveDataCheck({ subscriptions, customers }: BillingContext) {
  return async (event: PaymentEvent): Promise<boolean> => {
    if (event.livemode !== false) return false;
    const { subscriptionId: id, customerId, metadataUserId, referenceUserId } = event;
    const subscription = id === undefined ? null : await subscriptions.findOne({ id });
    if (subscription?.livemode !== undefined) return subscription.livemode;
    const customer =
      subscription || customerId === undefined ? null : await customers.findOne({ customerId });
    const userId = subscription?.userId ?? customer?.id ?? metadataUserId ?? referenceUserId;
    if (userId === undefined) return false;
    const all = await listSubscriptions(subscriptions, userId);
    return all.some(({ livemode }) => livemode === true);
  };
}
