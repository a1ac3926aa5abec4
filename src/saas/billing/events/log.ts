import { type Static, Type } from 'typebox';
import { Timestamp, toTimestamp } from '../../../core/http/schemas.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { auditActor, type Operator } from '../../../core/ops/audit.js';
import type { Page, Where } from '../../../core/storage/collection.js';
import { readPage } from '../../../core/storage/pages.js';
import type { BillingContext } from '../context.js';
import { billingErrors } from '../errors.js';
import { ownerNotFound } from '../owners.js';
import type { EventOutcome, PaymentEventDocument } from '../store.js';
import { type EventLeases, EventTaken } from './leases.js';
import type { EventProcessor, ProcessOptions } from './processor.js';
import { parseEvent } from './provider-objects.js';

/** The received events of the provider, for the operator. */
export type EventLog = ReturnType<typeof createEventLog>;

export interface EventQuery {
  /** Default: every event of `about`; without it, the processed ones. `pending`: not completed yet. */
  outcome?: EventOutcome | 'pending' | undefined;
  id?: string | undefined;
  /** The customer, else the subscription, else the payment that the events name. */
  about?: string | undefined;
  after: string | undefined;
  limit: number;
}

export const EventRecord = Type.Object({
  id: Type.String(),
  type: Type.String(),
  outcome: Type.String({ description: '`pending` until the event is completed.' }),
  objectId: Type.String(),
  about: Type.Union([Type.String(), Type.Null()]),
  receivedAt: Timestamp,
  attempts: Type.Integer(),
  dashboardUrl: Type.Union([Type.String(), Type.Null()]),
});
export type EventRecord = Static<typeof EventRecord>;

export function createEventLog(
  { paymentEvents, owners, gateway, dashboardUrl, audit }: BillingContext,
  { leases, processor }: { leases: EventLeases; processor: EventProcessor },
) {
  const read = async (id: string): Promise<PaymentEventDocument> => {
    const document = await paymentEvents.findOne({ id });
    if (!document) throw httpErrors.NOT_FOUND({ message: 'There is no such event.' });
    return document;
  };

  const payloadOf = async ({ id, payload }: PaymentEventDocument): Promise<string | null> => {
    if (payload !== undefined) return payload;
    // The specification's bodies have no ID; such events are stored under their signature.
    const found = id.startsWith('evt_') ? await gateway?.event(id) : null;
    return found ? JSON.stringify(found) : null;
  };

  const process = async (stored: PaymentEventDocument, options: ProcessOptions): Promise<EventOutcome> => {
    const payload = await payloadOf(stored);
    const event = payload === null ? null : parseEvent(payload, stored.id);
    if (payload === null || !event) throw billingErrors.EVENT_BODY_UNAVAILABLE();
    if (leases.isInProgress(stored)) throw billingErrors.EVENT_IN_PROGRESS();
    const received = { event: { ...event, receivedAt: stored.receivedAt }, payload, stored };
    return processor.process(received, options).catch((error: unknown) => {
      throw error instanceof EventTaken ? billingErrors.EVENT_IN_PROGRESS() : error;
    });
  };

  const record = (event: 'webhook.replayed' | 'webhook.assigned', by: Operator, detail: object) =>
    audit.entry({ event, ...auditActor(by), detail: JSON.stringify(detail) });

  const view = ({ id, type, objectId, attempts, ...document }: PaymentEventDocument): EventRecord => ({
    id,
    type,
    outcome: document.outcome ?? 'pending',
    objectId,
    about: document.about ?? null,
    receivedAt: toTimestamp(document.receivedAt),
    attempts,
    dashboardUrl: dashboardUrl(id),
  });

  return {
    /** Of an event in JSON. */
    schema: EventRecord,

    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    async list(query: EventQuery): Promise<Page<EventRecord>> {
      const { after, limit } = query;
      const order = { where: whereOf(query), sort: 'receivedAt', desc: true } as const;
      const { items, next } = await readPage(paymentEvents, { ...order, after, limit });
      return { items: items.map(view), next };
    },

    /** @throws NOT_FOUND */
    find: async (id: string): Promise<EventRecord> => view(await read(id)),

    /**
     * The body of an event: the stored one, else as the provider has it now; null if neither has it. A completed event is
     * stored without its body, and the provider keeps events for 30 days.
     * @throws NOT_FOUND, PAYMENT_PROVIDER_ERROR
     */
    payload: async (id: string): Promise<string | null> => payloadOf(await read(id)),

    /**
     * Processes an event again. A repetition changes nothing that is up to date already.
     * @throws NOT_FOUND, EVENT_IN_PROGRESS, EVENT_BODY_UNAVAILABLE, PAYMENT_PROVIDER_ERROR
     */
    async replay(id: string, by: Operator): Promise<EventOutcome> {
      const document = await read(id);
      const before = document.outcome ?? 'pending';
      return process(document, { record: (after) => record('webhook.replayed', by, { id, before, after }) });
    },

    /**
     * Assigns an unmatched event to a user, and with it the customer that it names: further events of that customer find the
     * user as well.
     * @throws NOT_FOUND, EVENT_ALREADY_MATCHED, EVENT_IN_PROGRESS
     */
    async assign(id: string, ownerId: string, by: Operator): Promise<EventOutcome> {
      const document = await read(id);
      if (document.outcome !== 'unmatched') throw billingErrors.EVENT_ALREADY_MATCHED();
      if (!(await owners.find(ownerId))) throw ownerNotFound(ownerId);
      const before = document.outcome;
      const outcome = await process(document, {
        assignedTo: ownerId,
        record: (after) => record('webhook.assigned', by, { id, ownerId, before, after }),
      });
      if (document.about !== undefined) await processor.replayUnmatched(document.about);
      return outcome;
    },
  };
}

/** One of the conditions that an index serves. */
function whereOf({ outcome, id, about }: EventQuery): Where<PaymentEventDocument> {
  if (id !== undefined) return { id };
  const stored = outcome === 'pending' ? null : outcome;
  if (about !== undefined) return { about, ...(stored !== undefined && { outcome: stored }) };
  return { outcome: stored === undefined ? 'processed' : stored };
}
