import { httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import { defined } from '../../../core/kernel/fields.js';
import { ownerIn } from '../owners.js';
import { asFlag, asInteger, asList, asObject, asText, asTime, idOf, type Json } from '../provider/json.js';
import type { Dispute } from '../store.js';

/** An event of the provider. Only its type and the ID of its object are always present. */
export interface PaymentEvent {
  /** The provider's event ID, else the signature that matched. */
  id: string;
  type: string;
  objectId: string;
  /** When the provider created it, as Unix time in milliseconds. An event without it counts as new. */
  created?: number;
  /** When it was received, if it was stored and is processed later. Unix time in milliseconds. */
  receivedAt?: number;
  /** False for an event of the provider's test mode. */
  livemode?: boolean;
  object: Json;
  /** The previous values of changed fields, if the provider sends them. */
  previous: Json;
  customerId?: string;
  subscriptionId?: string;
  /** The user's ID in the metadata, which only the seller writes: as checkout does on a subscription. */
  metadataOwnerId?: string;
  /** The `client_reference_id` of a checkout session, which the buyer chooses in the address of a Payment Link. */
  referenceOwnerId?: string;
  /** Called before the provider is asked about it. */
  beforeCall?(): Promise<void>;
}

/** The event types that have an effect here: those of the webhook endpoint at the provider. */
export const HANDLED_EVENT_TYPES: ReadonlySet<string> = new Set([
  'customer.subscription.created',
  'customer.subscription.updated',
  'customer.subscription.deleted',
  'customer.subscription.trial_will_end',
  'customer.subscription.paused',
  'customer.subscription.resumed',
  'customer.subscription.pending_update_applied',
  'customer.subscription.pending_update_expired',
  'invoice.paid',
  'invoice.payment_succeeded',
  'invoice.payment_failed',
  'invoice.payment_action_required',
  'invoice.upcoming',
  'invoice.voided',
  'charge.refunded',
  'charge.dispute.created',
  'charge.dispute.closed',
  'charge.dispute.funds_reinstated',
  'refund.failed',
  'checkout.session.completed',
  'checkout.session.async_payment_succeeded',
  'checkout.session.async_payment_failed',
  'customer.created',
  'customer.updated',
  'customer.source.expiring',
]);

/** Those that only queue an e-mail. */
const ANNOUNCEMENTS = [
  'customer.subscription.trial_will_end',
  'customer.source.expiring',
  'invoice.payment_action_required',
  'invoice.upcoming',
];

/** Whether an event changes nothing that is stored, and only queues an e-mail. */
export const isAnnouncement = ({ type }: { type: string }): boolean => ANNOUNCEMENTS.includes(type);

export const isInvoice = ({ type }: { type: string }): boolean => type.startsWith('invoice.');

/** Whether an event is about a refund or a dispute, which refer to a charge. */
export const isCharge = ({ type }: { type: string }): boolean =>
  type.startsWith('charge.') || isRefundFailure({ type });

/** Whether the bank of the customer has sent a refund back. */
export const isRefundFailure = ({ type }: { type: string }): boolean => type === 'refund.failed';

/** Whether an event is about a checkout session. */
export const isSession = ({ type }: { type: string }): boolean => type.startsWith('checkout.session.');

/** Whether an event is about the customer itself. */
export const isCustomer = ({ type }: { type: string }): boolean =>
  type === 'customer.created' || type === 'customer.updated';

/**
 * Parses a body whose signature was verified. Without an `id`, the signature identifies the event. Null for an event
 * that has no effect here: its object is not read, because it may lack any field.
 * @throws INVALID_JSON, VALIDATION_ERROR
 */
export function parseEvent(payload: string, signature: string): PaymentEvent | null {
  const body = parseJson(payload);
  // The events of connected accounts are not about customers of this account.
  if (body['account'] != null) return null;
  const { id, type, livemode } = body;
  requireIdentifier('type', type);
  if (isThin(body) || !HANDLED_EVENT_TYPES.has(String(type))) return null;
  const data = asObject(body['data']);
  const object = asObject(data['object']);
  // An upcoming invoice has no ID before API version 2025-03-31.
  const objectId = object['id'] ?? (type === 'invoice.upcoming' ? id : undefined);
  requireIdentifier('data.object.id', objectId);
  const named = { type: String(type), objectId: String(objectId), object };
  return defined({
    id: isIdentifier(id) ? id : signature,
    ...named,
    created: asTime(body['created']),
    livemode: asFlag(livemode),
    previous: asObject(data['previous_attributes']),
    ...referencesOf(named),
  });
}

/** The customer, subscription and owner in an event. */
function referencesOf({ type, objectId, object }: { type: string; objectId: string; object: Json }) {
  const parent = subscriptionDetailsOf(object);
  const details = isInvoice({ type }) ? [parent, asObject(object['subscription_details'])] : [object];
  return {
    customerId: isCustomer({ type }) ? objectId : idOf(object['customer']),
    subscriptionId: type.startsWith('customer.subscription.') ? objectId : subscriptionOf(object),
    metadataOwnerId: details.flatMap(({ metadata }) => ownerIn(asObject(metadata)) ?? [])[0],
    referenceOwnerId: isSession({ type }) ? asText(object['client_reference_id']) : undefined,
  };
}

const subscriptionDetailsOf = (invoice: Json): Json =>
  asObject(asObject(invoice['parent'])['subscription_details']);

/** The subscription of an invoice: in `parent` since API version 2025-03-31; before, at the top level. */
export const subscriptionOf = (invoice: Json): string | undefined =>
  idOf(subscriptionDetailsOf(invoice)['subscription']) ?? idOf(invoice['subscription']);

function parseJson(payload: string): Json {
  try {
    return asObject(JSON.parse(payload));
  } catch {
    throw httpErrors.INVALID_JSON();
  }
}

/** Whether a body is an event of the provider's API v2, which names its object instead of containing it. */
const isThin = ({ object }: Json): boolean => typeof object === 'string' && object.startsWith('v2.');

const isIdentifier = (value: unknown): value is string =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

function requireIdentifier(path: string, value: unknown): void {
  if (!isIdentifier(value)) throw invalidFields({ path, message: 'must be a string of 1 to 255 characters' });
}

/** The invoice of an event. */
export type InvoiceDetails = ReturnType<typeof readInvoice>;

export function readInvoice(event: PaymentEvent) {
  const { type, objectId, subscriptionId, object } = event;
  const isPaid = type === 'invoice.paid' || type === 'invoice.payment_succeeded';
  const collected = asList(asObject(object['payments'])['data']).find(({ status }) => status === 'paid');
  const payment = asObject(collected?.['payment']);
  return {
    id: objectId,
    subscriptionId,
    /** That was paid, or that was to be collected. */
    amount: isPaid ? paidAmountOf(event) : asInteger(object['amount_due']),
    currency: asCurrency(object['currency']),
    attempt: asInteger(object['attempt_count']) ?? 1,
    isLastAttempt: object['next_payment_attempt'] === null,
    /** The payment that collected it. Absent since API version 2025-03-31, unless its payments are included. */
    paymentIntentId: idOf(object['payment_intent']) ?? idOf(payment['payment_intent']),
    chargeId: idOf(object['charge']) ?? idOf(payment['charge']),
  };
}

/** The amount of a paid invoice. One that was marked as paid outside of the provider may have no paid amount. */
export function paidAmountOf({ type, object }: Pick<PaymentEvent, 'type' | 'object'>): number | undefined {
  const paid = asInteger(object['amount_paid']);
  const isOutside =
    object['paid_out_of_band'] === true || (type === 'invoice.paid' && object['status'] === 'paid');
  return paid === 0 && isOutside ? (asInteger(object['amount_due']) ?? paid) : paid;
}

/** What identifies the payment that a refund or a dispute is about. */
export type ChargeReference = ReturnType<typeof readChargeReference>;

export function readChargeReference({ type, objectId, object }: PaymentEvent) {
  const isRefund = type === 'charge.refunded';
  const charge = isRefund ? object : asObject(object['charge']);
  return {
    chargeId: isRefund ? objectId : idOf(object['charge']),
    paymentIntentId: idOf(object['payment_intent']) ?? idOf(charge['payment_intent']),
    /** Absent since API version 2025-03-31. */
    invoiceId: idOf(charge['invoice']),
    customerId: idOf(charge['customer']),
  };
}

/** The amounts of a charge. */
export function readCharge({ object }: PaymentEvent) {
  const amount = asInteger(object['amount']);
  const isFull = object['refunded'] === true;
  return {
    amount,
    currency: asCurrency(object['currency']),
    refundedAmount: asInteger(object['amount_refunded']) ?? (isFull ? (amount ?? 0) : 0),
    /** When it was made. */
    at: asTime(object['created']),
  };
}

/** The refund that has failed. */
export function readFailedRefund({ object }: PaymentEvent) {
  return {
    chargeId: idOf(object['charge']),
    amount: asInteger(object['amount']) ?? 0,
  };
}

export function readDispute({ type, objectId, object }: PaymentEvent, at: number): Dispute {
  const status = asText(object['status']) ?? (type === 'charge.dispute.closed' ? 'closed' : 'needs_response');
  // An appeal is reported by the funds that come back, perhaps without a second `closed`.
  const isReinstated =
    type === 'charge.dispute.funds_reinstated' && ['won', 'warning_closed'].includes(status);
  return defined({
    id: objectId,
    status,
    reason: asText(object['reason']),
    amount: asInteger(object['amount']),
    at: asTime(object['created']) ?? at,
    closedAt: type === 'charge.dispute.closed' || isReinstated ? at : undefined,
  });
}

export const asCurrency = (value: unknown): string | undefined =>
  typeof value === 'string' && /^[a-z]{3}$/i.test(value) ? value : undefined;
