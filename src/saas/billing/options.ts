import type { Static, TObject } from 'typebox';
import { Type } from 'typebox';
import { option, parseList } from '../../core/config/options.js';
import { isLoopback, pathProblem } from '../../core/config/public-url.js';
import { formatValue } from '../../core/config/validation-messages.js';
import { secretWeakness } from '../../core/kernel/secrets.js';
import { BILLING_MAILS } from './notifications.js';
import { type KeyedPrice, PlansOption, parsePlans, plansProblem } from './plans/options.js';
import { PRORATIONS } from './provider/subscription-changes.js';

export const billingOptions = {
  paymentSecretKey: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_SECRET_KEY',
    doc: 'Secret API key of the payment provider. Without it, checkout, portal and sync respond with 503.',
    secret: true,
    check: secretKeyProblem,
  }),
  paymentApiUrl: option(Type.Optional(Type.String()), {
    env: 'PAYMENT_API_URL',
    doc: 'Base URL of the payment API, to use a simulator of it. Must be https for a key of live mode.',
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
  billing: option(Type.Optional(PlansOption), {
    env: 'BILLING_PLANS',
    doc: 'Plans with prices, features, limits and checkout options, as JSON (docs/saas/billing-plans.md#plans). The option is an object: { plans: … }.',
    file: true,
    parse: parsePlans,
    check: (billing) => billing && plansProblem(billing.plans),
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
  billingAllowPause: option(Type.Optional(Type.Boolean({ accepts: '0 or 1' })), {
    env: 'BILLING_ALLOW_PAUSE',
    doc: '1 lets users pause their subscription: until they resume it, nothing is charged and they have no access.',
    shown: '0',
    // Any other value prevents the start, so that "false" does not enable it.
    parse: (text) => ({ 0: false, 1: true })[text] ?? text,
  }),
  billingMails: option(
    Type.Optional(
      Type.Array(Type.Enum([...BILLING_MAILS]), {
        accepts: `all, none, or some of ${BILLING_MAILS.join(', ')}`,
        examples: ['receipt,payment-failed'],
      }),
    ),
    {
      env: 'BILLING_MAILS',
      doc: 'The e-mails about payments that users receive, separated by commas; none for no e-mail.',
      shown: 'all',
      parse: (text) => ({ all: [...BILLING_MAILS], none: [] })[text] ?? parseList(text),
    },
  ),
  billingProration: option(
    Type.Optional(Type.Enum(PRORATIONS, { accepts: 'always_invoice, create_prorations or none' })),
    {
      env: 'BILLING_PRORATION',
      shown: 'always_invoice',
      doc: 'The difference of a changed plan for the rest of the period: charged at once, with the next invoice, or not at all.',
    },
  ),
  paymentWebhookSecret: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_WEBHOOK_SECRET',
    doc: 'Secret that verifies webhook signatures. At least 32 characters in production. Without it, the webhook responds with 503.',
    secret: true,
    check: signingSecretProblem,
    safe: signingWeakness,
  }),
  paymentWebhookSecretPrevious: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'PAYMENT_WEBHOOK_SECRET_PREVIOUS',
    doc: 'Previous secret, also accepted. Set it to the old secret while you roll PAYMENT_WEBHOOK_SECRET. At least 32 characters in production.',
    secret: true,
    check: signingSecretProblem,
    safe: signingWeakness,
  }),
};

export type BillingConfiguration = Static<TObject<typeof billingOptions>>;

/** How long a past-due subscription keeps access: without limit, for a number of days, or not at all. */
export type PastDue = BillingConfiguration['pastDue'];

/** The price and the plan of a `price=plan` pair. */
export function splitPair(pair: string): [priceId: string, plan: string] {
  const equals = pair.indexOf('=');
  return [pair.slice(0, equals), pair.slice(equals + 1)];
}

/** The options that define plans and their prices. */
export type PlansSource = Pick<BillingConfiguration, 'billing' | 'billingPrices'>;

/** Price to plan, of both options, without those with a lookup key; `undefined` if every active price of the provider is for sale. */
export function configuredPrices({ billing, billingPrices }: PlansSource): Map<string, string> | undefined {
  const ofPlans = Object.entries(billing?.plans ?? {}).flatMap(([plan, { prices = [] }]) =>
    prices.map((price) => [price, plan] as const),
  );
  const isId = (pair: (typeof ofPlans)[number]): pair is [string, string] => typeof pair[0] === 'string';
  return billingPrices || ofPlans.length > 0
    ? new Map([...(billingPrices ?? []).map(splitPair), ...ofPlans.filter(isId)])
    : undefined;
}

/** The prices with a lookup key, each with its plan. */
export const keyedPrices = ({ billing }: PlansSource): { plan: string; price: KeyedPrice }[] =>
  Object.entries(billing?.plans ?? {}).flatMap(([plan, { prices = [] }]) =>
    prices.flatMap((price) => (typeof price === 'string' ? [] : [{ plan, price }])),
  );

/** Why the two options contradict each other, or `undefined`. */
export function plansConflict({ billing, billingPrices = [] }: PlansSource): string | undefined {
  const planOf = configuredPrices({ ...(billing && { billing }) });
  const pairs = billingPrices.map(splitPair);
  const wrong = pairs.find(([price, plan]) => (planOf?.get(price) ?? plan) !== plan);
  if (!wrong) return undefined;
  const [price, plan] = wrong;
  return `assigns the price ${formatValue(price)} to the plan ${plan}, but BILLING_PLANS assigns it to ${planOf?.get(price)}.`;
}

function pricesProblem(pairs: readonly string[]): string | undefined {
  const wrong = pairs.find((pair) => !/^[\w-]+=[\w.-]+( +[\w.-]+)*$/.test(pair));
  if (wrong !== undefined) {
    return `must list price=plan pairs, like price_1Pro=pro,price_1Team=team; given: ${formatValue(wrong)}.`;
  }
  const prices = pairs.map((pair) => pair.split('=')[0]);
  const twice = prices.find((price, index) => prices.indexOf(price) < index);
  return twice === undefined ? undefined : `must name each price once; given twice: ${formatValue(twice)}.`;
}

/** The provider's secrets have 38 bytes or more. Their prefix does not turn a placeholder into a secret. */
function signingWeakness(secret = ''): string | undefined {
  const remedy = 'Copy the signing secret from the payment provider.';
  return secretWeakness(secret, 32, remedy) ?? secretWeakness(secret.replace(/^whsec_/, ''), 0, remedy);
}

/** Whether an API key belongs to live mode (real payments). */
export const isLiveKey = (key: string | undefined): boolean => /^[rs]k_live_/.test(key ?? '');

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

/** Describes why a key cannot be the secret key, as the end of a sentence. The prefixes are those of the provider. */
function secretKeyProblem(key = ''): string | undefined {
  if (!/^[\x21-\x7e]+$/.test(key)) return 'must contain no spaces or control characters.';
  if (/^[rs]k_org_/.test(key))
    return 'must be the key of one account; given: that of an organisation, whose requests would have to name an account.';
  return /^(pk|whsec)_/.test(key)
    ? 'must be a secret key or a restricted key, which begin with sk_ and rk_; given: a publishable key or a signing secret.'
    : undefined;
}

/** The same for the secret of a webhook endpoint. */
function signingSecretProblem(secret = ''): string | undefined {
  if (/^([prs]k|we)_/.test(secret))
    return 'must be the signing secret of the webhook endpoint, which begins with whsec_; given: an API key or the ID of the endpoint.';
  // Rejected in development as well: a blank value means that the secret was not set.
  return secret.trim() === '' ? 'is blank.' : undefined;
}
