import { setTimeout as sleep } from 'node:timers/promises';
import type Stripe from 'stripe';
import { billingErrors } from '../errors.js';
import { rejectForeignResponses } from './responses.js';

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

function endpointOf(apiUrl: string): { host: string; port: string; protocol: 'http' | 'https' } {
  const { hostname, port, protocol } = new URL(apiUrl);
  const scheme = protocol === 'http:' ? 'http' : 'https';
  // Node.js expects an IPv6 address without the brackets of the URL.
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return { host, port: port || (scheme === 'http' ? '80' : '443'), protocol: scheme };
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

/** https://docs.stripe.com/api/idempotent_requests: the provider repeats its own failures for a day as well. */
function keyAfter(
  { code, statusCode = 0, headers = {} }: Stripe.errors.StripeError,
  { key, currentKey }: { key: string; currentKey: string },
): string | undefined {
  if (code === 'idempotency_key_in_use') return currentKey;
  const isRepeated = statusCode >= 500 && headers['idempotent-replayed'] === 'true';
  // Every request that receives this failure continues with the same key.
  return isRepeated ? `${key}-${headers['original-request']}` : undefined;
}

export function nullIfMissing(error: Stripe.errors.StripeError): null {
  if (error.code === 'resource_missing') return null;
  throw error;
}

/** The provider's messages may contain parts of the key, so only its codes are kept. */
export function throwBillingError(error: Stripe.errors.StripeError): never {
  const { type = error.name, code, statusCode, requestId, param } = error;
  const cause = new Error(
    `Payment provider: ${[type, code, statusCode, requestId].filter(Boolean).join(' ')}`,
  );
  if (code === 'resource_missing' && param === 'customer') {
    throw billingErrors.CUSTOMER_NOT_FOUND({
      message: 'The customer does not exist at the payment provider.',
      cause,
    });
  }
  // The price does not exist, is archived, or is not sold to this customer or in this mode.
  const isAboutPrice = type === 'StripeInvalidRequestError' && /^(line_items(\[.*)?|mode)$/.test(param ?? '');
  throw isAboutPrice
    ? billingErrors.PRICE_NOT_ALLOWED({ cause })
    : billingErrors.PAYMENT_PROVIDER_ERROR({ cause });
}

/** The timeouts of the SDK do not limit the total duration of a response. */
export async function withTimeout<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('Timed out.')), timeoutMs).unref();
  });
  return Promise.race([work, timeout]).finally(() => clearTimeout(timer));
}
