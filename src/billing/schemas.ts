import type { Static, TObject, TSchema } from 'typebox';
import { Type } from 'typebox';
import { option } from '../config/options.js';
import { isLoopback, pathProblem } from '../config/public-url.js';
import { shown } from '../config/validation-messages.js';
import { Envelope, SubscriptionStatus, Timestamp } from '../http/schemas.js';
import { secretWeakness } from '../kernel/secrets.js';

export const billingOptions = {
  paymentSecretKey: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_SECRET_KEY',
    doc: 'Secret API key of the payment provider. Without it, checkout, portal and sync respond with 503.',
    secret: true,
    check: (key) =>
      /^[\x21-\x7e]+$/.test(key ?? '') ? undefined : 'must contain no spaces or control characters.',
  }),
  paymentApiUrl: option(Type.Optional(Type.String()), {
    env: 'PAYMENT_API_URL',
    doc: 'Base URL of the payment API, to use a simulator or stripe-mock. Must be https for a live mode key.',
    shown: "the provider's own",
    check: (url) =>
      URL.canParse(url ?? '') && /^https?:\/\/[^/?#@]+\/?$/.test(url ?? '')
        ? undefined
        : 'must be an http or https address without a path, like http://127.0.0.1:12111.',
  }),
  billingReturnUrlRelative: option(Type.String({ default: '/settings/billing' }), {
    env: 'BILLING_RETURN_URL_RELATIVE',
    doc: 'Path to which users return from the payment provider, relative to PUBLIC_URL.',
    check: (path) => returnPathProblem(path),
  }),
  billingPrices: option(Type.Optional(Type.Array(Type.String())), {
    env: 'BILLING_PRICES',
    doc: 'Prices that can be purchased and their plans, as price_…=plan, separated by commas. Without it, any active price can be purchased.',
    check: (pairs = []) => pricesProblem(pairs),
  }),
  pastDue: option(
    Type.Union(
      [Type.Literal('entitled'), Type.Literal('denied'), Type.Integer({ minimum: 1, maximum: 366 })],
      {
        default: 'entitled',
        accepts: 'entitled, denied or a number of days from 1 to 366',
        examples: [14],
      },
    ),
    {
      env: 'BILLING_PAST_DUE',
      doc: 'Access while a payment is past due: entitled, denied, or a grace period in days.',
      parse: (text) => (/^\d{1,3}$/.test(text) ? Number(text) : text),
    },
  ),
  paymentWebhookSecret: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_WEBHOOK_SECRET',
    doc: 'Secret that verifies webhook signatures. At least 32 characters in production. Without it, the webhook responds with 503.',
    secret: true,
    check: blankness,
    safe: signingWeakness,
  }),
  paymentWebhookSecretPrevious: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_WEBHOOK_SECRET_PREVIOUS',
    doc: 'Previous secret, also accepted. Set it to the old secret while you roll PAYMENT_WEBHOOK_SECRET. At least 32 characters in production.',
    secret: true,
    check: blankness,
    safe: signingWeakness,
  }),
};

export type BillingConfiguration = Static<TObject<typeof billingOptions>>;

function pricesProblem(pairs: readonly string[]): string | undefined {
  const wrong = pairs.find((pair) => !/^[\w-]+=[\w.-]+( +[\w.-]+)*$/.test(pair));
  if (wrong !== undefined) {
    return `must list price=plan pairs, like price_1Pro=pro,price_1Team=team; given: ${shown(wrong)}.`;
  }
  const prices = pairs.map((pair) => pair.split('=')[0]);
  const twice = prices.find((price, index) => prices.indexOf(price) < index);
  return twice === undefined ? undefined : `must name each price once; given twice: ${shown(twice)}.`;
}

/** Rejected in development as well: a blank value means that the secret was not set. */
function blankness(secret = ''): string | undefined {
  return secret.trim() === '' ? 'is blank.' : undefined;
}

/** The provider's secrets have 38 bytes or more. Their prefix does not turn a placeholder into a secret. */
function signingWeakness(secret = ''): string | undefined {
  const remedy = 'Copy the signing secret from the payment provider.';
  return secretWeakness(secret, 32, remedy) ?? secretWeakness(secret.replace(/^whsec_/, ''), 0, remedy);
}

