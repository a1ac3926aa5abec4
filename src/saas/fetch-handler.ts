import { isIP } from 'node:net';
import { Readable } from 'node:stream';
import type { InjectOptions } from 'fastify';
import { httpErrors, renderEnvelope } from '../core/kernel/errors.js';
import { createVisitorSessions, type VisitInfo, type VisitorSessions } from '../server/backend.js';
import { type CreateServerOptions, openServer } from './server.js';

/** The options of the SaaS backend as a function of requests. Without a connection of its own, it has no others of a server. */
export interface FetchHandlerOptions
  extends Omit<
    CreateServerOptions,
    'middleware' | 'host' | 'port' | 'maxConnections' | 'maxConnectionsPerAddress'
  > {}

/** The SaaS backend as a function of requests, with the sessions of visitors. */
export interface FetchHandler extends VisitorSessions {
  /** Answers a request of the API, the admin area and the pages for users, and any other one with 404. */
  (request: Request, info?: VisitInfo): Promise<Response>;
  /** Finishes current requests and closes the store. */
  stop(): Promise<void>;
}

type Backend = ReturnType<typeof openServer>;

/** Bundlers create a module several times, in layers of a framework or after an edit; the backend runs once in a process. */
const REGISTRY = Symbol.for('saas-backend.fetch-handlers');

const backends = (): Map<string, Backend> => {
  const all = globalThis as { [REGISTRY]?: Map<string, Backend> };
  all[REGISTRY] ??= new Map();
  return all[REGISTRY];
};

/**
 * The SaaS backend as a function of requests, for frameworks whose routes are functions from `Request` to `Response`. It reads its
 * configuration and starts with the first request, so that a build needs no secrets. Handlers of the same prefix and database are one
 * backend in a process, with the options of the first one.
 */
export function createFetchHandler(options: FetchHandlerOptions = {}): FetchHandler {
  const { prefix = '/api', databaseUri = '' } = options;
  const key = `${prefix} ${databaseUri}`;
  let isStopped = false;

  const open = async (): Promise<Backend> => {
    const backend = backends().get(key) ?? openServer(options);
    backends().set(key, backend);
    try {
      await backend.server.fastify.ready();
    } catch (error) {
      // The next request tries again: the database may have been unreachable.
      if (backends().get(key) === backend) backends().delete(key);
      throw error;
    }
    return backend;
  };

  const handle = async (request: Request, info: VisitInfo = {}): Promise<Response> => {
    request.signal.throwIfAborted();
    if (isStopped) return stopped();
    const backend = await open();
    const url = new URL(request.url);
    if (!backend.mountPoints.some((path) => isBelow(url.pathname, path))) return notFound();
    backend.publicUrl.observePort(Number(url.port) || (url.protocol === 'https:' ? 443 : 80));
    const headers: Record<string, string> = { host: url.host, ...Object.fromEntries(request.headers) };
    const remoteAddress = takeAddress(headers, info, backend);
    if (request.body && headers['content-length'] === undefined) headers['transfer-encoding'] = 'chunked';
    const answer = await backend.server.fastify.inject({
      method: request.method as NonNullable<InjectOptions['method']>,
      url: url.pathname + url.search,
      ...{ headers, remoteAddress, payloadAsStream: true },
      ...(request.body && { payload: Readable.fromWeb(request.body) }),
    });
    const body = NULL_BODY.has(answer.statusCode) || request.method === 'HEAD' ? null : answer.stream();
    return new Response(body && (Readable.toWeb(body) as ReadableStream), {
      status: answer.statusCode,
      headers: headersOf(answer.headers),
    });
  };

  const sessions = createVisitorSessions(`http://localhost${prefix}`, (url, init, { headers, address }) => {
    const target = new URL(url);
    target.host = headers.get('host') ?? target.host;
    return handle(new Request(target, init), { address });
  });

  return Object.assign(handle, sessions, {
    async stop() {
      isStopped = true;
      const backend = backends().get(key);
      backends().delete(key);
      await backend?.server.stop();
    },
  });
}

/** Responses without a body (Fetch standard). */
const NULL_BODY = new Set([204, 205, 304]);

/** They concern a connection, and the framework has its own. */
const OF_CONNECTION = new Set(['connection', 'keep-alive', 'transfer-encoding']);

function headersOf(given: Record<string, unknown>): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || OF_CONNECTION.has(name)) continue;
    for (const one of [value].flat()) headers.append(name, String(one));
  }
  return headers;
}

const isBelow = (pathname: string, path: string): boolean =>
  pathname === path || pathname.startsWith(`${path}/`);

/**
 * The address of the client: that of the call or, if a proxy is trusted, the last one in `X-Forwarded-For`, which the proxy in front of
 * the framework has appended. The framework hides the address of the proxy.
 *
 * @throws Error in production if it is unknown, because all visitors would share one limit
 */
function takeAddress(
  headers: Record<string, string>,
  { address = '' }: VisitInfo,
  { isProxyTrusted, production }: Backend,
): string {
  if (isIP(address)) return address;
  const hops = isProxyTrusted ? (headers['x-forwarded-for'] ?? '').split(',').map((hop) => hop.trim()) : [];
  const last = hops.pop();
  // The others count if the last one is a trusted proxy, too.
  headers['x-forwarded-for'] = hops.join(', ');
  if (hops.length === 0) delete headers['x-forwarded-for'];
  if (last) return last;
  if (production) throw new Error(UNKNOWN_ADDRESS);
  return '127.0.0.1';
}

const UNKNOWN_ADDRESS =
  'The address of the visitor is unknown, so that all visitors would share one rate limit. Set TRUST_PROXY to the addresses of the ' +
  'proxies in front of the framework, which append to X-Forwarded-For (127.0.0.1 if the platform does not name them), or pass the ' +
  'address that the framework states: handler(request, { address }), getSession(request, { address }).';

const envelope = (error: ReturnType<typeof httpErrors.NOT_FOUND>): Response => {
  const { type, body } = renderEnvelope(error, 'none');
  return new Response(body, {
    status: error.statusCode,
    headers: { ...error.headers, 'content-type': type },
  });
};
const stopped = () => envelope(httpErrors.NOT_READY());
const notFound = () => envelope(httpErrors.NOT_FOUND());
