import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import type { Clock } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { type Audit, auditActor, type Operator } from '../../core/ops/audit.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { Change, Page, Where } from '../../core/storage/collection.js';
import { firstPagesOf, readPage } from '../../core/storage/pages.js';
import { webhookErrors } from './errors.js';
import { refusal, resuming } from './health.js';
import type { DeliveryDetail, DeliveryStatus, DeliveryView } from './schemas.js';
import type { Deliveries, DeliveryDocument, Endpoints } from './store.js';

/** What one request sends again, so that it is answered in time. */
const MAX_RESENT = 1000;

export interface DeliveryQuery {
  endpointId?: string | undefined;
  status?: DeliveryStatus | undefined;
  event?: string | undefined;
  after: string | undefined;
  limit: number;
}

/** What the operator sees of deliveries, and sends again. */
export type DeliveryService = ReturnType<typeof createDeliveryService>;

export interface DeliveryServiceDependencies {
  endpoints: Endpoints;
  deliveries: Deliveries;
  commit: CommitParts;
  /** Called when there is something to send. */
  wake(): void;
  audit: Pick<Audit, 'entry'>;
  clock: Clock;
}

function viewOf(delivery: DeliveryDocument): DeliveryView {
  const { id, webhookId, event, endpointId, status, attempts, lastResult = null } = delivery;
  return {
    id,
    webhookId,
    event,
    endpointId,
    status,
    attempts,
    lastResult,
    createdAt: toTimestamp(delivery.createdAt),
    nextAttemptAt: toTimestampOrNull(delivery.dueAt),
    endedAt: toTimestampOrNull(delivery.endedAt),
  };
}

export function createDeliveryService(deps: DeliveryServiceDependencies) {
  const { endpoints, deliveries, commit, wake, audit, clock } = deps;

  /** Makes a delivery pending again, unless it is, or was attempted since. */
  const requeued = ({
    id,
    attempts,
  }: DeliveryDocument): [Where<DeliveryDocument>, Change<DeliveryDocument>] => [
    { id, attempts, dueAt: null },
    { set: { status: 'pending', dueAt: clock.now(), scheduledFrom: attempts }, unset: ['endedAt'] },
  ];

  const read = async (id: string): Promise<DeliveryDocument> => {
    const delivery = await deliveries.findOne({ id });
    if (!delivery) throw httpErrors.NOT_FOUND();
    return delivery;
  };

  const entry = (by: Operator, detail: string) =>
    audit.entry({ event: 'webhook.resent', ...auditActor(by), detail });

  return {
    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    async list({ endpointId, status, event, after, limit }: DeliveryQuery): Promise<Page<DeliveryView>> {
      const where = {
        ...(endpointId !== undefined && { endpointId }),
        ...(status !== undefined && { status }),
        ...(event !== undefined && { event }),
      };
      const { items, next } = await readPage(deliveries, {
        where,
        sort: 'createdAt',
        desc: true,
        after,
        limit,
      });
      return { items: items.map(viewOf), next };
    },

    /** @throws NOT_FOUND */
    async find(id: string): Promise<DeliveryDetail> {
      const delivery = await read(id);
      return {
        ...viewOf(delivery),
        payload: delivery.body,
        answer: delivery.answer ?? null,
        history: delivery.history.map(({ at, result }) => ({ at: toTimestamp(at), result })),
      };
    },

    /** Sends a completed delivery again, with the same ID and body. @throws NOT_FOUND, DELIVERY_PENDING, ENDPOINT_DISABLED */
    async resend(id: string, by: Operator) {
      const delivery = await read(id);
      const queued = deliveries.changing(...requeued(delivery));
      const outcome = await commit([resuming(endpoints, delivery.endpointId), queued, entry(by, id)]);
      if (!outcome.committed)
        throw outcome.unmet === queued
          ? webhookErrors.DELIVERY_PENDING()
          : await refusal(endpoints, delivery.endpointId);
      wake();
    },

    /** The same for the oldest 1,000 failed ones of an endpoint. Returns their number. @throws NOT_FOUND, ENDPOINT_DISABLED */
    async resendFailed(endpointId: string, by: Operator): Promise<number> {
      const failed: DeliveryDocument[] = [];
      const where = { endpointId, status: 'failed' } as const;
      for await (const items of firstPagesOf(deliveries, { where, sort: 'createdAt' }, MAX_RESENT))
        failed.push(...items);
      const { committed } = await commit([
        resuming(endpoints, endpointId),
        failed.length > 0 ? entry(by, `${endpointId}: ${failed.length}`) : undefined,
      ]);
      if (!committed) throw await refusal(endpoints, endpointId);
      // After the commit, because they are too many for a transaction. What a crash leaves is sent by the next request.
      const queued = await Promise.all(failed.map((one) => deliveries.changeOne(...requeued(one))));
      wake();
      return queued.filter(Boolean).length;
    },
  };
}
