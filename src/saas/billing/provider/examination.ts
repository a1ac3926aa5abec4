import type Stripe from 'stripe';
import { applicableWarnings, type ConfigurationWarning } from '../../../core/config/configuration-error.js';
import { type Clock, systemClock } from '../../../core/kernel/clock.js';
import { clockProblem } from '../../../core/server/clock-check.js';
import { createAccountSetup, missingEventTypes } from './account-setup.js';
import { createProviderCall, type ProviderCall, TIMEOUTS } from './client.js';
import { asObject, asText, type Json } from './json.js';
import { retrieve } from './responses.js';

export interface ExaminedAccount {
  key: string;
  apiUrl: string | undefined;
  /** Price to plan; undefined if every active price is for sale. */
  prices: ReadonlyMap<string, string> | undefined;
  /** Those that plans name. */
  lookupKeys: readonly string[];
  /** The address to which the provider has to send its events; undefined if it cannot reach this server. */
  webhookUrl: string | undefined;
  /** Compared with that of the provider. Default: that of the system. */
  clock?: Clock;
}

/** The oldest version of the provider's API whose events are tested. */
const OLDEST_API_VERSION = '2023-10-16';

const SINGLE = { limit: 1 };

/** The permissions of a restricted key and a request that needs them. Those to write cannot be tried without writing. */
const PERMISSIONS: Record<string, (stripe: Stripe) => Promise<unknown>> = {
  'Charges and Refunds': ({ charges }) => charges.list(SINGLE),
  'Checkout Sessions': ({ checkout }) => checkout.sessions.list(SINGLE),
  Customers: ({ customers }) => customers.list(SINGLE),
  Events: ({ events }) => events.list(SINGLE),
  Invoices: ({ invoices }) => invoices.list(SINGLE),
  Prices: ({ prices }) => prices.list(SINGLE),
  Products: ({ products }) => products.list(SINGLE),
  Subscriptions: ({ subscriptions }) => subscriptions.list(SINGLE),
};

/**
 * Asks the provider about its key, the webhook endpoint, the prices of the plans and the customer portal, and returns what keeps the account
 * from working with this product. Changes nothing.
 */
export const examineAccount = async (account: ExaminedAccount) =>
  applicableWarnings(
    await warningsOf(account).catch((error: Stripe.errors.StripeError) => [unanswered(error)]),
  );

async function warningsOf({
  key,
  apiUrl,
  prices = new Map(),
  lookupKeys,
  webhookUrl,
  clock = systemClock,
}: ExaminedAccount): Promise<ConfigurationWarning[]> {
  const call = createProviderCall(key, apiUrl, TIMEOUTS, (error) => {
    throw error;
  });
  const setup = createAccountSetup(call);
  const missing: string[] = [];
  /** What the provider answers; null if the key may not ask. */
  const asPermitted = <T>(permission: string, answer: Promise<T>): Promise<T | null> =>
    answer.catch((error: Stripe.errors.StripeError) => {
      if (error.statusCode !== 403) throw error;
      missing.push(permission);
      return null;
    });
  /** By the header of the response that the provider sends first. */
  let difference: Awaited<ReturnType<typeof clockProblem>> = null;
  for (const [permission, request] of Object.entries(PERMISSIONS)) {
    const found = await clockProblem(
      async () => dateOf(await asPermitted(permission, call(request))),
      clock,
      'payment provider',
    );
    difference ??= found;
  }
  const endpoints = await asPermitted('Webhook Endpoints', setup.webhookEndpoints());
  const portal = await asPermitted('Customer portal', setup.portalSettings());
  const canReadPrices = !missing.includes('Prices');
  return [
    [
      missing.length > 0,
      'PAYMENT_SECRET_KEY',
      `lacks permissions to read: ${missing.join(', ')}`,
      'Give them to the restricted key in the dashboard (docs/saas/billing-operation.md#permissions-of-a-restricted-key).',
    ],
    [difference !== null, 'clock', difference?.message ?? '', difference?.remedy ?? ''],
    ...(endpoints && webhookUrl !== undefined ? endpointWarnings(endpoints, webhookUrl) : []),
    ...(canReadPrices ? await priceWarnings(call, prices) : []),
    ...(canReadPrices ? keyWarnings(await setup.pricesOfKeys(lookupKeys), lookupKeys) : []),
    [
      portal === undefined,
      'customer portal',
      'has no settings at the payment provider: create-portal-session responds with 502',
      'Save them once in the dashboard under Settings, Billing, Customer portal, or create them with saas-backend billing push.',
    ],
  ];
}

