import { DAY, HOUR, MINUTE, SECOND } from '../../core/kernel/clock.js';

/** When a delivery is attempted again, as Standard Webhooks recommends it: ten attempts within three days and four hours. */
const DELAYS_MS = [
  5 * SECOND,
  5 * MINUTE,
  30 * MINUTE,
  2 * HOUR,
  5 * HOUR,
  10 * HOUR,
  14 * HOUR,
  20 * HOUR,
  24 * HOUR,
];

/** The longest wait that an endpoint can ask for. */
const MAX_RETRY_AFTER_MS = DAY;

/** An upper bound of the time between two attempts. */
export const MAX_DELAY_MS = DAY;

/** An endpoint without a success for so long is disabled. */
export const FAILURE_LIMIT_MS = 3 * DAY;

/** The pauses of an endpoint that does not answer: five seconds, doubled up to ten minutes. */
export const pauseMs = (unanswered: number): number =>
  Math.min(5 * SECOND * 2 ** Math.min(unanswered - 1, 10), 10 * MINUTE);

/**
 * The delay before the next attempt; null if there is none.
 *
 * @param attempts made so far
 * @param retryAfterMs what the endpoint asks for: it can delay the next attempt by a day at most, and not make it earlier
 */
export function delayAfter(attempts: number, retryAfterMs: number | undefined): number | null {
  const planned = DELAYS_MS[attempts - 1];
  if (planned === undefined) return null;
  return Math.max(planned, Math.min(retryAfterMs ?? 0, MAX_RETRY_AFTER_MS));
}

/** The header `Retry-After` (RFC 9110 §10.2.3), in milliseconds from now. */
export function readRetryAfter(header: string | undefined, now: number): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d{1,9}$/.test(header)) return Number(header) * SECOND;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
