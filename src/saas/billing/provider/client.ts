import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type Stripe from 'stripe';
import { SECOND } from '../../../core/kernel/clock.js';
import { billingErrors } from '../errors.js';
import { asObject } from './json.js';

/** The SDK of the payment provider with its limits, and its errors as errors of this API. */

export async function loadStripe(
  secretKey: string,
  apiUrl: string | undefined,
  timeout: number,
): Promise<Stripe> {
  const { default: StripeSdk } = await import('stripe');
  const http = StripeSdk.createNodeHttpClient();
  const send = http.makeRequest.bind(http);
  // Compression is disabled, so that a small response cannot expand in memory.
  http.makeRequest = (host, port, path, method, headers, ...rest) =>
    send(host, port, path, method, { ...headers, 'Accept-Encoding': 'identity' }, ...rest).then(
      rejectForeignResponses,
    );
  return new StripeSdk(secretKey, {
    timeout,
    maxNetworkRetries: 1,
    telemetry: false,
    httpClient: http,
    ...(apiUrl !== undefined && endpointOf(apiUrl)),
  });
}

/** A response of the SDK's HTTP client. */
interface HttpResponse {
  getStatusCode(): number;
  toJSON(): Promise<unknown>;
}

/**
 * The SDK treats any JSON without `error` as success, whatever the status, and crashes the process on JSON that is not
 * an object. A proxy in between may send either.
 */
function rejectForeignResponses<T extends HttpResponse>(response: T): T {
  const read = response.toJSON.bind(response);
  response.toJSON = async () => {
    const json = await read();
    const status = response.getStatusCode();
    const isObject = typeof json === 'object' && json !== null && !Array.isArray(json);
    const isSuccess = status >= 200 && status < 300;
    if (!isObject || !(isSuccess || asObject(json)['error']))
      throw new Error(`Unexpected response: ${status}.`);
    return json;
  };
  return response;
}

function endpointOf(apiUrl: string): { host: string; port: string; protocol: 'http' | 'https' } {
  const { hostname, port, protocol } = new URL(apiUrl);
  const scheme = protocol === 'http:' ? 'http' : 'https';
  // Node.js expects an IPv6 address without the brackets of the URL.
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return { host, port: port || (scheme === 'http' ? '80' : '443'), protocol: scheme };
}

export interface CallOptions {
  timeoutMs?: number;
  /** Throws what a failure means. */
  onError?: (error: Stripe.errors.StripeError) => never;
}

/** Makes calls with the SDK, each within a timeout. */
export type ProviderCall = <T>(work: (stripe: Stripe) => Promise<T>, options?: CallOptions) => Promise<T>;

export const TIMEOUTS = {
  /** Timeout of one attempt; the default of the SDK is minutes. The SDK retries once. */
  attemptMs: 4_500,
  /** Timeout of a whole call, including slow bodies and the retry delays that the provider requests. */
  callMs: 9_500,
  /** A lookup during a webhook delivery, which the provider itself waits for. */
  lookupMs: 5_000,
};

/**
 * The SDK is loaded on first use.
 * @param apiUrl another address for the provider's API
 * @param throwFailure unless the options of a call have `onError`
 */
export function createProviderCall(
  secretKey: string,
  apiUrl: string | undefined,
  { attemptMs, callMs }: typeof TIMEOUTS,
  throwFailure: NonNullable<CallOptions['onError']> = throwBillingError,
): ProviderCall {
  let loading: Promise<Stripe> | undefined;
  return async (work, { timeoutMs = callMs, onError = throwFailure } = {}) => {
    loading ??= loadStripe(secretKey, apiUrl, attemptMs);
    const stripe = await loading;
    const working = repeatWhileLimited(timeoutMs, () => work(stripe));
    return withTimeout(timeoutMs, working).catch(onError);
  };
}

const MAX_ATTEMPTS = 20;
const RETRY_DELAY_MS = 200;

/** Creates an object once per key, also while a parallel request uses the key or after a failure stored with it. */
export async function retryIdempotently<T>(key: string, create: (key: string) => Promise<T>): Promise<T> {
  let currentKey = key;
  for (let attempts = 1; ; attempts++) {
    try {
      return await create(currentKey);
    } catch (error) {
      const nextKey = keyAfter(error as Stripe.errors.StripeError, { key, currentKey });
      if (nextKey === undefined || attempts === MAX_ATTEMPTS) throw error;
      if (nextKey === currentKey) await sleep(RETRY_DELAY_MS);
      currentKey = nextKey;
    }
  }
}

/** https://docs.stripe.com/api/idempotent_requests: the provider repeats failures for a day as well. */
function keyAfter(
  { code, headers = {} }: Stripe.errors.StripeError,
  { key, currentKey }: { key: string; currentKey: string },
): string | undefined {
  if (code === 'idempotency_key_in_use') return currentKey;
  const isRepeated = headers['idempotent-replayed'] === 'true';
  // Every request that receives this failure continues with the same key.
  return isRepeated ? `${key}-${headers['original-request']}` : undefined;
}

