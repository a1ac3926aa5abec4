import { httpErrors } from '../../kernel/errors.js';
import { billingErrors } from '../errors.js';
import type { Plans } from '../plans.js';
import type { SubscriptionTerms } from '../store.js';

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
  /** The user's ID, as checkout wrote it on the subscription. */
  metadataUserId?: string;
}

/** The event types that have an effect here. */
export const HANDLED_EVENT_TYPES: ReadonlySet<string> = new Set([
  'customer.subscription.created',
  'customer.subscription.updated',
  'customer.subscription.deleted',
  'customer.subscription.trial_will_end',
  'invoice.payment_succeeded',
  'invoice.payment_failed',
]);

export const isInvoice = ({ type }: { type: string }): boolean => type.startsWith('invoice.');

/**
 * Parses a body whose signature was verified. Without an `id`, the signature identifies the event.
 * @throws INVALID_JSON, VALIDATION_ERROR
 */
export function parseEvent(payload: string, signature: string): BillingEvent {
  const body = parseJson(payload);
  const data = asObject(body['data']);
  const object = asObject(data['object']);
  const { id, type, livemode } = body;
  const missing = Object.entries({ type, 'data.object.id': object['id'] }).filter(
    ([, value]) => !isIdentifier(value),
  );
  if (missing.length > 0) {
    const details = missing.map(([path]) => ({ path, message: 'must be a string of 1 to 255 characters' }));
    throw httpErrors.VALIDATION_ERROR({ details });
  }
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
  const customerId = idOf(object['customer']);
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
  };
}

function parseJson(payload: string): Json {
  try {
    return asObject(JSON.parse(payload));
  } catch {
    throw httpErrors.INVALID_JSON();
  }
}

const isIdentifier = (value: unknown): value is string =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

/** A subscription as the provider sent it. A field that was not sent is absent; one that was cleared is `null`. */
export type Snapshot = { [K in keyof SubscriptionTerms]?: SubscriptionTerms[K] | null };

/** Reads a whole or partial subscription of the newest API version or of those before 2025-03-31. */
export function readSnapshot(subscription: Json, plans: Plans): Snapshot {
  const items = itemsOf(subscription);
  const item = mainItem(items, plans);
  const priceId = idOf(item['price']) ?? idOf(item['plan']) ?? idOf(subscription['plan']);
  // Since 2025-03-31 the period is a field of the item.
  const onItem = (field: string) => (field in item ? item[field] : subscription[field]);
  const snapshot = {
    status: asText(subscription['status']),
    plan: planOf(subscription, { item, priceId }, plans),
    customerId: idOf(subscription['customer']),
    priceId,
    otherPriceIds: otherPricesOf(items, priceId),
    // Metered prices have no quantity.
    quantity: nullable(
      item['quantity'] ?? subscription['quantity'] ?? ('price' in item ? null : undefined),
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
  };
  return Object.fromEntries(Object.entries(snapshot).filter(([, value]) => value !== undefined)) as Snapshot;
}

function itemsOf(subscription: Json): Json[] {
  const data = asObject(subscription['items'])['data'];
  return (Array.isArray(data) ? data : []).map(asObject);
}

/** Of several items the first whose price is configured, else the first. */
function mainItem(items: Json[], plans: Plans): Json {
  const configured = items.find((item) => plans.configured?.has(idOf(item['price']) ?? ''));
  return configured ?? items[0] ?? {};
}

function otherPricesOf(items: Json[], priceId: string | undefined): string[] | null | undefined {
  if (items.length === 0) return undefined;
  const all = new Set(items.flatMap((item) => idOf(item['price']) ?? idOf(item['plan']) ?? []));
  const others = [...all].filter((id) => id !== priceId);
  return others.length > 0 ? others : null;
}

function planOf(
  subscription: Json,
  { item, priceId }: { item: Json; priceId: string | undefined },
  plans: Plans,
): string | undefined {
  const price = asObject(item['price']);
  const lookupKey = asText(price['lookup_key']);
  const metadataPlan =
    asText(asObject(subscription['metadata'])['plan']) ?? asText(asObject(price['metadata'])['plan']);
  // A partial body without price and plan leaves the plan unchanged.
  if (priceId === undefined && metadataPlan === undefined) return undefined;
  return plans.planOfPurchase({
    ...(priceId !== undefined && { priceId }),
    ...(lookupKey !== undefined && { lookupKey }),
    ...(metadataPlan !== undefined && { metadataPlan }),
  });
}

const nullable = <T>(value: unknown, read: (value: unknown) => T): T | null | undefined =>
  value === undefined ? undefined : value === null ? null : read(value);

function asCount(value: unknown): number | undefined {
  const count = asInteger(value);
  return count !== undefined && count >= 0 ? count : undefined;
}

/** Reads objects of the payment provider without assuming that fields have the documented types. */

export type Json = Record<string, unknown>;

export const asObject = (value: unknown): Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};

