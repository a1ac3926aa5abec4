import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { Resolved } from '../config/options.js';
import type { AnswerRules } from '../http/answers.js';
import { answerRules, assumePortOf, type HostContext } from '../http/host-context.js';
import { hostNext, openScope } from '../http/scope.js';
import { SECOND } from '../kernel/clock.js';
import { type Health, healthPlugin, type Product } from '../ops/health.js';
import type { Store } from '../storage/collection.js';
import { trackConnections } from './connections.js';
import { connectionLimit } from './descriptors.js';
import { BODY_LIMIT, createHardened, type Hardening } from './hardening.js';
import { listenAddress, urlHost } from './listening.js';
import { createProxyMatcher, detectUnlistedProxy, isLocalRequest } from './proxies.js';

/** What both servers share: start, stop and a Connect-style handler. */

/** A Connect-style handler: for Express, Connect and bare `node:http`. */
export type Middleware = (
  request: IncomingMessage,
  response: ServerResponse,
  next?: (error?: unknown) => void,
) => void;

export interface Server<Values = unknown> {
  /** The Fastify instance, open for more plugins until it starts. */
  readonly fastify: FastifyInstance;
  /** What the plugin was configured to do. Its values hold secrets. */
  readonly configuration: Resolved<Values>;
  /** Listens. Resolves with the address. */
  start(): Promise<{ url: string; port: number }>;
  /** Refuses new work, finishes what was begun and closes the store. */
  stop(): Promise<void>;
  /** The same as `stop`. */
  close(): Promise<void>;
}

export interface MiddlewareServer<Values = unknown> extends Server<Values> {
  /** Handles what is below our prefixes and hands everything else on, its body unread. */
  readonly middleware: Middleware;
}

export interface Assembly<Values> extends Hardening {
  configuration: Resolved<Values>;
  /** What `/health` names the program to those who ask on this machine. */
  product: Product;
  /** The variable that lists the proxies in front. */
  proxyVariable: string;
  hostContext: HostContext;
  /** Registers the plugin and answers with the store it opened. */
  mount(app: FastifyInstance): Promise<Store>;
  renderError: AnswerRules['renderError'];
  /** Puts the state of `/health` and `/ready` at the root into shape. */
  wrapHealth(state: Health): object;
  /** The mount point that a stripped mount replaces first, then the others. Absent: no middleware. */
  mountPoints?: [string, ...string[]] | undefined;
  /** Told what a stripped mount replaces the first one with. */
  onMount?(path: string): void;
}

/** How long a stop waits for requests that were begun. */
const GRACE = 8 * SECOND;

/** Puts a server together. Nothing runs before `start` or the first request of the middleware. */
export function assemble<Values>(assembly: Assembly<Values>): Server<Values> | MiddlewareServer<Values> {
  const { server, configuration, mountPoints } = assembly;
  const { lifecycle, publicUrl } = assembly.hostContext;
  const rules: AnswerRules = {
    ...answerRules(assembly.hostContext),
    renderError: assembly.renderError,
  };
  const app = createHardened(assembly, rules);
  assumePortOf(app, publicUrl);
  const unlistedProxy = detectUnlistedProxy(app, assembly.proxyVariable, server.values.trustProxy);
  // Unwrapped, so that `app` has the plugin's decorator for the routes that others add.
  const unwrapped = fp(async (root: FastifyInstance) => {
    const store = await assembly.mount(root);
    await openScope(
      root,
      {
        ...rules,
        prefix: '',
        conflictRemedy: 'Choose another path.',
        guards: {},
        handlesNotFound: true,
        bodyLimit: BODY_LIMIT,
        isPlugin: false,
      },
      async (scope) => {
        const remarks = (request: FastifyRequest) =>
          isLocalRequest(request) ? { product: assembly.product, ...unlistedProxy() } : {};
        await scope.register(healthPlugin, { store, wrap: assembly.wrapHealth, remarks });
      },
    );
  });
  app.register(unwrapped);

  const { maxConnections, maxConnectionsPerAddress, trustProxy } = server.values;
  const endConnections = trackConnections(app.server, {
    total: connectionLimit(maxConnections),
    perAddress: maxConnectionsPerAddress,
    isProxy: createProxyMatcher(trustProxy),
  });
  let stopping: Promise<void> | undefined;
  let starting: Promise<unknown> = Promise.resolve();
  const stop = (): Promise<void> => {
    lifecycle.draining = true;
    // Fastify closes what listens already, and would go on to listen after it.
    stopping ??= starting.then(() => {
      endConnections(GRACE);
      return app.close();
    });
    return stopping;
  };
  const start = async () => {
    if (lifecycle.draining) throw new Error('A stopped server cannot be restarted. Create a new one.');
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
  const base = { fastify: app, configuration, start, stop, close: stop };
  return mountPoints ? { ...base, middleware: createMiddleware(app, mountPoints, assembly) } : base;
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
      const restore = lifecycle.draining ? withoutGoodbye(response) : () => {};
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
 * Once it has stopped, Fastify says `Connection: close` of every request before it knows whether it is ours. Ours say so
 * themselves; what goes back to the host must not. Nor can it be taken back: Node then sends no such header at all.
 *
 * @returns lets headers through again
 */
function withoutGoodbye(response: ServerResponse): () => void {
  const { setHeader } = response;
  const silent: typeof setHeader = (name, value) =>
    name === 'Connection' ? response : setHeader.call(response, name, value);
  response.setHeader = silent;
  return () => {
    if (response.setHeader === silent) response.setHeader = setHeader;
  };
}

/** The path that Express and Connect mounted us at and took off the address, or `null` where they took nothing. */
function strippedFrom(originalUrl: string, url: string): string | null {
  const isStripped = originalUrl !== url && originalUrl.endsWith(url);
  return isStripped ? originalUrl.slice(0, -url.length) : null;
}

/** Express and Connect take a mount in any case, and whoever asks first must not choose how links spell it. */
function isSameMount(ours: string, asked: string): boolean {
  return ours.toLowerCase() === asked.toLowerCase();
}

/** The address as our routes know it, or `null` when it is none of ours. */
function innerUrl(
  url: string,
  { originalUrl, isStripped }: { originalUrl: string; isStripped: boolean },
  [first, ...others]: [string, ...string[]],
): string | null {
  const isBelow = (mountPoint: string) =>
    /^([/?]|$)/.test(url.startsWith(mountPoint) ? url.slice(mountPoint.length) : '-');
  if (others.some(isBelow)) return url;
  // Mounted there, they replace nothing. Of an address that is the mount itself the slash is not its own.
  const whole = others.flatMap((path) => [path + url, path + url.slice(1)]);
  const mounted = whole.find((address) => isSameMount(address, originalUrl));
  if (mounted !== undefined) return mounted;
  if (isStripped) return first + url;
  return isBelow(first) ? url : null;
}
