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
import { setBodyParser } from './bodies.js';
import { setCompilers } from './compilers.js';
import { type AppError, httpErrors, type Rendered, toAppError } from './errors.js';

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

/** How answers look. */
export interface AnswerRules {
  renderError(error: AppError, request: FastifyRequest, requestId: string): Rendered;
  /** The identifier of the answer, never taken from the client. */
  requestId(request: FastifyRequest): string;
  /** Whether the server has begun to stop, so that only what is under way is finished. */
  isDraining(): boolean;
  /** Whether people reach us over https; then browsers are told to insist on it. */
  https(): boolean;
}

export interface ScopeRules extends AnswerRules {
  /** Absolute path, `''` for the root. */
  prefix: string;
  /** Access level → the guard that enforces it. `public` needs none. */
  guards: Record<string, Guard>;
  /** Unknown paths below the prefix are ours. False where the prefix is the host's root. */
  own404: boolean;
  /** Bytes of a body, where the route does not say. */
  bodyLimit: number;
  /** Whether the log is a host's, which would name addresses; ours names routes already. */
  inHostLog: boolean;
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
  /** Whether its requests are not counted against the limit of all requests. */
  unmetered?: boolean;
  /** Whether its errors are pages for those who look at them. */
  page?: boolean;
}

/** What a route says of itself, in its `config`. A route without it does not boot. */
export function access(level: string, more: Omit<RouteRules, 'access'> = {}): FastifyContextConfig {
  return { access: level, ...more } as FastifyContextConfig;
}

/** What a route says of itself; nothing where no route matched. Of a request: its `routeOptions`, which Fastify makes up anew at each look. */
export function rulesOf(route: { config?: unknown }): Partial<RouteRules> {
  return (route.config ?? {}) as Partial<RouteRules>;
}

/** Makes a route run a hook before those it has. */
export function prependHook(route: RouteOptions, hook: onRequestHookHandler | Guard): void {
  route.onRequest = [hook, ...[route.onRequest ?? []].flat()];
}

/** Where a request comes from, as services know it. */
export interface Origin {
  ip: string;
  /** Whether the client has hung up, so that work for it can be skipped. */
  isGone(): boolean;
}

export function originOf(request: FastifyRequest): Origin {
  // A Unix socket has no address, and a connection that is gone has none any more.
  return { ip: request.ip ?? 'unknown', isGone: () => request.raw.socket.destroyed };
}

/** For requests that arrive through a host's middleware chain: hands an unmatched one back to the host. */
export const fallThrough = new WeakMap<IncomingMessage, () => void>();

const ONE_YEAR = 31_536_000;

const COMMON_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** Opens an encapsulated scope under our rules and lets `build` add its routes. */
export async function openScope(
  parent: FastifyInstance,
  rules: ScopeRules,
  build: (scope: Scope) => Promise<void>,
): Promise<void> {
  await parent.register(
    async (instance) => {
      const scope = instance.withTypeProvider<TypeBoxTypeProvider>();
      setCompilers(scope);
      setBodyParser(scope);
      guardRoutes(scope, rules);
      scope.addHook('onRequest', (request, reply, done) => beginAnswer(rules, request, reply, done));
      if (rules.inHostLog) nameRoutesInLog(scope);
      scope.setErrorHandler((thrown, request, reply) => sendError(rules, thrown, request, reply));
      if (rules.own404) {
        scope.setNotFoundHandler((request, reply) =>
          sendError(rules, httpErrors.NOT_FOUND(), request, reply),
        );
      }
      await build(scope);
    },
    { prefix: rules.prefix },
  );
}

/** Headers that every answer carries, and the refusals that need no body. */
function beginAnswer(
  rules: ScopeRules,
  request: FastifyRequest,
  reply: FastifyReply,
  done: (refusal?: AppError) => void,
): void {
  const next = request.is404 ? fallThrough.get(request.raw) : undefined;
  if (next) {
    reply.hijack();
    next();
    return;
  }
  setCommonHeaders(rules, request, reply);
  const isTooLate = rules.isDraining() && !rulesOf(request.routeOptions).whileDraining;
  done(isTooLate ? httpErrors.NOT_READY({ headers: { connection: 'close' } }) : undefined);
}

function setCommonHeaders(
  { requestId, https }: AnswerRules,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  reply.headers(COMMON_HEADERS).header('x-request-id', requestId(request));
  if (https()) reply.header('strict-transport-security', `max-age=${ONE_YEAR}`);
}

/** Answers what the router refused before it reached any scope. */
export function refuse(
  rules: AnswerRules,
  error: AppError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  setCommonHeaders(rules, request, reply);
  return sendError(rules, error, request, reply);
}

/**
 * Puts the guard of its access level in front of every route, and refuses to boot without one: so the
 * list of exposed routes cannot drift from what is enforced.
 */
function guardRoutes(scope: Scope, { guards, bodyLimit }: ScopeRules): void {
  scope.addHook('onRoute', (route: RouteOptions) => {
    const level = rulesOf(route).access;
    if (level === undefined) throw new Error(`${route.method} ${route.url} does not state config.access.`);
    route.bodyLimit ??= bodyLimit;
    if (level === 'public') return;
    const guard = guards[level];
    if (!guard) throw new Error(`${route.method} ${route.url} asks for the unknown access level '${level}'.`);
    prependHook(route, guard);
  });
}

/** Fastify checks what such a factory makes at every request, so a server of our own sets its log up beforehand. */
function nameRoutesInLog(scope: Scope): void {
  scope.setChildLoggerFactory((logger, bindings, options) =>
    logger.child(bindings, { ...options, serializers: { ...options.serializers, req: describeRequest } }),
  );
}

/** Log lines name the route, not the address: queries and paths carry tokens, codes and invitations. */
export function describeRequest(request: FastifyRequest): Record<string, unknown> {
  return { method: request.method, route: request.routeOptions?.url ?? null, ip: request.ip };
}

function sendError(
  rules: AnswerRules,
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const error = toAppError(thrown);
  const requestId = String(reply.getHeader('x-request-id') ?? rules.requestId(request));
  const isOnPurpose = error.statusCode === 503;
  const err = error.cause ?? error;
  // Everything but a 503 is ours to find. One without a cause is a rule at work, and under a flood a line for each
  // refusal would cost more than the refusal; the line about the request tells of it.
  if (error.statusCode >= 500 && !(isOnPurpose && err === error)) {
    request.log[isOnPurpose ? 'warn' : 'error']({ err, req: request, requestId }, error.message);
  }
  const { type, body, headers } = rules.renderError(error, request, requestId);
  return reply
    .code(error.statusCode)
    .headers({ ...headers, ...error.headers })
    .type(type)
    .send(body);
}
