import cors, { type FastifyCorsOptions } from '@fastify/cors';
import type { FastifyInstance, FastifyRequest, RouteHandlerMethod, RouteOptions } from 'fastify';
import { access, type RouteRules, rulesOf, type Scope } from './http.js';

/**
 * Lets pages of other origins call the routes of a scope; to be called before the routes are added. A route's
 * `crossOrigin` overrides `openByDefault`. A host that has @fastify/cors itself keeps its own rules.
 *
 * @param origins exact origins, or `*`
 */
export async function allowOrigins(
  scope: Scope,
  { origins, openByDefault }: { origins: readonly string[]; openByDefault: boolean },
): Promise<void> {
  if (scope.hasRequestDecorator('corsPreflightEnabled')) {
    scope.log.info('The host has registered @fastify/cors, so its rules hold here, too.');
    return;
  }
  const allowed = origins.includes('*') ? '*' : [...origins];
  const isOpen = ({ crossOrigin = openByDefault }: Partial<RouteRules>) => crossOrigin;
  const answerPreflight = await registerCors(scope, {
    delegator: (request: FastifyRequest, done) =>
      done(null, {
        origin: !request.is404 && isOpen(rulesOf(request)) ? allowed : false,
        methods: ['GET', 'HEAD', 'POST', 'PATCH', 'DELETE'],
        exposedHeaders: ['Retry-After', 'X-Request-Id', 'WWW-Authenticate'],
      }),
  });

  const asked = new Set<string>();
  scope.addHook('onRoute', function (this: FastifyInstance, route: RouteOptions & { routePath: string }) {
    if (
      route.method === 'OPTIONS' ||
      asked.has(route.url) ||
      !isOpen((route.config ?? {}) as Partial<RouteRules>)
    ) {
      return;
    }
    asked.add(route.url);
    this.options(route.routePath, { config: access('public', { crossOrigin: true }) }, answerPreflight);
  });
}

type Preflight = RouteHandlerMethod;

/**
 * @fastify/cors answers preflights with a route for every path, which at the root would be the host's, too. So it
 * gets the scope with an `options` of ours, and its answer becomes a route beside each route it is about.
 */
async function registerCors(scope: Scope, options: FastifyCorsOptions): Promise<Preflight> {
  let preflight: Preflight | undefined;
  const withoutWildcard = Object.create(scope, {
    options: {
      value: (_path: string, _options: unknown, handler: Preflight) => {
        preflight = handler;
      },
    },
  });
  await new Promise<void>((resolve, reject) => {
    cors(withoutWildcard, options, (error) => (error ? reject(error) : resolve()));
  });
  if (!preflight) throw new Error('@fastify/cors has registered no preflight route.');
  return preflight;
}
