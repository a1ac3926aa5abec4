import type { Clock } from '../kernel/clock.js';
import { defineErrors, httpErrors } from '../kernel/errors.js';
import { newToken, type Random } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import { UniqueViolation } from '../storage/collection.js';
import { billingErrors } from './errors.js';
import { createSignatureVerifier } from './signature.js';
import type { WebhookEventDocument, WebhookEvents } from './store.js';

export const webhookErrors = defineErrors({
  INVALID_SIGNATURE: [400, 'The signature of the event is missing, wrong or too old.'],
  EVENT_IN_PROGRESS: [409, 'The same event is being processed. Deliver it again later.'],
});

export type WebhookOutcome = 'duplicate' | 'ignored' | 'unmatched';

export interface Webhook {
  /**
   * Verifies, claims and judges one delivery.
   * @throws BILLING_NOT_CONFIGURED, INVALID_SIGNATURE, INVALID_JSON, VALIDATION_ERROR, EVENT_IN_PROGRESS
   */
  receive(delivery: { signature: string | undefined; body: Buffer; ip: string }): Promise<WebhookOutcome>;
}

export interface WebhookDependencies {
  /** Those that the provider may sign with; none configured means that no event can be trusted. */
  secrets: readonly string[];
  events: WebhookEvents;
  audit: Audit;
  clock: Clock;
  random: Random;
}

/** The kinds that concern a subscription. */
const HANDLED = new Set([
  'customer.subscription.created',
  'customer.subscription.updated',
  'customer.subscription.deleted',
  'invoice.payment_succeeded',
  'invoice.payment_failed',
]);

/** How long a delivery may be worked on before another one takes it over, in milliseconds. */
const LEASE = 30_000;

export function createWebhook({ secrets, events, audit, clock, random }: WebhookDependencies): Webhook {
  const verifier = createSignatureVerifier(secrets);
  const owner = newToken(random);

  /** Makes the event ours to work on, unless it is done. @throws EVENT_IN_PROGRESS */
  const claim = async (event: Event, payload: string): Promise<'claimed' | 'done'> => {
    const now = clock.now();
    const document: WebhookEventDocument = {
      ...event,
      payload,
      receivedAt: now,
      attempts: 1,
      owner,
      leaseUntil: now + LEASE,
    };
    const isNew = await events.insert(document).then(() => true, falseIfTaken);
    if (isNew) return 'claimed';
    const taken = await events.updateOne(
      { id: event.id, outcome: null, leaseUntil: { lte: now } },
      { set: { owner, leaseUntil: now + LEASE }, inc: { attempts: 1 } },
    );
    if (taken) return 'claimed';
    const known = await events.findOne({ id: event.id });
    if (known?.outcome !== undefined) return 'done';
    throw webhookErrors.EVENT_IN_PROGRESS();
  };

  return {
    async receive({ signature, body, ip }) {
      if (secrets.length === 0) throw billingErrors.BILLING_NOT_CONFIGURED();
      const matched = verifier.verify(signature, body, clock.now());
      if (!matched) {
        await audit.record({ event: 'webhook.rejected', ip });
        throw webhookErrors.INVALID_SIGNATURE();
      }
      const payload = body.toString('utf8');
      const event = readEvent(payload, matched);
      if ((await claim(event, payload)) === 'done') return 'duplicate';
      const outcome = HANDLED.has(event.type) ? 'unmatched' : 'ignored';
      await events.updateOne({ id: event.id, owner }, { set: { outcome } });
      return outcome;
    },
  };
}

interface Event {
  id: string;
  type: string;
  objectId: string;
}

/** The least that an event holds: `type` and `data.object.id`. Without an `id` its signature names it. */
function readEvent(payload: string, signature: string): Event {
  let body: unknown;
  try {
    body = JSON.parse(payload);
  } catch {
    throw httpErrors.INVALID_JSON();
  }
  const { id, type, data } = (body ?? {}) as {
    id?: unknown;
    type?: unknown;
    data?: { object?: { id?: unknown } };
  };
  const objectId = data?.object?.id;
  const missing = Object.entries({ type, 'data.object.id': objectId }).filter(([, value]) => !isName(value));
  if (missing.length > 0) {
    const details = missing.map(([path]) => ({ path, message: 'must be a string of 1 to 255 characters' }));
    throw httpErrors.VALIDATION_ERROR({ details });
  }
  return { id: isName(id) ? id : signature, type: String(type), objectId: String(objectId) };
}

const isName = (value: unknown): value is string =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

function falseIfTaken(error: unknown): false {
  if (error instanceof UniqueViolation) return false;
  throw error;
}
