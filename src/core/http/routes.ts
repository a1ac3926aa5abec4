import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type {
  FastifyBaseLogger,
  FastifyContextConfig,
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  onRequestAsyncHookHandler,
  onRequestHookHandler,
  onResponseHookHandler,
  preValidationHookHandler,
  RawServerDefault,
  RouteOptions,
} from 'fastify';
import { type AppError, httpErrors } from '../kernel/errors.js';
import { RequestBudget } from '../storage/request-budget.js';
import { METHODS_WITHOUT_BODY, readBody, setBodyParser } from './bodies.js';
import { browserFamily, systemFamily } from './browser.js';
import { clientAddress, identifyCaller } from './caller.js';
import { pinCompilers, setCompilers } from './compilers.js';
import { groupResponses } from './grouped-responses.js';
import { describeRequest, type ResponseRules, sendError, setCommonHeaders } from './responses.js';
import { type RouteConflicts, watchRouteConflicts } from './route-conflicts.js';
import { recordMethods, respondToUnknown } from './unknown-requests.js';

/** Encapsulated contexts, whose rules apply to every route of a plugin and to no route of the host. */

/** A Fastify instance with the TypeBox type provider. */
export type FastifyTypebox = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** Runs before the body is read and throws an `AppError` to reject the request. */
export type Guard = onRequestAsyncHookHandler;

/** For routes that authenticate the request themselves, by a password or token in the header or the body. */
export const authenticatedByRoute: Guard = async () => {};

/** Puts the work of requests into traces. */
export interface RequestTracing {
  /** The first hook of a route, within the trace of the request. */
  within(hook: onRequestHookHandler, isPlugin: boolean): onRequestHookHandler;
  resume: preValidationHookHandler;
  end(request: FastifyRequest, reply: FastifyReply): void;
}

export interface PluginRules extends ResponseRules {
  /** Absolute path, `''` for the root. */
  prefix: string;
  /** Access level → guard. `public` needs none. */
  guards: Record<string, Guard>;
  /** Whether the context handles unknown paths below its prefix; false if the prefix is the root of a host. */
  handlesNotFound: boolean;
  /** Maximum body size in bytes; a route can override it. */
  bodyLimit: number;
  /** Counts a request of an address and returns an error if there were too many; absent: requests are not counted. */
  meter?: (ip: string) => AppError | undefined;
  /** The secret of server-side callers; absent: there are none. */
  callerSecret?: string | undefined;
  /** How long a request may wait for the store in all; absent: each call has its own limit. */
  storeTimeoutMs?: number | undefined;
  /** Advice for the host's developer about a conflicting route, as a sentence. */
  conflictRemedy: string;
  /** Called at the begin of each request of a route. */
  observeRequest?: ((request: FastifyRequest) => void) | undefined;
  /** Called after each response of a route. */
  onResponse?: ((request: FastifyRequest, reply: FastifyReply) => void) | undefined;
  tracing?: RequestTracing | undefined;
  /** Whether the instance belongs to a host, whose log and API description must not include the plugin's URLs. */
  isPlugin: boolean;
  /** What the API description of a host says about a route, `undefined` to hide it; absent: it hides every route. */
  describeRoute?: ((route: RouteOptions) => object | undefined) | undefined;
}

export interface RouteRules {
  /** `public`, or an access level for which the context has a guard. */
  access: string;
  /** `false` if the route sets its CORS headers itself. */
  cors?: false;
  /** Whether the route is available in maintenance mode. */
  duringMaintenance?: boolean;
  /** Whether the route is available while the server stops. */
  whileDraining?: boolean;
  /** Requests that do not count towards the request limit: `true` for all. */
  unmetered?: boolean | ((request: FastifyRequest) => boolean);
  /** Whether programs request it all the time, so that a success is not worth a line of the log. */
  isProbe?: boolean;
  /** Whether browsers get errors as HTML pages. */
  page?: boolean;
  /** The scope with which agents and API keys may call the route; absent: people only. */
  agentScope?: string;
  /** Whether an operator who acts as the user may call it. Default: if it only reads, and needs no recent sign-in. */
  whileImpersonated?: boolean;
  /** Whether it changes what opens the account beside the password, for which operators need a session that used a factor. */
  changesFactors?: boolean;
  /** The role that an operator needs. Default: any role to read, the highest one to change. */
  operatorRole?: 'read-only' | 'support' | 'owner';
}

/** The `config` of a route. A route without an access level prevents the start. */
export function access(level: string, more: Omit<RouteRules, 'access'> = {}): FastifyContextConfig {
  return { access: level, ...more } as FastifyContextConfig;
}

/** The rules of a route or of a request's `routeOptions`; empty if no route matched. */
export function routeRules(route: { config?: unknown }): Partial<RouteRules> {
  return (route.config ?? {}) as Partial<RouteRules>;
}

