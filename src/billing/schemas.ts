import { Type } from 'typebox';
import { option } from '../kernel/options.js';
import { Envelope } from '../kernel/schemas.js';

export const billingOptions = {
  paymentWebhookSecret: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_WEBHOOK_SECRET',
    doc: 'Verifies the signature of webhooks. Without it the webhook answers 503.',
    secret: true,
    check: (secret) => (secret?.trim() === '' ? 'is blank.' : undefined),
  }),
  paymentWebhookSecretPrevious: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_WEBHOOK_SECRET_PREVIOUS',
    doc: 'Verifies as well: set it to the old secret while the provider rolls it.',
    secret: true,
    check: (secret) => (secret?.trim() === '' ? 'is blank.' : undefined),
  }),
};

/**
 * What became of an event: `duplicate` was processed before, `ignored` is of a kind that changes nothing here,
 * `unmatched` concerns a customer nobody here is known by, and is kept.
 */
export const Outcome = Type.Enum(['duplicate', 'ignored', 'unmatched']);

export const WebhookAnswer = Envelope(Type.Object({ received: Type.Literal(true), outcome: Outcome }));
