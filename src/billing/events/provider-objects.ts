import { httpErrors } from '../../kernel/errors.js';
import { type PlanSource, type Plans, UNKNOWN_PLAN } from '../plans/plans.js';
import { asInteger, asObject, asText, asTime, idOf, type Json } from '../provider/json.js';
import type { SubscriptionTerms } from '../store.js';
import { readDetails } from './subscription-details.js';

/** An event of the provider. Only its type and the ID of its object are always present. */
export interface BillingEvent {
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
  metadataUserId?: string;
  /** The `client_reference_id` of a checkout session, which the buyer chooses in the address of a Payment Link. */
  referenceUserId?: string;
}

/** The event types that have an effect here. */
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
  'invoice.voided',
  'charge.refunded',
  'charge.dispute.created',
  'charge.dispute.closed',
  'checkout.session.completed',
  'checkout.session.async_payment_succeeded',
  'checkout.session.async_payment_failed',
  'customer.created',
  'customer.updated',
]);

export const isInvoice = ({ type }: { type: string }): boolean => type.startsWith('invoice.');

/** Whether an event is about a refund or a dispute, which refer to a charge. */
export const isCharge = ({ type }: { type: string }): boolean => type.startsWith('charge.');

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
export function parseEvent(payload: string, signature: string): BillingEvent | null {
  const body = parseJson(payload);
  // The events of connected accounts are not about customers of this account.
  if (body['account'] != null) return null;
  const { id, type, livemode } = body;
  requireIdentifiers({ type });
  if (isThin(body) || !HANDLED_EVENT_TYPES.has(String(type))) return null;
  const data = asObject(body['data']);
  const object = asObject(data['object']);
  requireIdentifiers({ 'data.object.id': object['id'] });
  const created = asTime(body['created']);
  const event = {
    id: isIdentifier(id) ? id : signature,
    type: String(type),
    objectId: String(object['id']),
    ...(created !== undefined && { created }),
    ...(typeof livemode === 'boolean' && { livemode }),
    object,
    previous: asObject(data['previous_attributes']),
  };
  return Object.assign(event, referencesOf(event));
}

/** The customer, subscription and user in an event. */
function referencesOf({ type, objectId, object }: { type: string; objectId: string; object: Json }) {
  const customerId = isCustomer({ type }) ? objectId : idOf(object['customer']);
  const referenceUserId = isSession({ type }) ? asText(object['client_reference_id']) : undefined;
  // The subscription of an invoice is in `parent` since API version 2025-03-31; before, it is at the top level.
  const parent = asObject(asObject(object['parent'])['subscription_details']);
  const details = isInvoice({ type }) ? [parent, asObject(object['subscription_details'])] : [object];
  const named = idOf(parent['subscription']) ?? idOf(object['subscription']);
  const subscriptionId = type.startsWith('customer.subscription.') ? objectId : named;
  const metadataUserId = details
    .map(({ metadata }) => asText(asObject(metadata)['userId']))
    .find((userId) => userId !== undefined);
  return {
    ...(customerId !== undefined && { customerId }),
    ...(subscriptionId !== undefined && { subscriptionId }),
    ...(metadataUserId !== undefined && { metadataUserId }),
    ...(referenceUserId !== undefined && { referenceUserId }),
  };
}

/** The customer of an event, else the subscription, else the payment: by it, the events of a user are found. */
export const subjectOf = ({ customerId, subscriptionId, object }: BillingEvent): string | undefined =>
  customerId ?? subscriptionId ?? idOf(object['payment_intent']) ?? idOf(object['charge']);

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

function requireIdentifiers(values: Record<string, unknown>): void {
  const wrong = Object.keys(values).filter((path) => !isIdentifier(values[path]));
  if (wrong.length === 0) return;
  const details = wrong.map((path) => ({ path, message: 'must be a string of 1 to 255 characters' }));
  throw httpErrors.VALIDATION_ERROR({ details });
}

/** A subscription as the provider sent it. A field that was not sent is absent; one that was cleared is `null`. */
export type Snapshot = { [K in keyof SubscriptionTerms]?: SubscriptionTerms[K] | null };

/**
 * Reads a whole or partial subscription of the newest API version or of those before 2025-03-31.
 * @param stored what is known of it
 */
export function readSnapshot(subscription: Json, plans: Plans, stored: StoredPlan | null): Snapshot {
  const items = itemsOf(subscription);
  const item = mainItem(items, plans, stored);
  const priceId = priceIdOf(item) ?? idOf(subscription['plan']);
  // Since 2025-03-31 the period is a field of the item.
  const onItem = (field: string) => (field in item ? item[field] : subscription[field]);
  const snapshot = {
    status: asText(subscription['status']),
    ...planOf(subscription, item, plans, stored),
    customerId: idOf(subscription['customer']),
    priceId,
    otherPriceIds: otherPricesOf(items, priceId),
    // Metered prices have no quantity.
    quantity: nullable(
      item['quantity'] ?? subscription['quantity'] ?? ('price' in item || 'plan' in item ? null : undefined),
      asCount,
    ),
    currentPeriodStart: nullable(onItem('current_period_start'), asTime),
    currentPeriodEnd: nullable(onItem('current_period_end'), asTime),
    trialEnd: nullable(subscription['trial_end'], asTime),
    cancelAtPeriodEnd: nullable(subscription['cancel_at_period_end'], (flag) => flag === true),
    cancelAt: nullable(subscription['cancel_at'], asTime),
    canceledAt: nullable(subscription['canceled_at'], asTime),
    endedAt: nullable(subscription['ended_at'], asTime),
    startedAt: asTime(subscription['created']),
    ...readDetails(subscription),
    livemode: asFlag(subscription['livemode']),
  };
  return Object.fromEntries(Object.entries(snapshot).filter(([, value]) => value !== undefined)) as Snapshot;
}

