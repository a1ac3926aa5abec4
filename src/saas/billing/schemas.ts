import type { Static } from 'typebox';
import { Type } from 'typebox';
import {
  After,
  Closed,
  Envelope,
  Next,
  Nullable,
  SubscriptionStatus,
  Timestamp,
} from '../../core/http/schemas.js';
import { CheckoutOptions } from './plans/options.js';

// The SDK cannot send other characters, which would look like a failure of the provider.
export const PriceId = Type.String({
  accepts: 'the id of a price of at most 255 characters',
  examples: ['price_1Pro'],
  maxLength: 255,
  pattern: '^[^\\p{Cc}\\p{Cs}]+$',
});

export const Quantity = Type.Integer({ minimum: 1, maximum: 1_000_000, examples: [1] });

export const CheckoutBody = Closed({
  priceId: Type.Optional(PriceId),
  mode: Type.Enum(['subscription', 'payment', 'setup'], { default: 'subscription' }),
  quantity: Type.Optional(Quantity),
});

const { quantity: _bounds, ...pageOptions } = CheckoutOptions.properties;

const ProviderId = (example: string) =>
  Type.Optional(
    Type.String({ accepts: 'an ID of the provider', examples: [example], pattern: '^[\\w-]{1,255}$' }),
  );

/** An order of the operator's code: the provider's page with other options than those of the plan. */
export const CheckoutOrder = Closed({
  ...CheckoutBody.properties,
  mode: Type.Optional(CheckoutBody.properties.mode),
  ...pageOptions,
  /** A discount, instead of promotion codes that users enter. */
  coupon: ProviderId('coupon_1'),
  /** The same as the ID of a promotion code. */
  promotionCode: ProviderId('promo_1'),
});
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

export const PortalBody = Closed({
  returnPath: Type.Optional(
    Type.String({
      accepts: 'a path of the application of at most 2048 characters',
      examples: ['/settings/billing'],
      maxLength: 2048,
    }),
  ),
});

export const PortalAnswer = Envelope(Type.Object({ url: Type.String() }));

export const Time = Nullable(Timestamp);

const Limits = Type.Record(Type.String(), Nullable(Type.Integer()));

export const SubscribedItem = Type.Object({
  priceId: Type.String(),
  /** Null if the price has no configured plan and does not name the plan of the subscription. */
  plan: Nullable(Type.String()),
  /** Null for usage-based prices. */
  quantity: Nullable(Type.Integer()),
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
  name: Nullable(Type.String()),
  percentOff: Nullable(Type.Number()),
  amountOff: Nullable(Type.Integer()),
  currency: Nullable(Type.String()),
  /** Null: as long as the subscription. */
  endsAt: Time,
});

export const NextInvoice = Type.Object({
  /** The amount due in the currency's smallest unit, with discounts, taxes and credit. */
  amount: Nullable(Type.Integer()),
  currency: Nullable(Type.String()),
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
  priceId: Nullable(Type.String()),
  quantity: Nullable(Type.Integer()),
  currentPeriodStart: Time,
  currentPeriodEnd: Time,
  trialEnd: Time,
  cancelAtPeriodEnd: Nullable(Type.Boolean()),
  cancelAt: Time,
  canceledAt: Time,
  endedAt: Time,
  updatedAt: Time,
  /** Why the status is `paused`: `trial_end_without_payment_method`, `pause_requested`, … Null for another status, or if it is unknown. */
  pauseReason: Nullable(Type.String()),
  items: Items,
  scheduledChange: Nullable(ScheduledChange),
  /** While invoices are not collected. `behavior`: `keep_as_draft`, `mark_uncollectible` or `void`. */
  collectionPause: Nullable(Type.Object({ behavior: Type.String(), resumesAt: Time })),
  /** Null if the provider does not respond. */
  discounts: Nullable(Type.Array(Discount)),
  /**
   * The provider's page on which the user pays an open invoice or confirms its payment: of a change that awaits it, of the first period or
   * of a later one.
   */
  paymentUrl: Nullable(Type.String()),
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
  nextInvoice: Type.Optional(Nullable(NextInvoice)),
  /** Only in the response to a change: the scheduled change that it has removed. */
  releasedChange: Type.Optional(Nullable(ScheduledChange)),
  /** The plan that the operator gave to the user, while the grant is in force. */
  granted: Nullable(Type.Object({ plan: Type.String(), since: Timestamp, until: Time })),
  ...benefits,
});
export type Subscription = Static<typeof Subscription>;

