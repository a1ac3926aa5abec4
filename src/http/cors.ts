import cors from '@fastify/cors';
import type { FastifyInstance } from 'fastify';
import { type AddedRoute, access, isPreflightOfNoRoute, type Scope } from './scope.js';

/**
 * Opens a scope whose routes pages of other origins may call, with their errors. Unknown paths and all other routes stay
 * closed. A host that has registered @fastify/cors keeps its own rules.
 *
 * @param origins exact origins, or `*`; none: pages of our own origin only
 */
export async function registerCors(
  parent: Scope,
  origins: readonly string[],
  build: (scope: Scope) => Promise<void>,
): Promise<void> {
  await parent.register(async (scope: Scope) => {
    if (scope.hasRequestDecorator('corsPreflightEnabled')) {
      scope.log.info('The host has registered @fastify/cors; its rules also apply to these routes.');
    } else if (origins.length > 0) await allowOrigins(scope, origins);
    await build(scope);
  });
}

async function allowOrigins(scope: Scope, origins: readonly string[]): Promise<void> {
  answerPreflightsByRoute(scope);
  await scope.register(cors, {
    origin: origins.includes('*') ? '*' : [...origins],
    methods: 'GET, HEAD, POST, PATCH, DELETE',
    exposedHeaders: 'Retry-After, X-Request-Id, WWW-Authenticate',
    // Preflights reach their route, which answers with the headers that every answer has.
    preflightContinue: true,
    // It would answer an OPTIONS request without Origin itself, without those headers.
    strictPreflight: false,
  });
}

/**
 * Adds an OPTIONS route for each open path. The route for `*` that @fastify/cors adds would answer for closed paths as
 * well, and at the root of a host for the host's; it is moved to a path that no preflight asks for.
 */
function answerPreflightsByRoute(scope: Scope): void {
  const paths = new Set<string>();
  scope.addHook('onRoute', function (this: FastifyInstance, route: AddedRoute) {
    if (isPreflightOfNoRoute(route)) route.url = `${this.prefix}/.well-known/preflight-of-no-route`;
    if (route.method === 'OPTIONS') return;
    if (paths.has(route.url)) return;
    paths.add(route.url);
    this.options(
      route.routePath,
      { config: access('public', { duringMaintenance: true }) },
      (_request, reply) => reply.code(204).header('content-length', '0').send(),
    );
  });
}