function itemsOf(subscription: Json): Json[] {
  const data = asObject(subscription['items'])['data'];
  return (Array.isArray(data) ? data : []).map(asObject);
}

/** What decides on the plan of a subscription that is stored already. */
type StoredPlan = Pick<SubscriptionTerms, 'plan' | 'priceId' | 'isPlanFromMetadata'>;

/**
 * Of several items the first whose price is configured, else the one that has named the plan so far, else the first
 * whose price names a plan, preferably one that is not metered.
 */
function mainItem(items: Json[], plans: Plans, stored: StoredPlan | null): Json {
  const kept = stored?.plan === UNKNOWN_PLAN ? undefined : stored?.priceId;
  const isNamed = (item: Json) => Object.keys(namesIn(priceOf(item))).length > 0;
  const isMetered = (item: Json) => asObject(priceOf(item)['recurring'])['usage_type'] === 'metered';
  return (
    items.find((item) => plans.configured?.has(priceIdOf(item) ?? '')) ??
    items.find((item) => kept !== undefined && priceIdOf(item) === kept) ??
    items.find((item) => isNamed(item) && !isMetered(item)) ??
    items.find(isNamed) ??
    items[0] ??
    {}
  );
}

/** Earlier API versions call a price a plan. */
const priceOf = (item: Json): Json => asObject(item['price'] ?? item['plan']);

const priceIdOf = (item: Json): string | undefined => idOf(item['price']) ?? idOf(item['plan']);

/** The plan that a price names itself. */
function namesIn(price: Json): Pick<PlanSource, 'lookupKey' | 'metadataPlan'> {
  const lookupKey = asText(price['lookup_key']);
  const metadataPlan = asText(asObject(price['metadata'])['plan']);
  return {
    ...(lookupKey !== undefined && { lookupKey }),
    ...(metadataPlan !== undefined && { metadataPlan }),
  };
}

/** The item of the main plan, beside metered and add-on items; empty if there is none. */
export const findMainItem = (subscription: Json, plans: Plans, stored: StoredPlan | null): Json =>
  mainItem(itemsOf(subscription), plans, stored);

function otherPricesOf(items: Json[], priceId: string | undefined): string[] | null | undefined {
  if (items.length === 0) return undefined;
  const all = new Set(items.flatMap((item) => priceIdOf(item) ?? []));
  const others = [...all].filter((id) => id !== priceId);
  return others.length > 0 ? others : null;
}

/**
 * The plan; unchanged while the price is, unless the price is configured or the plan came from metadata: a lookup key
 * moves to the successor of a price, and a price that is no longer sold leaves the configuration.
 */
function planOf(
  subscription: Json,
  item: Json,
  plans: Plans,
  stored: StoredPlan | null,
): Pick<Snapshot, 'plan' | 'isPlanFromMetadata'> {
  const named = namesIn(priceOf(item));
  const metadataPlan = asText(asObject(subscription['metadata'])['plan']) ?? named.metadataPlan;
  const sent = priceIdOf(item) ?? idOf(subscription['plan']);
  // A partial body without price and plan leaves the plan unchanged.
  if (sent === undefined && metadataPlan === undefined) return {};
  const priceId = sent ?? stored?.priceId;
  const isConfigured = plans.configured?.has(priceId ?? '') === true;
  const isFromMetadata = !isConfigured && named.lookupKey === undefined && metadataPlan !== undefined;
  const isKept = stored?.priceId !== undefined && stored.priceId === priceId && stored.plan !== UNKNOWN_PLAN;
  if (isKept && !isConfigured && !(isFromMetadata && stored.isPlanFromMetadata)) {
    return isFromMetadata && metadataPlan === stored.plan ? { isPlanFromMetadata: true } : {};
  }
  const plan = plans.planOfPurchase({
    ...named,
    ...(priceId !== undefined && { priceId }),
    ...(metadataPlan !== undefined && { metadataPlan }),
  });
  return { plan, isPlanFromMetadata: isFromMetadata || null };
}

const nullable = <T>(value: unknown, read: (value: unknown) => T): T | null | undefined =>
  value === undefined ? undefined : value === null ? null : read(value);

const asFlag = (value: unknown): boolean | undefined => (typeof value === 'boolean' ? value : undefined);

function asCount(value: unknown): number | undefined {
  const count = asInteger(value);
  return count !== undefined && count >= 0 ? count : undefined;
}
