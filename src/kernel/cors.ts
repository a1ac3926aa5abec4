import cors, { type FastifyCorsOptions } from '@fastify/cors';
import type { FastifyInstance, RouteHandlerMethod, RouteOptions } from 'fastify';
import { access, type Scope } from './http.js';

/**
 * A scope whose routes pages of other origins may call, with their errors; unknown paths and all other routes stay
 * closed. A host that has @fastify/cors itself keeps its own rules.
 *
 * @param origins exact origins, or `*`; none: pages of our own origin only
 */
export async function openToOrigins(
  parent: Scope,
  origins: readonly string[],
  build: (scope: Scope) => Promise<void>,
): Promise<void> {
  await parent.register(async (scope: Scope) => {
    if (scope.hasRequestDecorator('corsPreflightEnabled')) {
      scope.log.info('The host has registered @fastify/cors, so its rules hold here, too.');
    } else if (origins.length > 0) await allowOrigins(scope, origins);
    await build(scope);
  });
}

async function allowOrigins(scope: Scope, origins: readonly string[]): Promise<void> {
  const answerPreflight = await registerCors(scope, {
    origin: origins.includes('*') ? '*' : [...origins],
    methods: 'GET, HEAD, POST, PATCH, DELETE',
    exposedHeaders: 'Retry-After, X-Request-Id, WWW-Authenticate',
  });
  const asked = new Set<string>();
  scope.addHook('onRoute', function (this: FastifyInstance, route: RouteOptions & { routePath: string }) {
    if (route.method === 'OPTIONS' || asked.has(route.url)) return;
    asked.add(route.url);
    this.options(route.routePath, { config: access('public') }, answerPreflight);
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
