import { type Clock, MINUTE } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
import { createRequestCount } from '../ops/throttle-requests.js';
import type { Claims } from './claims.js';
import { billingErrors } from './errors.js';
import { readEvent } from './event.js';
import type { Processor } from './process.js';
import { createSignatureVerifier } from './signature.js';
import type { EventOutcome } from './store.js';

/** `duplicate`: it was done with before. */
export type WebhookOutcome = EventOutcome | 'duplicate';

export interface Webhook {
  /**
   * Verifies, claims and processes one delivery.
   * @throws BILLING_NOT_CONFIGURED, INVALID_SIGNATURE, INVALID_JSON, VALIDATION_ERROR, EVENT_IN_PROGRESS
   */
  receive(delivery: { signature: string | undefined; body: Buffer; ip: string }): Promise<WebhookOutcome>;
}

export interface WebhookDependencies {
  /** Those that the provider may sign with; none configured means that no event can be trusted. */
  secrets: readonly string[];
  claims: Claims;
  processor: Processor;
  audit: Audit;
  clock: Clock;
}

/** What is recorded of the false signatures of one address: nobody is refused here, and nobody fills the disk. */
const RECORDED = { most: 10, window: MINUTE, blocks: 10_000 };

export function createWebhook(deps: WebhookDependencies): Webhook {
  const { secrets, claims, processor, audit, clock } = deps;
  const verifier = createSignatureVerifier(secrets);
  const excessOf = createRequestCount(RECORDED, clock);

  return {
    async receive({ signature, body, ip }) {
      if (secrets.length === 0) throw billingErrors.BILLING_NOT_CONFIGURED();
      const matched = verifier.verify(signature, body, clock.now());
      if (!matched) {
        // Whoever signs nothing is noise of the internet and not worth a record.
        if (signature !== undefined && !excessOf(ip)) await audit.record({ event: 'webhook.rejected', ip });
        throw billingErrors.INVALID_SIGNATURE();
      }
      const payload = body.toString('utf8');
      const event = readEvent(payload, matched);
      const claim = await claims.begin(event, payload);
      if (claim === 'unmatched') return (await processor.retry(event)) ?? 'duplicate';
      if (typeof claim === 'string') return 'duplicate';
      return processor.settle(claim, event);
    },
  };
}
