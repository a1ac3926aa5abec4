import { type ErrorBody, SaasError, type SaasErrorCode } from './errors.js';

/** Options of one call. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the reason of the signal. */
  signal?: AbortSignal | undefined;
  /** Milliseconds after which the call rejects with `TIMEOUT`. Default: that of the client. */
  timeout?: number | undefined;
  /** The organization in which the call is made, by ID or slug. Calls of `billing` then concern its subscriptions. */
  organization?: string | undefined;
}

/** The part of `fetch` that the client uses. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface ApiResponse {
  status: number;
  headers: Headers;
  /** The JSON of the response; undefined if it is not JSON. */
  body: { data?: unknown; message?: string } & ErrorBody;
}

/** Sends a request and reads its response. Rejects only without a response. @throws NETWORK_ERROR, TIMEOUT */
export async function exchange(
  send: Fetch,
  url: string,
  init: RequestInit,
  { signal, timeout }: CallOptions,
): Promise<ApiResponse> {
  // Not AbortSignal.any: long-lived signals keep all signals that are derived from them in some versions of Node.js.
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  const timer = setTimeout(() => controller.abort(new SaasError('TIMEOUT', 0)), timeout);
  signal?.addEventListener('abort', abort);
  if (signal?.aborted) abort();
  try {
    const response = await send(url, { ...init, signal: controller.signal });
    const { status, headers } = response;
    return { status, headers, body: parse(await response.text()) };
  } catch (cause) {
    if (controller.signal.aborted) throw controller.signal.reason;
    throw new SaasError('NETWORK_ERROR', 0, {}, undefined, cause);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}

function parse(text: string): ApiResponse['body'] {
  try {
    const body = JSON.parse(text);
    return typeof body === 'object' && body !== null ? body : {};
  } catch {
    return {};
  }
}

/** The content of a successful response: its data, or its message. @throws the error of any other response */
export function contentOf({ status, headers, body }: ApiResponse): unknown {
  const { data, message, error } = body;
  if (status >= 200 && status < 300 && (body as { success?: boolean }).success === true) {
    return data ?? (message === undefined ? {} : { message });
  }
  const code = error?.code ?? 'UNEXPECTED_RESPONSE';
  throw new SaasError(code as SaasErrorCode, status, error?.code ? body : {}, headers);
}

/** Waits for a promise that others wait for as well, until the signal of this call is aborted. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | null | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
