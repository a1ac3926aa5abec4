import cors from '@fastify/cors';
import type { FastifyRequest, RouteOptions } from 'fastify';
import { type RouteRules, rulesOf, type Scope } from './http.js';

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
  const exceptions = new Map<string, boolean>();
  scope.addHook('onRoute', ({ url, config }: RouteOptions) => {
    const { crossOrigin } = (config ?? {}) as Partial<RouteRules>;
    if (crossOrigin !== undefined) exceptions.set(url, crossOrigin);
  });
  const allowed = origins.includes('*') ? '*' : [...origins];

  await scope.register(cors, {
    delegator: (request: FastifyRequest, done) => {
      // A preflight has a route of its own, so there the address tells which route it asks about.
      const path = request.url.split('?', 1)[0] ?? '';
      const isOpen = rulesOf(request).crossOrigin ?? exceptions.get(path) ?? openByDefault;
      done(null, {
        origin: isOpen ? allowed : false,
        methods: ['GET', 'HEAD', 'POST', 'PATCH', 'DELETE'],
        exposedHeaders: ['Retry-After', 'X-Request-Id', 'WWW-Authenticate'],
      });
    },
  });
}
