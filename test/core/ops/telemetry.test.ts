import { AsyncLocalStorage } from 'node:async_hooks';
import { Readable } from 'node:stream';
import {
  type Attributes,
  type Context,
  context,
  metrics,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api';
import t from 'tap';
import { saasApp } from '../../kit/app.js';
import { ADMIN_TOKEN, idpApp } from '../../kit/idp.js';

/** The smallest SDK: it keeps what it gets. */

interface RecordedSpan {
  name: string;
  kind: SpanKind | undefined;
  attributes: Attributes;
  parent: string | undefined;
  traceId: string;
  spanId: string;
  status: SpanStatusCode;
  ended: boolean;
}

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const spans: RecordedSpan[] = [];
const counted = new Map<string, number>();
const gauges = new Map<string, Set<(result: { observe(value: number): void }) => Promise<void>>>();
const storage = new AsyncLocalStorage<Context>();

let count = 0;
function startSpan(
  name: string,
  { kind, attributes = {} }: SpanOptions = {},
  parent: Context = ROOT_CONTEXT,
) {
  const outer = trace.getSpanContext(parent);
  const spanId = String(++count).padStart(16, '0');
  const traceId = outer?.traceId ?? String(count).padStart(32, 'f');
  const recorded: RecordedSpan = {
    ...{ name, kind, attributes: { ...attributes }, parent: outer?.spanId, traceId, spanId },
    status: SpanStatusCode.UNSET,
    ended: false,
  };
  spans.push(recorded);
  const span: Partial<Span> = {
    spanContext: () => ({ traceId, spanId, traceFlags: TraceFlags.SAMPLED }),
    isRecording: () => !recorded.ended,
    setAttribute: (key, value) => {
      recorded.attributes[key] = value;
      return span as Span;
    },
    setStatus: ({ code }) => {
      recorded.status = code;
      return span as Span;
    },
    end: () => {
      recorded.ended = true;
    },
  };
  return span as Span;
}

context.setGlobalContextManager({
  active: () => storage.getStore() ?? ROOT_CONTEXT,
  with: (active, work, self, ...more) => storage.run(active, () => work.call(self as never, ...more)),
  bind: (_context, target) => target,
  enable() {
    return this;
  },
  disable() {
    return this;
  },
});
trace.setGlobalTracerProvider({
  getTracer: () => ({ startSpan, startActiveSpan: () => undefined as never }),
});
propagation.setGlobalPropagator({
  inject: () => undefined,
  extract(current, carrier: Record<string, string>) {
    const [, traceId, spanId] = (carrier['traceparent'] ?? '').split('-');
    if (!traceId || !spanId) return current;
    return trace.setSpanContext(current, { traceId, spanId, traceFlags: TraceFlags.SAMPLED, isRemote: true });
  },
  fields: () => ['traceparent'],
});
const add = (name: string) => ({
  add: (value: number) => void counted.set(name, (counted.get(name) ?? 0) + value),
  record: () => void counted.set(name, (counted.get(name) ?? 0) + 1),
});
metrics.setGlobalMeterProvider({
  getMeter: () =>
    ({
      createCounter: add,
      createHistogram: add,
      createObservableGauge(name: string) {
        const callbacks = gauges.get(name) ?? new Set();
        gauges.set(name, callbacks);
        return {
          addCallback: (callback: never) => callbacks.add(callback),
          removeCallback: (callback: never) => callbacks.delete(callback),
        };
      },
    }) as never,
});

t.beforeEach(() => {
  spans.length = 0;
});

const traceparent = `00-${TRACE}-00f067aa0ba902b7-01`;
const requestsOf = () => spans.filter(({ attributes }) => attributes['http.route'] !== undefined);

t.test('a request is a span with the route, and its calls of the store are spans within it', async (t) => {
  const app = await saasApp(t, { telemetry: true });
  const { accessToken } = await app.signUp();
  spans.length = 0;
  t.equal((await app.request('GET', '/api/auth/me', { token: accessToken })).status, 200);
  t.match(requestsOf(), [
    {
      name: 'GET /api/auth/me',
      kind: SpanKind.SERVER,
      attributes: {
        'http.request.method': 'GET',
        'http.route': '/api/auth/me',
        'http.response.status_code': 200,
      },
      parent: undefined,
      status: SpanStatusCode.UNSET,
      ended: true,
    },
  ]);
  spans.length = 0;
  const body = JSON.stringify({ email: 'nobody@example.test', password: 'a wrong password' });
  const url = await app.listen();
  const login = await fetch(`${url}/api/auth/login?token=geheim`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    // Its parts arrive after the headers, outside the context of the first hook.
    body: Readable.toWeb(Readable.from([Buffer.from(body.slice(0, 9)), Buffer.from(body.slice(9))])),
    duplex: 'half',
  } as RequestInit);
  t.equal(login.status, 401);
  const [request] = requestsOf();
  const calls = spans.filter(({ kind }) => kind === SpanKind.CLIENT);
  t.ok(calls.length > 0, 'also after the body was read');
  for (const call of calls)
    t.match(call, { parent: request?.spanId, traceId: request?.traceId, ended: true }, call.name);
  t.notMatch(JSON.stringify(spans), /nobody|geheim/);
});

t.test('the trace of a trusted proxy is continued, and that of another client is not', async (t) => {
  const app = await saasApp(t, { telemetry: true, trustProxy: ['127.0.0.1'] });
  const headers = { traceparent, 'x-forwarded-for': '192.0.2.7' };
  await app.request('GET', '/api/settings/public', { headers });
  t.match(requestsOf(), [{ traceId: TRACE, parent: '00f067aa0ba902b7', kind: SpanKind.SERVER }]);
  const alone = await saasApp(t, { telemetry: true });
  spans.length = 0;
  await alone.request('GET', '/api/settings/public', { headers });
  t.notMatch(requestsOf()[0]?.traceId, TRACE);
});

t.test('metrics are the same as for Prometheus, until the server closes', async (t) => {
  const idp = await idpApp(t, { telemetry: true });
  t.equal((await idp.request('GET', '/metrics', { token: ADMIN_TOKEN })).status, 404, 'without their route');
  await idp.mintAgent();
  await idp.request('GET', '/jwks');
  t.ok((counted.get('idp_http_requests_total') ?? 0) >= 1);
  t.ok((counted.get('idp_store_call_duration_seconds') ?? 0) > 0);
  const read = async (name: string) => {
    const values: number[] = [];
    for (const callback of gauges.get(name) ?? []) await callback({ observe: (value) => values.push(value) });
    return values;
  };
  t.same(await read('idp_agents'), [1]);
  t.same(await read('idp_build_info'), [1]);
  await idp.server.stop();
  t.same(await read('idp_agents'), [], 'the store is closed');
});

t.test('without the option nothing is traced', async (t) => {
  const app = await saasApp(t);
  await app.signUp();
  t.same(spans, []);
});
