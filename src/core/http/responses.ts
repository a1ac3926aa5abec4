import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from 'fastify';
import { plainAddress } from '../kernel/addresses.js';
import { type AppError, type Rendered, toAppError } from '../kernel/errors.js';
import { isStoreFailure, type OutageLog } from './outage-log.js';

/** Headers and errors that all responses share. */

export interface ResponseRules {
  renderError(error: AppError, request: FastifyRequest, requestId: string): Rendered;
  /** The value of `X-Request-Id`, never taken from a client that is not a trusted proxy. */
  requestId(request: FastifyRequest): string;
  /** Whether the server is stopping, so that new requests are rejected. */
  isDraining(): boolean;
  /** Shared by all responses of a server or plugin. */
  outages: OutageLog;
  /** Whether the public URL is https; then Strict-Transport-Security is sent. */
  https(): boolean;
}

const COMMON_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** One year. */
const STRICT_TRANSPORT = { 'strict-transport-security': 'max-age=31536000' };

/** The security headers of all responses. */
export const commonHeaders = (isSecure: boolean): Record<string, string> => ({
  ...COMMON_HEADERS,
  ...(isSecure && STRICT_TRANSPORT),
});

export function setCommonHeaders(
  { requestId, https }: ResponseRules,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  reply.headers(COMMON_HEADERS).header('x-request-id', requestId(request));
  if (https()) reply.headers(STRICT_TRANSPORT);
}

/** Logs the route instead of the URL, because queries and paths contain tokens, codes and invitations. */
export function describeRequest(request: FastifyRequest): Record<string, unknown> {
  return { method: request.method, route: request.routeOptions?.url ?? null, ip: plainAddress(request.ip) };
}

/** Sends an error, with the common headers, which are not set yet for unknown paths and errors of the router. */
export function sendError(
  rules: ResponseRules,
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const error = toAppError(thrown);
  setCommonHeaders(rules, request, reply);
  const requestId = String(reply.getHeader('x-request-id'));
  logFailure(request.log, error, { req: request, requestId, outages: rules.outages });
  const { type, body, headers } = rules.renderError(error, request, requestId);
  // A host that sheds load may have set it.
  const retryAfter = reply.getHeader('retry-after');
  return reply
    .code(error.statusCode)
    .headers({ ...headers, ...error.headers, ...(retryAfter !== undefined && { 'retry-after': retryAfter }) })
    .type(type)
    .send(body);
}

/** Logs an error whose cause is not sent to the client. */
export function logFailure(
  log: FastifyBaseLogger,
  error: AppError,
  { req, requestId, outages }: { req?: FastifyRequest; requestId: string; outages: OutageLog },
): void {
  const isUnavailable = error.statusCode === 503;
  const err = error.cause ?? error;
  // A 503 without a cause is intended load shedding, which the request log already shows.
  if (isUnavailable && isStoreFailure(err)) {
    outages.record(req?.server.log ?? log, { err, requestId }, error.message);
  } else if (error.statusCode >= 500 && !(isUnavailable && err === error)) {
    log[isUnavailable ? 'warn' : 'error']({ err, ...(req && { req }), requestId }, error.message);
  } else if (error.statusCode < 500 && error.cause !== undefined) {
    log.info({ err, requestId }, 'request rejected; the reason is not sent to the client');
  }
}
