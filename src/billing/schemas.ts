import { option } from '../kernel/options.js';
import { pathProblem } from '../kernel/public-url.js';
import { Envelope } from '../kernel/schemas.js';
import { Type } from '../kernel/type.js';

export const billingOptions = {
  paymentSecretKey: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_SECRET_KEY',
    doc: 'Secret API key of the payment provider. Without it checkout and portal answer 503.',
    secret: true,
    check: (key) =>
      /^[\x21-\x7e]+$/.test(key ?? '') ? undefined : 'must hold no spaces or control characters.',
  }),
  paymentApiUrl: option(Type.Optional(Type.String()), {
    env: 'PAYMENT_API_URL',
    doc: 'Another address for the API of the payment provider: a simulator or stripe-mock.',
    check: (url) =>
      URL.canParse(url ?? '') && /^https?:\/\/[^/?#@]+\/?$/.test(url ?? '')
        ? undefined
        : 'must be an http or https address without a path.',
  }),
  billingReturnUrlRelative: option(Type.String({ default: '/settings/billing' }), {
    env: 'BILLING_RETURN_URL_RELATIVE',
    doc: 'Path, appended to PUBLIC_URL, to which people return from the payment provider.',
    check: (path) => returnPathProblem(path),
  }),
  billingPrices: option(Type.Optional(Type.Array(Type.String())), {
    env: 'BILLING_PRICES',
    doc: 'What may be bought, as price_…=plan, separated by commas. Without it any price of the provider.',
    check: (pairs) =>
      pairs?.every((pair) => /^[\w-]+=[\w .-]+$/.test(pair)) === false
        ? 'must list price=plan pairs.'
        : undefined,
  }),
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

/** A path of the application: one leading slash (added where it lacks), and nothing that names another place. */
export const returnPathProblem = (path: string): string | undefined => pathProblem(path, '/settings/billing');

export const CheckoutBody = Type.Object(
  {
    priceId: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
    mode: Type.Enum(['subscription', 'payment', 'setup'], { default: 'subscription' }),
    quantity: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
  },
  { additionalProperties: false },
);

export const CheckoutAnswer = Envelope(Type.Object({ sessionId: Type.String(), url: Type.String() }));

export const PortalBody = Type.Object(
  { returnPath: Type.Optional(Type.String({ maxLength: 2048 })) },
  { additionalProperties: false },
);

export const PortalAnswer = Envelope(Type.Object({ url: Type.String() }));

/**
 * What became of an event: `duplicate` was processed before, `ignored` is of a kind that changes nothing here,
 * `unmatched` concerns a customer nobody here is known by, and is kept.
 */
const Outcome = Type.Enum(['duplicate', 'ignored', 'unmatched']);

export const WebhookAnswer = Envelope(Type.Object({ received: Type.Literal(true), outcome: Outcome }));
