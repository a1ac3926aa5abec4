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
  RawServerDefault,
  RouteOptions,
} from 'fastify';
import { plainAddress } from '../kernel/addresses.js';
import { type AppError, httpErrors } from '../kernel/errors.js';
import { type AnswerRules, describeRequest, sendError, setCommonHeaders } from './answers.js';
import { readBody, setBodyParser } from './bodies.js';
import { keepCompilers, setCompilers } from './compilers.js';
import { type RouteConflicts, watchRouteConflicts } from './route-conflicts.js';

/**
 * The rules that hold for every route of ours and for none of the host's. Both plugins open their
 * scopes here; what a scope does not set itself it would inherit from the host.
 */

/** A Fastify scope whose routes take their types from TypeBox schemas. */
export type Scope = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** Runs before the body is read and throws an `AppError` to refuse. */
export type Guard = onRequestAsyncHookHandler;

export interface ScopeRules extends AnswerRules {
  /** Absolute path, `''` for the root. */
  prefix: string;
  /** Access level → the guard that enforces it. `public` needs none. */
  guards: Record<string, Guard>;
  /** Unknown paths below the prefix are ours. False where the prefix is the host's root. */
  handlesNotFound: boolean;
  /** Bytes of a body, where the route does not say. */
  bodyLimit: number;
  /** Counts the requests of an address, and refuses it where there were too many; absent: they are not counted. */
  meter?: (ip: string) => AppError | undefined;
  /** What a host's developer can do about a route that the host declares as well, as a sentence. */
  conflictRemedy: string;
  /** Whether the instance is a host's, whose log would name addresses, and whose description of its API our routes. */
  isPlugin: boolean;
}

export interface RouteRules {
  /** Who may call the route: `public`, or a level that the scope has a guard for. */
  access: string;
  /** `false` where an answer says itself which origins may read it. */
  cors?: false;
  /** Whether it works while the operator keeps users out. */
  duringMaintenance?: boolean;
  /** Whether it answers while the server stops. */
  whileDraining?: boolean;
  /** Which of its requests do not count towards the request limit: `true` for all of them. */
  unmetered?: boolean | ((request: FastifyRequest) => boolean);
  /** Whether its errors are pages for those who look at them. */
  page?: boolean;
}

/** What a route says of itself, in its `config`. A route without it does not boot. */
export function access(level: string, more: Omit<RouteRules, 'access'> = {}): FastifyContextConfig {
  return { access: level, ...more } as FastifyContextConfig;
}

/** What a route says of itself; nothing where no route matched. Of a request: its `routeOptions`, which Fastify makes up anew at each look. */
export function routeRules(route: { config?: unknown }): Partial<RouteRules> {
  return (route.config ?? {}) as Partial<RouteRules>;
}

/** A route as `onRoute` hooks get it. */
export type AddedRoute = RouteOptions & { routePath: string };

/** Whether it is the route for `*` that @fastify/cors adds, which states no access level. */
export const isPreflightOfNoRoute = ({ method, routePath }: AddedRoute): boolean =>
  method === 'OPTIONS' && routePath === '*';

/** Makes a route run a hook before those it has, and after what begins every answer. */
export function prependHook(route: RouteOptions, hook: onRequestHookHandler | Guard): void {
  const [begin = [], ...others] = [route.onRequest ?? []].flat();
  route.onRequest = [begin, hook, ...others].flat();
}

/** Where a request comes from, as services know it. */
export interface Origin {
  ip: string;
  /** Whether the client has hung up, so that work for it can be skipped. */
  isDisconnected(): boolean;
}

export function originOf(request: FastifyRequest): Origin {
  // A Unix socket has no address, and a connection that is gone has none any more.
  return { ip: plainAddress(request.ip), isDisconnected: () => request.raw.socket.destroyed };
}

/** For requests that arrive through a host's middleware chain: what hands an unmatched one back to the host. */
export const hostNext = new WeakMap<IncomingMessage, () => void>();

const handedBack = new WeakSet<FastifyRequest>();

/** Whether the request went back to the host, so that what becomes of it is not ours to tell. */
export const wasPassedToHost = (request: FastifyRequest): boolean => handedBack.has(request);

/** Hands a request back to where it came from, before its body is read. False where it came to us alone. */
export function passToHost(request: FastifyRequest, reply: FastifyReply): boolean {
  const next = hostNext.get(request.raw);
  if (!next) return false;
  handedBack.add(request);
  reply.hijack();
  next();
  return true;
}