/** The time at the provider; null without a valid header. */
function dateOf(answer: unknown): number | null {
  const { headers } = Object(Object(answer).lastResponse) as { headers?: Record<string, string> };
  const time = Date.parse(headers?.['date'] ?? '');
  return Number.isNaN(time) ? null : time;
}

function unanswered({ statusCode, code, message }: Stripe.errors.StripeError): ConfigurationWarning {
  if (statusCode === 401)
    return [
      true,
      'PAYMENT_SECRET_KEY',
      'is refused by the payment provider',
      'Copy the secret key of the account from the dashboard. It may have been rolled or may have expired.',
    ];
  const reason = statusCode === undefined ? message : [statusCode, code].filter(Boolean).join(' ');
  return [
    true,
    'PAYMENT_SECRET_KEY',
    `could not be tried, because the payment provider does not respond as expected: ${reason}`,
    'Check the network and PAYMENT_API_URL, and repeat the command.',
  ];
}

function endpointWarnings(endpoints: readonly Json[], url: string): ConfigurationWarning[] {
  const about = 'webhook endpoint';
  const all = endpoints.filter((one) => one['url'] === url);
  const found = all.find(({ status }) => status !== 'disabled');
  if (!found) {
    const message = all.length > 0 ? 'is disabled at the payment provider' : 'does not exist';
    return [[true, about, `${message}: ${url}`, 'Create or enable it with saas-backend billing push.']];
  }
  const absent = missingEventTypes(found);
  const version = asText(found['api_version']) ?? OLDEST_API_VERSION;
  return [
    [
      absent.length > 0,
      about,
      `receives no ${absent.join(', ')}`,
      'Add these event types to it with saas-backend billing push.',
    ],
    [
      version < OLDEST_API_VERSION,
      about,
      `has the API version ${version}, whose events are not tested`,
      `Create one with a version since ${OLDEST_API_VERSION}.`,
    ],
  ];
}

const keyWarnings = (prices: readonly Json[], lookupKeys: readonly string[]) =>
  lookupKeys.map(
    (lookupKey): ConfigurationWarning => [
      !prices.some((price) => price['lookup_key'] === lookupKey),
      `price ${lookupKey}`,
      'does not exist in this mode of this account, so it cannot be bought',
      'Create it with saas-backend billing push.',
    ],
  );

async function priceWarnings(
  call: ProviderCall,
  planOfPrice: ReadonlyMap<string, string>,
): Promise<ConfigurationWarning[]> {
  const warnings: ConfigurationWarning[] = [];
  for (const [id, plan] of planOfPrice) {
    const found = await retrieve(call, id, ({ prices }) => prices.retrieve(id, { expand: ['product'] }));
    const isArchived = found?.['active'] !== true || asObject(found['product'])['active'] === false;
    const about = `price ${id} of the plan ${plan}`;
    warnings.push(
      [
        found === null,
        about,
        'does not exist in this mode of this account',
        'Prices of test mode and of live mode differ: name the one of the mode of the key.',
      ],
      [
        found !== null && isArchived,
        about,
        'is archived, so it cannot be bought',
        'Activate it and its product in the dashboard, or name its successor.',
      ],
    );
  }
  return warnings;
}
