import { DAY, MINUTE } from '../../../core/kernel/clock.js';
import type { Job } from '../../../core/ops/jobs.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import { allOf } from '../../../core/storage/pages.js';
import type { BillingContext } from '../context.js';
import { asText, type Json } from '../provider/json.js';
import type { EventLeases } from './leases.js';
import { HANDLED_EVENT_TYPES, type PaymentEvent, parseEvent } from './provider-objects.js';

/**
 * Finds events that the provider has created and that were never received. They are stored as if their worker had crashed, so that the
 * background job processes them like every delivered event; one that is delivered after all is a duplicate.
 */
export type EventRecovery = ReturnType<typeof createEventRecovery>;

export interface ComparedSpan {
  /** Unix time in milliseconds, as `to`. */
  from: number;
  /** Default: without end. */
  to?: number;
  /** Stores nothing. */
  dryRun?: boolean;
  /** Which events are compared; default: all that have an effect here. */
  includes?(event: PaymentEvent): boolean;
  /** Called after each page with the number of compared events. */
  onProgress?(compared: number): void;
  signal?: AbortSignal;
}

export interface EventComparison {
  compared: number;
  /** How many were not received, by their type. */
  missing: Record<string, number>;
  /** The customers that the compared events name. */
  customerIds: ReadonlySet<string>;
}

/** How long the provider keeps its events. */
export const PROVIDER_RETENTION_MS = 30 * DAY;

const INTERVAL_SECONDS = 600;

/** How long a delivery may take before its event counts as lost. */
const DELIVERY_MS = 5 * MINUTE;

/** The provider can list an event later than a newer one. */
const OVERLAP_MS = 10 * MINUTE;

const MARK = 'compared';

export function createEventRecovery(context: BillingContext, leases: EventLeases) {
  const { paymentEvents, eventMarks, requireGateway, clock, log } = context;

  const read = (json: Json): { event: PaymentEvent; payload: string }[] => {
    const payload = JSON.stringify(json);
    try {
      const event = parseEvent(payload, asText(json['id']) ?? '');
      return event ? [{ event, payload }] : [];
    } catch (err) {
      log.warn({ err, event: json['id'] }, 'an event of the payment provider could not be read');
      return [];
    }
  };

  const receivedAmong = async (ids: string[]): Promise<ReadonlySet<string>> => {
    const where = { id: { in: ids } };
    const received = ids.length === 0 ? [] : await allOf(paymentEvents, { where, sort: 'id' });
    return new Set(received.map(({ id }) => id));
  };

  /** @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR */
  const compare = async (span: ComparedSpan): Promise<EventComparison> => {
    const missing: Record<string, number> = {};
    const customerIds = new Set<string>();
    let compared = 0;
    for await (const page of requireGateway().eventPages(span, [...HANDLED_EVENT_TYPES])) {
      if (span.signal?.aborted) break;
      const events = page.flatMap(read).filter(({ event }) => span.includes?.(event) ?? true);
      const received = await receivedAmong(events.map(({ event }) => event.id));
      for (const { event, payload } of events) {
        if (event.customerId !== undefined) customerIds.add(event.customerId);
        if (received.has(event.id)) continue;
        if (span.dryRun || (await leases.enqueue(event, payload)))
          missing[event.type] = (missing[event.type] ?? 0) + 1;
      }
      compared += events.length;
      span.onProgress?.(compared);
    }
    return { compared, missing, customerIds };
  };

  /**
   * An outage is noticed by its result: an event that is older than five minutes and was not received. Each run compares the time since
   * the previous one, however long ago that was; the first run only remembers its time.
   */
  const job: Job = {
    everySeconds: INTERVAL_SECONDS,
    async run({ signal }) {
      const to = clock.now() - DELIVERY_MS;
      const mark = await eventMarks.findOne({ id: MARK });
      if (!mark) {
        await eventMarks.insert({ id: MARK, until: to }).catch(nullIfTaken);
        return;
      }
      const from = Math.max(mark.until - OVERLAP_MS, clock.now() - PROVIDER_RETENTION_MS);
      const { missing } = await compare({ from, to, signal });
      if (signal.aborted) return;
      if (Object.keys(missing).length > 0)
        log.warn(
          { missing, since: new Date(from).toISOString() },
          'payment events were not delivered and are processed now; saas-backend doctor examines the webhook endpoint',
        );
      await eventMarks.updateOne({ id: MARK, until: mark.until }, { set: { until: to } });
    },
  };

  return { compare, job };
}
