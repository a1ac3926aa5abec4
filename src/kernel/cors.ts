import cors, { type FastifyCorsOptions } from '@fastify/cors';
import type { FastifyInstance, onRequestHookHandler, RouteHandlerMethod, RouteOptions } from 'fastify';
import { access, prependHook, rulesOf, type Scope } from './http.js';

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
  const { judge, answerPreflight } = await loadCors(scope, {
    origin: origins.includes('*') ? '*' : [...origins],
    methods: 'GET, HEAD, POST, PATCH, DELETE',
    exposedHeaders: 'Retry-After, X-Request-Id, WWW-Authenticate',
  });
  const asked = new Set<string>();
  scope.addHook('onRoute', function (this: FastifyInstance, route: RouteOptions & { routePath: string }) {
    if (rulesOf(route).cors !== false) prependHook(route, judge);
    if (route.method === 'OPTIONS' || asked.has(route.url)) return;
    asked.add(route.url);
    this.options(route.routePath, { config: access('public') }, answerPreflight);
  });
}

interface Cors {
  judge: onRequestHookHandler;
  answerPreflight: RouteHandlerMethod;
}

/**
 * @fastify/cors answers preflights with a route for every path, which at the root would be the host's, too. So it
 * gets the scope with an `options` and an `addHook` of ours, and what it would add for all goes to single routes.
 */
async function loadCors(scope: Scope, options: FastifyCorsOptions): Promise<Cors> {
  const found: Partial<Cors> = {};
  const withoutRoutes = Object.create(scope, {
    addHook: {
      value: (_name: string, judge: Cors['judge']) => {
        found.judge = judge;
      },
    },
    options: {
      value: (_path: string, _options: unknown, answerPreflight: Cors['answerPreflight']) => {
        found.answerPreflight = answerPreflight;
      },
    },
  });
  await new Promise<void>((resolve, reject) => {
    cors(withoutRoutes, options, (error) => (error ? reject(error) : resolve()));
  });
  if (!found.judge || !found.answerPreflight) throw new Error('@fastify/cors has changed what it registers.');
  return found as Cors;
}
