import type { IncomingMessage } from 'node:http';
import fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
  type onRequestHookHandler,
} from 'fastify';
import type { Resolved } from '../config/options.js';
import { type AnswerRules, describeRequest, sendError } from '../http/answers.js';
import { createRequestIdGenerator } from '../http/host-context.js';
import { rejectMalformedRequest } from '../http/raw-request.js';
import { hostNext, passToHost, wasPassedToHost } from '../http/scope.js';
import { MINUTE, SECOND } from '../kernel/clock.js';
import { type AppError, httpErrors, type Rendered } from '../kernel/errors.js';
import type { Random } from '../kernel/secrets.js';
import { createLogStream } from './log.js';
import type { ServerConfiguration } from './options.js';

/** A Fastify instance of our own, without a limit that is left open. */

export interface Hardening {
  server: Resolved<ServerConfiguration>;
  random: Random;
  /** Renders an error where there is no request to look at. */
  renderPlainError(error: AppError, requestId: string): Rendered;
}

/** Bytes of a body outside our prefixes. */
export const BODY_LIMIT = 100 * 1024;

/** Headers of a request. Node drops those beyond, and with them what a proxy has appended. */
const MOST_HEADERS = 100;

/**
 * Every limit that Node and Fastify leave open is set: a client that sends slowly or not at all is
 * disconnected within 15 seconds.
 */
export function createHardened(
  { server, random, renderPlainError }: Hardening,
  rules: AnswerRules,
): FastifyInstance {
  const { logLevel, trustProxy } = server.values;
  const nextId = createRequestIdGenerator(random);
  const app = fastify({
    logger:
      logLevel === 'silent'
        ? false
        : { level: logLevel, serializers: { req: describeRequest }, stream: createLogStream() },
    logController: new OneLineLog(),
    genReqId: nextId,
    trustProxy,
    bodyLimit: BODY_LIMIT,
    // On a slow disk the store's collections, each with a limit of its own, take longer than the ten seconds of Fastify.
    pluginTimeout: MINUTE,
    connectionTimeout: 15 * SECOND,
    requestTimeout: 10 * SECOND,
    keepAliveTimeout: 72 * SECOND,
    maxRequestsPerSocket: 10_000,
    forceCloseConnections: 'idle',
    // Said by the scopes, in their own shape.
    return503OnClosing: false,
    http: {
      headersTimeout: 8 * SECOND,
      connectionsCheckingInterval: SECOND,
      maxHeaderSize: 16 * 1024,
      // Refused below, in the shape of every other error.
      requireHostHeader: false,
    },
    clientErrorHandler: (error, socket) => rejectMalformedRequest(error, socket, nextId(), renderPlainError),
    // What the router refuses before any scope is reached, a broken percent-encoding above all.
    frameworkErrors: (_error, request: FastifyRequest, reply: FastifyReply) => {
      if (!passToHost(request, reply)) sendError(rules, httpErrors.VALIDATION_ERROR(), request, reply);
    },
  });
  app.server.maxHeadersCount = MOST_HEADERS;
  app.addHook('onRequest', refuseUnclear);
  // Node would answer 417 past all of us; whoever expects what is not known may be served all the same (RFC 9110 §10.1.1).
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  return app;
}

/**
 * A header that is not read is no header that is absent: the address of the client, its credentials, its origin. And
 * whom it asks must be as plain to a proxy in front as to us, although nothing here goes by it.
 */
const refuseUnclear: onRequestHookHandler = ({ raw }, _reply, done) => {
  // Names and values in turn, also of those that are dropped.
  const isTooMany = raw.rawHeaders.length > 2 * MOST_HEADERS;
  // What comes by way of a host's middleware may be the host's own, and whom it asks its own server has judged.
  const isUnclear = isTooMany || (!namesItsHost(raw) && !hostNext.has(raw));
  done(isUnclear ? httpErrors.VALIDATION_ERROR({ headers: { connection: 'close' } }) : undefined);
};

/** A name or an address, perhaps with a port. Nothing at all is what a client says that knows neither (RFC 9112 §3.2). */
const HOST =
  /^(?:[\w.~!$&'()*+,;=-]*(?:%[\da-f]{2}[\w.~!$&'()*+,;=-]*)*|\[[\da-f:.]+(?:%[\w.~-]+)?\])(?::\d*)?$/i;

/** Whether a request has one Host header, and a sound one. HTTP/1.0 and HTTP/2 may go without. */
function namesItsHost({ rawHeaders, headers: { host }, httpVersion }: IncomingMessage): boolean {
  if (host === undefined) return httpVersion !== '1.1';
  // Of several, Node keeps the first and says nothing. One pass, and most names are told apart by their length.
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  return hosts < 2 && HOST.test(host);
}

/** One log line for each request, at its end. The scopes decide what it says of the address. */
class OneLineLog extends LogController {
  override incomingRequest(): void {}

  override requestCompleted(error: Error | null, request: FastifyRequest, reply: FastifyReply): void {
    if (wasPassedToHost(request)) return;
    const line = { req: request, statusCode: reply.statusCode, responseTime: reply.elapsedTime };
    if (error) reply.log.error({ ...line, err: error }, 'request errored');
    else reply.log.info(line, 'request completed');
  }
}
