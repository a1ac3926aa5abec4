import type Stripe from 'stripe';
import { isPortalInUse, missingEventTypes } from './account-setup.js';
import { loadStripe, repeatWhileLimited, withTimeout } from './client.js';
import { asList, asObject, asText, type Json } from './json.js';

/** What keeps the account at the provider from working with this product. */
export interface AccountProblem {
  about: string;
  message: string;
  remedy: string;
}

export interface ExaminedAccount {
  key: string;
  apiUrl: string | undefined;
  /** Price to plan; undefined if every active price is for sale. */
  prices: ReadonlyMap<string, string> | undefined;
  /** Those that plans name. */
  lookupKeys: readonly string[];
  /** The address to which the provider has to send its events; undefined if it cannot reach this server. */
  webhookUrl: string | undefined;
}

const ATTEMPT_TIMEOUT_MS = 4_500;
const TIMEOUT_MS = 9_500;

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

/** Asks the provider about its key, the webhook endpoint, the prices of the plans and the customer portal. Changes nothing. */
export async function examineAccount(account: ExaminedAccount): Promise<AccountProblem[]> {
  const stripe = await loadStripe(account.key, account.apiUrl, ATTEMPT_TIMEOUT_MS);
  const ask = <T>(request: (stripe: Stripe) => Promise<T>): Promise<T> =>
    withTimeout(
      TIMEOUT_MS,
      repeatWhileLimited(TIMEOUT_MS, () => request(stripe)),
    );
  const missing: string[] = [];
  /** What the provider answers; null if the key may not ask. */
  const asPermitted = async <T>(permission: string, request: (stripe: Stripe) => Promise<T>) =>
    ask(request).catch((error: Stripe.errors.StripeError) => {
      if (error.statusCode !== 403) throw error;
      missing.push(permission);
      return null;
    });
  try {
    for (const [permission, request] of Object.entries(PERMISSIONS)) await asPermitted(permission, request);
    const endpoints = await asPermitted('Webhook Endpoints', ({ webhookEndpoints }) =>
      webhookEndpoints.list({ limit: 100 }),
    );
    const portals = await asPermitted('Customer portal', ({ billingPortal }) =>
      billingPortal.configurations.list({ active: true, limit: 100 }),
    );
    return [
      ...permissionProblems(missing),
      ...(endpoints ? endpointProblems(asList(endpoints.data), account.webhookUrl) : []),
      ...(missing.includes('Prices')
        ? []
        : [...(await priceProblems(ask, account.prices)), ...(await keyProblems(ask, account.lookupKeys))]),
      ...(portals && !portals.data.map(asObject).some(isPortalInUse) ? [NO_PORTAL] : []),
    ];
  } catch (error) {
    return [unanswered(error as Stripe.errors.StripeError)];
  }
}

const NO_PORTAL: AccountProblem = {
  about: 'customer portal',
  message: 'has no settings at the payment provider: create-portal-session responds with 502',
  remedy:
    'Save them once in the dashboard under Settings, Billing, Customer portal, or create them with saas-backend billing push.',
};

function unanswered({ statusCode, code, message }: Stripe.errors.StripeError): AccountProblem {
  if (statusCode === 401)
    return {
      about: 'PAYMENT_SECRET_KEY',
      message: 'is refused by the payment provider',
      remedy:
        'Copy the secret key of the account from the dashboard. It may have been rolled or may have expired.',
    };
  const reason = statusCode === undefined ? message : [statusCode, code].filter(Boolean).join(' ');
  return {
    about: 'PAYMENT_SECRET_KEY',
    message: `could not be tried, because the payment provider does not respond as expected: ${reason}`,
    remedy: 'Check the network and PAYMENT_API_URL, and repeat the command.',
  };
}

function permissionProblems(missing: readonly string[]): AccountProblem[] {
  if (missing.length === 0) return [];
  const remedy =
    'Give them to the restricted key in the dashboard (docs/billing-operation.md#permissions-of-a-restricted-key).';
  const message = `lacks permissions to read: ${missing.join(', ')}`;
  return [{ about: 'PAYMENT_SECRET_KEY', message, remedy }];
}

function endpointProblems(endpoints: readonly Json[], url: string | undefined): AccountProblem[] {
  if (url === undefined) return [];
  const about = 'webhook endpoint';
  const found = endpoints.find((one) => one['url'] === url && one['status'] !== 'disabled');
  if (!found) {
    const isDisabled = endpoints.some((one) => one['url'] === url);
    const message = isDisabled ? `is disabled at the payment provider: ${url}` : `does not exist: ${url}`;
    return [{ about, message, remedy: 'Create or enable it with saas-backend billing push.' }];
  }
  const absent = missingEventTypes(found);
  const version = asText(found['api_version']);
  return [
    ...(absent.length === 0
      ? []
      : [
          {
            about,
            message: `receives no ${absent.join(', ')}`,
            remedy: 'Add these event types to it with saas-backend billing push.',
          },
        ]),
    ...(version === undefined || version >= OLDEST_API_VERSION
      ? []
      : [
          {
            about,
            message: `has the API version ${version}, whose events are not tested`,
            remedy: `Create one with a version since ${OLDEST_API_VERSION}.`,
          },
        ]),
  ];
}

async function keyProblems(
  ask: <T>(request: (stripe: Stripe) => Promise<T>) => Promise<T>,
  lookupKeys: readonly string[],
): Promise<AccountProblem[]> {
  const problems: AccountProblem[] = [];
  for (const lookupKey of lookupKeys) {
    const found = await ask((stripe) => stripe.prices.list({ lookup_keys: [lookupKey], active: true }));
    if (found.data.length > 0) continue;
    const message = 'does not exist in this mode of this account, so it cannot be bought';
    problems.push({
      about: `price ${lookupKey}`,
      message,
      remedy: 'Create it with saas-backend billing push.',
    });
  }
  return problems;
}

async function priceProblems(
  ask: <T>(request: (stripe: Stripe) => Promise<T>) => Promise<T>,
  prices: ExaminedAccount['prices'] = new Map(),
): Promise<AccountProblem[]> {
  const problems: AccountProblem[] = [];
  for (const [id, plan] of prices) {
    const found = await ask((stripe) =>
      stripe.prices.retrieve(id, { expand: ['product'] }).catch((error: Stripe.errors.StripeError) => {
        if (error.code === 'resource_missing') return null;
        throw error;
      }),
    );
    const about = `price ${id} of the plan ${plan}`;
    if (!found)
      problems.push({
        about,
        message: 'does not exist in this mode of this account',
        remedy: 'Prices of test mode and of live mode differ: name the one of the mode of the key.',
      });
    else if (!found.active || asObject(found.product)['active'] === false)
      problems.push({
        about,
        message: 'is archived, so it cannot be bought',
        remedy: 'Activate it and its product in the dashboard, or name its successor.',
      });
  }
  return problems;
}
