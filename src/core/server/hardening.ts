import type { IncomingMessage } from 'node:http';
import fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
  type onRequestHookHandler,
} from 'fastify';
import type { Resolved } from '../config/options.js';
import { createRequestIdGenerator } from '../http/host-context.js';
import { rejectMalformedRequest } from '../http/raw-request.js';
import { describeRequest, type ResponseRules, sendError } from '../http/responses.js';
import { hostNext, passToHost, routeRules, wasPassedToHost } from '../http/routes.js';
import { MINUTE, SECOND } from '../kernel/clock.js';
import { type AppError, httpErrors, type Rendered } from '../kernel/errors.js';
import type { Random } from '../kernel/secrets.js';
import type { Product } from '../ops/health.js';
import { createRequestIds, logTrace } from './correlation.js';
import { createLogStream, logIdentity } from './log.js';
import type { ServerConfiguration } from './options.js';
import { createProxyMatcher } from './proxies.js';

/** Creates the Fastify instance of a program, with every limit set. */

export interface Hardening {
  server: Resolved<ServerConfiguration>;
  /** The name of the program: in each line of the log, and in `/health` for requests from this machine. */
  product: Product;
  random: Random;
  /** Renders an error without a request. */
  renderPlainError(error: AppError, requestId: string): Rendered;
}

/** Maximum body size in bytes outside the prefixes of the plugins. */
export const BODY_LIMIT = 100 * 1024;

/** Maximum number of request headers. Node silently drops further ones, including those that a proxy has appended. */
const MAX_HEADERS = 100;

/** Sets every limit that Node and Fastify leave open: slow or silent clients are disconnected within 15 seconds. */
export function createHardened(
  { server, product, random, renderPlainError }: Hardening,
  rules: ResponseRules,
): FastifyInstance {
  const { logLevel, trustProxy } = server.values;
  const nextId = createRequestIdGenerator(random);
  const isProxy = createProxyMatcher(trustProxy);
  const app = fastify({
    logger:
      logLevel === 'silent'
        ? false
        : {
            level: logLevel,
            base: logIdentity(product),
            serializers: { req: describeRequest },
            stream: createLogStream(),
          },
    logController: new RequestLogController(),
    genReqId: createRequestIds(nextId, isProxy),
    trustProxy,
    bodyLimit: BODY_LIMIT,
    // On a slow disk, creating the collections takes longer than Fastify's default of ten seconds.
    pluginTimeout: MINUTE,
    connectionTimeout: 15 * SECOND,
    requestTimeout: 10 * SECOND,
    keepAliveTimeout: 72 * SECOND,
    maxRequestsPerSocket: 10_000,
    forceCloseConnections: 'idle',
    // The plugins respond with 503 in their own format.
    return503OnClosing: false,
    http: {
      headersTimeout: 8 * SECOND,
      connectionsCheckingInterval: SECOND,
      maxHeaderSize: 16 * 1024,
      // Checked in `rejectAmbiguousRequest`, which uses the common error format.
      requireHostHeader: false,
    },
    clientErrorHandler: (error, socket) => rejectMalformedRequest(error, socket, nextId(), renderPlainError),
    // Errors of the router, such as an invalid percent-encoding.
    frameworkErrors: (_error, request: FastifyRequest, reply: FastifyReply) => {
      if (!passToHost(request, reply)) sendError(rules, httpErrors.VALIDATION_ERROR(), request, reply);
    },
  });
  app.server.maxHeadersCount = MAX_HEADERS;
  app.addHook('onRequest', rejectAmbiguousRequest);
  if (trustProxy) app.addHook('onRequest', logTrace(isProxy));
  // Node would respond with 417, but an unknown expectation may be ignored (RFC 9110 §10.1.1).
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  return app;
}

/**
 * Rejects requests with dropped headers, which must not count as absent, and with an ambiguous Host, which a proxy could
 * interpret differently.
 */
const rejectAmbiguousRequest: onRequestHookHandler = ({ raw }, _reply, done) => {
  // `rawHeaders` alternates names and values and includes dropped headers.
  const isTooMany = raw.rawHeaders.length > 2 * MAX_HEADERS;
  // Requests that arrive through a host's middleware have been accepted by the host's own server.
  const isAmbiguous = isTooMany || (!hasValidHost(raw) && !hostNext.has(raw));
  done(isAmbiguous ? httpErrors.VALIDATION_ERROR({ headers: { connection: 'close' } }) : undefined);
};

/** A name or an address with an optional port; empty if the client has neither (RFC 9112 §3.2). */
const HOST =
  /^(?:[\w.~!$&'()*+,;=-]*(?:%[\da-f]{2}[\w.~!$&'()*+,;=-]*)*|\[[\da-f:.]+(?:%[\w.~-]+)?\])(?::\d*)?$/i;

/** Whether a request has exactly one valid Host header, which is optional in HTTP/1.0 and HTTP/2. */
function hasValidHost({ rawHeaders, headers: { host }, httpVersion }: IncomingMessage): boolean {
  if (host === undefined) return httpVersion !== '1.1';
  // Node silently keeps the first of several Host headers.
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  return hosts < 2 && HOST.test(host);
}

/** Logs one line per request, at its end; those of probes that succeed at `debug`. */
class RequestLogController extends LogController {
  override incomingRequest(): void {}

  override requestCompleted(error: Error | null, request: FastifyRequest, reply: FastifyReply): void {
    if (wasPassedToHost(request)) return;
    const line = { req: request, statusCode: reply.statusCode, responseTime: reply.elapsedTime };
    if (error) reply.log.error({ ...line, err: error }, 'request errored');
    else if (routeRules(request.routeOptions).isProbe && reply.statusCode < 400)
      reply.log.debug(line, 'request completed');
    else reply.log.info(line, 'request completed');
  }
}
