import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from 'fastify';
import { plainAddress } from '../kernel/addresses.js';
import { type AppError, type Rendered, toAppError } from '../kernel/errors.js';

/** What all answers have in common, errors above all. */

/** How answers look. */
export interface AnswerRules {
  renderError(error: AppError, request: FastifyRequest, requestId: string): Rendered;
  /** The identifier of the answer, never taken from the client. */
  requestId(request: FastifyRequest): string;
  /** Whether the server has begun to stop, so that only what is under way is finished. */
  isDraining(): boolean;
  /** Whether people reach us over https; then browsers are told to insist on it. */
  https(): boolean;
}

const COMMON_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** For a year. */
const STRICT_TRANSPORT = { 'strict-transport-security': 'max-age=31536000' };

/** The headers that all answers have in common. */
export const commonHeaders = (isSecure: boolean): Record<string, string> => ({
  ...COMMON_HEADERS,
  ...(isSecure && STRICT_TRANSPORT),
});

export function setCommonHeaders(
  { requestId, https }: AnswerRules,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  reply.headers(COMMON_HEADERS).header('x-request-id', requestId(request));
  if (https()) reply.headers(STRICT_TRANSPORT);
}

/** Log lines name the route, not the address: queries and paths carry tokens, codes and invitations. */
export function describeRequest(request: FastifyRequest): Record<string, unknown> {
  return { method: request.method, route: request.routeOptions?.url ?? null, ip: plainAddress(request.ip) };
}

/** Answers with an error, also where nothing of ours has begun the answer: unknown paths, and what no router takes. */
export function sendError(
  rules: AnswerRules,
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const error = toAppError(thrown);
  setCommonHeaders(rules, request, reply);
  const requestId = String(reply.getHeader('x-request-id'));
  logFailure(request.log, error, { req: request, requestId });
  const { type, body, headers } = rules.renderError(error, request, requestId);
  // A host that sheds load has said when to come back.
  const later = reply.getHeader('retry-after');
  return reply
    .code(error.statusCode)
    .headers({ ...headers, ...error.headers, ...(later !== undefined && { 'retry-after': later }) })
    .type(type)
    .send(body);
}

/** Logs an error that is sent to a client, where there is something to find. */
export function logFailure(
  log: FastifyBaseLogger,
  error: AppError,
  { req, requestId }: { req?: FastifyRequest; requestId: string },
): void {
  const isOnPurpose = error.statusCode === 503;
  const err = error.cause ?? error;
  // Everything but a 503 is ours to find. One without a cause is a rule at work, and under a flood a line for each
  // refusal would cost more than the refusal; the line about the request tells of it.
  if (error.statusCode >= 500 && !(isOnPurpose && err === error)) {
    log[isOnPurpose ? 'warn' : 'error']({ err, ...(req && { req }), requestId }, error.message);
  } else if (error.statusCode < 500 && error.cause !== undefined) {
    log.info({ err, requestId }, 'request rejected; the reason is not sent to the client');
  }
}
