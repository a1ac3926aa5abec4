import type { IncomingMessage } from 'node:http';
import type { onRequestHookHandler } from 'fastify';

/**
 * Identifiers of a request that a proxy has chosen, so that its log and ours can be joined. They are taken over from trusted
 * proxies only: other clients would choose what the log contains.
 */

type IsProxy = (address: string) => boolean;

const REQUEST_ID = /^[\w.:=+/@-]{1,128}$/;

/** `traceparent` (W3C Trace Context): version, trace, parent and flags; later versions may have more. */
const TRACEPARENT = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}(-.*)?$/;

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

/** The trace that a `traceparent` names; `undefined` if it is not valid. */
export function traceOf(traceparent: unknown): string | undefined {
  const [, version, trace = '', span = '', rest] = TRACEPARENT.exec(String(traceparent)) ?? [];
  const isValid = version !== undefined && version !== 'ff' && (version !== '00' || rest === undefined);
  return isValid && /[^0]/.test(trace) && /[^0]/.test(span) ? trace : undefined;
}

/** Adds the trace of a trusted proxy to the log lines of a request, under the name of OpenTelemetry. */
export const logTrace =
  (isProxy: IsProxy): onRequestHookHandler =>
  (request, reply, done) => {
    const trace = isFromProxy(request.raw, isProxy) ? traceOf(request.headers['traceparent']) : undefined;
    if (trace !== undefined) {
      request.log = request.log.child({ trace_id: trace });
      reply.log = request.log;
    }
    done();
  };
