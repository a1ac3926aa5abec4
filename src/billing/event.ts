import { httpErrors } from '../kernel/errors.js';
import { idIn, type Json, nameIn, objectIn, timeIn } from './snapshot.js';

/** What an event of the provider says. Only its type and the id of its object are sure. */
export interface BillingEvent {
  /** The provider's, else the signature that matched. */
  id: string;
  type: string;
  objectId: string;
  /** When the provider made it, epoch milliseconds; absent in the specification's body, which counts as fresh. */
  created?: number;
  /** When it reached us, epoch milliseconds, where that is not now. */
  heldSince?: number;
  /** False for an event of the provider's test mode. */
  livemode?: boolean;
  object: Json;
  /** What the object held before, where the provider says so. */
  previous: Json;
  customerId?: string;
  subscriptionId?: string;
  /** Our user, as checkout wrote it on the subscription. */
  metadataUserId?: string;
}

/** The kinds that change something here. */
export const HANDLED = new Set([
  'customer.subscription.created',
  'customer.subscription.updated',
  'customer.subscription.deleted',
  'customer.subscription.trial_will_end',
  'invoice.payment_succeeded',
  'invoice.payment_failed',
]);

export const isInvoice = ({ type }: { type: string }): boolean => type.startsWith('invoice.');

/**
 * Reads a body that is known to be the provider's. Without an `id` the signature names the event.
 * @throws INVALID_JSON, VALIDATION_ERROR
 */
export function readEvent(payload: string, signature: string): BillingEvent {
  const body = parse(payload);
  const data = objectIn(body['data']);
  const object = objectIn(data['object']);
  const { id, type, livemode } = body;
  const missing = Object.entries({ type, 'data.object.id': object['id'] }).filter(
    ([, word]) => !isWord(word),
  );
  if (missing.length > 0) {
    const details = missing.map(([path]) => ({ path, message: 'must be a string of 1 to 255 characters' }));
    throw httpErrors.VALIDATION_ERROR({ details });
  }
  const created = timeIn(body['created']);
  const event = {
    id: isWord(id) ? id : signature,
    type: String(type),
    objectId: String(object['id']),
    ...(created !== undefined && { created }),
    ...(typeof livemode === 'boolean' && { livemode }),
    object,
    previous: objectIn(data['previous_attributes']),
  };
  return Object.assign(event, concerns(event));
}

function concerns({ type, objectId, object }: { type: string; objectId: string; object: Json }) {
  const customerId = idIn(object['customer']);
  // Where an invoice names its subscription: in its parent since 2025-03-31, at its top before.
  const parent = objectIn(objectIn(object['parent'])['subscription_details']);
  const details = isInvoice({ type }) ? [parent, objectIn(object['subscription_details'])] : [object];
  const named = idIn(parent['subscription']) ?? idIn(object['subscription']);
  const subscriptionId = type.startsWith('customer.subscription.') ? objectId : named;
  const metadataUserId = details
    .map(({ metadata }) => nameIn(objectIn(metadata)['userId']))
    .find((userId) => userId !== undefined);
  return {
    ...(customerId !== undefined && { customerId }),
    ...(subscriptionId !== undefined && { subscriptionId }),
    ...(metadataUserId !== undefined && { metadataUserId }),
  };
}

function parse(payload: string): Json {
  try {
    return objectIn(JSON.parse(payload));
  } catch {
    throw httpErrors.INVALID_JSON();
  }
}

const isWord = (value: unknown): value is string =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);
