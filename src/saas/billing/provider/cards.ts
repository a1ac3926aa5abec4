import type { CallOptions, ProviderCall } from './client.js';
import { asInteger, asObject, asText, type Json } from './json.js';
import { retrieve } from './responses.js';

/** The cards of customers. */

export interface Card {
  /** Of the payment method, or of the card as a source. */
  id: string;
  last4: string;
  /** The end of its last month, as Unix time in milliseconds. */
  expiresAt: number;
}

/** A payment method with a card, or a card as a source. Undefined for everything else, such as a bank account. */
export function readCard(method: Json): Card | undefined {
  const card = asObject(method['card'] ?? method);
  const [id, last4] = [asText(method['id']), asText(card['last4'])];
  const [year, month] = [asInteger(card['exp_year']), asInteger(card['exp_month'])];
  if (id === undefined || last4 === undefined || year === undefined || month === undefined) return undefined;
  return { id, last4, expiresAt: Date.UTC(year, month) };
}

/** In the order in which the provider uses them. */
const PAYERS = [
  'default_payment_method',
  'default_source',
  'customer.invoice_settings.default_payment_method',
  'customer.default_source',
];

/** The card that pays a subscription; null if none does. */
export async function cardOf(call: ProviderCall, id: string, options: CallOptions): Promise<Card | null> {
  const found = await retrieve(
    call,
    id,
    ({ subscriptions }) => subscriptions.retrieve(id, { expand: PAYERS }, { maxNetworkRetries: 0 }),
    options,
  );
  const customer = asObject(found?.['customer']);
  const payer =
    found?.['default_payment_method'] ??
    found?.['default_source'] ??
    asObject(customer['invoice_settings'])['default_payment_method'] ??
    customer['default_source'];
  return readCard(asObject(payer)) ?? null;
}
