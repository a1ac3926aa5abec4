import type { BillingEvent } from './event.js';
import { isFurther, isTerminal } from './status.js';
import type { SubscriptionDocument } from './store.js';

/** What an event means for a subscription as it is stored. Pure, so that the order of events can be reasoned about. */

/**
 * - `apply`: newer than what is stored
 * - `known`: applied before, by a delivery that did not get to its end
 * - `stale`: older than what is stored
 * - `doubt`: only the provider can tell
 */
export type Verdict = 'apply' | 'known' | 'stale' | 'doubt';

type Stored = Pick<SubscriptionDocument, 'status' | 'at' | 'statusAt' | 'lastEvent' | 'heardAt'>;

/** @param status what the event says the status is; absent where it does not say */
export function judgeSubscription(
  stored: Stored | null,
  event: Pick<BillingEvent, 'id' | 'type' | 'created' | 'heldSince'>,
  status: string | undefined,
): Verdict {
  if (!stored) return 'apply';
  if (stored.lastEvent === event.id) return 'known';
  if (isTerminal(stored.status)) return 'stale';
  // Nothing comes after the end, so whatever is stored is from before it.
  if (event.type === 'customer.subscription.deleted') return 'apply';
  if (event.created === undefined) return isOutrun(stored, event) ? 'doubt' : 'apply';
  if (event.created < stored.at) return 'stale';
  if (event.created === stored.at) {
    return event.type === 'customer.subscription.created' ? 'stale' : 'doubt';
  }
  const contradictsInvoice = event.created === stored.statusAt && status !== stored.status;
  return contradictsInvoice ? 'doubt' : 'apply';
}

/** Whether an event without a time was new once, and something else has been heard since. */
export const isOutrun = (
  { heardAt }: Pick<Stored, 'heardAt'>,
  { created, heldSince }: Pick<BillingEvent, 'created' | 'heldSince'>,
): boolean => created === undefined && heldSince !== undefined && heldSince < heardAt;

/** The status that an invoice leads to, by itself. */
export function statusAfterInvoice(
  status: string,
  { type, object }: Pick<BillingEvent, 'type' | 'object'>,
): string {
  if (type === 'invoice.payment_failed') return ['active', 'trialing'].includes(status) ? 'past_due' : status;
  // What costs nothing, as the invoice of a trial, proves nothing.
  if (object['amount_paid'] === 0) return status;
  return ['past_due', 'unpaid', 'incomplete'].includes(status) ? 'active' : status;
}

/** An invoice knows one subscription's status at second hand: it changes it only where the provider cannot be asked. */
export function judgeInvoice(
  stored: Stored | null,
  event: Pick<BillingEvent, 'id' | 'type' | 'created' | 'object'>,
): Exclude<Verdict, 'apply'> {
  if (!stored) return 'doubt';
  if (stored.lastEvent === event.id) return 'known';
  const contradicts = statusAfterInvoice(stored.status, event) !== stored.status;
  if (!contradicts || (event.created !== undefined && event.created < stored.statusAt)) return 'stale';
  return 'doubt';
}

/** In doubt and without the provider: whether an event of the same second comes after what is stored. */
export function followsStored(
  stored: Pick<SubscriptionDocument, 'status'>,
  status: string,
  previousStatus: unknown,
): boolean {
  if (status === stored.status || previousStatus === stored.status) return true;
  return isFurther(status, stored.status);
}
