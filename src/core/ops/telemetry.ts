import type { Context, Span } from '@opentelemetry/api';
import type { FastifyReply, FastifyRequest, onRequestHookHandler, preValidationHookHandler } from 'fastify';
import { Type } from 'typebox';
import { option } from '../config/options.js';
import { traceOf } from '../http/host-context.js';
import { packageVersion } from '../kernel/package-files.js';

/**
 * Traces and metrics for the OpenTelemetry SDK that the process has started. Without the option, its API is not loaded; without an
 * SDK, the API does nothing.
 */

export type Telemetry = Awaited<ReturnType<typeof openTelemetry>>;

/** The option of both products. */
export function telemetryOption(env: string) {
  return option(Type.Boolean({ default: false }), {
    env,
    doc: 'Give traces and metrics to the OpenTelemetry SDK of the process: docs/operate/metrics.md.',
  });
}

async function loadApi() {
  try {
    return await import('@opentelemetry/api');
  } catch (cause) {
    throw new Error('The option telemetry requires a package. Run: npm install @opentelemetry/api', {
      cause,
    });
  }
}

/** Loads the API of OpenTelemetry. @throws if it is not installed */
export async function openTelemetry() {
  const { context, isSpanContextValid, metrics, propagation, SpanKind, SpanStatusCode, trace } =
    await loadApi();
  const tracer = trace.getTracer('saas-backend', packageVersion());
  const requests = new WeakMap<FastifyRequest, { span: Span; active: Context }>();

  /** Begins the span of a request: within that of the host's instrumentation, or within that of a trusted proxy. */
  const begin = (request: FastifyRequest): Context => {
    const current = context.active();
    const isInner = trace.getSpan(current) !== undefined;
    // The client address is that of the peer unless a proxy is trusted.
    const isForwarded = request.ip !== request.socket.remoteAddress;
    const outer = isInner || !isForwarded ? current : propagation.extract(current, request.headers);
    const { method, routeOptions, protocol } = request;
    const attributes = {
      'http.request.method': method,
      'http.route': routeOptions.url ?? '',
      'url.scheme': protocol,
    };
    const kind = isInner ? SpanKind.INTERNAL : SpanKind.SERVER;
    const span = tracer.startSpan(`${method} ${routeOptions.url}`, { kind, attributes }, outer);
    const active = trace.setSpan(outer, span);
    requests.set(request, { span, active });
    return active;
  };

  const fail = (span: Span): void => void span.setStatus({ code: SpanStatusCode.ERROR });

  return {
    meter: metrics.getMeter('saas-backend', packageVersion()),

    /** The hook within the span of the request. @param isPlugin the log lines of a host do not get the trace */
    within: (hook: onRequestHookHandler, isPlugin: boolean): onRequestHookHandler =>
      function traced(request, reply, done) {
        const active = begin(request);
        const spanContext = trace.getSpanContext(active);
        // Without an SDK, the trace is not valid; that of a trusted proxy is in the log already.
        const isNew =
          spanContext !== undefined &&
          isSpanContextValid(spanContext) &&
          spanContext.traceId !== traceOf(request.headers['traceparent']);
        if (isNew && !isPlugin) {
          request.log = request.log.child({ trace_id: spanContext.traceId });
          reply.log = request.log;
        }
        context.with(active, () => hook.call(this, request, reply, done));
      },

    /** Continues after the body was read, because Node.js reads it outside the context of the request. */
    resume: ((request, _reply, done) => {
      context.with(requests.get(request)?.active ?? context.active(), done);
    }) satisfies preValidationHookHandler,

    end(request: FastifyRequest, { statusCode }: FastifyReply): void {
      const { span } = requests.get(request) ?? {};
      span?.setAttribute('http.response.status_code', statusCode);
      if (span && statusCode >= 500) fail(span);
      span?.end();
    },

    /** A call of the store within the span of a request; those of jobs have none. */
    storeCall<R>(call: () => Promise<R>, collection: string, operation: string): Promise<R> {
      const current = context.active();
      if (!trace.getSpan(current)?.isRecording()) return call();
      const attributes = { 'db.collection.name': collection, 'db.operation.name': operation };
      const options = { kind: SpanKind.CLIENT, attributes };
      const span = tracer.startSpan(`${operation} ${collection}`, options, current);
      const result = context.with(trace.setSpan(current, span), call);
      void result.catch(() => fail(span)).finally(() => span.end());
      return result;
    },
  };
}