/** A non-empty string that every storage engine accepts. */
export function asText(value: unknown): string | undefined {
  const isText = typeof value === 'string' && value !== '' && value.length <= 255;
  return isText && value.isWellFormed() && !value.includes('\0') ? value : undefined;
}

/** The ID of an object, whether the provider sent the ID or the expanded object. */
export const idOf = (value: unknown): string | undefined => asText(value) ?? asText(asObject(value)['id']);

/** A Unix time in seconds, converted to milliseconds. */
export function asTime(value: unknown): number | undefined {
  const isTime = typeof value === 'number' && Number.isSafeInteger(value) && value > 0 && value < 1e11;
  return isTime ? value * 1000 : undefined;
}

export const asInteger = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;

/** A response of the SDK's HTTP client. */
interface HttpResponse {
  getStatusCode(): number;
  toJSON(): Promise<unknown>;
}

/**
 * The SDK treats any JSON without `error` as success, whatever the status, and crashes the process on JSON that is not
 * an object. A proxy in between may send either.
 */
export function rejectForeignResponses<T extends HttpResponse>(response: T): T {
  const read = response.toJSON.bind(response);
  response.toJSON = async () => {
    const json = await read();
    const status = response.getStatusCode();
    const isObject = typeof json === 'object' && json !== null && !Array.isArray(json);
    const isSuccess = status >= 200 && status < 300;
    if (!isObject || !(isSuccess || asObject(json)['error']))
      throw new Error(`Unexpected response: ${status}.`);
    return json;
  };
  return response;
}

export const malformed = (message: string) =>
  billingErrors.PAYMENT_PROVIDER_ERROR({ cause: new Error(message) });

/** A hosted page, which must have an ID and an address. */
export function requirePage({ id, url }: { id: unknown; url?: unknown }): { id: string; url: string } {
  const text = asText(id);
  if (text === undefined || typeof url !== 'string' || url === '') throw malformed('A page without a URL.');
  return { id: text, url };
}

/** The object that was requested. */
export function requireId<T>(object: T, id: string): T {
  if (idOf(object) !== id) throw malformed('Another object than the requested one.');
  return object;
}

export function requireSubscription(subscription: unknown): Json {
  const object = asObject(subscription);
  if (idOf(object) && asText(object['status'])) return object;
  throw malformed('A subscription without an ID or a status.');
}

export interface ListPage<T> {
  data: T[];
  has_more: boolean;
}

export function requireList<P extends ListPage<unknown>>(page: P): P {
  if (!Array.isArray(page.data)) throw malformed('A list without data.');
  return page;
}

export async function fetchAllPages<T extends { id: string }, P extends ListPage<T>>(
  list: (after: { starting_after?: string }) => Promise<P & ListPage<T>>,
): Promise<P[]> {
  const pages: P[] = [];
  for (let after = {}; ; ) {
    const page = requireList(await list(after));
    pages.push(page);
    const last = page.data.at(-1);
    if (!page.has_more || !last) return pages;
    after = { starting_after: last.id };
  }
}

/** How long after its event a change may be missing from API responses. */
const PROPAGATION_MS = 10_000;

/** The provider's time up to which a response is complete; 0 if the response has no date. */
export function completeUntil(response: unknown): number {
  const { headers } = asObject(asObject(response)['lastResponse']);
  const date = Date.parse(String(asObject(headers)['date']));
  return Number.isNaN(date) ? 0 : Math.max(0, date - PROPAGATION_MS);
}
