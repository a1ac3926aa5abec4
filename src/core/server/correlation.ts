import type { IncomingMessage } from 'node:http';
import type { onRequestHookHandler } from 'fastify';
import { traceOf } from '../http/host-context.js';

/**
 * Identifiers of a request that a proxy has chosen, so that its log and ours can be joined. They are taken over from trusted
 * proxies only: other clients would choose what the log contains.
 */

type IsProxy = (address: string) => boolean;

const REQUEST_ID = /^[\w.:=+/@-]{1,128}$/;

const isFromProxy = ({ socket }: IncomingMessage, isProxy: IsProxy): boolean =>
  socket.remoteAddress !== undefined && isProxy(socket.remoteAddress);

/** The `X-Request-Id` of a trusted proxy, or the next ID. */
export const createRequestIds =
  (nextId: () => string, isProxy: IsProxy) =>
  (raw: IncomingMessage): string => {
    const given = raw.headers['x-request-id'];
    return typeof given === 'string' && REQUEST_ID.test(given) && isFromProxy(raw, isProxy)
      ? given
      : nextId();
  };

/** Adds the trace of a trusted proxy to the log lines of a request, under the name of OpenTelemetry. */
export const logTrace =
  (isProxy: IsProxy): onRequestHookHandler =>
  (request, reply, done) => {
    const { traceparent } = request.headers;
    const isTrusted = traceparent !== undefined && isFromProxy(request.raw, isProxy);
    const trace = isTrusted ? traceOf(traceparent) : undefined;
    if (trace !== undefined) {
      request.log = request.log.child({ trace_id: trace });
      reply.log = request.log;
    }
    done();
  };
