import type { Static, TSchema } from 'typebox';
import { Type } from 'typebox';
import { After, Envelope, Next, SubscriptionStatus, Timestamp } from '../../core/http/schemas.js';
import { CheckoutOptions } from './plans/options.js';

// The SDK cannot send other characters, which would look like a failure of the provider.
export const PriceId = Type.String({
  accepts: 'the id of a price of at most 255 characters',
  examples: ['price_1Pro'],
  maxLength: 255,
  pattern: '^[^\\p{Cc}\\p{Cs}]+$',
});

export const Quantity = Type.Integer({ minimum: 1, maximum: 1_000_000, examples: [1] });

export const CheckoutBody = Type.Object(
  {
    priceId: Type.Optional(PriceId),
    mode: Type.Enum(['subscription', 'payment', 'setup'], { default: 'subscription' }),
    quantity: Type.Optional(Quantity),
  },
  { additionalProperties: false },
);

const { quantity: _bounds, ...pageOptions } = CheckoutOptions.properties;

const ProviderId = (example: string) =>
  Type.Optional(
    Type.String({ accepts: 'an ID of the provider', examples: [example], pattern: '^[\\w-]{1,255}$' }),
  );

/** An order of the operator's code: the provider's page with other options than those of the plan. */
export const CheckoutOrder = Type.Object(
  {
    ...CheckoutBody.properties,
    mode: Type.Optional(CheckoutBody.properties.mode),
    ...pageOptions,
    /** A discount, instead of promotion codes that users enter. */
    coupon: ProviderId('coupon_1'),
    /** The same as the ID of a promotion code. */
    promotionCode: ProviderId('promo_1'),
  },
  { additionalProperties: false },
);
export type CheckoutOrder = Static<typeof CheckoutOrder>;

export const CheckoutAnswer = Envelope(
  Type.Object({
    sessionId: Type.String(),
    /** Empty for a page that the hook `checkoutSession` embeds. */
    url: Type.String(),
    /** With which the browser embeds the page. */
    clientSecret: Type.Optional(Type.String()),
  }),
);

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

export const nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
export const Time = nullable(Timestamp);

const Limits = Type.Record(Type.String(), nullable(Type.Integer()));

export const SubscribedItem = Type.Object({
  priceId: Type.String(),
  /** Null if the price has no configured plan and does not name the plan of the subscription. */
  plan: nullable(Type.String()),
  /** Null for usage-based prices. */
  quantity: nullable(Type.Integer()),
});

const Items = Type.Array(SubscribedItem);

/**
 * - `schedule`: the items from `at` on; none if the subscription ends then
 * - `pending_payment`: the items once an invoice is paid, which must happen until `expiresAt`
 */
export const ScheduledChange = Type.Object({
  reason: Type.Enum(['schedule', 'pending_payment']),
  at: Time,
  expiresAt: Time,
  items: Items,
});

export const Discount = Type.Object({
  name: nullable(Type.String()),
  percentOff: nullable(Type.Number()),
  amountOff: nullable(Type.Integer()),
  currency: nullable(Type.String()),
  /** Null: as long as the subscription. */
  endsAt: Time,
});

export const NextInvoice = Type.Object({
  /** The amount due in the currency's smallest unit, with discounts, taxes and credit. */
  amount: nullable(Type.Integer()),
  currency: nullable(Type.String()),
  /** When it is charged, or created if the customer pays it later. */
  date: Time,
});
export type NextInvoice = Static<typeof NextInvoice>;

export const SubscriptionQuery = Type.Object({ include: Type.Optional(Type.Enum(['nextInvoice'])) });

/** The terms of a subscription, which those of a purchase and of a grant resemble. */
const subscriptionTerms = {
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
  /** Why the status is `paused`: `trial_end_without_payment_method`, `pause_requested`, … Null for another status, or if it is unknown. */
  pauseReason: nullable(Type.String()),
  items: Items,
  scheduledChange: nullable(ScheduledChange),
  /** While invoices are not collected. `behavior`: `keep_as_draft`, `mark_uncollectible` or `void`. */
  collectionPause: nullable(Type.Object({ behavior: Type.String(), resumesAt: Time })),
  /** Null if the provider does not respond. */
  discounts: nullable(Type.Array(Discount)),
  /**
   * The provider's page on which the user pays an open invoice or confirms its payment: of a change that awaits it, of the first period or
   * of a later one.
   */
  paymentUrl: nullable(Type.String()),
};

const benefits = {
  /** Of all plans to which the user has access, and of the plan `free`. */
  features: Type.Array(Type.String()),
  /** The highest of those plans; 0 if none of them has the limit, null for unlimited. */
  limits: Limits,
};

/**
 * A user's subscription and whether it grants access. Without one: `none`, `free`, and otherwise null. Unlike in
 * `User.subscription`, `plan` is also set for a subscription that has ended.
 */
export const Subscription = Type.Object({
  ...subscriptionTerms,
  /** Only if requested with `include=nextInvoice`. Null if there is none, or if the provider does not respond. */
  nextInvoice: Type.Optional(nullable(NextInvoice)),
  /** Only in the response to a change: the scheduled change that it has removed. */
  releasedChange: Type.Optional(nullable(ScheduledChange)),
  /** The plan that the operator gave to the user, while the grant is in force. */
  granted: nullable(Type.Object({ plan: Type.String(), since: Timestamp, until: Time })),
  ...benefits,
});
export type Subscription = Static<typeof Subscription>;