/** Whether an API key belongs to live mode (real payments). */
export const isLiveKey = (key: string | undefined): boolean => /^(sk|rk)_live_/.test(key ?? '');

/** Why the API key must not be sent to this address, or `undefined`. */
export function apiUrlProblem(url: string | undefined, key: string | undefined): string | undefined {
  if (url === undefined || !URL.canParse(url) || !isLiveKey(key)) return undefined;
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' || isLoopback(hostname)
    ? undefined
    : 'must be https, because it receives a live key.';
}

/** Why a path could lead outside the application, or `undefined`. A missing leading slash is added later. */
export const returnPathProblem = (path: string): string | undefined => pathProblem(path, '/settings/billing');

export const CheckoutBody = Type.Object(
  {
    // The SDK cannot send other characters, which would look like a failure of the provider.
    priceId: Type.Optional(
      Type.String({
        accepts: 'the id of a price of at most 255 characters',
        examples: ['price_1Pro'],
        maxLength: 255,
        pattern: '^[^\\p{Cc}\\p{Cs}]+$',
      }),
    ),
    mode: Type.Enum(['subscription', 'payment', 'setup'], { default: 'subscription' }),
    quantity: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, examples: [1] })),
  },
  { additionalProperties: false },
);

export const CheckoutAnswer = Envelope(Type.Object({ sessionId: Type.String(), url: Type.String() }));

export const PortalBody = Type.Object(
  {
    returnPath: Type.Optional(
      Type.String({
        accepts: 'a path of the application of at most 2048 characters',
        examples: ['/settings/billing'],
        maxLength: 2048,
      }),
    ),
  },
  { additionalProperties: false },
);

export const PortalAnswer = Envelope(Type.Object({ url: Type.String() }));

const nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Time = nullable(Timestamp);

/**
 * A user's subscription and whether it grants access. Without one: `none`, `free`, and otherwise null. Unlike in
 * `User.subscription`, `plan` is also set for a subscription that has ended.
 */
export const Subscription = Type.Object({
  status: SubscriptionStatus,
  plan: Type.String(),
  entitled: Type.Boolean(),
  priceId: nullable(Type.String()),
  quantity: nullable(Type.Integer()),
  currentPeriodStart: Time,
  currentPeriodEnd: Time,
  trialEnd: Time,
  cancelAtPeriodEnd: nullable(Type.Boolean()),
  cancelAt: Time,
  canceledAt: Time,
  endedAt: Time,
  updatedAt: Time,
  /** The plan that the operator gave to the user, while the grant is in force. */
  granted: nullable(Type.Object({ plan: Type.String(), since: Timestamp, until: Time })),
});
export type Subscription = Static<typeof Subscription>;

export const SubscriptionAnswer = Envelope(Subscription);

export const SyncBody = Type.Object(
  {
    sessionId: Type.Optional(
      Type.String({
        accepts: 'the id of a checkout session',
        examples: ['cs_1'],
        pattern: '^[A-Za-z0-9_]{1,255}$',
      }),
    ),
  },
  { additionalProperties: false },
);

/** A price for sale. Amounts are in the currency's smallest unit. */
export const Plan = Type.Object({
  priceId: Type.String(),
  plan: Type.String(),
  name: nullable(Type.String()),
  description: nullable(Type.String()),
  amount: nullable(Type.Integer()),
  currency: nullable(Type.String()),
  interval: nullable(Type.String()),
  intervalCount: nullable(Type.Integer()),
});
export type Plan = Static<typeof Plan>;

export const PlansAnswer = Envelope(Type.Array(Plan));

export const Invoice = Type.Object({
  id: Type.String(),
  number: nullable(Type.String()),
  status: nullable(Type.String()),
  amountDue: nullable(Type.Integer()),
  amountPaid: nullable(Type.Integer()),
  currency: nullable(Type.String()),
  createdAt: Timestamp,
  url: nullable(Type.String()),
  pdf: nullable(Type.String()),
});
export type Invoice = Static<typeof Invoice>;

export const InvoicesAnswer = Envelope(Type.Array(Invoice));

/** See `EventOutcome` (store.ts) and `WebhookOutcome` (webhook.ts). */
const Outcome = Type.Enum(['processed', 'duplicate', 'ignored', 'stale', 'unmatched']);

export const WebhookAnswer = Envelope(Type.Object({ received: Type.Literal(true), outcome: Outcome }));
