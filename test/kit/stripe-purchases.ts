import type { Json } from '../../src/saas/billing/provider/json.js';
import { PRICES, type Version } from './stripe-objects.js';

/** The one-time purchases of the simulated provider, and their objects. */

/** A one-time purchase. */
export interface WorldPurchase {
  /** The checkout session. */
  id: string;
  customer: string;
  userId: string;
  version: Version;
  status: 'pending' | 'paid' | 'failed';
  price: string;
  quantity: number;
  charge: { id: string; intent: string; created: number };
  refunded: number;
}

export const amountOf = ({ price, quantity }: WorldPurchase): number =>
  (PRICES[price]?.amount ?? 0) * quantity;

export function sessionObject(purchase: WorldPurchase): Json {
  const { id, customer, userId, status, charge } = purchase;
  return {
    id,
    object: 'checkout.session',
    mode: 'payment',
    status: 'complete',
    payment_status: status === 'paid' ? 'paid' : 'unpaid',
    customer,
    client_reference_id: userId,
    metadata: {},
    amount_total: amountOf(purchase),
    currency: 'eur',
    payment_intent: charge.intent,
    invoice: null,
    subscription: null,
  };
}

export function purchaseChargeObject(purchase: WorldPurchase): Json {
  const { customer, charge, refunded } = purchase;
  const amount = amountOf(purchase);
  return {
    id: charge.id,
    object: 'charge',
    customer,
    payment_intent: charge.intent,
    created: charge.created,
    currency: 'eur',
    amount,
    amount_refunded: refunded,
    refunded: refunded === amount,
    metadata: {},
    invoice: null,
  };
}

export const lineItemsOf = ({ price, quantity }: WorldPurchase): Json[] => [
  {
    id: `li_${price}`,
    object: 'item',
    quantity,
    price: { id: price, object: 'price', lookup_key: PRICES[price]?.lookupKey ?? null, metadata: {} },
  },
];