export const SubscriptionAnswer = Envelope(Subscription);

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
  family: Nullable(Type.String()),
  /** Of the plan, as users see it. */
  name: Type.String(),
  startedAt: Timestamp,
  /** Of the main item, per unit. */
  price: Nullable(
    Type.Object({
      amount: Nullable(Type.Number()),
      currency: Nullable(Type.String()),
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
  limit: Nullable(Type.Integer()),
  /** In the period; of a limit without one what is used and not released. */
  used: Type.Integer(),
  /** What can be used beyond the limit, in any period. */
  credits: Type.Integer(),
  /** With the credits; null for unlimited. */
  left: Nullable(Type.Integer()),
  /** When the next period starts; null for what is never reset. */
  resetsAt: Time,
});
export type QuotaView = Static<typeof QuotaView>;

export const UsageAnswer = Envelope(Type.Array(QuotaView));

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

export const HoldingsAnswer = Envelope(HoldingsView);

export const SyncBody = Closed({
  sessionId: Type.Optional(
    Type.String({
      accepts: 'the id of a checkout session',
      examples: ['cs_1'],
      pattern: '^[A-Za-z0-9_]{1,255}$',
    }),
  ),
});

/** A price for sale, or the configured plan `free`, which has no price. Amounts are in the currency's smallest unit. */
export const Plan = Type.Object({
  priceId: Nullable(Type.String()),
  plan: Type.String(),
  name: Nullable(Type.String()),
  description: Nullable(Type.String()),
  amount: Nullable(Type.Integer()),
  currency: Nullable(Type.String()),
  interval: Nullable(Type.String()),
  intervalCount: Nullable(Type.Integer()),
  /** Every currency in which the price can be paid, `currency` first. */
  currencies: Type.Array(Type.Object({ currency: Type.String(), amount: Nullable(Type.Integer()) })),
  /** `licensed` or `metered`; null for one-time prices. */
  usageType: Nullable(Type.String()),
  /** Days without payment at the start of a subscription. */
  trialDays: Nullable(Type.Integer()),
  features: Type.Array(Type.String()),
  /** As configured for the plan; null for unlimited. */
  limits: Limits,
});
export type Plan = Static<typeof Plan>;

export const PlansAnswer = Envelope(Type.Array(Plan));

export const Invoice = Type.Object({
  id: Type.String(),
  number: Nullable(Type.String()),
  status: Nullable(Type.String()),
  amountDue: Nullable(Type.Integer()),
  amountPaid: Nullable(Type.Integer()),
  currency: Nullable(Type.String()),
  createdAt: Timestamp,
  url: Nullable(Type.String()),
  pdf: Nullable(Type.String()),
  /** Null for the invoice of a one-time purchase. */
  subscriptionId: Nullable(Type.String()),
});
export type Invoice = Static<typeof Invoice>;

export const InvoicesAnswer = Envelope(Type.Array(Invoice));

/** A one-time purchase. Amounts are in the currency's smallest unit. `id` is the ID of the checkout session. */
export const Purchase = Type.Object({
  id: Type.String(),
  status: Type.Enum(['pending', 'paid', 'failed', 'refunded']),
  plan: Nullable(Type.String()),
  items: Type.Array(Type.Object({ priceId: Type.String(), quantity: Type.Integer() })),
  amount: Nullable(Type.Integer()),
  currency: Nullable(Type.String()),
  refundedAmount: Type.Integer(),
  refundableAmount: Type.Integer(),
  purchasedAt: Timestamp,
});
export type Purchase = Static<typeof Purchase>;

export const PageQuery = Closed({ after: After });

export const PurchasesAnswer = Envelope(Type.Object({ purchases: Type.Array(Purchase), next: Next }));

/** See `EventOutcome` (store.ts) and `WebhookOutcome` (webhook.ts). */
const Outcome = Type.Enum(['processed', 'duplicate', 'ignored', 'stale', 'unmatched']);

export const WebhookAnswer = Envelope(Type.Object({ received: Type.Literal(true), outcome: Outcome }));

/** A page of the owners, users and organizations, who pay for more than one subscription of a family of plans. */
export const DuplicateSubscriptions = Type.Object({
  items: Type.Array(
    Type.Object({
      ownerId: Type.String(),
      email: Type.String(),
      reportedAt: Timestamp,
      /** The newest first. */
      subscriptions: Type.Array(
        Type.Object({
          id: Type.String(),
          status: Type.String(),
          plan: Type.String(),
          priceId: Nullable(Type.String()),
          startedAt: Timestamp,
        }),
      ),
    }),
  ),
  next: Next,
});
export type DuplicateSubscriptions = Static<typeof DuplicateSubscriptions>;
