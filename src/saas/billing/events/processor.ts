import { defined } from '../../../core/kernel/fields.js';
import type { Effect } from '../../../core/ops/commit.js';
import { UniqueViolation, type Write } from '../../../core/storage/collection.js';
import { pagesOf } from '../../../core/storage/pages.js';
import type { BillingContext, CommitPart } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import { createBillingMails } from '../mails.js';
import type { Projector } from '../projection.js';
import { type EventOutcome, listSubscriptions, type PaymentEventDocument } from '../store.js';
import type { ChargeRecorder, LocatedCharge } from './charges.js';
import { type EventLeases, EventTaken, type ReceivedEvent } from './leases.js';
import type { PaymentRecorder, RecordedPayment } from './payments.js';
import {
  isAnnouncement,
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
 * Processes events: reads what they are about, merges, and commits all of it with the outcome of the event: the subscription, the user's
 * record, the payment, the mail and what webhooks deliver. After a concurrent write it begins again.
 */
export type EventProcessor = ReturnType<typeof createEventProcessor>;

export interface EventProcessorDependencies {
  leases: EventLeases;
  subscriptionEvents: SubscriptionEvents;
  recorder: PaymentRecorder;
  charges: ChargeRecorder;
  purchaseRecorder: PurchaseRecorder;
  links: CustomerLinks;
  projector: Projector;
}

const PAGE_SIZE = 50;

/** What an event leads to, before it is committed. */
interface HandledEvent {
  outcome: EventOutcome;
  parts: CommitPart[];
  /** The customer and the subscription whose unmatched events have an owner after it. */
  releases?: (string | undefined)[];
}

export interface ProcessOptions {
  /** The user to whom the operator assigns the event, if no other is known. */
  assignedTo?: string;
  /** The record of the operator's request. */
  record?(outcome: EventOutcome): Effect;
}

/** An event without a subscription, or one that only queues a mail. */
const NOT_APPLICABLE: AppliedEvent = { outcome: 'processed', isProjected: false, parts: [] };

/** A failed or unconfirmed payment whose invoice was paid or voided before the event arrived. */
const OBSOLETE: AppliedEvent = { outcome: 'stale', isProjected: false, parts: [] };

export function createEventProcessor(context: BillingContext, deps: EventProcessorDependencies) {
  const { paymentEvents, subscriptions, payments, owners, commit, clock } = context;
  const { leases, recorder, charges, purchaseRecorder, subscriptionEvents, projector, links } = deps;
  const findOwner = createOwnerLookup(context, { links, charges });
  const mails = createBillingMails(context);

  const handle = async (received: ReceivedEvent, assignedTo?: string): Promise<HandledEvent> => {
    const event = { ...received.event, beforeCall: () => leases.acquire(received) };
    const owner = await findOwner(event, assignedTo);
    // Most customers are unknown until they buy, and each change of one is an event.
    if (!owner) return { outcome: isCustomer(event) ? 'ignored' : 'unmatched', parts: [] };
    if (event.livemode === false && (await ownsLiveData(owner))) return { outcome: 'ignored', parts: [] };

    const isPayment = isInvoice(event) || isCharge(event) || isSession(event);
    const find = () => owners.find(owner.ownerId);
    // Read before the payments: by the revision, two events about one payment are committed one after the other.
    let user = isPayment || !owner.subscription ? await find() : undefined;
    const applied = await applyToSubscription(event, owner);
    const { subscription } = applied;
    const recorded = isPayment ? await recordPayment(event, owner) : null;
    const held = { ...(applied.isProjected && { subscription }), ...recorded?.held };
    const isProjected = Object.keys(held).length > 0;
    const isNews = recorded?.isFirst !== false && applied !== OBSOLETE;
    const contents = isNews ? await mails.contentsFor(event, subscription ?? owner.subscription) : [];
    const sendsMail = contents.length > 0;
    if (user === undefined && (isProjected || sendsMail)) user = await find();
    if (user === null || user?.isBeingDeleted) return { outcome: 'unmatched', parts: [] };

    const isLocked = isPayment || sendsMail || owner.link !== undefined;
    const ofUser = !user
      ? []
      : isProjected
        ? await projector.projecting(user, held)
        : [isLocked ? owners.locking(user) : undefined];
    const subject = subscription ?? owner.subscription ?? recorded?.held?.purchase;
    const queued = contents.map((content) => user && mails.mail(content, event, user, subject));
    return {
      outcome: isPayment ? 'processed' : applied.outcome,
      parts: [...applied.parts, owner.link, ...ofUser, ...(recorded?.parts ?? []), ...queued],
      releases: applied.isInserted || owner.link ? [event.subscriptionId, event.customerId] : [],
    };
  };

  /**
   * Whether the subscription is a live one, or the user has one. Events of the provider's test mode have no effect then: anyone with
   * access to the test mode can create them without a payment, for any user.
   */
  const ownsLiveData = async ({ ownerId, subscription }: EventOwner): Promise<boolean> =>
    subscription?.livemode ??
    (await listSubscriptions(subscriptions, ownerId)).some(({ livemode }) => livemode === true);

  const applyToSubscription = async (event: PaymentEvent, owner: EventOwner): Promise<AppliedEvent> => {
    const { subscriptionId } = event;
    if (await isAlreadySettled(event)) return OBSOLETE;
    if (subscriptionId === undefined || isSession(event) || isAnnouncement(event)) return NOT_APPLICABLE;
    return subscriptionEvents.prepare(event, subscriptionId, owner);
  };

  /** Whether an event reports a failure, or a required confirmation, of an invoice that has been paid or voided since. */
  const isAlreadySettled = async ({ type, objectId }: PaymentEvent): Promise<boolean> => {
    if (type !== 'invoice.payment_failed' && type !== 'invoice.payment_action_required') return false;
    const stored = await payments.findOne({ id: objectId });
    return stored !== null && stored.status !== 'failed';
  };

  const recordPayment = async (
    event: PaymentEvent,
    { ownerId, charge }: EventOwner,
  ): Promise<RecordedPayment | null> => {
    const { id: eventId, type, object, beforeCall, created: at = clock.now() } = event;
    if (isSession(event)) return purchaseRecorder.record(object, { ownerId, eventId, type, at, beforeCall });
    return charge ? charges.record(event, ownerId, charge, at) : recorder.recordInvoice(event, ownerId, at);
  };

  /** Commits an event with what it leads to. False if a concurrent write came first. @throws EventTaken */
  const complete = async (
    received: ReceivedEvent,
    { outcome, parts }: HandledEvent,
    record: Effect | undefined,
  ): Promise<boolean> => {
    const own = leases.completing(received, outcome);
    try {
      const result = await commit([own, ...parts, record]);
      if (!result.committed && result.unmet === own) throw new EventTaken();
      return result.committed;
    } catch (error) {
      if (!(error instanceof UniqueViolation)) throw error;
      if (error.collection === own.collection) throw new EventTaken();
      return false;
    }
  };

  /** @throws EventTaken */
  const process = async (
    received: ReceivedEvent,
    { assignedTo, record }: ProcessOptions = {},
  ): Promise<EventOutcome> => {
    try {
      for (;;) {
        const handled = await handle(received, assignedTo);
        const { outcome, releases = [] } = handled;
        const isRetry = received.stored?.outcome === 'unmatched';
        if (outcome === 'unmatched' && isRetry && !record) return outcome;
        if (!(await complete(received, handled, record?.(outcome)))) continue;
        for (const about of releases) if (about !== undefined) await replayUnmatched(about);
        if (outcome !== 'unmatched' || isRetry) return outcome;
        // The owner may have become known between the lookup and the commit, before a replay finds the event.
        const stored = await paymentEvents.findOne({ id: received.event.id });
        return stored?.outcome === 'unmatched' ? await process({ ...received, stored }) : outcome;
      }
    } catch (error) {
      await leases.release(received);
      throw error;
    }
  };

  /** Processes a stored event; null if another worker does. */
  const resume = async (stored: PaymentEventDocument): Promise<EventOutcome | null> => {
    const { id, payload, receivedAt } = stored;
    // Completed since it was read.
    if (payload === undefined || leases.isInProgress(stored)) return null;
    const event = parseEvent(payload, id);
    try {
      if (event) return await process({ event: { ...event, receivedAt }, payload, stored });
      // Stored by a version that handles its type: otherwise it would be read again in every run.
      await leases.ignore(stored);
      return 'ignored';
    } catch (error) {
      if (error instanceof EventTaken) return null;
      throw error;
    }
  };

  /** Processes the unmatched events of a customer, or of a subscription if they contain no customer. */
  const replayUnmatched = async (about: string) => {
    const query = { where: { about, outcome: 'unmatched' }, sort: 'receivedAt' } as const;
    for await (const page of pagesOf(paymentEvents, query, PAGE_SIZE))
      for (const document of page) await resume(document);
  };

  return {
    process,
    resume,
    replayUnmatched,

    /** Processes a delivered event, unless an earlier delivery has completed it. @throws EVENT_IN_PROGRESS */
    async receive(event: PaymentEvent, payload: string): Promise<EventOutcome | 'duplicate'> {
      for (let stored: PaymentEventDocument | null = null; ; ) {
        const isRetry: boolean = stored?.outcome === 'unmatched';
        try {
          const outcome = await process({ event, payload, stored });
          return outcome === 'unmatched' && isRetry ? 'duplicate' : outcome;
        } catch (error) {
          if (!(error instanceof EventTaken)) throw error;
        }
        stored = await leases.settled(event.id);
        if (stored?.outcome !== undefined && stored.outcome !== 'unmatched') return 'duplicate';
      }
    },
  };
}

interface EventOwner extends SubscriptionOwner {
  /** Links the customer of the event to the user. */
  link?: Write;
  /** The charge that a refund or a dispute is about. */
  charge?: LocatedCharge;
}

/**
 * Finds the user of an event by the subscription, else by the customer, else by the user ID that checkout wrote into the
 * metadata, else by the reference of a checkout session, which the buyer may have chosen. Never by the e-mail address, because anyone can enter any address at the provider.
 */
function createOwnerLookup(
  { subscriptions, owners }: BillingContext,
  { links, charges }: { links: CustomerLinks; charges: ChargeRecorder },
) {
  const findOwner = async (event: PaymentEvent, assignedTo?: string): Promise<EventOwner | null> => {
    const { subscriptionId, customerId, metadataOwnerId, referenceOwnerId } = event;
    const subscription = subscriptionId && (await subscriptions.findOne({ id: subscriptionId }));
    if (subscription) return { ownerId: subscription.ownerId, subscription };
    const linked = customerId === undefined ? null : await links.findUser(customerId);
    if (linked !== null) return { ownerId: linked };
    const named = metadataOwnerId ?? referenceOwnerId;
    const ownerId = named !== undefined && (await owners.find(named)) ? named : assignedTo;
    if (ownerId === undefined) return null;
    const link = customerId === undefined ? undefined : await links.linking(ownerId, customerId);
    return { ownerId, ...(link && { link }) };
  };

  /** By the payment; else by the customer, whom only the provider knows if the event is about a dispute. */
  const findChargeOwner = async (event: PaymentEvent, assignedTo?: string): Promise<EventOwner | null> => {
    const charge = { ...readChargeReference(event), isUnattributed: false };
    const payment = await charges.findPayment(charge);
    if (payment) return { ownerId: payment.ownerId, charge };
    const known = event.customerId === undefined ? null : await findOwner(event, assignedTo);
    if (!known && event.customerId !== undefined) return null;
    const located = await charges.lookUp(event);
    const customerId = located.customerId ?? event.customerId;
    const owner = known ?? (await findOwner({ ...event, ...defined({ customerId }) }, assignedTo));
    return owner && { ...owner, charge: located };
  };

  return (event: PaymentEvent, assignedTo?: string) =>
    isCharge(event) ? findChargeOwner(event, assignedTo) : findOwner(event, assignedTo);
}
