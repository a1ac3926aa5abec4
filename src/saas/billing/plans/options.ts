import type { Static } from 'typebox';
import { Type } from 'typebox';
import { formatValue } from '../../../core/config/validation-messages.js';
import { DisplayName } from '../../../core/http/schemas.js';

/** The option `billing`: the plans of the product, with what each includes and how it is sold. */

const wholeNumber = (minimum: number, maximum: number) => Type.Optional(Type.Integer({ minimum, maximum }));
const flag = () => Type.Optional(Type.Boolean());

/** Options of the provider's checkout page for the prices of a plan. */
export const CheckoutOptions = Type.Object(
  {
    /** Days without payment at the start of a subscription. */
    trialDays: wholeNumber(1, 730),
    promotionCodes: flag(),
    /** Calculates taxes with the provider's tax product. */
    automaticTax: flag(),
    /** Collects the tax IDs of businesses. */
    taxIds: flag(),
    billingAddress: Type.Optional(Type.Enum(['auto', 'required'])),
    /** Whether a one-time purchase has an invoice. */
    invoice: flag(),
    locale: Type.Optional(
      Type.String({
        accepts: 'auto or a language of the provider',
        examples: ['pt-BR'],
        pattern: '^(auto|[a-z]{2,3}(-[A-Z0-9]{2,3})?)$',
      }),
    ),
    quantity: Type.Optional(
      Type.Object(
        { min: wholeNumber(1, 1_000_000), max: wholeNumber(1, 1_000_000) },
        { additionalProperties: false },
      ),
    ),
  },
  { additionalProperties: false },
);
export type CheckoutOptions = Static<typeof CheckoutOptions>;

/** A limit of what users may use, as a number, null for unlimited, or with a period and what happens above it. */
export const Quota = Type.Object(
  {
    /** Null is unlimited. */
    amount: Type.Union([Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), Type.Null()]),
    /**
     * After what time the count starts again: a day in UTC, a month or a year from the start of the paid period, or the paid period itself.
     * Without it, the count goes down only when something is released: projects, members.
     */
    per: Type.Optional(Type.Enum(['day', 'month', 'year', 'period'])),
    /** Whether the amount is for each seat of the subscription. */
    perSeat: flag(),
    /** Above the amount, use is refused (default), allowed, or allowed and reported to a meter of the provider. */
    overuse: Type.Optional(Type.Enum(['refused', 'allowed', 'billed'])),
    /** The event name of the meter for `billed`. */
    meter: Type.Optional(
      Type.String({
        accepts: 'the event name of a meter',
        examples: ['ai_messages'],
        pattern: '^[\\x21-\\x7e]{1,100}$',
      }),
    ),
  },
  { additionalProperties: false },
);
export type Quota = Static<typeof Quota>;

/** A price that is named by its lookup key, with what `saas-backend billing push` creates at the provider. */
export const KeyedPrice = Type.Object(
  {
    lookupKey: Type.String({
      accepts: 'a lookup key of at most 200 letters, digits, dots, hyphens and underscores',
      examples: ['pro_monthly'],
      pattern: '^[\\w.-]{1,200}$',
    }),
    /** In the smallest unit of the currency, such as cents. */
    amount: Type.Integer({ minimum: 0, maximum: 99_999_999 }),
    currency: Type.String({ accepts: 'a currency (ISO 4217)', examples: ['eur'], pattern: '^[a-z]{3}$' }),
    /** Absent: a one-time purchase. */
    interval: Type.Optional(Type.Enum(['day', 'week', 'month', 'year'])),
    /** Intervals between two payments; default 1. */
    intervalCount: wholeNumber(1, 156),
  },
  { additionalProperties: false },
);
export type KeyedPrice = Static<typeof KeyedPrice>;

/** One plan. The plan `free` has a name, features and limits only, which apply to every user. */
export const PlanConfiguration = Type.Object(
  {
    /** As users see it. Default: the key of the plan. */
    name: Type.Optional(DisplayName),
    /** The provider's prices that buy the plan. Without any, it can only be granted. */
    prices: Type.Optional(
      Type.Array(
        Type.Union(
          [
            Type.String({
              accepts: 'the ID of a price',
              examples: ['price_1Pro'],
              pattern: '^[\\w-]{1,255}$',
            }),
            KeyedPrice,
          ],
          { accepts: 'the ID of a price, or an object with lookupKey, amount, currency and interval' },
        ),
      ),
    ),
    features: Type.Optional(
      Type.Array(
        Type.String({
          accepts: 'a name of 1 to 100 letters, digits, dots, colons and hyphens',
          examples: ['export'],
          pattern: '^[\\w.:-]{1,100}$',
        }),
      ),
    ),
    /** By name; null means unlimited. */
    limits: Type.Optional(
      Type.Record(
        Type.String(),
        Type.Union([Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), Type.Null(), Quota], {
          accepts:
            'a whole number of 0 or more, null for unlimited, or an object with amount, per, perSeat and overuse',
        }),
      ),
    ),
    /** What one purchase of the plan adds to limits, beyond any period. */
    credits: Type.Optional(Type.Record(Type.String(), Type.Integer({ minimum: 1, maximum: 1_000_000_000 }))),
    /** Whether users can have it together with another plan. */
    independent: flag(),
    /** Whether a one-time purchase of one of its prices gives access. */
    purchase: flag(),
    /** `limit`: an organization has at most as many members as seats; `members`: the quantity follows the number of members. */
    seats: Type.Optional(Type.Enum(['limit', 'members'])),
    checkout: Type.Optional(CheckoutOptions),
  },
  { additionalProperties: false },
);
export type PlanConfiguration = Static<typeof PlanConfiguration>;