/** The argument of `onRoute` hooks. */
export type AddedRoute = RouteOptions & { routePath: string };

/** Whether a route is the `*` route of @fastify/cors, which has no access level. */
export const isPreflightOfNoRoute = ({ method, routePath }: AddedRoute): boolean =>
  method === 'OPTIONS' && routePath === '*';

/** Inserts a hook before those of a route, but after the one that sets the common headers. */
export function prependHook(route: RouteOptions, hook: onRequestHookHandler | Guard): void {
  const [first = [], ...others] = [route.onRequest ?? []].flat();
  route.onRequest = [first, hook, ...others].flat();
}

/** The client of a request, for services. */
export interface RequestSource {
  ip: string;
  /** The name of the operator, for a change in the console. */
  by?: string;
  /** Whether the client has disconnected, so that work for it can be skipped. */
  isDisconnected(): boolean;
  /** The family of the browser, such as `Firefox`; `undefined` for other programs. */
  browser?(): string | undefined;
  /** Its operating system, such as `Windows`. */
  system?(): string | undefined;
  /** The languages of the reader, as in `Accept-Language`. */
  acceptLanguage?: string | undefined;
}

export function requestSource(request: FastifyRequest): RequestSource {
  return {
    ip: clientAddress(request),
    isDisconnected: () => request.raw.socket.destroyed,
    browser: () => browserFamily(request.headers['user-agent']),
    system: () => systemFamily(request.headers['user-agent']),
    acceptLanguage: request.headers['accept-language'],
  };
}

/** The `next` of requests that arrive through a host's middleware chain. */
export const hostNext = new WeakMap<IncomingMessage, () => void>();

const passedToHost = new WeakSet<FastifyRequest>();

/** Whether a request was passed on to the host, which logs its response. */
export const wasPassedToHost = (request: FastifyRequest): boolean => passedToHost.has(request);

/** Passes a request on to the host, before its body is read. Returns false if it did not arrive through one. */
export function passToHost(request: FastifyRequest, reply: FastifyReply): boolean {
  const next = hostNext.get(request.raw);
  if (!next) return false;
  passedToHost.add(request);
  reply.hijack();
  next();
  return true;
}

/** Registers the routes that `build` adds in an encapsulated context. */
export async function registerRoutes(
  parent: FastifyInstance,
  rules: PluginRules,
  build: (fastify: FastifyTypebox) => Promise<void>,
): Promise<void> {
  const { prefix, handlesNotFound, conflictRemedy } = rules;
  if (handlesNotFound) reserveNotFoundHandler(parent, parent.prefix + prefix);
  const conflicts = watchRouteConflicts(parent, conflictRemedy);
  await parent.register(
    async (instance) => {
      const fastify = instance.withTypeProvider<TypeBoxTypeProvider>();
      setCompilers(fastify);
      setBodyParser(fastify);
      if (rules.isPlugin) nameRoutesInLog(fastify);
      observeResponses(fastify, rules);
      groupResponses(fastify);
      fastify.setErrorHandler((thrown, request, reply) => sendError(rules, thrown, request, reply));
      await fastify.register(async (routes: FastifyTypebox) => {
        guardRoutes(routes, rules, conflicts);
        await build(routes);
      });
      // In a separate context, because its hooks would otherwise also run for the routes.
      if (handlesNotFound)
        await fastify.register(async (unknown: FastifyTypebox) => handleNotFound(unknown, rules));
    },
    { prefix },
  );
}

function observeResponses(fastify: FastifyTypebox, { onResponse, tracing }: PluginRules): void {
  if (!onResponse && !tracing) return;
  fastify.addHook('onResponse', (request, reply, done) => {
    if (!wasPassedToHost(request)) onResponse?.(request, reply);
    tracing?.end(request, reply);
    done();
  });
}

/** Handles unknown paths below the prefix, and methods that a path does not have. */
function handleNotFound(fastify: FastifyTypebox, rules: PluginRules): void {
  fastify.addHook('onRequest', (request, reply, done) => {
    if (!passToHost(request, reply)) done();
  });
  fastify.addHook('onRequest', identifyCaller(rules.callerSecret));
  if (rules.meter) fastify.addHook('onRequest', countRequests(rules.meter));
  fastify.addHook('preParsing', readBody.preParsing);
  respondToUnknown(fastify, rules);
}

/** Hides routes from @fastify/swagger, whose description would fail if the host expects zod schemas. */
const HIDDEN = { hide: true };

/** Prefixes with a 404 handler, by server. */
const reserved = new WeakMap<FastifyInstance['server'], Set<string>>();

