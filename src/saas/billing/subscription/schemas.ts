import type { Static } from 'typebox';
import { Type } from 'typebox';
import { Closed, Envelope, Nullable } from '../../../core/http/schemas.js';
import { PriceId, Quantity, Time } from '../schemas.js';

/** Changes of a subscription, and what they charge. */

const SubscriptionId = Type.String({
  accepts: 'the id of a subscription',
  examples: ['sub_1'],
  pattern: '^[A-Za-z0-9_]{1,255}$',
});

/** Selects one of several subscriptions. */
const target = { subscriptionId: Type.Optional(SubscriptionId) };

const When = Type.Enum(['now', 'period_end'], { default: 'now' });

export const ChangeBody = Closed({
  priceId: PriceId,
  quantity: Type.Optional(Quantity),
  when: When,
  ...target,
});

const priceInQuery = {
  priceId: PriceId,
  quantity: Type.Optional(
    Type.String({
      accepts: 'an integer from 1 to 1000000',
      examples: ['1'],
      pattern: '^(?:[1-9]\\d{0,5}|1000000)$',
    }),
  ),
  ...target,
};

/** The same as `ChangeBody`, in a query. */
export const ChangeQuery = Closed({ ...priceInQuery, when: When });

/** The same as `AddOnBody`, in a query. */
export const AddOnQuery = Closed(priceInQuery);

export const AddOnBody = Closed({ priceId: PriceId, quantity: Type.Optional(Quantity), ...target });

export const AddOnRemovalBody = Closed({ priceId: PriceId, ...target });

export const PromotionCodeBody = Closed({
  code: Type.String({
    accepts: 'a promotion code of at most 500 letters, digits and hyphens',
    examples: ['LAUNCH20'],
    pattern: '^[\\w-]{1,500}$',
  }),
  ...target,
});

export const CancelBody = Closed({
  when: Type.Enum(['period_end', 'now'], { default: 'period_end' }),
  ...target,
});

export const TargetBody = Closed(target);

/** What a change charges now. Amounts are in the currency's smallest unit. */
export const ChangePreview = Type.Object({
  amountDue: Type.Integer(),
  /** Negative if the change results in a credit for the next invoices. */
  total: Type.Integer(),
  currency: Nullable(Type.String()),
  lines: Type.Array(
    Type.Object({
      description: Nullable(Type.String()),
      amount: Type.Integer(),
      quantity: Nullable(Type.Integer()),
      periodStart: Time,
      periodEnd: Time,
    }),
  ),
  /** The end of the period that is then paid; null if the subscription ends. */
  nextChargeAt: Time,
});
export type ChangePreview = Static<typeof ChangePreview>;

export const ChangePreviewAnswer = Envelope(ChangePreview);