export const PlansOption = Type.Object(
  { plans: Type.Record(Type.String(), PlanConfiguration) },
  {
    additionalProperties: false,
    accepts: 'JSON that describes plans by their names',
    examples: [{ pro: { prices: ['price_1Pro'], features: ['export'], limits: { projects: 10 } } }],
  },
);

/**
 * The text of the variable contains the plans, alone or as the option does (`{ plans: … }`). Text that is no JSON is returned
 * unchanged and fails validation.
 */
export function parsePlans(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return isOption(value) ? value : { plans: value };
  } catch {
    return text;
  }
}

const isOption = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && Object.keys(value).join() === 'plans';

/** The plan of every user. */
export const FREE_PLAN = 'free';

const PLAN_NAME = /^(?=.{1,100}$)[\w.-]+( +[\w.-]+)*$/;
const LIMIT_NAME = /^[\w.:-]{1,100}$/;

/** Names that state the absence of a plan, or a status. */
const RESERVED = ['unknown', 'none', 'granted'];

/** The first problem that the schema cannot express, or `undefined`. */
export function plansProblem(plans: Readonly<Record<string, PlanConfiguration>>): string | undefined {
  const planOfPrice = new Map<string, string>();
  for (const [plan, configuration] of Object.entries(plans)) {
    const problem = nameProblem(plan) ?? planProblem(configuration, plan === FREE_PLAN);
    if (problem !== undefined) return `plans.${shownName(plan)} ${problem}`;
    for (const given of configuration.prices ?? []) {
      const price = typeof given === 'string' ? given : given.lookupKey;
      const other = planOfPrice.get(price);
      if (other !== undefined) {
        return `must list each price once; ${formatValue(price)} is listed in ${other === plan ? `${plan} twice` : `${other} and ${plan}`}.`;
      }
      planOfPrice.set(price, plan);
    }
  }
  return undefined;
}

export const isQuota = (limit: number | null | Quota | undefined): limit is Quota =>
  typeof limit === 'object' && limit !== null;

const shownName = (name: string): string => (PLAN_NAME.test(name) ? name : formatValue(name));

function nameProblem(plan: string): string | undefined {
  if (RESERVED.includes(plan)) return 'is a reserved name: choose another one.';
  return PLAN_NAME.test(plan)
    ? undefined
    : 'must be named with 1 to 100 letters, digits, inner spaces, dots and hyphens.';
}

function planProblem({ limits = {}, ...plan }: PlanConfiguration, isFree: boolean): string | undefined {
  const { prices, independent, purchase, checkout, credits, seats, features = [] } = plan;
  if (
    isFree &&
    [prices, independent, purchase, checkout, credits, seats].some((value) => value !== undefined)
  ) {
    return 'applies to every user, so it must have a name, features and limits only.';
  }
  const limit = Object.keys(limits).find((name) => !LIMIT_NAME.test(name));
  if (limit !== undefined) {
    return `must name limits with 1 to 100 letters, digits, dots, colons and hyphens; given: ${formatValue(limit)}.`;
  }
  const unmetered = Object.entries(limits).find(
    ([, quota]) => isQuota(quota) && (quota.overuse === 'billed') !== (quota.meter !== undefined),
  );
  if (unmetered)
    return `must have a meter with overuse 'billed', and only then; given: ${formatValue(unmetered[0])}.`;
  if (credits && purchase !== true) return 'has credits, so it must be sold once: purchase: true.';
  const twice = features.find((feature, index) => features.indexOf(feature) < index);
  if (twice !== undefined) return `must list each feature once; given twice: ${formatValue(twice)}.`;
  const { min = 1, max = Number.POSITIVE_INFINITY } = checkout?.quantity ?? {};
  return min > max
    ? `must have a checkout.quantity whose min is at most its max; given: ${min} and ${max}.`
    : undefined;
}
