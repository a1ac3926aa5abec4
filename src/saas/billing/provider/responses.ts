import type Stripe from 'stripe';
import { billingErrors } from '../errors.js';
import { type CallOptions, nullIfMissing, type ProviderCall } from './client.js';
import { asObject, asText, idOf, type Json } from './json.js';

/** Validates responses of the payment provider's API. */

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

/** An object by its ID; null if the provider has none. */
export async function retrieve(
  call: ProviderCall,
  id: string,
  request: (stripe: Stripe) => Promise<object>,
  options?: CallOptions,
): Promise<Json | null> {
  const found = await call((stripe) => request(stripe).catch(nullIfMissing), options);
  return found && asObject(requireId(found, id));
}

export function requireSubscription(subscription: unknown): Json {
  const object = asObject(subscription);
  if (idOf(object) && asText(object['status'])) return object;
  throw malformed('A subscription without an ID or a status.');
}

/** The provider's maximum. */
export const PAGE_SIZE = 100;

interface ListPage {
  data: unknown[];
  has_more: boolean;
}

export function requireList({ data }: ListPage): Json[] {
  if (!Array.isArray(data)) throw malformed('A list without data.');
  return data.map(asObject);
}

type ListAfter = (after: { starting_after?: string }) => Promise<ListPage>;

export async function* eachPage(list: ListAfter): AsyncGenerator<Json[], void> {
  for (let after = {}; ; ) {
    const page = await list(after);
    const objects = requireList(page);
    yield objects;
    const last = idOf(objects.at(-1));
    if (!page.has_more || last === undefined) return;
    after = { starting_after: last };
  }
}

/** The objects of all pages. */
export async function fetchAll(list: ListAfter): Promise<Json[]> {
  const found: Json[] = [];
  for await (const page of eachPage(list)) found.push(...page);
  return found;
}

/** Whether the items of a subscription are not all in it: the provider sends ten, and the others in a list. */
export const lacksItems = (subscription: Json): boolean =>
  asObject(subscription['items'])['has_more'] === true;

/** A subscription with all its items. */
export async function withAllItems(
  call: ProviderCall,
  subscription: Json,
  options?: CallOptions,
): Promise<Json> {
  if (!lacksItems(subscription)) return subscription;
  const id = String(subscription['id']);
  const data = await call(
    ({ subscriptionItems }) =>
      fetchAll((after) => subscriptionItems.list({ subscription: id, limit: PAGE_SIZE, ...after })),
    options,
  );
  return { ...subscription, items: { data } };
}

/** An invoice with all its lines: the provider sends ten. */
export async function withAllLines(call: ProviderCall, invoice: Json): Promise<Json> {
  const id = idOf(invoice);
  if (id === undefined || asObject(invoice['lines'])['has_more'] !== true) return invoice;
  const data = await call(({ invoices }) =>
    fetchAll((after) => invoices.listLineItems(id, { limit: PAGE_SIZE, ...after })),
  );
  return { ...invoice, lines: { data } };
}

/** How long after its event a change may be missing from API responses. */
const PROPAGATION_MS = 10_000;

/** The provider's time up to which a response is complete; 0 if the response has no date. */
export const completeUntil = (response: unknown): number =>
  Math.max(0, respondedAt(response) - PROPAGATION_MS);

/** The provider's time of a response; 0 if it has no date. */
export function respondedAt(response: unknown): number {
  const { headers } = asObject(asObject(response)['lastResponse']);
  const date = Date.parse(String(asObject(headers)['date']));
  return Number.isNaN(date) ? 0 : date;
}
