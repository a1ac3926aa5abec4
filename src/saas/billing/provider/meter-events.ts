import type Stripe from 'stripe';
import { causeOf, type ProviderCall } from './client.js';
import { asObject } from './json.js';

/** Reports usage to the meters of the provider. */

export interface MeterEvent {
  /** The provider refuses a second event with the same identifier for at least 24 hours. */
  identifier: string;
  /** The event name of the meter. */
  meter: string;
  customerId: string;
  quantity: number;
  /** Unix time in milliseconds. */
  at: number;
}

/**
 * - `accepted`: recorded, now or by an earlier attempt
 * - `refused`: not recorded, because of the event, such as an unknown meter
 * - `unavailable`: not recorded; other events would not be, either
 * - `unknown`: recorded or not
 */
export interface MeterEventResult {
  outcome: 'accepted' | 'refused' | 'unavailable' | 'unknown';
  /** Codes of the provider. */
  reason?: string;
}

/** The SDK does not repeat the request: the outbox does, and knows about every attempt. */
const OPTIONS = { maxNetworkRetries: 0 };

export async function createMeterEvent(
  call: ProviderCall,
  { identifier, meter, customerId, quantity, at }: MeterEvent,
): Promise<MeterEventResult> {
  const send = (stripe: Stripe): Promise<MeterEventResult> =>
    stripe.billing.meterEvents
      .create(
        {
          identifier,
          event_name: meter,
          payload: { stripe_customer_id: customerId, value: String(quantity) },
          timestamp: Math.floor(at / 1000),
        },
        OPTIONS,
      )
      .then(() => ({ outcome: 'accepted' }), resultOf);
  // What remains are timeouts.
  return call(send).catch((): MeterEventResult => ({ outcome: 'unknown', reason: 'no response' }));
}

/** The request was not sent. */
const NOT_CONNECTED = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH)$/;

/** The provider documents a code for duplicates, but sends only the message. */
const DUPLICATE = /already exists with identifier/i;

function resultOf(error: Stripe.errors.StripeError): MeterEventResult {
  const { code, statusCode = 0, message } = error;
  const reason = causeOf(error).message;
  if (code === 'duplicate_meter_event' || DUPLICATE.test(message)) return { outcome: 'accepted' };
  if (NOT_CONNECTED.test(String(asObject(asObject(error)['detail'])['code'])))
    return { outcome: 'unavailable', reason };
  if ([401, 403, 409, 429].includes(statusCode)) return { outcome: 'unavailable', reason };
  return { outcome: statusCode >= 400 && statusCode < 500 ? 'refused' : 'unknown', reason };
}