export function nullIfMissing(error: Stripe.errors.StripeError): null {
  if (error.code === 'resource_missing') return null;
  throw error;
}

/** Whether the customer portal may have no settings: the provider rejects the request without a code, and its message is not kept. */
export const isUnconfiguredPortal = (error: unknown): boolean =>
  asObject(error)['code'] === 'PAYMENT_PROVIDER_ERROR' &&
  /StripeInvalidRequestError/.test(String(asObject(error)['cause']));

/** A subscription that ends, or that has no further invoice for another reason. */
export function nullIfNothingToInvoice(error: Stripe.errors.StripeError): null {
  if (error.code === 'invoice_upcoming_none') return null;
  return nullIfMissing(error);
}

/**
 * The provider's messages may contain parts of the key, so only its codes are kept, and the permission that a restricted key
 * lacks.
 */
export function causeOf({
  name,
  type = name,
  code,
  statusCode,
  requestId,
  message,
}: Stripe.errors.StripeError) {
  const codes = [type, code, statusCode, requestId].filter(Boolean).join(' ');
  const [permission] = /\brak_[a-z_]{1,64}\b/.exec(message) ?? [];
  const remedy = permission && `: give the restricted key PAYMENT_SECRET_KEY the permission ${permission}`;
  return new Error(`Payment provider: ${codes}${remedy ?? ''}`);
}

/** Whether the provider would reject the same request again. Otherwise the key, a limit or the provider itself is at fault. */
export const isFinal = ({ statusCode = 0 }: Stripe.errors.StripeError): boolean =>
  statusCode >= 400 && statusCode < 500 && ![401, 403, 408, 409, 429].includes(statusCode);

export function rejectionIfFinal(error: Stripe.errors.StripeError): { rejection: string } {
  if (!isFinal(error)) throw error;
  return { rejection: causeOf(error).message };
}

export function throwBillingError(error: Stripe.errors.StripeError): never {
  const { type, code, param } = error;
  const cause = causeOf(error);
  if (code === 'resource_missing' && param === 'customer') {
    throw billingErrors.CUSTOMER_NOT_FOUND({
      message: 'The customer does not exist at the payment provider.',
      cause,
    });
  }
  throw billingErrors[type === 'StripeInvalidRequestError' ? rejectionOf(error) : 'PAYMENT_PROVIDER_ERROR']({
    cause,
  });
}

type Rejection = keyof typeof billingErrors;

/**
 * What the user or the operator can change about a rejected request, from https://docs.stripe.com/error-codes. Some
 * rejections have no code, only a parameter or a message.
 */
const REJECTIONS: readonly { as: Rejection; codes?: RegExp; params?: RegExp; messages?: RegExp }[] = [
  {
    as: 'TAX_LOCATION_INVALID',
    codes: /^(customer_tax_location_invalid|invalid_tax_location)$/,
  },
  {
    as: 'TAX_NOT_CONFIGURED',
    codes: /^stripe_tax_inactive$/,
    params: /^(automatic_tax|tax_id_collection)\b/,
    messages: /head office address|tax_behavior|automatic tax/i,
  },
  {
    as: 'PROMOTION_NOT_VALID',
    codes: /^coupon_expired$/,
    params: /^(discounts|coupon|promotion_code)\b/,
    messages: /\b(coupon|promotion code)\b/i,
  },
  // Before the price, because the parameter of some of these rejections is the price.
  {
    as: 'CURRENCY_MISMATCH',
    messages: /combine currencies|expected currency|match the customer('s)? currency/i,
  },
  {
    // The price does not exist, is archived, or is not sold in this mode.
    as: 'PRICE_NOT_ALLOWED',
    codes: /^(product|sku)_inactive$/,
    params: /^(line_items(\[.*)?|mode)$/,
    messages: /price specified is inactive/i,
  },
];

export function rejectionOf({ code = '', param = '', message }: Stripe.errors.StripeError): Rejection {
  const rejection = REJECTIONS.find(
    ({ codes, params, messages }) => codes?.test(code) || params?.test(param) || messages?.test(message),
  );
  return rejection?.as ?? 'PAYMENT_PROVIDER_ERROR';
}

const FIRST_PAUSE_MS = 500;

/** Repeats what the provider's rate limit rejects, after the pause that it asks for, as long as there is time for it. */
async function repeatWhileLimited<T>(timeoutMs: number, work: () => Promise<T>): Promise<T> {
  const end = performance.now() + timeoutMs;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs *= 2) {
    try {
      return await work();
    } catch (error) {
      const { statusCode, headers = {} } = error as Stripe.errors.StripeError;
      const wantedMs = Math.max(pauseMs, (Number(headers['retry-after']) || 0) * SECOND);
      if (statusCode !== 429 || performance.now() + wantedMs >= end) throw error;
      await sleep(wantedMs);
    }
  }
}

/** The timeouts of the SDK do not limit the total duration of a response. */
async function withTimeout<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('Timed out.')), timeoutMs).unref();
  });
  return Promise.race([work, timeout]).finally(() => clearTimeout(timer));
}
