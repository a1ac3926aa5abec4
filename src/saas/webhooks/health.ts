import { isUnexpired, MINUTE } from '../../core/kernel/clock.js';
import { type AppError, httpErrors } from '../../core/kernel/errors.js';
import type { Where, Write } from '../../core/storage/collection.js';
import { webhookErrors } from './errors.js';
import { FAILURE_LIMIT_MS, MAX_DELAY_MS, pauseMs } from './schedule.js';
import type { Deliveries, EndpointDocument, Endpoints, WebhookDependencies } from './store.js';

/** Whether endpoints answer: one that does not is paused, and disabled after three days. */
export type EndpointHealth = ReturnType<typeof createEndpointHealth>;

export interface FailedAttempt {
  text: string;
  /** Absent if there was no answer. */
  status?: number;
  retryAfterMs?: number | undefined;
}

/** The endpoint does not want to receive anything any more (RFC 9110 §15.5.11). */
const GONE = 410;

const FAILED_AT_ONCE = 200;

/**
 * Ends the deliveries of an endpoint that is disabled; the operator can send them again. A job does the rest of what exceeds `batches`
 * of 200.
 */
export async function failPending(
  deliveries: Deliveries,
  {
    endpointId,
    now,
    batches = Number.POSITIVE_INFINITY,
  }: { endpointId: string; now: number; batches?: number },
): Promise<void> {
  const failed = { status: 'failed', lastResult: 'the endpoint was disabled', endedAt: now } as const;
  const pending = { endpointId, dueAt: { gte: 0 } };
  // In batches, because after days without an answer there can be millions.
  for (let batch = 0; batch < batches; batch++) {
    const { items } = await deliveries.page({ where: pending, sort: 'dueAt', limit: FAILED_AT_ONCE });
    if (items.length === 0) return;
    const where = { ...pending, id: { in: items.map(({ id }) => id) } };
    await deliveries.updateMany(where, { set: failed, unset: ['dueAt'] });
  }
}

/** Ends the pause of an endpoint, which is for attempts that no request waits for. Unmet if it is disabled or removed. */
export const resuming = (endpoints: Endpoints, id: string): Write =>
  endpoints.changing({ id, disabledAt: null }, { unset: ['pausedUntil'] });

/** Why an endpoint cannot be resumed. */
export const refusal = async (endpoints: Endpoints, id: string): Promise<AppError> =>
  (await endpoints.findOne({ id })) ? webhookErrors.ENDPOINT_DISABLED() : httpErrors.NOT_FOUND();

export function createEndpointHealth(deps: WebhookDependencies) {
  const { endpoints, deliveries, commit, audit, clock, log } = deps;

  const disable = async (
    { id, url, version }: EndpointDocument,
    reason: string,
    further: Where<EndpointDocument> = {},
  ): Promise<void> => {
    const now = clock.now();
    const set = { disabledAt: now, disabledReason: reason };
    // The operator may have changed it since.
    const where = { id, version, disabledAt: null, ...further };
    const { committed } = await commit([
      endpoints.changing(where, { set, inc: { version: 1 } }),
      audit.entry({ event: 'webhook.disabled', ip: 'local', detail: `${id}: ${reason}` }),
    ]);
    if (!committed) return;
    // The path can contain a secret.
    log.warn({ endpoint: id, host: new URL(url).host, reason }, 'an endpoint of webhooks was disabled');
    await failPending(deliveries, { endpointId: id, now });
  };

  return {
    /** Whether attempts are made now. */
    isOpen: ({ disabledAt, pausedUntil = 0 }: EndpointDocument): boolean =>
      disabledAt === undefined && !isUnexpired(pausedUntil, { now: clock.now(), life: MAX_DELAY_MS }),

    async succeeded({ id, failingSince, lastSuccessAt = 0, unanswered }: EndpointDocument) {
      const now = clock.now();
      const isSteady = failingSince === undefined && unanswered === undefined;
      // At most one write a minute while it answers.
      if (isSteady && lastSuccessAt > now - MINUTE && lastSuccessAt <= now) return;
      await endpoints.updateOne(
        { id },
        { set: { lastSuccessAt: now }, unset: ['failingSince', 'lastFailure', 'unanswered', 'pausedUntil'] },
      );
    },

    /** Returns whether further attempts are made now. */
    async failed(
      endpoint: EndpointDocument,
      { text, status, retryAfterMs }: FailedAttempt,
    ): Promise<boolean> {
      const { id } = endpoint;
      const now = clock.now();
      const failingSince = endpoint.failingSince ?? now;
      await endpoints.updateOne({ id, failingSince: null }, { set: { failingSince: now } });
      if (status === GONE) {
        await disable(endpoint, 'it answered 410 Gone');
        return false;
      }
      if (failingSince <= now - FAILURE_LIMIT_MS) {
        // Another attempt may have succeeded since this one began.
        const further = { failingSince };
        await disable(endpoint, `no attempt has succeeded for three days; the last one: ${text}`, further);
        return false;
      }
      const isUnanswered = status === undefined;
      const unanswered = (endpoint.unanswered ?? 0) + 1;
      const pause = isUnanswered ? pauseMs(unanswered) : Math.min(retryAfterMs ?? 0, MAX_DELAY_MS);
      await endpoints.updateOne(
        { id },
        {
          set: {
            lastFailure: text,
            ...(isUnanswered && { unanswered }),
            ...(pause > 0 && { pausedUntil: now + pause }),
          },
        },
      );
      return pause === 0;
    },
  };
}