/** A second 404 handler for the same prefix would crash the process; this throws an error that explains it. */
function reserveNotFoundHandler({ server }: FastifyInstance, path: string): void {
  const paths = reserved.get(server) ?? new Set();
  if (paths.has(path))
    throw new Error(
      `${path} is already used by another plugin of this package. Mount this one at another path.`,
    );
  reserved.set(server, paths.add(path));
}

function countRequestsOf(
  { meter }: PluginRules,
  unmetered: RouteRules['unmetered'],
): onRequestHookHandler | never[] {
  if (!meter || unmetered === true) return [];
  const count = countRequests(meter);
  if (!unmetered) return count;
  return function (this: FastifyInstance, request, reply, done) {
    if (unmetered(request)) done();
    else count.call(this, request, reply, done);
  };
}

function countRequests(meter: NonNullable<PluginRules['meter']>): onRequestHookHandler {
  return (request, _reply, done) => done(meter(requestSource(request).ip));
}

const budgets = new WeakMap<FastifyRequest, RequestBudget>();

/** Ends the limit of a request for the store after its response. */
const endBudget: onResponseHookHandler = (request, _reply, done) => {
  budgets.get(request)?.end();
  done();
};

/** Applies the limit again after the body was read, because Node.js reads it outside the context of the request. */
const resumeBudget: preValidationHookHandler = (request, _reply, done) => {
  const budget = budgets.get(request);
  if (budget) budget.run(done);
  else done();
};

/**
 * The first hook of a route: sets the common headers, rejects requests while the server stops and begins the limit of the
 * request for the store.
 */
function beginResponse(rules: PluginRules, route: RouteOptions): onRequestHookHandler {
  const { whileDraining } = routeRules(route);
  const { storeTimeoutMs } = rules;
  return (request, reply, done) => {
    rules.observeRequest?.(request);
    setCommonHeaders(rules, request, reply);
    if (rules.isDraining() && !whileDraining) {
      done(httpErrors.NOT_READY({ headers: { connection: 'close' } }));
      return;
    }
    if (storeTimeoutMs === undefined) {
      done();
      return;
    }
    const budget = new RequestBudget(storeTimeoutMs, undefined, request.raw.socket);
    budgets.set(request, budget);
    budget.run(done);
  };
}

/**
 * Adds the guard of its access level to every route, so that the documented access is the enforced one. Before the
 * handler run, in this order:
 *
 * 1. `onRequest`: the hooks of the host; CORS; {@link beginResponse}; the maintenance mode, by {@link prependHook}; `identifyCaller`;
 *    the request limit; the guard; then what the route and other `onRoute` hooks add.
 * 2. `preParsing`: `readBody`; then the parser of the body.
 * 3. `preValidation`: {@link resumeBudget}; `readBody`; what the route and other `onRoute` hooks add; then the schema.
 */
function guardRoutes(fastify: FastifyTypebox, rules: PluginRules, conflicts: RouteConflicts): void {
  const { guards, bodyLimit, isPlugin } = rules;
  fastify.addHook('onRoute', (route: AddedRoute) => {
    if (isPreflightOfNoRoute(route)) return;
    const { access: level, unmetered } = routeRules(route);
    if (level === undefined) throw new Error(`${route.method} ${route.url} does not state config.access.`);
    conflicts.add(route);
    recordMethods(fastify, route);
    route.bodyLimit ??= bodyLimit;
    pinCompilers(route);
    if (isPlugin) route.schema = { ...route.schema, ...(rules.describeRoute?.(route) ?? HIDDEN) };
    const guard = guards[level];
    if (!guard && level !== 'public') {
      throw new Error(`${route.method} ${route.url} asks for the unknown access level '${level}'.`);
    }
    const counter = countRequestsOf(rules, unmetered);
    const begin = beginResponse(rules, route);
    route.onRequest = [
      ...[rules.tracing?.within(begin, isPlugin) ?? begin, identifyCaller(rules.callerSecret)],
      ...[counter, guard ?? [], route.onRequest ?? []].flat(),
    ];
    if (rules.storeTimeoutMs !== undefined) route.onResponse = [route.onResponse ?? [], endBudget].flat();
    if ([route.method].flat().every((method) => METHODS_WITHOUT_BODY.has(method))) return;
    route.preParsing = [readBody.preParsing, route.preParsing ?? []].flat();
    const resume = rules.storeTimeoutMs === undefined ? [] : resumeBudget;
    route.preValidation = [
      rules.tracing?.resume ?? [],
      resume,
      readBody.preValidation,
      route.preValidation ?? [],
    ].flat();
  });
}

/** In a host only: Fastify checks the result of a logger factory for each request, and a server configures its log instead. */
function nameRoutesInLog(fastify: FastifyTypebox): void {
  fastify.setChildLoggerFactory((logger, bindings, options) =>
    logger.child(bindings, { ...options, serializers: { ...options.serializers, req: describeRequest } }),
  );
}
