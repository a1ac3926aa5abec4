import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { Resolved } from '../config/options.js';
import { assumePortOf, type HostContext, responseRules } from '../http/host-context.js';
import type { ResponseRules } from '../http/responses.js';
import { type Guard, hostNext, registerRoutes } from '../http/routes.js';
import { SECOND } from '../kernel/clock.js';
import { type Health, healthPlugin } from '../ops/health.js';
import { type Metrics, metricsPlugin } from '../ops/metrics.js';
import type { Store } from '../storage/collection.js';
import { trackConnections } from './connections.js';
import { connectionLimit } from './descriptors.js';
import { BODY_LIMIT, createHardened, type Hardening } from './hardening.js';
import { listenAddress, urlHost } from './listening.js';
import { variableOf } from './options.js';
import { createProxyMatcher, detectUnlistedProxy, isLocalRequest } from './proxies.js';

/** What the servers of both products share: start, stop and a Connect-style handler. */

/** A Connect-style handler: for Express, Connect and bare `node:http`. */
export type Middleware = (
  request: IncomingMessage,
  response: ServerResponse,
  next?: (error?: unknown) => void,
) => void;

/** A product as a server. */
export interface Server<Values = unknown> {
  /** The Fastify instance; plugins can be registered until it starts. */
  readonly fastify: FastifyInstance;
  /** The resolved configuration of the plugin. Its values contain secrets. */
  readonly configuration: Resolved<Values>;
  /** Starts listening. Resolves with the address. */
  start(): Promise<{ url: string; port: number }>;
  /** Rejects new requests, finishes the current ones and closes the store. */
  stop(): Promise<void>;
  /** The same as `stop`. */
  close(): Promise<void>;
}

/** A product as a server that another application can mount. */
export interface MiddlewareServer<Values = unknown> extends Server<Values> {
  /** Handles requests below the mount points and passes all others on with an unread body. */
  readonly middleware: Middleware;
}

/** What a mounted product hands to its server. */
export interface Mounted {
  store: Store;
  /** Absent if metrics are disabled. */
  metrics: { metrics: Metrics; guard: Guard } | undefined;
}

export interface Assembly<Values> extends Hardening {
  configuration: Resolved<Values>;
  hostContext: HostContext;
  /** Registers the plugin. */
  mount(app: FastifyInstance): Promise<Mounted>;
  renderError: ResponseRules['renderError'];
  /** Converts the state of `/health` and `/ready` at the root to the response format. */
  wrapHealth(state: Health): object;
  /** A path at which Express or Connect mount the middleware replaces the first one. Absent: no middleware. */
  mountPoints?: [string, ...string[]] | undefined;
  /** Called with the path that replaces the first mount point. */
  onMount?(path: string): void;
}

/** Time in which requests that are on their way at a stop still arrive, at connections that are kept alive. */
const ANNOUNCE_MS = SECOND / 2;

/** Time for current requests to finish when the server stops. */
const STOP_TIMEOUT_MS = 8 * SECOND;

/** Creates a server. Nothing runs before `start` or the first request of the middleware. */
export function assemble<Values>(assembly: Assembly<Values>): Server<Values> | MiddlewareServer<Values> {
  const { server, configuration, mountPoints, hostContext, renderError } = assembly;
  const rules: ResponseRules = { ...responseRules(hostContext), renderError };
  const app = createHardened(assembly, rules);
  assumePortOf(app, hostContext.publicUrl);
  const unlistedProxy = detectUnlistedProxy(
    app,
    variableOf(assembly.product, 'TRUST_PROXY'),
    server.values.trustProxy,
  );
  // Not encapsulated, so that routes that are added to `app` have the plugin's decorator.
  const plugin = fp(async (root: FastifyInstance) => {
    const { store, metrics } = await assembly.mount(root);
    await registerRoutes(
      root,
      {
        ...rules,
        prefix: '',
        conflictRemedy: 'Choose another path.',
        guards: metrics ? { metrics: metrics.guard } : {},
        onResponse: metrics?.metrics.observeResponse,
        storeTimeoutMs: store.requestTimeoutMs,
        handlesNotFound: true,
        bodyLimit: BODY_LIMIT,
        isPlugin: false,
      },
      async (fastify) => {
        const details = (request: FastifyRequest) =>
          isLocalRequest(request) ? { product: assembly.product, ...unlistedProxy() } : {};
        await fastify.register(healthPlugin, { store, wrap: assembly.wrapHealth, details });
        if (metrics) await fastify.register(metricsPlugin, metrics);
      },
    );
  });
  app.register(plugin);
  const base = { fastify: app, configuration, ...createLifecycle(app, assembly) };
  return mountPoints ? { ...base, middleware: createMiddleware(app, mountPoints, assembly) } : base;
}