/** Opens an encapsulated scope under our rules and lets `build` add its routes. */
export async function openScope(
  parent: FastifyInstance,
  rules: ScopeRules,
  build: (scope: Scope) => Promise<void>,
): Promise<void> {
  const { prefix, handlesNotFound, conflictRemedy } = rules;
  if (handlesNotFound) claim(parent, parent.prefix + prefix);
  const conflicts = watchRouteConflicts(parent, conflictRemedy);
  await parent.register(
    async (instance) => {
      const scope = instance.withTypeProvider<TypeBoxTypeProvider>();
      setCompilers(scope);
      setBodyParser(scope);
      if (rules.isPlugin) nameRoutesInLog(scope);
      scope.setErrorHandler((thrown, request, reply) => sendError(rules, thrown, request, reply));
      await scope.register(async (routes: Scope) => {
        guardRoutes(routes, rules, conflicts);
        await build(routes);
      });
      // Beside the routes: hooks for what is not there would run at every one of them, too.
      if (handlesNotFound) await scope.register(async (unknown: Scope) => answerUnknown(unknown, rules));
    },
    { prefix },
  );
}

/** Below the prefix of the scope, where there is no route. */
function answerUnknown(scope: Scope, rules: ScopeRules): void {
  scope.addHook('onRequest', (request, reply, done) => {
    if (!passToHost(request, reply)) done();
  });
  if (rules.meter) scope.addHook('onRequest', metered(rules.meter));
  scope.addHook('preParsing', readBody.preParsing);
  scope.setNotFoundHandler((request, reply) => sendError(rules, httpErrors.NOT_FOUND(), request, reply));
}

/** What @fastify/swagger leaves out. It may take schemas for zod's, and then ours break the whole description. */
const UNLISTED = { hide: true };

/** By server: the paths below which unknown addresses are ours. */
const claimed = new WeakMap<FastifyInstance['server'], Set<string>>();

/** Fastify ends the process over a second 404 handler for the same path; this ends the start with a sentence. */
function claim({ server }: FastifyInstance, path: string): void {
  const paths = claimed.get(server) ?? new Set();
  if (paths.has(path))
    throw new Error(
      `${path} is already used by another plugin of this package. Mount this one at another path.`,
    );
  claimed.set(server, paths.add(path));
}

function meterOf({ meter }: ScopeRules, unmetered: RouteRules['unmetered']): onRequestHookHandler | never[] {
  if (!meter || unmetered === true) return [];
  const count = metered(meter);
  if (!unmetered) return count;
  return function (this: FastifyInstance, request, reply, done) {
    if (unmetered(request)) done();
    else count.call(this, request, reply, done);
  };
}

function metered(meter: NonNullable<ScopeRules['meter']>): onRequestHookHandler {
  return (request, _reply, done) => done(meter(originOf(request).ip));
}

/** The first thing a route does: the headers that every answer carries, and no new work while the server stops. */
function beginAnswer(rules: AnswerRules, route: RouteOptions): onRequestHookHandler {
  const { whileDraining } = routeRules(route);
  return (request, reply, done) => {
    setCommonHeaders(rules, request, reply);
    const isTooLate = rules.isDraining() && !whileDraining;
    done(isTooLate ? httpErrors.NOT_READY({ headers: { connection: 'close' } }) : undefined);
  };
}

/**
 * Puts the guard of its access level in front of every route, and refuses to boot without one: so the
 * list of exposed routes cannot drift from what is enforced.
 */
function guardRoutes(scope: Scope, rules: ScopeRules, conflicts: RouteConflicts): void {
  const { guards, bodyLimit, isPlugin } = rules;
  scope.addHook('onRoute', (route: AddedRoute) => {
    if (isPreflightOfNoRoute(route)) return;
    const { access: level, unmetered } = routeRules(route);
    if (level === undefined) throw new Error(`${route.method} ${route.url} does not state config.access.`);
    conflicts.claim(route);
    route.bodyLimit ??= bodyLimit;
    keepCompilers(route);
    if (isPlugin) route.schema = { ...route.schema, ...UNLISTED };
    const guard = guards[level];
    if (!guard && level !== 'public') {
      throw new Error(`${route.method} ${route.url} asks for the unknown access level '${level}'.`);
    }
    const counted = meterOf(rules, unmetered);
    route.onRequest = [beginAnswer(rules, route), counted, guard ?? [], route.onRequest ?? []].flat();
    if ([route.method].flat().every((method) => BODILESS.has(method))) return;
    route.preParsing = [readBody.preParsing, route.preParsing ?? []].flat();
    route.preValidation = [readBody.preValidation, route.preValidation ?? []].flat();
  });
}

/** Methods of whose requests Fastify reads no body. */
const BODILESS = new Set(['GET', 'HEAD']);

/** Fastify checks what such a factory makes at every request, so a server of our own sets its log up beforehand. */
function nameRoutesInLog(scope: Scope): void {
  scope.setChildLoggerFactory((logger, bindings, options) =>
    logger.child(bindings, { ...options, serializers: { ...options.serializers, req: describeRequest } }),
  );
}
