import cors from '@fastify/cors';
import type { FastifyInstance } from 'fastify';
import { type AddedRoute, access, isPreflightOfNoRoute, type Scope } from './scope.js';

/**
 * Opens a scope with CORS for its routes and their errors, but not for unknown paths. If the host has registered
 * @fastify/cors, the host's rules apply instead.
 *
 * @param origins exact origins or `*`; empty: same-origin only
 * @param exposedHeaders which pages may read besides those that every answer may have
 */
export async function registerCors(
  parent: Scope,
  origins: readonly string[],
  build: (scope: Scope) => Promise<void>,
  { exposedHeaders = [] }: { exposedHeaders?: readonly string[] } = {},
): Promise<void> {
  await parent.register(async (scope: Scope) => {
    if (scope.hasRequestDecorator('corsPreflightEnabled')) {
      scope.log.info('The host has registered @fastify/cors; its rules also apply to these routes.');
    } else if (origins.length > 0) await allowOrigins(scope, origins, exposedHeaders);
    await build(scope);
  });
}

const EXPOSED_HEADERS = ['Retry-After', 'X-Request-Id', 'WWW-Authenticate'];

async function allowOrigins(
  scope: Scope,
  origins: readonly string[],
  exposedHeaders: readonly string[],
): Promise<void> {
  answerPreflightsByRoute(scope);
  const isOpen = origins.includes('*');
  await scope.register(cors, {
    origin: isOpen ? '*' : [...origins],
    // For session cookies. Browsers reject credentials for any origin.
    credentials: !isOpen,
    methods: 'GET, HEAD, POST, PATCH, DELETE',
    exposedHeaders: [...EXPOSED_HEADERS, ...exposedHeaders],
    // Preflights reach the OPTIONS routes below, whose responses have the common headers.
    preflightContinue: true,
    // Otherwise the plugin itself would respond to OPTIONS requests without Origin, without those headers.
    strictPreflight: false,
  });
}

/**
 * Adds an OPTIONS route for each path. The `*` route of @fastify/cors would also cover paths without CORS and those of the
 * host, so it is moved to an unused path.
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
