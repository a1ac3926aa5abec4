import type { FastifyInstance, FastifyRequest } from 'fastify';
import { answerRules, type HostContext } from '../core/http/host-context.js';
import { createRouteDescriptions, openApiPlugin } from '../core/http/openapi.js';
import type { Pages } from '../core/http/pages.js';
import { openScope, type ScopeRules } from '../core/http/scope.js';
import { healthPlugin } from '../core/ops/health.js';
import { type Metrics, metricsPlugin } from '../core/ops/metrics.js';
import type { ModuleContext } from '../core/server/module-context.js';
import { followHostProxy } from '../core/server/proxies.js';
import type { Store } from '../core/storage/collection.js';
import { entrancePlugin } from './account.js';
import { createErrorRenderer } from './appearance.js';
import { CONSOLE_PATH } from './console/guard.js';
import type { IdpModules } from './modules.js';
import { mountPath } from './oidc/sessions.js';
import type { ResolvedIdp } from './options.js';

export interface IdpScopesOptions {
  runtime: Pick<ResolvedIdp['runtime'], 'prefix' | 'console' | 'openapi' | 'proxyVariable'>;
  host: HostContext;
  pages: Pages;
  store: Store;
  metrics: Metrics | undefined;
  throttle: ModuleContext['throttle'];
  /** The secret of server-side callers; absent: there are none. */
  callerSecret: string | undefined;
  /** Whether a server of this package registers the plugin, which has the routes at the root. */
  isServer: boolean;
  /** Whether no other product has pages at these paths. */
  ownsItsPaths: boolean;
  hasAccountPages: boolean;
  /** Whether developers can read the OpenAPI document as a page. */
  hasApiDocs: boolean;
}

/** Opens the scope of the provider, that of its console, and that of the metadata of an issuer with a path. */
export async function openIdpScopes(
  fastify: FastifyInstance,
  modules: IdpModules,
  options: IdpScopesOptions,
): Promise<void> {
  const { provisioning, resources, email, oidc, registration, account, operators, signIn } = modules;
  const { runtime, host, pages, store, metrics, isServer, ownsItsPaths, hasAccountPages } = options;
  const { prefix } = runtime;
  const issuer = host.publicUrl.get;
  const rules: ScopeRules = {
    ...answerRules(host),
    prefix,
    conflictRemedy: 'Mount the identity provider at another path with the prefix option.',
    guards: { ...provisioning.guards, ...oidc.guards, ...registration?.guards, ...account.guards },
    observeRequest: isServer
      ? undefined
      : followHostProxy(fastify, { variable: 'IDP_TRUST_PROXY', value: runtime.proxyVariable }),
    onResponse: metrics?.observeResponse,
    renderError: createErrorRenderer(pages),
    meter: options.throttle.countRequest,
    callerSecret: options.callerSecret,
    storeTimeoutMs: store.requestTimeoutMs,
    bodyLimit: 16 * 1024,
    // At the root of a host, the host handles unknown paths.
    handlesNotFound: prefix !== '',
    isPlugin: !isServer,
    describeRoute: runtime.openapi
      ? await createRouteDescriptions('idp', (url) => url.slice((fastify.prefix + prefix).length))
      : undefined,
  };
  await openScope(fastify, rules, async (scope) => {
    const sessionOf = async (request: FastifyRequest) => (await signIn.userOf(request))?.principal ?? null;
    await scope.register(provisioning.plugin, { pages, hasAccountPages, sessionOf });
    await scope.register(resources.plugin);
    if (email) await scope.register(email.plugin);
    await scope.register(oidc.plugin, { pages });
    if (registration) await scope.register(registration.plugin);
    await scope.register(account.plugin, { prefix: '/account' });
    if (hasAccountPages)
      await scope.register(entrancePlugin, { own: signIn, mount: () => mountPath(issuer()) });
    if (ownsItsPaths) {
      const mounts = [{ path: '', routesAt: fastify.prefix + prefix, reachedAt: () => '' }];
      await scope.register(openApiPlugin, { product: 'idp', serverUrl: issuer, mounts });
      if (options.hasApiDocs) {
        const { apiDocsPlugin } = await import('../core/http/api-docs.js');
        await scope.register(apiDocsPlugin, { product: 'idp' });
      }
    }
    if (prefix !== '') await scope.register(healthPlugin, { store, wrap: (state) => state });
    // At the root, the server has the route.
    if (metrics && (prefix !== '' || !isServer)) await scope.register(metricsPlugin, { metrics });
  });
  if (runtime.console ?? ownsItsPaths) {
    const consoleRules: ScopeRules = {
      ...rules,
      prefix: prefix + CONSOLE_PATH,
      guards: operators.guards,
      conflictRemedy:
        'Mount the identity provider at another path with the prefix option, or leave out its console with console: false.',
      handlesNotFound: false,
    };
    await openScope(fastify, consoleRules, operators.plugin);
  }
  // RFC 8414 §3.1 inserts the well-known part before the path of the issuer, which only the root of a host can serve.
  if (new URL(issuer()).pathname !== '/' && fastify.prefix === '') {
    await openScope(fastify, { ...rules, prefix: '', handlesNotFound: false }, async (scope) => {
      await scope.register(oidc.pathMetadataPlugin);
    });
  }
}
