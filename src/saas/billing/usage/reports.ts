import { toTimestamp } from '../../../core/http/schemas.js';
import { type Clock, DAY, HOUR } from '../../../core/kernel/clock.js';
import { invalidFields } from '../../../core/kernel/errors.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { Outgoing } from '../../../core/ops/outbox.js';
import {
  type Collection,
  type Declaration,
  nullIfTaken,
  type Store,
} from '../../../core/storage/collection.js';
import { mapPages, pagesOf } from '../../../core/storage/pages.js';
import { billingErrors } from '../errors.js';
import { type BillingOwners, ownerNotFound } from '../owners.js';
import type { Gateway } from '../provider/gateway.js';

/**
 * Usage that the application reports for usage-based prices. It is stored first, and a background job sends it to the
 * provider (sender.ts).
 */

/** Its ID is of user, meter and key, and the identifier of the event at the provider. */
export interface UsageDocument extends Outgoing {
  ownerId: string;
  meter: string;
  quantity: number;
  key: string;
  /** Unix time in milliseconds. */
  reportedAt: number;
  /**
   * - `queued`: not sent yet, or waiting for the result
   * - `sent`: the provider has recorded it
   * - `failed`: it could not be sent in time, or it is not known whether it was recorded
   */
  status: 'queued' | 'sent' | 'failed';
  /** Time of the first attempt whose result is unknown. Absent while every attempt has certainly failed. */
  unconfirmedSince?: number;
  /** Why the last attempt failed. */
  reason?: string;
  endedAt?: number;
}

export type UsageReports = Collection<UsageDocument>;

export const USAGE_COLLECTION = 'usage';

/** The names of the fields in filters. */
export const USAGE_FIELDS = {
  indexes: [['dueAt'], ['ownerId', 'reportedAt'], ['endedAt'], ['status', 'reportedAt']],
  numbers: ['dueAt', 'reportedAt', 'endedAt', 'attempts'],
} satisfies Declaration<UsageDocument>;

export const usageCollection = (store: Store): UsageReports =>
  store.collection<UsageDocument>(USAGE_COLLECTION, USAGE_FIELDS);

/** Reports that do not reach the provider. Those of users without a customer are not counted: they wait for the first purchase. */
export async function countUsageBacklog(reports: Pick<UsageReports, 'count'>, now: number) {
  const [failed, refused, overdue] = await Promise.all([
    // They will not be sent, and are kept for 90 days.
    reports.count({ status: 'failed' }),
    // The provider refuses them, or the result is unknown.
    reports.count({ status: 'queued', reportedAt: { lt: now - DAY }, attempts: { gte: 1 } }),
    // The provider is unavailable, or no process sends them.
    reports.count({ dueAt: { lt: now - HOUR } }),
  ]);
  return { failed, refused, overdue };
}

/** The reports of a user for an export, the newest first. */
export function listUsage(reports: UsageReports, ownerId: string): AsyncIterable<Record<string, unknown>[]> {
  const query = { where: { ownerId }, sort: 'reportedAt', desc: true } as const;
  return mapPages(
    pagesOf(reports, query),
    ({ meter, quantity, key, reportedAt, status, reason, endedAt }) => ({
      meter,
      quantity,
      key,
      reportedAt: toTimestamp(reportedAt),
      status,
      ...(reason !== undefined && { reason }),
      ...(endedAt !== undefined && { endedAt: toTimestamp(endedAt) }),
    }),
  );
}

/** A report that is due now. */
export const usageReport = (
  ownerId: string,
  meter: string,
  quantity: number,
  key: string,
  now: number,
): UsageDocument => ({
  id: `use_${sha256(JSON.stringify([ownerId, meter, key]))}`,
  ownerId,
  meter,
  quantity,
  key,
  reportedAt: now,
  status: 'queued',
  dueAt: now,
  attempts: 0,
});

/**
 * Reports usage of a meter by a user, which survives a crash once the promise resolves. The same user, meter and key
 * count once, for 90 days.
 *
 * @param meter the event name of the meter at the provider
 * @param quantity a whole number
 * @param key identifies the usage, for example the ID of a request
 * @throws BILLING_NOT_CONFIGURED, VALIDATION_ERROR, NOT_FOUND; USAGE_KEY_REUSED if the key has another quantity
 */
export type ReportUsage = ReturnType<typeof createReportUsage>;

export function createReportUsage({
  usage: reports,
  owners,
  gateway,
  clock,
}: {
  usage: UsageReports;
  owners: BillingOwners;
  gateway: Gateway | undefined;
  clock: Clock;
}) {
  return async (ownerId: string, meter: string, quantity: number, key: string): Promise<void> => {
    if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
    requireUsage(ownerId, meter, quantity, key);
    const now = clock.now();
    const report = usageReport(ownerId, meter, quantity, key, now);
    const { id } = report;
    const inserted = await reports.insert(report).then(() => true, nullIfTaken);
    if (inserted) {
      // Only now, so that a concurrent deletion either finds the report or is found here.
      if (await owners.find(ownerId)) return;
      await reports.deleteOne({ id });
      throw ownerNotFound(ownerId);
    }
    const stored = await reports.findOne({ id });
    if (stored && stored.quantity !== quantity) throw billingErrors.USAGE_KEY_REUSED();
  };
}

/** Validates at run time, because callers may not use TypeScript. @throws VALIDATION_ERROR */
function requireUsage(ownerId: unknown, meter: unknown, quantity: unknown, key: unknown): void {
  const isText = (value: unknown, most: number) =>
    typeof value === 'string' && value.length <= most && /^[\x21-\x7e]+$/.test(value);
  const problems = [
    [isText(ownerId, 255), 'ownerId', 'must be the ID of a user or an organization'],
    [isText(meter, 100), 'meter', 'must be the event name of a meter, of at most 100 characters'],
    [
      Number.isSafeInteger(quantity) && (quantity as number) >= 0,
      'quantity',
      'must be a whole number, 0 or more',
    ],
    [isText(key, 255), 'key', 'must be 1 to 255 ASCII characters without spaces'],
  ] as const;
  const details = problems.flatMap(([isValid, path, message]) => (isValid ? [] : [{ path, message }]));
  if (details.length > 0) throw invalidFields(...details);
}