/** The start and the stop of a server, each of which may be called during the other. */
function createLifecycle(app: FastifyInstance, { server, hostContext: { lifecycle } }: Assembly<unknown>) {
  const { maxConnections, maxConnectionsPerAddress, trustProxy } = server.values;
  const connections = trackConnections(app.server, {
    total: connectionLimit(maxConnections),
    perAddress: maxConnectionsPerAddress,
    isProxy: createProxyMatcher(trustProxy),
  });
  let stopping: Promise<void> | undefined;
  let starting: Promise<unknown> = Promise.resolve();
  const stop = (): Promise<void> => {
    // Without connections of its own, for example behind the middleware of a host, there is nothing to announce.
    if (connections.count === 0) lifecycle.draining = true;
    // A close during `listen` does not prevent Fastify from listening afterwards.
    stopping ??= starting.then(async () => {
      await connections.announceEnd(ANNOUNCE_MS);
      lifecycle.draining = true;
      connections.end(STOP_TIMEOUT_MS);
      await app.close();
    });
    return stopping;
  };
  const start = async () => {
    if (stopping) throw new Error('A stopped server cannot be restarted. Create a new one.');
    const listening = listen();
    starting = Promise.allSettled([starting, listening]);
    return listening;
  };
  const listen = async () => {
    const { host, port: wanted } = listenAddress(server);
    await app.listen({ host, port: wanted });
    const { port } = app.server.address() as AddressInfo;
    return { url: `http://${urlHost(host)}:${port}`, port };
  };
  return { start, stop, close: stop };
}

function createMiddleware(
  app: FastifyInstance,
  mountPoints: [string, ...string[]],
  { hostContext: { lifecycle, publicUrl }, onMount }: Assembly<unknown>,
): Middleware {
  return (request, response, next = () => response.writeHead(404).end()) => {
    publicUrl.observePort(request.socket?.localPort);
    const outer = request.url ?? '/';
    const { originalUrl = outer } = request as IncomingMessage & { originalUrl?: string };
    const stripped = strippedFrom(originalUrl, outer);
    const inner = innerUrl(outer, { originalUrl, isStripped: stripped !== null }, mountPoints);
    if (inner === null) {
      next();
      return;
    }
    if (stripped !== null && !isSameMount(inner, originalUrl)) onMount?.(stripped);
    app.ready().then(() => {
      const restore = lifecycle.draining ? suppressConnectionHeader(response) : () => {};
      hostNext.set(request, () => {
        restore();
        request.url = outer;
        next();
      });
      request.url = inner;
      app.routing(request, response);
      restore();
    }, next);
  };
}

/**
 * A closing Fastify sets `Connection: close` before it routes a request, but responses of the host must not contain it.
 * The header is suppressed, because Node sends no `Connection` header at all once it has been removed.
 *
 * @returns restores the response
 */
function suppressConnectionHeader(response: ServerResponse): () => void {
  const { setHeader } = response;
  const filtered: typeof setHeader = (name, value) =>
    name === 'Connection' ? response : setHeader.call(response, name, value);
  response.setHeader = filtered;
  return () => {
    if (response.setHeader === filtered) response.setHeader = setHeader;
  };
}

/** The mount path that Express or Connect removed from the URL; `null` if they removed nothing. */
function strippedFrom(originalUrl: string, url: string): string | null {
  const isStripped = originalUrl !== url && originalUrl.endsWith(url);
  return isStripped ? originalUrl.slice(0, -url.length) : null;
}

/** Express and Connect ignore the case of a mount path, and the first request must not determine it for all links. */
function isSameMount(mounted: string, requested: string): boolean {
  return mounted.toLowerCase() === requested.toLowerCase();
}

/** The URL that the router expects; `null` if it is outside the mount points. */
function innerUrl(
  url: string,
  { originalUrl, isStripped }: { originalUrl: string; isStripped: boolean },
  [first, ...others]: [string, ...string[]],
): string | null {
  const isBelow = (mountPoint: string) =>
    /^([/?]|$)/.test(url.startsWith(mountPoint) ? url.slice(mountPoint.length) : '-');
  if (others.some(isBelow)) return url;
  // Mounted at one of the others, the path replaces nothing. The URL of the mount itself has an extra slash.
  const whole = others.flatMap((path) => [path + url, path + url.slice(1)]);
  const mounted = whole.find((address) => isSameMount(address, originalUrl));
  if (mounted !== undefined) return mounted;
  if (isStripped) return first + url;
  return isBelow(first) ? url : null;
}
