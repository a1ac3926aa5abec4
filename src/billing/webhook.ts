import type { Clock } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
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

export function createWebhook(deps: WebhookDependencies): Webhook {
  const { secrets, claims, processor, audit, clock } = deps;
  const verifier = createSignatureVerifier(secrets);

  return {
    async receive({ signature, body, ip }) {
      if (secrets.length === 0) throw billingErrors.BILLING_NOT_CONFIGURED();
      const matched = verifier.verify(signature, body, clock.now());
      if (!matched) {
        // Requests without a signature are background noise and get no record.
        if (signature !== undefined) await audit.recordFailure({ event: 'webhook.rejected', ip });
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