/** What can be done with a subscription: the routes of these names, and `pay` the open invoice at `paymentUrl`. */
export const HELD_ACTIONS = [
  'change',
  'undo_change',
  'cancel',
  'cancel_now',
  'resume',
  'pause',
  'pay',
] as const;

/** Something that a user holds. */
const Held = Type.Object({
  /** The ID of the subscription, or of the checkout session of a purchase; `grant` for the plan that the operator gave. */
  id: Type.String(),
  kind: Type.Enum(['subscription', 'purchase', 'grant']),
  /**
   * `plans` for the plans of which a user has one at a time, the name of an independent plan, or null for what is no plan of this
   * product, such as a retainer. A change stays within the family.
   */
  family: nullable(Type.String()),
  /** Of the plan, as users see it. */
  name: Type.String(),
  startedAt: Timestamp,
  /** Of the main item, per unit. */
  price: nullable(
    Type.Object({
      amount: nullable(Type.Number()),
      currency: nullable(Type.String()),
      interval: Type.String(),
      intervalCount: Type.Integer(),
    }),
  ),
  ...subscriptionTerms,
  actions: Type.Array(Type.Enum(HELD_ACTIONS)),
});
export type HeldView = Static<typeof Held>;

/** What a user has used of a limit. */
export const QuotaView = Type.Object({
  /** Of the limit. */
  name: Type.String(),
  /** Of the period; null for unlimited. */
  limit: nullable(Type.Integer()),
  /** In the period; of a limit without one what is used and not released. */
  used: Type.Integer(),
  /** What can be used beyond the limit, in any period. */
  credits: Type.Integer(),
  /** With the credits; null for unlimited. */
  left: nullable(Type.Integer()),
  /** When the next period starts; null for what is never reset. */
  resetsAt: Time,
});
export type QuotaView = Static<typeof QuotaView>;

/** What a user holds, and what follows from it. `status`, `plan` and `entitled` as in `User.subscription`. */
export const HoldingsView = Type.Object({
  status: SubscriptionStatus,
  plan: Type.String(),
  entitled: Type.Boolean(),
  /** What gives access first, then what has not ended, then the rest; the newest first. */
  holdings: Type.Array(Held),
  ...benefits,
});
export type HoldingsView = Static<typeof HoldingsView>;

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

/** A price for sale, or the configured plan `free`, which has no price. Amounts are in the currency's smallest unit. */
export const Plan = Type.Object({
  priceId: nullable(Type.String()),
  plan: Type.String(),
  name: nullable(Type.String()),
  description: nullable(Type.String()),
  amount: nullable(Type.Integer()),
  currency: nullable(Type.String()),
  interval: nullable(Type.String()),
  intervalCount: nullable(Type.Integer()),
  /** Every currency in which the price can be paid, `currency` first. */
  currencies: Type.Array(Type.Object({ currency: Type.String(), amount: nullable(Type.Integer()) })),
  /** `licensed` or `metered`; null for one-time prices. */
  usageType: nullable(Type.String()),
  /** Days without payment at the start of a subscription. */
  trialDays: nullable(Type.Integer()),
  features: Type.Array(Type.String()),
  /** As configured for the plan; null for unlimited. */
  limits: Limits,
});
export type Plan = Static<typeof Plan>;

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
  /** Null for the invoice of a one-time purchase. */
  subscriptionId: nullable(Type.String()),
});
export type Invoice = Static<typeof Invoice>;

/** A one-time purchase. Amounts are in the currency's smallest unit. `id` is the ID of the checkout session. */
export const Purchase = Type.Object({
  id: Type.String(),
  status: Type.Enum(['pending', 'paid', 'failed', 'refunded']),
  plan: nullable(Type.String()),
  items: Type.Array(Type.Object({ priceId: Type.String(), quantity: Type.Integer() })),
  amount: nullable(Type.Integer()),
  currency: nullable(Type.String()),
  refundedAmount: Type.Integer(),
  refundableAmount: Type.Integer(),
  purchasedAt: Timestamp,
});
export type Purchase = Static<typeof Purchase>;

export const PageQuery = Type.Object({ after: After }, { additionalProperties: false });

/** See `EventOutcome` (store.ts) and `WebhookOutcome` (webhook.ts). */
const Outcome = Type.Enum(['processed', 'duplicate', 'ignored', 'stale', 'unmatched']);

export const WebhookAnswer = Envelope(Type.Object({ received: Type.Literal(true), outcome: Outcome }));

/** A page of the users who pay for more than one subscription of a family of plans. */
export const DuplicateSubscriptions = Type.Object({
  items: Type.Array(
    Type.Object({
      userId: Type.String(),
      email: Type.String(),
      reportedAt: Timestamp,
      /** The newest first. */
      subscriptions: Type.Array(
        Type.Object({
          id: Type.String(),
          status: Type.String(),
          plan: Type.String(),
          priceId: nullable(Type.String()),
          startedAt: Timestamp,
        }),
      ),
    }),
  ),
  next: Next,
});
export type DuplicateSubscriptions = Static<typeof DuplicateSubscriptions>;
