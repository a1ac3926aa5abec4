import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { type AppError, httpErrors } from '../kernel/errors.js';
import { type AnswerRules, sendError } from './answers.js';

/** Requests without a route: 405 if their path has routes for other methods (RFC 9110, section 15.5.6), otherwise 404. */

interface PathMethods {
  url: string;
  segments: string[];
  methods: string[];
}

/** By server, because a scope also handles the unknown requests of other scopes below its prefix. */
const ownRoutes = new WeakMap<FastifyInstance['server'], PathMethods[]>();

/** Must be called for each route, also for those that Fastify adds for HEAD. */
export function recordMethods(
  { server }: FastifyInstance,
  { method, url, routePath }: RouteOptions & { routePath: string },
): void {
  const routes = ownRoutes.get(server) ?? [];
  ownRoutes.set(server, routes);
  // At the prefix of a scope, Fastify may add a second route with a slash without calling hooks.
  for (const path of routePath === '' ? [url, `${url}/`] : [url])
    routes.push({ url: path, segments: path.split('/'), methods: [method].flat() });
}

/** Answers every request of a scope that has no route. */
export function answerUnknown(scope: FastifyInstance, rules: AnswerRules): void {
  const answer = (request: FastifyRequest, reply: FastifyReply) =>
    sendError(rules, errorOf(request), request, reply);
  scope.setNotFoundHandler(answer);
  // Fastify demands a Content-Type of each QUERY request before it calls the handler.
  scope.setErrorHandler<FastifyError>((thrown, request, reply) =>
    thrown.code === 'FST_ERR_ROUTE_MISSING_CONTENT_TYPE'
      ? answer(request, reply)
      : sendError(rules, thrown, request, reply),
  );
}

/** OPTIONS is 404 where CORS is off, and so is a route that a hook of the host hides. */
function errorOf({ server, method, url }: FastifyRequest): AppError {
  const segments = url.split('?', 1).join().split('/');
  const found = (ownRoutes.get(server.server) ?? []).filter((route) => isPathOf(route, segments));
  const allowed = new Set(
    found.flatMap((route) => route.methods.filter((one) => server.hasRoute({ method: one, url: route.url }))),
  );
  if (allowed.size === 0 || allowed.has(method) || method === 'OPTIONS') return httpErrors.NOT_FOUND();
  return httpErrors.METHOD_NOT_ALLOWED({ headers: { allow: [...allowed].sort().join(', ') } });
}

/** Parameters are whole segments, none of which is empty, and no route has a wildcard. */
const isPathOf = ({ segments }: PathMethods, path: string[]): boolean =>
  segments.length === path.length &&
  segments.every(
    (segment, index) => segment === path[index] || (segment.startsWith(':') && path[index] !== ''),
  );
